"""Conditions on payload fields in SQL: how fields are stored, and which rows a condition selects.

The table ``fields`` has a row (name, type, value, seq) for each field at the top of a payload that holds a
scalar. Its key makes a condition a range of the table. Values are compared by SQLite as
:func:`posh.collection.filters.passes` does: only within a type, integers and floats exactly, strings by the
bytes of UTF-8, whose order is that of code points. Nothing that users write becomes part of a statement.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from posh.collection.filters import OneOf, Range, Scalar, scalar_type

__all__ = ["Condition", "fields_of", "selections"]

Condition = OneOf | Range
Field = tuple[str, int, str | int | float]

_TYPES = {"null": 0, "boolean": 1, "number": 2, "string": 3}
_SIGNS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}


def fields_of(payload: dict[str, Any]) -> list[Field]:
    """What of a payload can be asked for: name, type and value.

    >>> fields_of({"label": 3, "tags": ["a", "b"], "sold": False})
    [('label', 2, 3), ('sold', 1, 0)]
    """
    return [(name, *_stored(value)) for name, value in payload.items() if scalar_type(value) is not None]


def selections(condition: Condition, after: int = 0) -> Iterator[tuple[str, list[Any]]]:
    """Statements, with their parameters, that give the seqs above ``after`` of which a condition is true.

    >>> list(selections(OneOf("label", (3,))))
    [('SELECT seq FROM fields WHERE name = ? AND type = ? AND value IN (?) AND seq > ?', ['label', 2, 3, 0])]
    """
    start = "SELECT seq FROM fields WHERE name = ? AND type = ? AND value"
    if isinstance(condition, Range):
        kind, bound = _stored(condition.bound)
        sign = _SIGNS[condition.operator]
        yield f"{start} {sign} ? AND seq > ?", [condition.field, kind, bound, after]
        return
    by_type: dict[int, list[Any]] = {}
    for value in condition.values:
        kind, stored = _stored(value)
        by_type.setdefault(kind, []).append(stored)
    for kind, values in by_type.items():
        places = ", ".join("?" * len(values))
        yield f"{start} IN ({places}) AND seq > ?", [condition.field, kind, *values, after]


def _stored(value: Scalar) -> tuple[int, str | int | float]:
    kind = _TYPES[scalar_type(value) or "null"]
    if value is None or isinstance(value, bool):
        return kind, int(bool(value))
    return kind, value
