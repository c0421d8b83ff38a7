"""JSON Lines: one object per line."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
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
    Stray,
    StraySearch,
    VectorFile,
    number_of,
    payload_of,
    plain,
)

__all__ = ["JsonLines"]

_LOOKED_AT = 100  # rows whose fields are the columns
_KINDS: dict[type, tuple[Kind, str]] = {
    int: ("integers", "integer"),
    float: ("numbers", "number"),
    str: ("text", "text"),
    bool: ("others", "boolean"),
    list: ("others", "list"),
    dict: ("others", "object"),
}


class JsonLines(VectorFile):
    """A file of JSON objects, one per line; empty lines are no rows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        first = islice(self._rows(), _LOOKED_AT)
        with reading(path, "JSON Lines"), path.open("rb") as file:
            n_rows = sum(not line.isspace() for line in file)
        values: dict[str, Any] = {}
        strays: defaultdict[str, StraySearch] = defaultdict(StraySearch)
        for number, row in enumerate(first):
            for name, value in row.items():
                if values.get(name) is None:
                    values[name] = value
                if type(value) in (int, float):
                    strays[name].n_numbers += 1
                else:
                    strays[name].add(number, value, gap=value is None)
        if not values:
            raise FormatError(f"{path}: expected one JSON object per line, got an empty file")
        self.columns = [_column(name, value, n_rows, strays[name].found()) for name, value in values.items()]

    def batches(self, roles: Roles, n: int) -> Iterator[Batch]:
        """Yield the rows, up to n at once."""
        rows = self._rows_of_known(roles.vector)
        unused = {column.name for column in self.columns} - {*self.payload_names(roles)}
        start, done = 0, False
        while not done:
            part: list[dict[str, Any]] = []
            error = None
            try:
                for row in islice(rows, n):
                    part.append(row)
            except RowError as problem:
                error = problem
            done = len(part) < n
            if part:
                yield _batch(part, roles, start, unused)
            if error is not None:
                raise error
            start += len(part)

    def _rows(self) -> Iterator[dict[str, Any]]:
        number = 0
        with self.path.open("rb") as file:
            for line in file:
                if line.isspace():
                    continue
                yield self._parsed(line, number)
                number += 1

    def _rows_of_known(self, vector: tuple[str, ...]) -> Iterator[dict[str, Any]]:
        """Yield the rows. A new field that may belong to the vector is an error."""
        known = {column.name for column in self.columns}
        several = vector if len(vector) > 1 else ()
        families = {family for family, number in map(number_of, several) if number is not None}
        for number, row in enumerate(self._rows()):
            for name in row.keys() - known if families else ():
                family, place = number_of(name)
                if place is not None and family in families:
                    raise RowError(
                        self.path,
                        number,
                        f"expected only numbered fields that the first {_LOOKED_AT} rows have, got {name!r}, "
                        "which may belong to the vector: give the first row that field, too",
                    )
            yield row

    def _parsed(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise RowError(
                self.path, number, f"expected a JSON object, got something else ({error})"
            ) from None
        if not isinstance(row, dict):
            raise RowError(self.path, number, f"expected a JSON object, got {type(row).__name__}")
        return row


def _batch(rows: list[dict[str, Any]], roles: Roles, start: int, unused: set[str]) -> Batch:
    vectors = [
        row.get(roles.vector[0]) if len(roles.vector) == 1 else [row.get(name) for name in roles.vector]
        for row in rows
    ]
    ids = None if roles.id is None else [row.get(roles.id) for row in rows]
    payloads = [
        payload_of(
            {
                name: plain(value)
                for name, value in row.items()
                if (name not in unused if roles.payload is None else name in roles.payload)
            }
        )
        for row in rows
    ]
    return Batch(start, vectors, ids, payloads)


def _column(name: str, value: Any, n_rows: int, stray: Stray | None) -> Column:
    if isinstance(value, list) and len(value) > 1 and all(type(part) in (int, float) for part in value):
        return Column(name, "vectors", f"number[{len(value)}]", n_rows)
    nothing = "nothing" if n_rows <= _LOOKED_AT else f"nothing in the first {_LOOKED_AT} rows"
    kind, text = _KINDS.get(type(value), ("others", nothing))
    return Column(name, kind, text, n_rows, stray)
