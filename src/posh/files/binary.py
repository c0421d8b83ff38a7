"""Readers of binary files: arrays (``.npy``, ``.npz``, ``.fvecs``, HDF5), tables (Parquet, Arrow, Feather).

Of arrays, those with two dimensions are vectors and those with one are columns. Pyarrow reads tables.
"""

from __future__ import annotations

import contextlib
import re
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from posh.errors import FormatError
from posh.files.contract import (
    PAYLOAD,
    PAYLOAD_ENDS,
    Batch,
    Column,
    Kind,
    Roles,
    VectorFile,
    build_payloads,
    describe_columns,
    import_extra,
    refuse_objects,
    refuse_oversized,
    translate_errors,
)

__all__ = ["open_arrow", "open_hdf5", "open_npy", "open_npz", "open_parquet", "open_vecs", "read_npy_header"]

_KINDS: dict[str, Kind] = {"i": "integers", "u": "integers", "f": "numbers", "U": "text", "S": "text"}
_VECS = {".fvecs": "<f4", ".bvecs": "<u1", ".ivecs": "<i4"}
_ZERO_FRACTION = re.compile(r"\.0+$")  # NumPy writes full seconds with it
_ONLY = "vectors"  # the name of the column of a file with a single array

# Arrays -------------------------------------------------------------------------------------------


class Source(ABC):
    """An array on disk whose rows are read in order."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @abstractmethod
    def parts(self, n: int) -> Iterator[NDArray[Any]]:
        """Yield the rows, n at a time."""


class SlicedSource(Source):
    """An array that is read by slicing: a memory map, or an HDF5 data set."""

    def __init__(self, array: Any) -> None:
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def parts(self, n: int) -> Iterator[NDArray[Any]]:
        """Yield the rows, n at a time."""
        for start in range(0, self.shape[0], n):
            yield np.asarray(self.array[start : start + n])


class ZippedSource(Source):
    """An array of an ``.npz`` file, decompressed while it is read."""

    def __init__(self, path: Path, info: zipfile.ZipInfo) -> None:
        self._path, self._info = path, info
        with translate_errors(path, ".npz"), zipfile.ZipFile(path) as archive, archive.open(info) as file:
            self.shape, self._is_fortran, self.dtype = read_npy_header(file)
        n_bytes = self.dtype.itemsize * int(np.prod(self.shape, dtype=object))
        refuse_oversized(path, n_bytes, info.compress_size)

    def parts(self, n: int) -> Iterator[NDArray[Any]]:
        """Yield the rows, n at a time. An array in Fortran order is read completely first."""
        with self.open() as file:
            if self._is_fortran:
                yield from SlicedSource(npy_format.read_array(file, allow_pickle=False)).parts(n)
                return
            read_npy_header(file)
            for start in range(0, self.shape[0], n):
                shape = (min(n, self.shape[0] - start), *self.shape[1:])
                data = file.read(int(np.prod(shape)) * self.dtype.itemsize)
                yield np.frombuffer(data, self.dtype).reshape(shape)

    @contextlib.contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open the array at its header."""
        refuse_objects(self._path, Path(self._info.filename).stem, self.dtype)
        with (
            translate_errors(self._path, ".npz"),
            zipfile.ZipFile(self._path) as archive,
            archive.open(self._info) as file,
        ):
            yield file


class JoinedSource(Source):
    """Texts of any length in an ``.npz`` file: one array with the bytes of all, one with their ends."""

    dtype = np.dtype(object)

    def __init__(self, content: ZippedSource, ends: ZippedSource) -> None:
        self._content, self._ends, self.shape = content, ends, ends.shape

    def parts(self, n: int) -> Iterator[NDArray[Any]]:
        """Yield the texts as bytes, n at a time."""
        with self._content.open() as file:
            read_npy_header(file)
            last = 0
            for ends in self._ends.parts(n):
                limits = [last, *ends.tolist()]
                if sorted(limits) != limits:
                    raise ValueError("the ends of payloads do not ascend")
                data, first = file.read(limits[-1] - last), last
                last = limits[-1]
                if len(data) < last - first:
                    raise ValueError(f"the payloads end before {last}")
                texts = [data[start - first : end - first] for start, end in pairwise(limits)]
                yield np.array(texts, object)


