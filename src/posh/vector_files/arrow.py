"""Parquet, Arrow and Feather files, through pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posh.datasets._guard import reading, refuse_bloat, require
from posh.vector_files.contract import Batch, Column, Kind, Roles, VectorFile, payloads_of

__all__ = ["open_arrow", "open_parquet"]

Tables = Callable[[list[str], int], Iterator[Any]]
_PURPOSE = "reading Parquet and Arrow files"


class ArrowFile(VectorFile):
    """A file that pyarrow reads; ``tables`` gives record batches of some columns, of any length."""

    def __init__(self, path: Path, schema: Any, n_rows: int, tables: Tables) -> None:
        self.path, self._tables = path, tables
        self.columns = [Column(field.name, _kind(field.type), str(field.type), n_rows) for field in schema]

    def batches(self, roles: Roles, n: int) -> Iterator[Batch]:
        """Yield the rows, up to n at once."""
        fields = self.payload_names(roles)
        names = list(dict.fromkeys([*roles.vector, *([] if roles.id is None else [roles.id]), *fields]))
        start = 0
        with reading(self.path, self.path.suffix):
            for table in self._tables(names, n):
                for first in range(0, table.num_rows, n):
                    part = table.slice(first, n)
                    yield _batch(part, roles, fields, start)
                    start += part.num_rows


def _batch(table: Any, roles: Roles, fields: tuple[str, ...], start: int) -> Batch:
    vectors: NDArray[Any] | list[Any]
    if len(roles.vector) == 1:
        vectors = _vectors(table.column(roles.vector[0]))
    else:
        # Gaps become NaN, which nobody takes for a number.
        columns = [table.column(name).to_numpy(zero_copy_only=False) for name in roles.vector]
        vectors = np.column_stack(columns)
    ids = None if roles.id is None else table.column(roles.id).to_pylist()
    payloads = payloads_of({name: table.column(name).to_pylist() for name in fields}, table.num_rows)
    return Batch(start, vectors, ids, payloads)


def _vectors(column: Any) -> NDArray[Any] | list[Any]:
    """Return a column of lists as a matrix, or as lists if something is wrong with one of them."""
    compute = require("pyarrow.compute", _PURPOSE)
    if column.null_count == 0 and len(column):
        lengths = compute.unique(compute.list_value_length(column)).to_pylist()
        values = compute.list_flatten(column)
        if len(lengths) == 1 and values.null_count == 0:
            return np.asarray(values).reshape(len(column), lengths[0])
    return list(column.to_pylist())


def _kind(kind: Any) -> Kind:
    types = require("pyarrow", _PURPOSE).types
    if types.is_integer(kind):
        return "integers"
    if types.is_floating(kind):
        return "numbers"
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return "vectors" if _kind(kind.value_type) in ("integers", "numbers") else "others"
    if getattr(kind, "extension_name", None) == "arrow.uuid":
        return "text"  # what a UUID becomes, as an id and in a payload
    if types.is_string(kind) or types.is_large_string(kind) or types.is_dictionary(kind):
        return "text"
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return "bytes"
    return "others"


def open_parquet(path: Path) -> VectorFile:
    """Open a Parquet file."""
    parquet = require("pyarrow.parquet", _PURPOSE)
    with reading(path, "Parquet"):
        file = parquet.ParquetFile(path)
        # Rows only: pyarrow's objects for the parts of a row group crash on damaged files.
        refuse_bloat(path, file.metadata.num_rows, path.stat().st_size)

    def tables(names: list[str], n: int) -> Iterator[Any]:
        return iter(file.iter_batches(batch_size=n, columns=names))

    return ArrowFile(path, file.schema_arrow, file.metadata.num_rows, tables)


def open_arrow(path: Path) -> VectorFile:
    """Open an Arrow file (Feather is one) or an Arrow stream."""
    arrow = require("pyarrow", _PURPOSE)
    ipc = require("pyarrow.ipc", _PURPOSE)
    with reading(path, "Arrow"):
        source = arrow.memory_map(str(path))
        try:
            file = ipc.open_file(source)
        except arrow.ArrowInvalid:
            return _open_stream(path, ipc)
        n_rows = sum(file.get_batch(i).num_rows for i in range(file.num_record_batches))

    def tables(names: list[str], n: int) -> Iterator[Any]:
        return (file.get_batch(i).select(names) for i in range(file.num_record_batches))

    return ArrowFile(path, file.schema, n_rows, tables)


def _open_stream(path: Path, ipc: Any) -> VectorFile:
    with ipc.open_stream(str(path)) as stream:
        schema, n_rows = stream.schema, sum(batch.num_rows for batch in stream)

    def tables(names: list[str], n: int) -> Iterator[Any]:
        with ipc.open_stream(str(path)) as stream:
            for batch in stream:
                yield batch.select(names)

    return ArrowFile(path, schema, n_rows, tables)
