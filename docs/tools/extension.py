"""The extension of griffe that ``mkdocs.yml`` names. mkdocstrings reads docstrings with griffe."""

from __future__ import annotations

from typing import Any

import griffe
from docs.tools.docstrings import readable


class Readable(griffe.Extension):
    """Links in place of roles, fences around examples, tables of Markdown, and descriptions of parameters."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = readable(obj.docstring.value)
