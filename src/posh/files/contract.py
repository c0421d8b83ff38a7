"""The contract of a vector file: columns, rows in batches, payloads as JSON values; protection of readers.

Readers compare the sizes that a file declares with the bytes that it stores before they allocate memory, and
never unpickle.
"""

from __future__ import annotations

import importlib
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from posh.errors import FormatError, MissingExtraError, PoshError

__all__ = [
    "BadRowHandler",
    "Batch",
    "Column",
    "Kind",
    "Roles",
    "RowError",
    "Stray",
    "StraySearch",
    "VectorFile",
]
__all__ += ["build_payloads", "describe_columns", "import_extra", "merge_payload", "parse_numbered_name"]
__all__ += ["refuse_objects", "refuse_oversized", "to_json_value", "translate_errors"]

Kind = Literal["vectors", "integers", "numbers", "text", "others", "bytes"]
PAYLOAD = "payload"  # a column of this name that holds objects, or their JSON, is the payload itself
PAYLOAD_ENDS = "payload_ends"  # in npz files, where the payload is one array with the bytes of all rows
_MAX_DEPTH = 100  # levels of a payload that are converted; collections refuse payloads far less deep
_NUMBERS_PER_STRAY = 10  # columns with more strays hold text, such as house numbers: 12, 14b
_NUMBERED = re.compile(r"(.*?)(\d{1,18})")
_DECIMAL = re.compile(r"[-+]?(\d*\.)?\d+([eE][-+]?\d+)?")


class Stray(NamedTuple):
    """A value that is not a number, in a column whose other values are (almost) all numbers."""

    row: int
    value: Any


class Column(NamedTuple):
    """A column of a file.

    Attributes
    ----------
    name : the name of the column.
    kind : the roles that it can have: vectors, numbers, ids, payload.
    type : its type for messages, such as ``float32[64]``.
    n_rows : its length.
    stray : the first value that prevents a column of numbers from being one, if the reader looks for it.

    """

    name: str
    kind: Kind
    type: str
    n_rows: int
    stray: Stray | None = None


