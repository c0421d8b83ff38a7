"""Extension of griffe, with which mkdocstrings reads docstrings; named in ``mkdocs.yml``."""

from __future__ import annotations

from typing import Any

import griffe
from docs.tools.docstrings import readable


class Readable(griffe.Extension):
    """Converts roles, examples, tables and parameters of docstrings to Markdown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = readable(obj.docstring.value)
