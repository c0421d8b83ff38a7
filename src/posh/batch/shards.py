"""Shards: files of vectors, local or at any address that fsspec supports, which are read one at a time."""

from __future__ import annotations

import contextlib
import importlib
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from posh._validate import validate_integer_ids
from posh.errors import FormatError, MissingExtraError
from posh.files import RowError, choose_roles, open_file, take_valid_vectors
from posh.files.binary import read_npy_header
from posh.files.contract import import_extra, translate_errors
from posh.preprocess import Float32

__all__ = ["GUESSED", "Columns", "Content", "Shard", "find_shards", "read_ids", "read_rows", "read_shard"]

_SUFFIXES = (".parquet", ".npy")
_BATCH = 65_536  # rows that are validated together
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)


class Columns(NamedTuple):
    """The columns of Parquet files that hold the vector and the id.

    Without ``vector``, the only column of vectors is used. Without ``id``, documents are numbered
    consecutively through all shards.
    """

    vector: str | None = None
    id: str | None = None


Ids = npt.NDArray[np.int64]
GUESSED = Columns()


class Shard(NamedTuple):
    """A file of ``n_rows`` vectors, whose consecutive ids begin with ``first_id``.

    ``n_bytes`` and ``modified`` detect changes of the file. ``width`` is the number of features if the file
    header states it.
    """

    path: str
    n_rows: int
    first_id: int
    n_bytes: int
    modified: str
    width: int | None

    def identity(self) -> dict[str, Any]:
        """Return the description of the shard for the manifest of a part."""
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
    ids: Ids


# Finding -------------------------------------------------------------------------------------------


def find_shards(paths: Sequence[str | Path], columns: Columns = GUESSED) -> list[Shard]:
    """Return the shards at paths: files, patterns such as ``vectors/*.npy``, or folders of files.

    The shards of a pattern or folder are in alphabetical order. Only file headers are read.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for i in range(2):
    ...         np.save(pathlib.Path(folder, f"{i}.npy"), np.eye(3))
    ...     [(shard.n_rows, shard.first_id, shard.width) for shard in find_shards([folder])]
    [(3, 0, 3), (3, 3, 3)]
    """
    files = [file for path in paths for file in _list_files(str(path))]
    if not files:
        raise FileNotFoundError(
            f"expected shards ({' or '.join(_SUFFIXES)}), got none in {list(map(str, paths))}"
        )
    repeated = [file for file, count in Counter(files).items() if count > 1]
    if repeated:
        raise ValueError(f"expected each shard once, got {min(repeated)} again: remove the repetition")
    shards, first_id = [], 0
    for file in files:
        shards.append(_inspect(file, first_id, columns))
        first_id += shards[-1].n_rows
    _require_one_width(shards)
    return shards


def _list_files(path: str) -> list[str]:
    files = _list_remote_files(path) if _ADDRESS.match(path) else _list_local_files(path)
    for file in files:
        if PurePosixPath(file).suffix.lower() not in _SUFFIXES:
            raise ValueError(f"{file}: expected a shard that ends in {' or '.join(_SUFFIXES)}")
    return files


def _list_local_files(path: str) -> list[str]:
    place = Path(path).absolute()  # workers may run in other folders
    if place.is_dir():
        return sorted(str(file) for file in place.iterdir() if file.suffix.lower() in _SUFFIXES)
    if place.is_file():
        return [str(place)]
    matching = sorted(map(str, Path(place.anchor).glob(str(place.relative_to(place.anchor)))))
    if not matching:
        raise FileNotFoundError(f"{path}: no such shard, and no shard matches it as a pattern")
    return matching


def _list_remote_files(path: str) -> list[str]:
    with _name_errors(path):
        system, inner = _resolve(path)
        if system.isdir(inner):
            files = [file for file in system.ls(inner, detail=False) if file.lower().endswith(_SUFFIXES)]
        else:
            files = list(system.glob(inner))
    if not files:
        raise FileNotFoundError(f"{path}: no such shard, and no shard matches it as a pattern")
    return sorted(system.unstrip_protocol(file) for file in files)


def _resolve(path: str) -> tuple[Any, str]:
    try:
        core = importlib.import_module("fsspec.core")
    except ImportError as error:
        raise MissingExtraError("fsspec", "ray", f"reading {path}") from error
    system, inner = core.url_to_fs(path)
    return system, str(inner)


@contextlib.contextmanager
def _name_errors(path: str) -> Iterator[None]:
    """Convert errors of a remote file system to errors that name the shard."""
    try:
        yield
    except (FormatError, MissingExtraError, FileNotFoundError):
        raise
    except ImportError as error:  # fsspec lacks the package for this protocol
        raise OSError(f"{path}: expected an address that fsspec can read; {error}") from error
    except Exception as error:
        raise OSError(f"{path}: expected a readable file; {type(error).__name__}: {error}") from error


def _inspect(path: str, first_id: int, columns: Columns) -> Shard:
    with _open(path) as file:
        n_rows, width = _read_head(path, file, columns)
    return Shard(path, n_rows, first_id, *_read_version(path), width)


def _read_version(path: str) -> tuple[int, str]:
    """Return the number of bytes of a file, and a text that changes with its content."""
    if not _ADDRESS.match(path):
        status = Path(path).stat()
        return status.st_size, str(status.st_mtime_ns)
    with _name_errors(path):
        system, inner = _resolve(path)
        return int(system.info(inner)["size"]), str(system.checksum(inner))