class ArrayFile(VectorFile):
    """A file of arrays by name."""

    def __init__(self, path: Path, sources: dict[str, Source]) -> None:
        self.path, self._sources = path, sources
        self.columns = [_describe_source(name, source) for name, source in sources.items()]
        if not any(column.kind == "vectors" for column in self.columns):
            raise FormatError(
                f"{path}: expected a 2-D array of real numbers, got {describe_columns(self.columns)}"
            )

    def batches(self, roles: Roles, n: int) -> Iterator[Batch]:
        """Yield the rows in batches of up to n."""
        fields = self.payload_names(roles)
        streams = {name: self._sources[name].parts(n) for name in (*roles.key_columns, *fields)}
        for start in range(0, self.n_rows(roles), n):
            with translate_errors(self.path, self.path.suffix):
                parts = {name: next(stream) for name, stream in streams.items()}
            vectors = (
                parts[roles.vector[0]]
                if len(roles.vector) == 1
                else np.column_stack([parts[name] for name in roles.vector])
            )
            ids = None if roles.id is None else _to_values(parts[roles.id])
            payloads = build_payloads({name: _to_values(parts[name]) for name in fields}, len(vectors))
            yield Batch(start, vectors, ids, payloads)

    def map_vectors(self, roles: Roles) -> NDArray[np.float32] | None:
        """Return all vectors (n, d) as a memory map; None if they are not stored as rows of float32."""
        source = self._sources[roles.vector[0]]
        if len(roles.vector) > 1 or not isinstance(source, SlicedSource):
            return None
        array = source.array
        is_usable = isinstance(array, np.ndarray) and array.dtype == np.float32 and array.flags.c_contiguous
        return np.asarray(array) if is_usable else None


def _describe_source(name: str, source: Source) -> Column:
    n_rows, *width = source.shape
    if len(width) == 1 and source.dtype.kind in "fiub":
        return Column(name, "vectors", f"{source.dtype}[{width[0]}]", n_rows)
    if width:
        return Column(name, "bytes", _describe_type(source.dtype) + str(width), n_rows)
    if source.dtype.kind == "O":
        return Column(name, "text", "text", n_rows)  # HDF5 stores text as objects
    kind = _KINDS.get(source.dtype.kind, "others")
    return Column(name, kind, "text" if kind == "text" else _describe_type(source.dtype), n_rows)


def _describe_type(dtype: np.dtype[Any]) -> str:
    return "Python objects" if dtype.hasobject else str(dtype)


def _to_values(part: NDArray[Any]) -> list[Any]:
    if part.dtype.kind == "M":  # tolist() returns integers for nanoseconds and for years beyond 9999
        texts = np.datetime_as_string(part).tolist()
        return [None if text == "NaT" else _ZERO_FRACTION.sub("", text) for text in texts]
    return [_decode(value) if isinstance(value, bytes) else value for value in part.tolist()]


def _decode(value: bytes) -> str:
    return value.decode("utf-8", errors="surrogateescape")


def open_npy(path: Path) -> VectorFile:
    """Open an ``.npy`` file: one 2-D array."""
    # A memory map compares the declared shape with the size of the file. np.load would take a file of another
    # format for a pickle, and advise to trust it.
    with translate_errors(path, ".npy"):
        array = npy_format.open_memmap(path, mode="r")
    return ArrayFile(path, {_ONLY: SlicedSource(array)} if array.ndim else {})


