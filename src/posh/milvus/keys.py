"""The ids of items as primary keys of Milvus, which are strings.

All characters but letters, digits and ``_.-~`` are written as ``%`` and two hexadecimal digits. So a key can
be a part of an expression as it is: it has no quotes, no backslashes and no control characters.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote, unquote

from posh.collection.types import Id

__all__ = ["MAX_KEY", "among", "id_of", "key_of"]

MAX_KEY = 8192  # bytes; an id of 512 characters takes up to 6,146


def key_of(item_id: Id) -> str:
    """Return the key of an id.

    >>> key_of(-5), key_of("-5"), key_of("it's")
    ('i:-5', 's:-5', 's:it%27s')
    """
    return f"i:{item_id}" if isinstance(item_id, int) else f"s:{quote(item_id, safe='')}"


def id_of(key: str) -> Id:
    """Return the id of a key.

    >>> id_of("i:-5"), id_of("s:it%27s")
    (-5, "it's")
    """
    return int(key[2:]) if key.startswith("i:") else unquote(key[2:])


def among(keys: Iterable[str]) -> str:
    """Return the expression for the rows with these keys.

    >>> print(among(["i:1", "s:a"]))
    id in ["i:1", "s:a"]
    """
    return "id in [" + ", ".join(f'"{key}"' for key in keys) + "]"
