"""Shards: files of vectors, on a disk or at any address that fsspec knows, that are read one by one."""

from __future__ import annotations

import contextlib
import importlib
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from posh import _validate
from posh.datasets._formats import npy_header
from posh.datasets._guard import reading, require
from posh.errors import FormatError, MissingExtraError
from posh.preprocess import Float32
from posh.vector_files import RowError, checked_vectors, choose_roles, open_file

__all__ = ["GUESSED", "Columns", "Content", "Shard", "find_shards", "opened", "read_rows", "read_shard"]

_SUFFIXES = (".parquet", ".npy")
_ROWS = 65_536  # that are checked at once
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)


class Columns(NamedTuple):
    """Which columns of Parquet files are the vector and the id.

    Without ``vector``, it is the only candidate. Without ``id``, documents are numbered through all shards.
    """

    vector: str | None = None
    id: str | None = None


GUESSED = Columns()


class Shard(NamedTuple):
    """A file of vectors: ``n_rows`` of them, whose automatic ids begin with ``first_id``.

    ``n_bytes`` and ``modified`` tell whether the file is still the same one. ``width`` is the number of
    features, if the head of the file tells it.
    """

    path: str
    n_rows: int
    first_id: int
    n_bytes: int
    modified: str
    width: int | None

    def identity(self) -> dict[str, Any]:
        """What the manifest of a finished part says about its shard."""
        return {
            "path": self.path,
            "bytes": self.n_bytes,
            "modified": self.modified,
            "n_rows": self.n_rows,
            "first_id": self.first_id,
        }


class Content(NamedTuple):
    """Vectors (n, d) and ids (n,) of a shard, in ascending order of the ids."""

    vectors: Float32
    ids: npt.NDArray[np.int64]


# Finding -------------------------------------------------------------------------------------------


def find_shards(paths: Sequence[str | Path], columns: Columns = GUESSED) -> list[Shard]:
    """Return the shards that paths name: files, patterns such as ``vectors/*.npy``, or folders of files.

    Those of one pattern or folder are in alphabetical order. Only the heads of files are read.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for i in range(2):
    ...         np.save(pathlib.Path(folder, f"{i}.npy"), np.eye(3))
    ...     [(shard.n_rows, shard.first_id, shard.width) for shard in find_shards([folder])]
    [(3, 0, 3), (3, 3, 3)]
    """
    found = [file for path in paths for file in _files_of(str(path))]
    if not found:
        raise FileNotFoundError(
            f"expected shards ({' or '.join(_SUFFIXES)}), got none in {list(map(str, paths))}"
        )
    twice = {file for file in found if found.count(file) > 1} if len(set(found)) < len(found) else set()
    if twice:
        raise ValueError(
            f"expected each shard once, got {min(twice)} again: its documents would be there twice"
        )
    shards, first_id = [], 0
    for file in found:
        shards.append(_looked_at(file, first_id, columns))
        first_id += shards[-1].n_rows
    _require_one_width(shards)
    return shards


def _files_of(path: str) -> list[str]:
    files = _remote_files(path) if _ADDRESS.match(path) else _local_files(path)
    for file in files:
        if PurePosixPath(file).suffix.lower() not in _SUFFIXES:
            raise ValueError(f"{file}: expected a shard that ends in {' or '.join(_SUFFIXES)}")
    return files


def _local_files(path: str) -> list[str]:
    place = Path(path).absolute()  # workers may run in other folders
    if place.is_dir():
        return sorted(str(file) for file in place.iterdir() if file.suffix.lower() in _SUFFIXES)
    if place.is_file():
        return [str(place)]
    matching = sorted(map(str, Path(place.anchor).glob(str(place.relative_to(place.anchor)))))
    if not matching:
        raise FileNotFoundError(f"{path}: no such shard, and no pattern of any")
    return matching


def _remote_files(path: str) -> list[str]:
    with _named(path):
        system, inner = _filesystem(path)
        if system.isdir(inner):
            files = [file for file in system.ls(inner, detail=False) if file.lower().endswith(_SUFFIXES)]
        else:
            files = list(system.glob(inner))
    if not files:
        raise FileNotFoundError(f"{path}: no such shard, and no pattern of any")
    return sorted(system.unstrip_protocol(file) for file in files)


