"""Readers of text files: JSON Lines, and CSV with a line of names."""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeVar

from posh.errors import FormatError
from posh.files.contract import (
    BadRowHandler,
    Batch,
    Column,
    Kind,
    Roles,
    RowError,
    Stray,
    StraySearch,
    VectorFile,
    build_payloads,
    merge_payload,
    parse_numbered_name,
    to_json_value,
    translate_errors,
)

__all__ = ["CsvFile", "JsonLinesFile"]

Row = TypeVar("Row")


def _split_rows(
    rows: Iterator[Row | RowError], n: int, on_bad_row: BadRowHandler | None
) -> Iterator[tuple[int, list[Row]]]:
    """Yield the number of the first row and the rows, up to n at a time.

    The rows before an error are yielded first; the error is then handed to ``on_bad_row`` or raised.
    """
    start = 0
    part: list[Row] = []
    for row in rows:
        is_bad = isinstance(row, RowError)
        if isinstance(row, RowError):
            error = row
        else:
            part.append(row)
        if part and (is_bad or len(part) == n):
            yield start, part
            start, part = start + len(part), []
        if is_bad:
            if on_bad_row is None:
                raise error
            on_bad_row(error)
            start += 1
    if part:
        yield start, part


# JSON Lines ----------------------------------------------------------------------------------------

_SAMPLED_ROWS = 100  # rows whose fields are the columns
_KINDS: dict[type, tuple[Kind, str]] = {
    int: ("integers", "integer"),
    float: ("numbers", "number"),
    str: ("text", "text"),
    bool: ("others", "boolean"),
    list: ("others", "list"),
    dict: ("others", "object"),
}


