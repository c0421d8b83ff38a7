"""Conditions on payload fields in SQL: how fields are stored, and which rows a condition selects.

The table ``fields`` has a row (name, type, value, seq) for each field of a payload that holds a scalar, and
for each scalar in a list of up to 100 values; the types of these are larger by 4. The primary key makes a
condition a range of the table. Conditions on one field are looked up together, so each row of the field is
read once. SQLite compares values as
:func:`posh.collection.filters.passes` does: only within a type, integers and floats exactly, strings by the
bytes of UTF-8, which gives the order of code points. No text of a user becomes part of a statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from posh.collection.filters import Condition, Contains, OneOf, Range
from posh.collection.values import Scalar, is_list, named_values, scalar_type

__all__ = ["Column", "columns", "fields_of"]

Field = tuple[str, int, str | int | float]

_TYPES = {"null": 0, "boolean": 1, "number": 2, "string": 3}
_IN_LIST = 4  # added to the type of a value in a list


def fields_of(payload: dict[str, Any]) -> list[Field]:
    """Return the fields of a payload that filters can ask for: name, type and value.

    >>> fields_of({"label": 3, "tags": ["a", "b"], "sold": False})
    [('label', 2, 3), ('tags', 7, 'a'), ('tags', 7, 'b'), ('sold', 1, 0)]
    """
    found: dict[Field, None] = {}  # a list, or an object beside a name with a dot, may have a value twice
    for name, value in named_values(payload):
        if scalar_type(value) is not None:
            found[(name, *_typed(value))] = None
        elif is_list(name, value):
            for one in value:
                if scalar_type(one) is not None:
                    kind, stored = _typed(one)
                    found[name, kind + _IN_LIST, stored] = None
    return list(found)


class Column(NamedTuple):
    """The rows of one field and one type, divided into parts for some conditions.

    The ``points`` are the values and bounds of the conditions, ascending. They divide the rows into parts:
    part ``2 i + 1`` has the rows that equal point ``i``, part ``2 i`` those between it and the point before.
    ``spans`` say for which parts a condition is true: (number of the condition, first part, last part + 1).
    """

    field: str
    kind: int
    points: list[Any]
    spans: list[tuple[int, int, int]]

    def selections(self, after: int = 0) -> Iterator[tuple[int, str, list[Any]]]:
        """Yield the parts that are in a span, each with a statement for its seqs above ``after``.

        The statement gives the seqs as one text, with commas, and their count. So SQLite goes through all
        rows in one step. Row by row, it would take the interpreter's lock from other threads for each row.

        >>> (column,) = columns([Range("price", "lte", 20)])
        >>> [(part, values) for part, statement, values in column.selections()]
        [(0, ['price', 2, 20, 0]), (1, ['price', 2, 20, 0])]
        """
        start = "SELECT group_concat(seq), count(*) FROM fields WHERE name = ? AND type = ?"
        for part in sorted({part for _, first, end in self.spans for part in range(first, end)}):
            clause, values = self._part(part)
            yield part, f"{start} {clause} AND seq > ?", [self.field, self.kind, *values, after]

    def _part(self, part: int) -> tuple[str, list[Any]]:
        i, is_point = divmod(part, 2)
        if is_point:
            return "AND value = ?", [self.points[i]]
        above, below = self.points[:i][-1:], self.points[i : i + 1]
        return "AND value > ? " * len(above) + "AND value < ?" * len(below), above + below


def columns(conditions: Sequence[Condition]) -> list[Column]:
    """Return the columns that conditions on one field need, one for each type of value.

    >>> columns([OneOf("label", (3, 7)), Range("label", "gte", 5)])
    [Column(field='label', kind=2, points=[3, 5, 7], spans=[(0, 1, 2), (0, 5, 6), (1, 3, 7)])]
    """
    by_kind: dict[int, dict[Any, None]] = {}
    for condition in conditions:
        for kind, stored in _typed_values(condition):
            by_kind.setdefault(kind, {})[stored] = None
    found = []
    for kind, values in by_kind.items():
        points = sorted(values)
        position = {value: i for i, value in enumerate(points)}
        spans = [
            (number, *_span(condition, position[stored], len(points)))
            for number, condition in enumerate(conditions)
            for its_kind, stored in _typed_values(condition)
            if its_kind == kind
        ]
        found.append(Column(conditions[0].field, kind, points, spans))
    return found


def _typed_values(condition: Condition) -> list[tuple[int, str | int | float]]:
    match condition:
        case OneOf(_, values):
            return [_typed(value) for value in values]
        case Contains(_, value):
            kind, stored = _typed(value)
            return [(kind + _IN_LIST, stored)]
        case Range(_, _, bound):
            return [_typed(bound)]


def _span(condition: Condition, i: int, n: int) -> tuple[int, int]:
    match condition.operator if isinstance(condition, Range) else "eq":
        case "eq":
            return 2 * i + 1, 2 * i + 2
        case "gt":
            return 2 * i + 2, 2 * n + 1
        case "gte":
            return 2 * i + 1, 2 * n + 1
        case "lt":
            return 0, 2 * i + 1
        case _:
            return 0, 2 * i + 2


def _typed(value: Scalar) -> tuple[int, str | int | float]:
    return _TYPES[scalar_type(value) or "null"], _stored(value)


def _stored(value: Scalar) -> str | int | float:
    return int(bool(value)) if value is None or isinstance(value, bool) else value