@dataclass
class StraySearch:
    """A search for the stray of a column, value by value. Gaps, such as NaN, are strays of any number."""

    n_numbers: int = 0
    n_others: int = 0
    first: Stray | None = None

    def add(self, row: int, value: Any, *, is_gap: bool) -> None:
        """Count a value that is not a number."""
        self.n_others += not is_gap
        self.first = self.first or Stray(row, value)

    @property
    def stray(self) -> Stray | None:
        """The first stray; None if too few values are numbers for a column of numbers."""
        limit = max(1, self.n_numbers // _NUMBERS_PER_STRAY)
        return self.first if self.n_numbers and self.n_others <= limit else None


class Roles(NamedTuple):
    """The roles of columns.

    Attributes
    ----------
    vector : one column of vectors, or several columns of numbers.
    id : the column of ids; None numbers the rows.
    payload : the columns of the payload; None takes all other columns, even those that only later rows have.

    """

    vector: tuple[str, ...]
    id: str | None
    payload: tuple[str, ...] | None

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of the vector and the id."""
        return self.vector if self.id is None else (*self.vector, self.id)


class Batch(NamedTuple):
    """Consecutive rows of a file.

    Attributes
    ----------
    first_row : the number of the first row.
    vectors : an array (n, d) or a list of n values, not validated.
    ids : the ids, or None if the rows are numbered.
    payloads : one dictionary per row.

    """

    first_row: int
    vectors: NDArray[Any] | list[Any]
    ids: list[Any] | None
    payloads: list[dict[str, Any]]

    def rows_from(self, start: int) -> Batch:
        """Return the rows after the first ``start`` ones."""
        ids = None if self.ids is None else self.ids[start:]
        return Batch(self.first_row + start, self.vectors[start:], ids, self.payloads[start:])


class RowError(FormatError):
    """A row of a file cannot be read; rows are counted from 0.

    ``content`` is what was read of the row, as JSON has it.
    """

    def __init__(self, path: Path, row: int, problem: str, content: Any = None) -> None:
        super().__init__(f"{path}: row {row}: {problem}")
        self.path, self.row, self.problem, self.content = path, row, problem, content

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.row, self.problem, self.content)


BadRowHandler = Callable[[RowError], None]


class VectorFile(ABC):
    """An open file of vectors, read in batches: its rows need not fit in memory."""

    path: Path
    columns: list[Column]
    on_bad_row: BadRowHandler | None = None
    """Called for each row that cannot be read, which is then skipped; None raises the error."""
    bad_row: RowError | None = None
    """The first bad row among those that were read to learn the columns, if the reader looks for it."""

    @abstractmethod
    def batches(self, roles: Roles, n: int) -> Iterator[Batch]:
        """Yield the rows in batches of up to n.

        Raises
        ------
        RowError : a row cannot be read, and there is no ``on_bad_row``. All rows before it are yielded first.

        """

    def map_vectors(self, roles: Roles) -> NDArray[np.float32] | None:
        """Return all vectors (n, d) as a memory map, not validated; None if the file is not stored so."""
        return None

    def column(self, name: str) -> Column:
        """Return the column of this name."""
        for column in self.columns:
            if column.name == name:
                return column
        raise ValueError(
            f"{self.path}: expected a column of the file, got {name!r}; "
            f"it has {describe_columns(self.columns)}"
        )

    def n_rows(self, roles: Roles) -> int:
        """Return the number of rows."""
        return self.column(roles.vector[0]).n_rows

    def payload_names(self, roles: Roles) -> tuple[str, ...]:
        """Return the columns of the payload: by default all others with as many rows as the vectors."""
        if roles.payload is not None:
            return roles.payload
        n_rows = self.n_rows(roles)
        return tuple(
            column.name
            for column in self.columns
            if column.name not in roles.key_columns
            and column.n_rows == n_rows
            and column.kind not in ("vectors", "bytes")
        )


def describe_columns(columns: Sequence[Column]) -> str:
    """Return the names and types of columns, for messages."""
    return ", ".join(f"{column.name!r} ({column.type})" for column in columns) or "none"


def parse_numbered_name(name: str) -> tuple[str, int | None]:
    """Return the family and the number of a numbered column; other columns have no number.

    >>> parse_numbered_name("x12"), parse_numbered_name("12"), parse_numbered_name("x")
    (('x', 12), ('', 12), ('x', None))
    >>> parse_numbered_name("-0.12")
    ('-0.12', None)
    """
    match = _NUMBERED.fullmatch(name)
    if match is None or (match[1] and _DECIMAL.fullmatch(name)):  # a decimal is a value, not a name
        return name, None
    return match[1], int(match[2])


def build_payloads(columns: Mapping[str, Sequence[Any]], n: int) -> list[dict[str, Any]]:
    """Return the payloads of n rows from columns; a row without a value lacks that field."""
    names = list(columns)
    if not names:
        return [{} for _ in range(n)]
    rows = zip(*(map(to_json_value, values) for values in columns.values()), strict=True)
    return [
        merge_payload({name: value for name, value in zip(names, row, strict=True) if value is not None})
        for row in rows
    ]


def merge_payload(row: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a row, with those of its column ``payload`` in place of that column.

    >>> merge_payload({"payload": '{"year": 1999}', "title": "One"})
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


def to_json_value(value: Any, depth: int = 0) -> Any:
    """Convert a value to one that JSON has: dates become text, NaN (which pandas writes for gaps) None.

    ``depth`` is the number of lists and dictionaries around the value. Deeper levels than the limit are
    returned unchanged.
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
        case list() | tuple() if depth < _MAX_DEPTH:
            return [to_json_value(part, depth + 1) for part in value]
        case dict() if depth < _MAX_DEPTH:
            return {str(key): to_json_value(part, depth + 1) for key, part in value.items()}
        case _:
            return value


# Damaged and hostile files ------------------------------------------------------------------------

# Deflate expands by at most this factor. The allowance keeps small files of zeros readable.
_DEFLATE_LIMIT, _ALLOWANCE = 1032, 1 << 20


def refuse_oversized(path: Path, declared: int, stored: int) -> None:
    """Raise FormatError if an array declares more bytes than its stored bytes can decompress to."""
    if declared > stored * _DEFLATE_LIMIT + _ALLOWANCE:
        raise FormatError(f"{path}: expected the {declared:,} bytes it declares, got only {stored:,} stored")


def refuse_objects(path: Path, name: str, dtype: np.dtype[Any]) -> None:
    """Raise FormatError if an array holds Python objects: unpickling them can execute arbitrary code."""
    if dtype.hasobject:
        raise FormatError(
            f"{path}: expected numbers or text in {name!r}, got Python objects, which are never unpickled: "
            "save it with .astype(str), or with .astype(int)"
        )


@contextmanager
def translate_errors(path: Path, kind: str) -> Iterator[None]:
    """Raise every error of a parser as a FormatError that names the file; ``kind`` is the expected format."""
    try:
        yield
    except PoshError:
        raise
    except Exception as error:
        raise FormatError(f"{path}: expected a complete {kind} file; {error}") from error


def import_extra(package: str, purpose: str) -> Any:
    """Import a package of the extra ``data``, or raise MissingExtraError with the pip command."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingExtraError(package.partition(".")[0], "data", purpose) from error