class JsonLinesFile(VectorFile):
    """A file of JSON objects, one per line; empty lines are skipped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        rows = list(islice(self._parse_rows(), _SAMPLED_ROWS))
        self.bad_row = next((row for row in rows if isinstance(row, RowError)), None)
        sample = [row for row in rows if not isinstance(row, RowError)]
        with translate_errors(path, "JSON Lines"), path.open("rb") as file:
            n_rows = sum(not line.isspace() for line in file)
        values: dict[str, Any] = {}
        searches: defaultdict[str, StraySearch] = defaultdict(StraySearch)
        for number, row in enumerate(sample):
            for name, value in row.items():
                if values.get(name) is None:
                    values[name] = value
                if type(value) in (int, float):
                    searches[name].n_numbers += 1
                else:
                    searches[name].add(number, value, is_gap=value is None)
        if not values:
            if self.bad_row is not None:
                raise self.bad_row
            raise FormatError(f"{path}: expected one JSON object per line, got an empty file")
        self.columns = [
            _describe_field(name, value, n_rows, searches[name].stray) for name, value in values.items()
        ]

    def batches(self, roles: Roles, n: int) -> Iterator[Batch]:
        """Yield the rows in batches of up to n."""
        unused = {column.name for column in self.columns} - {*self.payload_names(roles)}
        for start, rows in _split_rows(self._rows_with_known_vector(roles.vector), n, self.on_bad_row):
            yield _build_batch(rows, roles, start, unused)

    def _parse_rows(self) -> Iterator[dict[str, Any] | RowError]:
        number = 0
        with self.path.open("rb") as file:
            for line in file:
                if not line.isspace():
                    yield self._parse(line, number)
                    number += 1

    def _rows_with_known_vector(self, vector: tuple[str, ...]) -> Iterator[dict[str, Any] | RowError]:
        """Yield the rows, and in place of one with a new field that may belong to the vector an error."""
        known = {column.name for column in self.columns}
        names = vector if len(vector) > 1 else ()
        families = {family for family, number in map(parse_numbered_name, names) if number is not None}
        for number, row in enumerate(self._parse_rows()):
            if isinstance(row, RowError):
                yield row
                continue
            for name in row.keys() - known if families else ():
                family, place = parse_numbered_name(name)
                if place is not None and family in families:
                    problem = (
                        f"expected only numbered fields that the first {_SAMPLED_ROWS} rows have, "
                        f"got {name!r}, which may belong to the vector: add that field to the first row"
                    )
                    yield RowError(self.path, number, problem, row)
                    break
            else:
                yield row

    def _parse(self, line: bytes, number: int) -> dict[str, Any] | RowError:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            problem = f"expected a JSON object, got invalid JSON ({error})"
        else:
            if isinstance(row, dict):
                return row
            problem = f"expected a JSON object, got {type(row).__name__}"
        return RowError(self.path, number, problem, line.decode(errors="replace").strip())


def _build_batch(rows: list[dict[str, Any]], roles: Roles, start: int, unused: set[str]) -> Batch:
    vectors = [
        row.get(roles.vector[0]) if len(roles.vector) == 1 else [row.get(name) for name in roles.vector]
        for row in rows
    ]
    ids = None if roles.id is None else [row.get(roles.id) for row in rows]
    payloads = [
        merge_payload(
            {
                name: to_json_value(value)
                for name, value in row.items()
                if (name not in unused if roles.payload is None else name in roles.payload)
            }
        )
        for row in rows
    ]
    return Batch(start, vectors, ids, payloads)


def _describe_field(name: str, value: Any, n_rows: int, stray: Stray | None) -> Column:
    if isinstance(value, list) and len(value) > 1 and all(type(part) in (int, float) for part in value):
        return Column(name, "vectors", f"number[{len(value)}]", n_rows)
    empty = "nothing" if n_rows <= _SAMPLED_ROWS else f"nothing in the first {_SAMPLED_ROWS} rows"
    kind, text = _KINDS.get(type(value), ("others", empty))
    return Column(name, kind, text, n_rows, stray)


# CSV -----------------------------------------------------------------------------------------------

_SEPARATORS = re.compile(r"[\s,;|\[\]()]+")
_INTEGER = re.compile(r"-?(0|[1-9]\d{0,999})")  # 007 is text; Python limits the digits of an integer
_NUMBER = re.compile(r"[-+]?((0|[1-9]\d*)(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
_NOT_FINITE = re.compile(r"[-+]?(nan|inf|infinity)", re.IGNORECASE)
_PATTERNS = {"integers": _INTEGER, "numbers": _NUMBER}


class CsvFile(VectorFile):
    """A CSV file, with vectors in many columns, or as a list of numbers in one cell.

    The constructor reads all rows to learn the type of each column.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        csv.field_size_limit(2**31 - 1)  # the default refuses vectors of a few thousand numbers
        with translate_errors(path, "CSV"), self._open() as file:
            header = file.readline()
            header.encode()
        if not header.strip():
            raise FormatError(f"{path}: expected a first line with the names of the columns, got none")
        self._delimiter = max(",;\t", key=header.count)
        self._names = next(csv.reader([header], delimiter=self._delimiter))
        if _are_values(self._names):
            raise FormatError(
                f"{path}: expected a first line with the names of the columns, got the values "
                f"{header.strip():.60}: add a line of names, such as x0{self._delimiter}x1"
            )
        if len(set(self._names)) < len(self._names):
            raise FormatError(f"{path}: expected columns with different names, got {header.strip():.200}")
        self.columns = self._learn_columns()
        self._kinds = {column.name: column.kind for column in self.columns}

    def _open(self) -> IO[str]:
        """Open the file; a byte that is not UTF-8 becomes a character that UTF-8 cannot encode."""
        return self.path.open(encoding="utf-8-sig", errors="surrogateescape", newline="")

    def _learn_columns(self) -> list[Column]:
        summaries = [_CellSummary() for _ in self._names]
        n_rows = 0
        for cells in self._parse_rows():
            for summary, cell in () if isinstance(cells, RowError) else zip(summaries, cells, strict=True):
                if cell and summary.kind != "vectors":
                    summary.add(n_rows, cell)
            n_rows += 1
        return [
            Column(name, summary.kind or "text", summary.describe_type(), n_rows, summary.search.stray)
            for name, summary in zip(self._names, summaries, strict=True)
        ]

    def batches(self, roles: Roles, n: int) -> Iterator[Batch]:
        """Yield the rows in batches of up to n."""
        for start, rows in _split_rows(self._parse_rows(), n, self.on_bad_row):
            yield self._build_batch(rows, roles, start)

    def _build_batch(self, rows: list[list[str]], roles: Roles, start: int) -> Batch:
        columns = dict(zip(self._names, zip(*rows, strict=True), strict=True))
        vectors: list[Any]
        if len(roles.vector) == 1:
            vectors = [_parse_list(cell) for cell in columns[roles.vector[0]]]
        else:
            vectors = list(zip(*(columns[name] for name in roles.vector), strict=True))
        ids = None if roles.id is None else self._to_values(roles.id, columns[roles.id])
        fields = {name: self._to_values(name, columns[name]) for name in self.payload_names(roles)}
        return Batch(start, vectors, ids, build_payloads(fields, len(rows)))

    def _to_values(self, name: str, cells: tuple[str, ...]) -> list[Any]:
        convert: Any = {"integers": int, "numbers": _parse_number}.get(self._kinds[name], str)
        return [convert(cell) if cell else None for cell in cells]

    def _parse_rows(self) -> Iterator[list[str] | RowError]:
        number = 0
        with self._open() as file:
            rows = csv.reader(file, delimiter=self._delimiter, strict=True)
            next(rows)
            while True:
                try:
                    cells = next(rows)
                except StopIteration:
                    return
                except csv.Error as error:
                    yield RowError(self.path, number, f"expected a line of CSV ({error})")
                    number += 1
                    continue
                if not cells:  # an empty line
                    continue
                problem = self._find_problem(cells)
                yield cells if problem is None else RowError(self.path, number, problem, cells)
                number += 1

    def _find_problem(self, cells: list[str]) -> str | None:
        if len(cells) != len(self._names):
            return f"expected {len(self._names)} cells, as in line 1, got {len(cells)}"
        for name, cell in zip(self._names, cells, strict=True):
            try:
                cell.encode()
            except UnicodeEncodeError:  # a byte that surrogateescape has kept
                return f"expected text in UTF-8, got other bytes in the column {name!r}"
        return None


