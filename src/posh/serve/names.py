"""Names of collections, which are names of folders and parts of addresses too."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["PATTERN", "checked", "is_name"]

PATTERN = "[a-z0-9][a-z0-9_-]{0,63}"


def is_name(value: Any) -> bool:
    """Whether a collection can be called so."""
    return isinstance(value, str) and re.fullmatch(PATTERN, value) is not None


def checked(value: Any) -> str:
    """The name, if a collection can be called so.

    >>> checked("glove-100")
    'glove-100'
    """
    if not is_name(value):
        raise ValueError(
            "expected a name of 1 to 64 of the characters a-z, 0-9, _ and -, no _ or - in front, "
            f"got {value!r:.80}"
        )
    return str(value)
