"""Values of payloads: their types, and how filters reach them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import NoneType
from typing import Any

__all__ = ["Scalar", "is_list", "named_values", "scalar_type", "values_of"]

Scalar = str | int | float | bool | None

# Each value in a list, and each field of an object, has a row with its name in the index of filters. These
# bounds keep the index in proportion to the payload.
_ELEMENTS = 100
_NAME = 128
_SCALAR_TYPES = {NoneType: "null", bool: "boolean", int: "number", float: "number", str: "string"}


def scalar_type(value: Any) -> str | None:
    """Return ``"null"``, ``"boolean"``, ``"number"`` or ``"string"``; None if the value is no scalar."""
    kind = _SCALAR_TYPES.get(type(value))
    if kind is None:  # perhaps a subclass: this is slower, and rare
        kind = next((name for base, name in _SCALAR_TYPES.items() if isinstance(value, base)), None)
    return kind


def values_of(payload: Mapping[str, Any], field: str) -> Iterator[Any]:
    """Yield what a payload has under the name of a field; ``"a.b"`` is also ``b`` in the object ``a``.

    >>> list(values_of({"a": {"b": 3}, "a.b": [4]}, "a.b"))
    [[4], 3]
    """
    if field in payload:
        yield payload[field]
    start = field.find(".") if len(field) <= _NAME else -1
    while start >= 0:
        inner = payload.get(field[:start])
        if isinstance(inner, Mapping):
            yield from values_of(inner, field[start + 1 :])
        start = field.find(".", start + 1)


def named_values(payload: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all fields of a payload with their names, those of objects within it too.

    >>> list(named_values({"a": {"b": 3, "c": [4]}}))
    [('a', {'b': 3, 'c': [4]}), ('a.b', 3), ('a.c', [4])]
    """
    for key, value in payload.items():
        is_short = len(before) + len(key) <= _NAME
        name = f"{before}{key}" if is_short else key
        if is_short or not before:
            yield name, value
        if is_short and isinstance(value, Mapping):
            yield from named_values(value, f"{name}.")


def is_list(name: str, value: Any) -> bool:
    """Whether filters look at the values in a list: up to 100 values, under a name of 128 characters."""
    return isinstance(value, list) and len(value) <= _ELEMENTS and len(name) <= _NAME