def _filesystem(path: str) -> tuple[Any, str]:
    try:
        core = importlib.import_module("fsspec.core")
    except ImportError as error:
        raise MissingExtraError("fsspec", "ray", f"reading {path}") from error
    system, inner = core.url_to_fs(path)
    return system, str(inner)


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Let whatever a remote file system raises name the shard."""
    try:
        yield
    except (FormatError, MissingExtraError, FileNotFoundError):
        raise
    except ImportError as error:  # the package for this kind of address
        raise OSError(f"{path}: expected an address that fsspec can read here; {error}") from error
    except Exception as error:
        raise OSError(f"{path}: expected a file that can be read; {type(error).__name__}: {error}") from error


def _looked_at(path: str, first_id: int, columns: Columns) -> Shard:
    with opened(path) as file:
        n_rows, width = _head(path, file, columns)
    if not _ADDRESS.match(path):
        about = Path(path).stat()
        return Shard(path, n_rows, first_id, about.st_size, str(about.st_mtime_ns), width)
    with _named(path):
        system, inner = _filesystem(path)
        n_bytes = int(system.info(inner)["size"])
        return Shard(path, n_rows, first_id, n_bytes, str(system.checksum(inner)), width)


@contextlib.contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """Give the file of a shard; of one from elsewhere, only what is read is fetched."""
    if not _ADDRESS.match(path):
        with Path(path).open("rb") as file:
            yield file
        return
    with _named(path):
        system, inner = _filesystem(path)
        with system.open(inner, "rb") as file:
            yield file


def _head(path: str, file: IO[bytes], columns: Columns) -> tuple[int, int | None]:
    """The number of rows, and of features if the head tells it."""
    place = Path(path)
    if place.suffix.lower() == ".npy":
        with reading(place, ".npy"):
            shape, _, dtype = npy_header(file)
        if columns.id is not None:
            raise ValueError(
                f"{path}: expected a Parquet file with the column {columns.id!r}, got a plain array"
            )
        if len(shape) != 2 or dtype.kind not in "fiub":
            raise FormatError(f"{path}: expected a 2-D array of numbers, got {dtype} {shape}")
        return shape[0], shape[1]
    with reading(place, "Parquet"):
        opened = require("pyarrow.parquet", "reading Parquet").ParquetFile(file)
        schema, n_rows = opened.schema_arrow, opened.metadata.num_rows
    for name in (column for column in columns if column is not None):
        if name not in schema.names:
            raise ValueError(f"{path}: expected a column {name!r}, got {', '.join(schema.names)}")
    lengths = [
        getattr(field.type, "list_size", None) for field in schema if columns.vector in (None, field.name)
    ]
    known = [length for length in lengths if length is not None]
    return n_rows, known[0] if len(known) == 1 else None


def _require_one_width(shards: Sequence[Shard]) -> None:
    known = [shard for shard in shards if shard.width is not None]
    for shard in known:
        if shard.width != known[0].width:
            raise FormatError(
                f"{shard.path}: expected vectors of {known[0].width} numbers, as in {known[0].path}, "
                f"got {shard.width}"
            )


# Reading -------------------------------------------------------------------------------------------


def read_shard(shard: Shard, columns: Columns, width: int | None = None) -> Content:
    """Read all of a shard; a wrong row is a FormatError that names the shard and the row.

    ``width`` is the number of features that vectors must have.
    """
    parts, ids = [np.empty((0, width or 0), np.float32)], [np.empty(0, np.int64)]
    for first_row, vectors, numbers in _batches(shard, columns, width):
        parts.append(vectors)
        ids.append(shard.first_id + first_row + np.arange(len(vectors)) if numbers is None else numbers)
    vectors = np.concatenate(parts[1:] or parts)
    if len(vectors) != shard.n_rows:
        raise FormatError(
            f"{shard.path}: expected {shard.n_rows:,} rows, as its head says, got {len(vectors):,}"
        )
    every_id = np.concatenate(ids)
    if (every_id[1:] <= every_id[:-1]).any():  # equal scores are in the order of ids, also within a shard
        order = np.argsort(every_id, kind="stable")
        vectors, every_id = vectors[order], every_id[order]
        again = every_id[1:][every_id[1:] == every_id[:-1]]
        if len(again):
            raise FormatError(f"{shard.path}: expected distinct ids, got {again[0]} again")
    return Content(vectors, every_id)


def read_rows(shard: Shard, columns: Columns, rows: npt.NDArray[np.int64]) -> Float32:
    """Read some rows of a shard, given in ascending order: (len(rows), d)."""
    chosen = []
    for first_row, vectors, _ in _batches(shard, columns, None):
        low, high = np.searchsorted(rows, (first_row, first_row + len(vectors)))
        chosen.append(vectors[rows[low:high] - first_row])
    return np.concatenate(chosen)


def _batches(
    shard: Shard, columns: Columns, width: int | None
) -> Iterator[tuple[int, Float32, npt.NDArray[np.int64] | None]]:
    """Yield the number of the first row, vectors and ids of some rows at once."""
    with _on_disk(shard.path) as path, _as_shard(shard.path, path):
        file = open_file(path)
        vector = [] if columns.vector is None else [columns.vector]
        roles = choose_roles(file, vector, columns.id, [], number_rows=columns.id is None).roles
        for batch in file.batches(roles, _ROWS):
            vectors, problem = checked_vectors(batch.vectors, width)
            if problem is not None:
                raise RowError(path, batch.first_row + len(vectors), problem)
            width = vectors.shape[1]
            ids = None if batch.ids is None else _validate.ids(batch.ids, len(vectors))
            yield batch.first_row, vectors, ids


@contextlib.contextmanager
def _on_disk(path: str) -> Iterator[Path]:
    """Give the file of a shard; one from elsewhere is copied here first."""
    if not _ADDRESS.match(path):
        yield Path(path)
        return
    with tempfile.TemporaryDirectory(prefix="posh-shard-") as folder:
        copy = Path(folder, PurePosixPath(path).name)
        with _named(path):
            system, inner = _filesystem(path)
            system.get_file(inner, str(copy))
        yield copy


@contextlib.contextmanager
def _as_shard(name: str, path: Path) -> Iterator[None]:
    """Let errors about a file name its shard."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{name}: no such file, though it was there before") from error
    except ValueError as error:  # a FormatError is one
        text = str(error).replace(str(path), name)
        raise FormatError(text if name in text else f"{name}: {text}") from error