@contextlib.contextmanager
def _open(path: str) -> Iterator[IO[bytes]]:
    """Open the file of a shard; of a remote one, only the bytes that are read are fetched."""
    if not _ADDRESS.match(path):
        with Path(path).open("rb") as file:
            yield file
        return
    with _name_errors(path):
        system, inner = _resolve(path)
        with system.open(inner, "rb") as file:
            yield file


def _read_head(path: str, file: IO[bytes], columns: Columns) -> tuple[int, int | None]:
    """Return the number of rows, and that of features if the header states it."""
    place = Path(path)
    if place.suffix.lower() == ".npy":
        with translate_errors(place, ".npy"):
            shape, _, dtype = read_npy_header(file)
        if columns.id is not None:
            raise ValueError(
                f"{path}: expected a Parquet file with the column {columns.id!r}, got a plain array"
            )
        if len(shape) != 2 or dtype.kind not in "fiub":
            raise FormatError(f"{path}: expected a 2-D array of numbers, got {dtype} {shape}")
        return shape[0], shape[1]
    with translate_errors(place, "Parquet"):
        parquet = import_extra("pyarrow.parquet", "reading Parquet").ParquetFile(file)
        schema, n_rows = parquet.schema_arrow, parquet.metadata.num_rows
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
    """Read a shard; raise FormatError naming the shard and the row if a row is invalid.

    ``width`` is the number of features that vectors must have. A shard that has changed since
    :func:`find_shards` is a FormatError, too, because its ids may no longer be distinct from others.
    """
    parts, ids = [np.empty((0, width or 0), np.float32)], [np.empty(0, np.int64)]
    for first_row, vectors, batch_ids in _iterate_batches(shard, columns, width):
        parts.append(vectors)
        ids.append(shard.first_id + first_row + np.arange(len(vectors)) if batch_ids is None else batch_ids)
    vectors = np.concatenate(parts[1:] or parts)
    if len(vectors) != shard.n_rows:
        raise FormatError(
            f"{shard.path}: expected {shard.n_rows:,} rows, as its header says, got {len(vectors):,}"
        )
    if _read_version(shard.path) != (shard.n_bytes, shard.modified):
        raise FormatError(f"{shard.path}: expected an unchanged file, but it was written: resume the job")
    return _sort_by_id(shard, vectors, np.concatenate(ids))


def _sort_by_id(shard: Shard, vectors: Float32, ids: Ids) -> Content:
    """Sort documents by id, because equal scores are in the order of ids; raise FormatError for equal ids."""
    if (ids[1:] > ids[:-1]).all():
        return Content(vectors, ids)
    order = np.argsort(ids, kind="stable")
    vectors, ids = vectors[order], ids[order]
    repeated = ids[1:][ids[1:] == ids[:-1]]
    if len(repeated):
        raise FormatError(f"{shard.path}: expected distinct ids, got {repeated[0]} again")
    return Content(vectors, ids)


def read_rows(shard: Shard, columns: Columns, rows: Ids) -> Float32:
    """Return the vectors (n, d) of n rows of a shard, whose numbers must ascend."""
    parts = []
    for first_row, vectors, _ in _iterate_batches(shard, columns, None):
        low, high = np.searchsorted(rows, (first_row, first_row + len(vectors)))
        parts.append(vectors[rows[low:high] - first_row])
    return np.concatenate(parts)


def read_ids(shard: Shard, column: str) -> Ids:
    """Return the distinct ids of a shard, ascending; reads the column of ids only."""
    path = Path(shard.path)
    parts = [np.empty(0, np.int64)]
    with _open(shard.path) as file:
        with translate_errors(path, "Parquet"):
            table = (
                import_extra("pyarrow.parquet", "reading Parquet").ParquetFile(file).read(columns=[column])
            )
        for batch in table.to_batches(_BATCH):
            try:
                parts.append(validate_integer_ids(batch.column(0).to_pylist()))
            except ValueError as error:
                raise FormatError(f"{path}: {error}") from error
    return np.unique(np.concatenate(parts))


def _iterate_batches(
    shard: Shard, columns: Columns, width: int | None
) -> Iterator[tuple[int, Float32, Ids | None]]:
    """Yield batches of rows: the number of the first row, vectors, and ids if there is a column of ids."""
    with _fetch(shard.path) as path, _name_shard(shard.path, path):
        file = open_file(path)
        vector = [] if columns.vector is None else [columns.vector]
        roles = choose_roles(file, vector, columns.id, [], number_rows=columns.id is None).roles
        for batch in file.batches(roles, _BATCH):
            vectors, problem = take_valid_vectors(batch.vectors, width)
            if problem is not None:
                raise RowError(path, batch.first_row + len(vectors), problem)
            width = vectors.shape[1]
            ids = None if batch.ids is None else validate_integer_ids(batch.ids, len(vectors))
            yield batch.first_row, vectors, ids


@contextlib.contextmanager
def _fetch(path: str) -> Iterator[Path]:
    """Yield the path of a local file, or of a temporary copy of a remote one."""
    if not _ADDRESS.match(path):
        yield Path(path)
        return
    with tempfile.TemporaryDirectory(prefix="posh-shard-") as folder:
        copy = Path(folder, PurePosixPath(path).name)
        with _name_errors(path):
            system, inner = _resolve(path)
            system.get_file(inner, str(copy))
        yield copy


@contextlib.contextmanager
def _name_shard(name: str, path: Path) -> Iterator[None]:
    """Convert errors about a file to errors that name its shard."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{name}: no such file, but it existed when the job began") from error
    except ValueError as error:  # a FormatError is one
        text = str(error).replace(str(path), name)
        raise FormatError(text if name in text else f"{name}: {text}") from error
