"""The contract of files of vectors: what columns a file has, and its rows in batches."""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple
from uuid import UUID

from numpy.typing import NDArray

from posh.errors import FormatError

__all__ = ["Batch", "Column", "Kind", "Roles", "RowError", "Stray", "StraySearch", "VectorFile"]
__all__ += ["number_of", "payload_of", "payloads_of", "plain"]

Kind = Literal["vectors", "integers", "numbers", "text", "others", "bytes"]
_DEEPEST = 100  # levels of a payload that are looked at; a collection refuses what is nested far less deep
PAYLOAD = "payload"  # a column of this name that has objects, or their JSON, is the payload itself
PAYLOAD_ENDS = "payload_ends"  # in npz files, where the payload is one array with the bytes of all rows
_NUMBERS_PER_STRAY = 10  # with more strays, a column is one of text, such as house numbers: 12, 14b
_NUMBERED = re.compile(r"(.*?)(\d{1,18})")
_DECIMAL = re.compile(r"[-+]?(\d*\.)?\d+([eE][-+]?\d+)?")


class Stray(NamedTuple):
    """A value that is no number, in a column whose other values are numbers, all or nearly all."""

    row: int
    value: Any


class Column(NamedTuple):
    """A column of a file: its name, what it may be used for, its type as people read it, and its length.

    ``stray`` is the first value that keeps a column of numbers from being one, if the reader looks for it.
    """

    name: str
    kind: Kind
    type: str
    n_rows: int
    stray: Stray | None = None


@dataclass
class StraySearch:
    """Finds the stray of a column, value by value. Gaps, such as NaN, are strays, too, and may be many."""

    n_numbers: int = 0
    n_others: int = 0
    first: Stray | None = None

    def add(self, row: int, value: Any, *, gap: bool) -> None:
        """Count a value that is no number."""
        self.n_others += not gap
        self.first = self.first or Stray(row, value)

    def found(self) -> Stray | None:
        """Return the first stray; None if too few values are numbers to call the column one of numbers."""
        few = max(1, self.n_numbers // _NUMBERS_PER_STRAY)
        return self.first if self.n_numbers and self.n_others <= few else None


class Roles(NamedTuple):
    """Which columns are what.

    ``vector`` is one column of vectors, or several columns of numbers. Without ``id``, the ids are the
    numbers of the rows. ``payload`` None stands for all other columns, also those that only later rows have.
    """

    vector: tuple[str, ...]
    id: str | None
    payload: tuple[str, ...] | None


class Batch(NamedTuple):
    """Some rows of a file.

    ``vectors`` are an array (n, d), or a list of n things that may be vectors: nobody has checked them.
    ``ids`` are None if the numbers of the rows are the ids.
    """

    first_row: int
    vectors: NDArray[Any] | list[Any]
    ids: list[Any] | None
    payloads: list[dict[str, Any]]


class RowError(FormatError):
    """A row of a file cannot be read; rows are counted from 0."""

    def __init__(self, path: Path, row: int, problem: str) -> None:
        super().__init__(f"{path}: row {row}: {problem}")
        self.path, self.row, self.problem = path, row, problem

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.row, self.problem)


class VectorFile(ABC):
    """An open file of vectors. Its rows are never in memory all at once."""

    path: Path
    columns: list[Column]

    @abstractmethod
    def batches(self, roles: Roles, n: int) -> Iterator[Batch]:
        """Yield the rows, up to n at once. A row that cannot be read is a :class:`RowError`.

        All rows before that row are yielded first.
        """

    def column(self, name: str) -> Column:
        """Return the column of this name."""
        return next(column for column in self.columns if column.name == name)

    def n_rows(self, roles: Roles) -> int:
        """Return the number of rows."""
        return self.column(roles.vector[0]).n_rows

    def payload_names(self, roles: Roles) -> tuple[str, ...]:
        """Return the columns of the payload: by default all others, as long as the column of vectors."""
        if roles.payload is not None:
            return roles.payload
        used, n_rows = {*roles.vector, roles.id}, self.n_rows(roles)
        return tuple(
            column.name
            for column in self.columns
            if column.name not in used and column.n_rows == n_rows and column.kind not in ("vectors", "bytes")
        )


def number_of(name: str) -> tuple[str, int | None]:
    """Return the family of a numbered column and its number; other columns have none.

    >>> number_of("x12"), number_of("12"), number_of("x"), number_of("-0.12")
    (('x', 12), ('', 12), ('x', None), ('-0.12', None))
    """
    found = _NUMBERED.fullmatch(name)
    if found is None or (found[1] and _DECIMAL.fullmatch(name)):  # a decimal is a value, not a name
        return name, None
    return found[1], int(found[2])


def payloads_of(columns: Mapping[str, Sequence[Any]], n: int) -> list[dict[str, Any]]:
    """Return the payloads of n rows from columns; a row without a value has no such field."""
    names = list(columns)
    if not names:
        return [{} for _ in range(n)]
    rows = zip(*(map(plain, values) for values in columns.values()), strict=True)
    return [
        payload_of({name: value for name, value in zip(names, row, strict=True) if value is not None})
        for row in rows
    ]


def payload_of(row: dict[str, Any]) -> dict[str, Any]:
    """Return the payload of a row whose other columns are these.

    >>> payload_of({"payload": '{"year": 1999}', "title": "One"})
    {'year': 1999, 'title': 'One'}
    """
    inner = row.get(PAYLOAD)
    if isinstance(inner, str) and inner.startswith("{"):
        try:
            inner = json.loads(inner)
        except (ValueError, RecursionError):
            return row
    if not isinstance(inner, dict):
        return row
    return inner | {name: value for name, value in row.items() if name != PAYLOAD}


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value as JSON can hold it: dates as text, NaN (how pandas writes gaps) as None.

    ``depth`` is the number of lists and dictionaries around it. What is nested too deep is left as it is.
    """
    match value:
        case float():
            return None if math.isnan(value) else value
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            return float(value)
        case UUID():
            return str(value)
        case list() | tuple() if depth < _DEEPEST:
            return [plain(part, depth + 1) for part in value]
        case dict() if depth < _DEEPEST:
            return {str(key): plain(part, depth + 1) for key, part in value.items()}
        case _:
            return value
