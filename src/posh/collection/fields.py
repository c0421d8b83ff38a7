"""Fields of payloads: the types of their values, how filters reach them, and how the database stores them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import NoneType
from typing import Any

__all__ = ["Scalar", "find_values", "is_list", "iterate_fields", "list_fields", "scalar_type"]

Scalar = str | int | float | bool | None

# Each value in a list, and each field of an object, has a row with its name in the index of filters. These
# bounds keep the index in proportion to the payload.
_ELEMENTS = 100
_NAME = 128
_SCALAR_TYPES = {NoneType: "null", bool: "boolean", int: "number", float: "number", str: "string"}


def scalar_type(value: Any) -> str | None:
    """Return ``"null"``, ``"boolean"``, ``"number"`` or ``"string"``; None if the value is not a scalar."""
    kind = _SCALAR_TYPES.get(type(value))
    if kind is None:  # perhaps a subclass: this is slower, and rare
        kind = next((name for base, name in _SCALAR_TYPES.items() if isinstance(value, base)), None)
    return kind


def find_values(payload: Mapping[str, Any], field: str) -> Iterator[Any]:
    """Yield what a payload has under the name of a field; ``"a.b"`` is also ``b`` in the object ``a``.

    >>> list(find_values({"a": {"b": 3}, "a.b": [4]}, "a.b"))
    [[4], 3]
    """
    if field in payload:
        yield payload[field]
    start = field.find(".") if len(field) <= _NAME else -1
    while start >= 0:
        inner = payload.get(field[:start])
        if isinstance(inner, Mapping):
            yield from find_values(inner, field[start + 1 :])
        start = field.find(".", start + 1)


def iterate_fields(payload: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all fields of a payload with their names, those of objects within it too.

    >>> list(iterate_fields({"a": {"b": 3, "c": [4]}}))
    [('a', {'b': 3, 'c': [4]}), ('a.b', 3), ('a.c', [4])]
    """
    for key, value in payload.items():
        is_short = len(before) + len(key) <= _NAME
        name = f"{before}{key}" if is_short else key
        if is_short or not before:
            yield name, value
        if is_short and isinstance(value, Mapping):
            yield from iterate_fields(value, f"{name}.")


def is_list(name: str, value: Any) -> bool:
    """Whether filters look at the values in a list: up to 100 values, under a name of 128 characters."""
    return isinstance(value, list) and len(value) <= _ELEMENTS and len(name) <= _NAME


Field = tuple[str, int, str | int | float]

_TYPES = {"null": 0, "boolean": 1, "number": 2, "string": 3}
_IN_LIST = 4  # added to the type of a value in a list


def list_fields(payload: dict[str, Any]) -> list[Field]:
    """Return the fields of a payload that filters can ask for: name, type and value.

    >>> list_fields({"label": 3, "tags": ["a", "b"], "sold": False})
    [('label', 2, 3), ('tags', 7, 'a'), ('tags', 7, 'b'), ('sold', 1, 0)]
    """
    found: dict[Field, None] = {}  # a list, or an object beside a name with a dot, may have a value twice
    for name, value in iterate_fields(payload):
        if scalar_type(value) is not None:
            found[(name, *to_stored(value))] = None
        elif is_list(name, value):
            for one in value:
                if scalar_type(one) is not None:
                    kind, stored = to_stored(one)
                    found[name, kind + _IN_LIST, stored] = None
    return list(found)


def to_stored(value: Scalar) -> tuple[int, str | int | float]:
    return _TYPES[scalar_type(value) or "null"], _to_number(value)


def _to_number(value: Scalar) -> str | int | float:
    return int(bool(value)) if value is None or isinstance(value, bool) else value