def read_npy_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the header of an ``.npy`` file: the shape, whether it is in Fortran order, and the dtype."""
    version = npy_format.read_magic(file)
    read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
    shape, is_fortran, dtype = read(file)
    return shape, is_fortran, dtype


def open_npz(path: Path) -> VectorFile:
    """Open an ``.npz`` file: arrays by name."""
    with translate_errors(path, ".npz"), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    arrays = {Path(info.filename).stem: ZippedSource(path, info) for info in members}
    sources: dict[str, Source] = {name: array for name, array in arrays.items() if array.shape}
    if {PAYLOAD, PAYLOAD_ENDS} <= sources.keys() and arrays[PAYLOAD].dtype == np.uint8:
        sources[PAYLOAD] = JoinedSource(arrays[PAYLOAD], arrays[PAYLOAD_ENDS])
        del sources[PAYLOAD_ENDS]
    return ArrayFile(path, sources)


def open_vecs(path: Path) -> VectorFile:
    """Open an ``.fvecs``, ``.bvecs`` or ``.ivecs`` file: records of an int32 width and its values."""
    dtype, n_bytes = _VECS[path.suffix.lower()], path.stat().st_size
    if n_bytes < 4:
        raise FormatError(f"{path}: expected at least the 4 bytes of a width, got {n_bytes} bytes")
    with path.open("rb") as file:
        width = int.from_bytes(file.read(4), "little", signed=True)
    record = 4 + width * np.dtype(dtype).itemsize
    if width < 1 or n_bytes % record:
        raise FormatError(
            f"{path}: expected a positive width whose records of {record} bytes fill the file, "
            f"got width {width} in {n_bytes} bytes"
        )
    records = np.memmap(path, np.dtype([("width", "<i4"), ("values", dtype, (width,))]), mode="r")
    if (records["width"] != width).any():
        row = int(np.flatnonzero(records["width"] != width)[0])
        raise FormatError(
            f"{path}: expected width {width} throughout, got {records['width'][row]} in row {row}"
        )
    return ArrayFile(path, {_ONLY: SlicedSource(np.asarray(records["values"]))})


def open_hdf5(path: Path) -> VectorFile:
    """Open an HDF5 file: the data sets outside groups."""
    h5py = import_extra("h5py", "reading HDF5")
    with translate_errors(path, "HDF5"), contextlib.ExitStack() as stack:
        file = stack.enter_context(h5py.File(path, "r"))
        arrays = {name: item for name, item in file.items() if getattr(item, "shape", ())}
        for item in arrays.values():
            refuse_oversized(path, item.size * item.dtype.itemsize, item.id.get_storage_size())
        vector_file = ArrayFile(path, {name: SlicedSource(item) for name, item in arrays.items()})
        stack.pop_all()  # the data sets need the open file
    return vector_file


# Tables -------------------------------------------------------------------------------------------

ReadTables = Callable[[list[str], int], Iterator[Any]]
_PURPOSE = "reading Parquet and Arrow files"


class ArrowFile(VectorFile):
    """A file that pyarrow reads; ``read_tables`` yields record batches of some columns, of any length."""

    def __init__(self, path: Path, schema: Any, n_rows: int, read_tables: ReadTables) -> None:
        self.path, self._read_tables = path, read_tables
        self.columns = [
            Column(field.name, _classify(field.type), str(field.type), n_rows) for field in schema
        ]

    def batches(self, roles: Roles, n: int) -> Iterator[Batch]:
        """Yield the rows in batches of up to n."""
        fields = self.payload_names(roles)
        names = list(dict.fromkeys((*roles.key_columns, *fields)))
        start = 0
        with translate_errors(self.path, self.path.suffix):
            for table in self._read_tables(names, n):
                for first in range(0, table.num_rows, n):
                    part = table.slice(first, n)
                    yield _build_batch(part, roles, fields, start)
                    start += part.num_rows


def _build_batch(table: Any, roles: Roles, fields: tuple[str, ...], start: int) -> Batch:
    vectors: NDArray[Any] | list[Any]
    if len(roles.vector) == 1:
        vectors = _to_vectors(table.column(roles.vector[0]))
    else:
        # Gaps become NaN, which validation refuses.
        columns = [table.column(name).to_numpy(zero_copy_only=False) for name in roles.vector]
        vectors = np.column_stack(columns)
    ids = None if roles.id is None else table.column(roles.id).to_pylist()
    payloads = build_payloads({name: table.column(name).to_pylist() for name in fields}, table.num_rows)
    return Batch(start, vectors, ids, payloads)


def _to_vectors(column: Any) -> NDArray[Any] | list[Any]:
    """Convert a column of lists to a matrix, or to lists if they have gaps or different lengths."""
    compute = import_extra("pyarrow.compute", _PURPOSE)
    if column.null_count == 0 and len(column):
        lengths = compute.unique(compute.list_value_length(column)).to_pylist()
        values = compute.list_flatten(column)
        if len(lengths) == 1 and values.null_count == 0:
            return np.asarray(values).reshape(len(column), lengths[0])
    return list(column.to_pylist())


def _classify(arrow_type: Any) -> Kind:
    types = import_extra("pyarrow", _PURPOSE).types
    if types.is_integer(arrow_type):
        return "integers"
    if types.is_floating(arrow_type):
        return "numbers"
    if types.is_list(arrow_type) or types.is_large_list(arrow_type) or types.is_fixed_size_list(arrow_type):
        return "vectors" if _classify(arrow_type.value_type) in ("integers", "numbers") else "others"
    if getattr(arrow_type, "extension_name", None) == "arrow.uuid":
        return "text"  # ids and payloads hold a UUID as text
    if types.is_string(arrow_type) or types.is_large_string(arrow_type) or types.is_dictionary(arrow_type):
        return "text"
    if (
        types.is_binary(arrow_type)
        or types.is_large_binary(arrow_type)
        or types.is_fixed_size_binary(arrow_type)
    ):
        return "bytes"
    return "others"


def open_parquet(path: Path) -> VectorFile:
    """Open a Parquet file."""
    parquet = import_extra("pyarrow.parquet", _PURPOSE)
    with translate_errors(path, "Parquet"):
        file = parquet.ParquetFile(path)
        # Rows only: pyarrow's objects for the parts of a row group crash on damaged files.
        refuse_oversized(path, file.metadata.num_rows, path.stat().st_size)

    def read_tables(names: list[str], n: int) -> Iterator[Any]:
        return iter(file.iter_batches(batch_size=n, columns=names))

    return ArrowFile(path, file.schema_arrow, file.metadata.num_rows, read_tables)


def open_arrow(path: Path) -> VectorFile:
    """Open an Arrow file (Feather is one) or an Arrow stream."""
    arrow = import_extra("pyarrow", _PURPOSE)
    ipc = import_extra("pyarrow.ipc", _PURPOSE)
    with translate_errors(path, "Arrow"):
        source = arrow.memory_map(str(path))
        try:
            file = ipc.open_file(source)
        except arrow.ArrowInvalid:
            return _open_stream(path, ipc)
        n_rows = sum(file.get_batch(i).num_rows for i in range(file.num_record_batches))

    def read_tables(names: list[str], n: int) -> Iterator[Any]:
        return (file.get_batch(i).select(names) for i in range(file.num_record_batches))

    return ArrowFile(path, file.schema, n_rows, read_tables)


def _open_stream(path: Path, ipc: Any) -> VectorFile:
    with ipc.open_stream(str(path)) as stream:
        schema, n_rows = stream.schema, sum(batch.num_rows for batch in stream)

    def read_tables(names: list[str], n: int) -> Iterator[Any]:
        with ipc.open_stream(str(path)) as stream:
            for batch in stream:
                yield batch.select(names)

    return ArrowFile(path, schema, n_rows, read_tables)
