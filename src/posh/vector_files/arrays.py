"""Arrays side by side: ``.npy``, ``.npz``, ``.fvecs``, HDF5. 2-D arrays are vectors, 1-D arrays columns."""

from __future__ import annotations

import contextlib
import re
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from posh.datasets._formats import map_npy, map_vecs, npy_header
from posh.datasets._guard import reading, refuse_bloat, refuse_objects, require
from posh.errors import FormatError
from posh.vector_files.contract import (
    PAYLOAD,
    PAYLOAD_ENDS,
    Batch,
    Column,
    Kind,
    Roles,
    VectorFile,
    payloads_of,
)

__all__ = ["open_hdf5", "open_npy", "open_npz", "open_vecs"]

_KINDS: dict[str, Kind] = {"i": "integers", "u": "integers", "f": "numbers", "U": "text", "S": "text"}
_NO_FRACTION = re.compile(r"\.0+$")  # how NumPy writes a full second
_ONLY = "vectors"  # the name of the column of a file that has a single array


class Source(ABC):
    """An array on the disk, from which rows are read in order."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @abstractmethod
    def parts(self, n: int) -> Iterator[NDArray[Any]]:
        """Yield the rows, n at once."""


class Sliced(Source):
    """An array that slices read: a mapped file, or a data set of HDF5."""

    def __init__(self, array: Any) -> None:
        self._array, self.shape, self.dtype = array, array.shape, array.dtype

    def parts(self, n: int) -> Iterator[NDArray[Any]]:
        """Yield the rows, n at once."""
        for start in range(0, self.shape[0], n):
            yield np.asarray(self._array[start : start + n])


class Zipped(Source):
    """An array of an ``.npz`` file, which is unpacked as it is read."""

    def __init__(self, path: Path, info: zipfile.ZipInfo) -> None:
        self._path, self._info = path, info
        with reading(path, ".npz"), zipfile.ZipFile(path) as archive, archive.open(info) as file:
            self.shape, self._by_column, self.dtype = npy_header(file)
        n_bytes = self.dtype.itemsize * int(np.prod(self.shape, dtype=object))
        refuse_bloat(path, n_bytes, info.compress_size)

    def parts(self, n: int) -> Iterator[NDArray[Any]]:
        """Yield the rows, n at once. An array that is stored by column is read at once."""
        with self.opened() as file:
            if self._by_column:
                yield from Sliced(npy_format.read_array(file, allow_pickle=False)).parts(n)
                return
            npy_header(file)
            for start in range(0, self.shape[0], n):
                shape = (min(n, self.shape[0] - start), *self.shape[1:])
                data = file.read(int(np.prod(shape)) * self.dtype.itemsize)
                yield np.frombuffer(data, self.dtype).reshape(shape)

    @contextlib.contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """Open the array, from its header on."""
        refuse_objects(self._path, Path(self._info.filename).stem, self.dtype)
        with (
            reading(self._path, ".npz"),
            zipfile.ZipFile(self._path) as archive,
            archive.open(self._info) as file,
        ):
            yield file


class Joined(Source):
    """Texts of any length in an ``.npz`` file: an array with the bytes of all, and one with their ends."""

    dtype = np.dtype(object)

    def __init__(self, content: Zipped, ends: Zipped) -> None:
        self._content, self._ends, self.shape = content, ends, ends.shape

    def parts(self, n: int) -> Iterator[NDArray[Any]]:
        """Yield the texts as bytes, n at once."""
        with self._content.opened() as file:
            npy_header(file)
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
    """A file of arrays."""

    def __init__(self, path: Path, sources: dict[str, Source]) -> None:
        self.path, self._sources = path, sources
        self.columns = [_column(name, source) for name, source in sources.items()]

    def batches(self, roles: Roles, n: int) -> Iterator[Batch]:
        """Yield the rows, up to n at once."""
        fields = self.payload_names(roles)
        names = dict.fromkeys([*roles.vector, *([] if roles.id is None else [roles.id]), *fields])
        streams = {name: self._sources[name].parts(n) for name in names}
        for start in range(0, self.n_rows(roles), n):
            with reading(self.path, self.path.suffix):
                parts = {name: next(stream) for name, stream in streams.items()}
            vectors = (
                parts[roles.vector[0]]
                if len(roles.vector) == 1
                else np.column_stack([parts[name] for name in roles.vector])
            )
            ids = None if roles.id is None else _values(parts[roles.id])
            payloads = payloads_of({name: _values(parts[name]) for name in fields}, len(vectors))
            yield Batch(start, vectors, ids, payloads)


def _column(name: str, source: Source) -> Column:
    n_rows, *width = source.shape
    if len(width) == 1 and source.dtype.kind in "fiub":
        return Column(name, "vectors", f"{source.dtype}[{width[0]}]", n_rows)
    kind = _KINDS.get(source.dtype.kind, "others") if not width else "bytes"
    if source.dtype.kind == "O" and not width:
        kind = "text"  # HDF5 has text as objects
    return Column(name, kind, "text" if kind == "text" else f"{source.dtype}{list(width) or ''}", n_rows)


def _values(part: NDArray[Any]) -> list[Any]:
    if part.dtype.kind == "M":  # tolist() would give integers for nanoseconds, and for years beyond 9999
        texts = np.datetime_as_string(part).tolist()
        return [None if text == "NaT" else _NO_FRACTION.sub("", text) for text in texts]
    return [_text(value) if isinstance(value, bytes) else value for value in part.tolist()]


def _text(value: bytes) -> str:
    return value.decode("utf-8", errors="surrogateescape")


def open_npy(path: Path) -> VectorFile:
    """Open an ``.npy`` file: one 2-D array."""
    array = map_npy(path)
    return _with_vectors(ArrayFile(path, {_ONLY: Sliced(array)} if array.ndim else {}))


def open_npz(path: Path) -> VectorFile:
    """Open an ``.npz`` file: arrays by name."""
    with reading(path, ".npz"), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    arrays = {Path(info.filename).stem: Zipped(path, info) for info in members}
    sources: dict[str, Source] = {name: array for name, array in arrays.items() if array.shape}
    if {PAYLOAD, PAYLOAD_ENDS} <= sources.keys() and arrays[PAYLOAD].dtype == np.uint8:
        sources[PAYLOAD] = Joined(arrays[PAYLOAD], arrays[PAYLOAD_ENDS])
        del sources[PAYLOAD_ENDS]
    return _with_vectors(ArrayFile(path, sources))


def open_vecs(path: Path) -> VectorFile:
    """Open an ``.fvecs``, ``.bvecs`` or ``.ivecs`` file."""
    return ArrayFile(path, {_ONLY: Sliced(map_vecs(path))})


def open_hdf5(path: Path) -> VectorFile:
    """Open an HDF5 file: the data sets that are not in groups."""
    h5py = require("h5py", "reading HDF5")
    with reading(path, "HDF5"), contextlib.ExitStack() as undo:
        file = undo.enter_context(h5py.File(path, "r"))
        found = {name: item for name, item in file.items() if getattr(item, "shape", ())}
        for item in found.values():
            refuse_bloat(path, item.size * item.dtype.itemsize, item.id.get_storage_size())
        opened = _with_vectors(ArrayFile(path, {name: Sliced(item) for name, item in found.items()}))
        undo.pop_all()  # the file stays open as long as its data sets are used
    return opened


def _with_vectors(file: ArrayFile) -> ArrayFile:
    if not any(column.kind == "vectors" for column in file.columns):
        found = ", ".join(f"{column.name!r} ({column.type})" for column in file.columns) or "none"
        raise FormatError(f"{file.path}: expected a 2-D array of numbers, got {found}")
    return file
