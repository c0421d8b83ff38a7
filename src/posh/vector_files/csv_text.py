"""CSV with a line of names: vectors as a JSON list or as numbers in one cell, or in many columns."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from posh.datasets._guard import reading
from posh.errors import FormatError
from posh.vector_files.contract import (
    Batch,
    Column,
    Kind,
    Roles,
    RowError,
    StraySearch,
    VectorFile,
    payloads_of,
)

__all__ = ["CsvFile"]

_BETWEEN = re.compile(r"[\s,;|\[\]()]+")
_INTEGER = re.compile(r"-?(0|[1-9]\d{0,999})")  # 007 is a text; Python refuses some thousand digits
_NUMBER = re.compile(r"[-+]?((0|[1-9]\d*)(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
_NOT_FINITE = re.compile(r"[-+]?(nan|inf|infinity)", re.IGNORECASE)
_FULL = {"integers": _INTEGER, "numbers": _NUMBER}


class CsvFile(VectorFile):
    """A CSV file. It is read once when it is opened, to learn the type of each column."""

    def __init__(self, path: Path) -> None:
        self.path = path
        csv.field_size_limit(2**31 - 1)  # by default vectors of a few thousand numbers are refused
        with reading(path, "CSV"), path.open(encoding="utf-8-sig", newline="") as file:
            header = file.readline()
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
        self.columns = self._learnt_columns()
        self._kinds = {column.name: column.kind for column in self.columns}

    def _learnt_columns(self) -> list[Column]:
        learnt = [_Cells() for _ in self._names]
        n_rows = 0
        try:
            for cells in self._rows():
                for column, cell in zip(learnt, cells, strict=True):
                    if cell and column.kind != "vectors":
                        column.add(n_rows, cell)
                n_rows += 1
        except RowError:
            pass  # the import reports it, after the rows before it
        return [
            Column(name, column.kind or "text", column.type(), n_rows, column.strays.found())
            for name, column in zip(self._names, learnt, strict=True)
        ]

    def batches(self, roles: Roles, n: int) -> Iterator[Batch]:
        """Yield the rows, up to n at once."""
        rows, start, done = self._rows(), 0, False
        while not done:
            part: list[list[str]] = []
            error = None
            try:
                while len(part) < n:
                    part.append(next(rows))
            except StopIteration:
                done = True
            except RowError as problem:
                error = problem
            if part:
                yield self._batch(part, roles, start)
            if error is not None:
                raise error
            start += len(part)

    def _batch(self, rows: list[list[str]], roles: Roles, start: int) -> Batch:
        columns = dict(zip(self._names, zip(*rows, strict=True), strict=True))
        vectors: list[Any]
        if len(roles.vector) == 1:
            vectors = [_numbers(cell) for cell in columns[roles.vector[0]]]
        else:
            vectors = list(zip(*(columns[name] for name in roles.vector), strict=True))
        ids = None if roles.id is None else self._values(roles.id, columns[roles.id])
        fields = {name: self._values(name, columns[name]) for name in self.payload_names(roles)}
        return Batch(start, vectors, ids, payloads_of(fields, len(rows)))

    def _values(self, name: str, cells: tuple[str, ...]) -> list[Any]:
        convert: Any = {"integers": int, "numbers": _number}.get(self._kinds[name], str)
        return [convert(cell) if cell else None for cell in cells]

    def _rows(self) -> Iterator[list[str]]:
        number = 0
        with self.path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file, delimiter=self._delimiter, strict=True)
            next(rows)
            while True:
                try:
                    cells = next(rows)
                except StopIteration:
                    return
                except (csv.Error, UnicodeDecodeError) as error:
                    raise RowError(self.path, number, f"expected a line of CSV ({error})") from None
                if not cells:  # an empty line is no row
                    continue
                if len(cells) != len(self._names):
                    raise RowError(
                        self.path,
                        number,
                        f"expected {len(self._names)} cells, as in line 1, got {len(cells)}",
                    )
                yield cells
                number += 1


class _Cells:
    """What is known of the cells of a column, which come one by one; empty ones do not count."""

    def __init__(self) -> None:
        self.kind: Kind | None = None
        self.strays = StraySearch()

    def add(self, row: int, cell: str) -> None:
        self.kind = _wider(self.kind, cell)
        if self.kind in _FULL or _NUMBER.fullmatch(cell):
            self.strays.n_numbers += 1
        else:
            self.strays.add(row, cell, gap=_NOT_FINITE.fullmatch(cell) is not None)

    def type(self) -> str:
        return {"vectors": "numbers in a cell", None: "nothing"}.get(self.kind, str(self.kind))


def _are_values(names: list[str]) -> bool:
    """Whether a first line is a row, not names: all numbers, or a cell with several. 0, 1, 2 … are names."""
    if names == [str(i) for i in range(len(names))]:  # pandas names columns so
        return False
    numbers = [_NUMBER.fullmatch(name) or _NOT_FINITE.fullmatch(name) for name in names]
    return all(numbers) or any(isinstance(_numbers(name), list) for name in names)


def _wider(kind: Kind | None, cell: str) -> Kind:
    """Return the kind of a column that has this cell beside cells of another kind."""
    for candidate in ("integers", "numbers"):
        if kind in (None, "integers", candidate) and _FULL[candidate].fullmatch(cell):
            return candidate
    return "vectors" if kind is None and isinstance(_numbers(cell), list) else "text"


def _number(cell: str) -> float:
    """Return the number in a cell: a float, or the integer that a float would round."""
    number = float(cell)
    return int(cell) if _INTEGER.fullmatch(cell) and int(cell) != number else number


def _numbers(cell: str) -> list[float] | str:
    """Return the numbers in a cell, or the cell if it has something else or less than two."""
    try:
        numbers = [float(part) for part in _BETWEEN.split(cell) if part]
    except ValueError:
        return cell
    return numbers if len(numbers) > 1 else cell