class _CellSummary:
    """The kind of a column, learnt cell by cell from the cells that are not empty."""

    def __init__(self) -> None:
        self.kind: Kind | None = None
        self.search = StraySearch()

    def add(self, row: int, cell: str) -> None:
        self.kind = _widen(self.kind, cell)
        if self.kind in _PATTERNS or _NUMBER.fullmatch(cell):
            self.search.n_numbers += 1
        else:
            self.search.add(row, cell, is_gap=_NOT_FINITE.fullmatch(cell) is not None)

    def describe_type(self) -> str:
        return {"vectors": "numbers in a cell", None: "nothing"}.get(self.kind, str(self.kind))


def _are_values(names: list[str]) -> bool:
    """Whether a first line holds values: only numbers, or a cell with several. 0, 1, 2 … are names."""
    if names == [str(i) for i in range(len(names))]:  # the default names of pandas
        return False
    numbers = [_NUMBER.fullmatch(name) or _NOT_FINITE.fullmatch(name) for name in names]
    return all(numbers) or any(isinstance(_parse_list(name), list) for name in names)


def _widen(kind: Kind | None, cell: str) -> Kind:
    """Return the kind of a column of this kind to which a cell is added."""
    for candidate in ("integers", "numbers"):
        if kind in (None, "integers", candidate) and _PATTERNS[candidate].fullmatch(cell):
            return candidate
    return "vectors" if kind is None and isinstance(_parse_list(cell), list) else "text"


def _parse_number(cell: str) -> float:
    """Parse a number: a float, or an int if a float would round it."""
    number = float(cell)
    return int(cell) if _INTEGER.fullmatch(cell) and int(cell) != number else number


def _parse_list(cell: str) -> list[float] | str:
    """Parse the numbers in a cell; return the cell if it is not a list of at least two numbers."""
    try:
        numbers = [float(part) for part in _SEPARATORS.split(cell) if part]
    except ValueError:
        return cell
    return numbers if len(numbers) > 1 else cell
