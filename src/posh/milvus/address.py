"""Addresses of collections on Milvus, for the command line and ``posh.open``."""

from __future__ import annotations

__all__ = ["is_address", "parse_address"]

_PREFIX = "milvus:"


def is_address(text: object) -> bool:
    """Whether a text is the address of a collection on Milvus, right or wrong, and not a path.

    >>> is_address("milvus:shop.db#articles"), is_address("shop")
    (True, False)
    """
    return isinstance(text, str) and text.startswith(_PREFIX)


def parse_address(text: str) -> tuple[str, str]:
    """Return the address of Milvus and the name of the collection.

    >>> parse_address("milvus:http://127.0.0.1:19530#articles")
    ('http://127.0.0.1:19530', 'articles')
    """
    uri, sign, name = text.removeprefix(_PREFIX).rpartition("#")
    if not (uri and sign and name):
        raise ValueError(
            f"expected milvus:ADDRESS#NAME, such as milvus:shop.db#articles, got {text!r:.80}: "
            "add what is missing"
        )
    return uri, name
