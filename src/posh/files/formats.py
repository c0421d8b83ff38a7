"""The tables of formats: open a file, read all its vectors, or write items, by the suffix of its name."""

from __future__ import annotations

import itertools
import json
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from posh._durable import write_atomically
from posh.errors import FormatError
from posh.files.binary import open_arrow, open_hdf5, open_npy, open_npz, open_parquet, open_vecs
from posh.files.contract import (
    PAYLOAD,
    PAYLOAD_ENDS,
    BadRowHandler,
    Roles,
    RowError,
    VectorFile,
    import_extra,
)
from posh.files.roles import OptionNames, choose_roles, take_valid_vectors
from posh.files.text import CsvFile, JsonLinesFile

__all__ = ["SUFFIXES", "WRITERS", "open_file", "read_vectors", "write_items"]

_BATCH = 8192  # rows in memory at a time

SUFFIXES: dict[str, Callable[[Path], VectorFile]] = {
    ".npy": open_npy,
    ".npz": open_npz,
    ".parquet": open_parquet,
    ".arrow": open_arrow,
    ".feather": open_arrow,
    ".jsonl": JsonLinesFile,
    ".ndjson": JsonLinesFile,
    ".csv": CsvFile,
    ".tsv": CsvFile,
    ".fvecs": open_vecs,
    ".bvecs": open_vecs,
    ".ivecs": open_vecs,
    ".h5": open_hdf5,
    ".hdf5": open_hdf5,
}
"""The function that opens a file of each suffix."""


def open_file(path: str | Path, on_bad_row: BadRowHandler | None = None) -> VectorFile:
    """Open a file of vectors, ids and payloads; its suffix names the format.

    ``on_bad_row`` is called for each row that cannot be read, which is then skipped; without it, such a row
    is an error.

    Raises
    ------
    FormatError : the file is empty, truncated, or of another format than its suffix says.
    MissingExtraError : HDF5 needs h5py, Parquet and Arrow need pyarrow.

    """
    path = Path(path)
    opener = SUFFIXES.get(path.suffix.lower())
    if opener is None:
        raise ValueError(f"{path}: expected a suffix among {' '.join(SUFFIXES)}, got {path.suffix!r}")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    if not path.stat().st_size:
        raise FormatError(f"{path}: expected a {path.suffix} file, got an empty one")
    file = opener(path)
    if on_bad_row is None and file.bad_row is not None:
        raise file.bad_row
    file.on_bad_row = on_bad_row
    return file


def read_vectors(path: str | Path, key: str | None = None) -> NDArray[np.float32]:
    """Read all vectors of a file; its suffix names the format.

    ============================  ======================================================  ============
    suffix                        content                                                 ``key``
    ============================  ======================================================  ============
    ``.npy``                      a 2-D array                                             none
    ``.npz``                      2-D arrays by name                                      array
    ``.fvecs .bvecs .ivecs``      records of an int32 width and its values                none
    ``.h5 .hdf5``                 2-D data sets, as ann-benchmarks has them               data set
    ``.parquet .arrow .feather``  a column of equally long lists, or numbered columns     column
    ``.jsonl .ndjson``            objects, one per line, with a list of numbers           field
    ``.csv .tsv``                 numbers in one column, or numbered columns              column
    ============================  ======================================================  ============

    Parameters
    ----------
    path
        The file.
    key
        The array or column with the vectors. A pattern such as ``x*`` names several columns of numbers. By
        default the only column of vectors (``train`` if there are several), or else the only family of
        numbered columns of numbers, as ``posh import`` chooses them: an ``id`` is not a feature.

    Returns
    -------
    float32 (n, d), all finite. An ``.npy`` file of float32 is mapped into memory, not copied.

    Raises
    ------
    FormatError : the file is truncated, contradicts itself, or has no such vectors; a row is invalid.
    MissingExtraError : HDF5 needs h5py, Parquet and Arrow need pyarrow.

    Examples
    --------
    >>> import numpy as np, tempfile, pathlib
    >>> from posh.files import read_vectors
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "three.npy")
    ...     np.save(path, np.eye(3))
    ...     read_vectors(path).shape
    (3, 3)

    """
    file = open_file(path)
    patterns = [] if key is None else [key]
    try:
        choice = choose_roles(file, patterns, payload=[], number_rows=True, names=OptionNames(vector="key"))
    except FormatError:
        raise
    except ValueError as error:
        raise FormatError(str(error)) from error
    return _read_all(file, choice.roles)


def _read_all(file: VectorFile, roles: Roles) -> NDArray[np.float32]:
    """Read and validate all vectors (n, d)."""
    n_rows, n_read = file.n_rows(roles), 0
    vectors = file.map_vectors(roles)
    is_mapped = vectors is not None
    for batch in file.batches(roles, _BATCH):
        valid, problem = take_valid_vectors(batch.vectors, None if vectors is None else vectors.shape[1])
        if problem is not None:
            raise RowError(file.path, batch.first_row + len(valid), problem)
        if vectors is None:
            vectors = _allocate(file.path, n_rows, valid.shape[1])
        if not is_mapped and n_read + len(valid) <= n_rows:
            vectors[n_read : n_read + len(valid)] = valid
        n_read += len(valid)
    if n_read != n_rows:
        raise FormatError(f"{file.path}: expected the {n_rows:,} rows that it declares, got {n_read:,}")
    if vectors is None or not n_read:
        raise FormatError(f"{file.path}: expected rows with vectors, got none")
    return vectors


def _allocate(path: Path, n_rows: int, width: int) -> NDArray[np.float32]:
    try:
        return np.empty((n_rows, width), np.float32)
    except MemoryError as error:
        raise FormatError(f"{path}: expected vectors that fit in memory, got {n_rows:,} x {width}") from error


# Writing ------------------------------------------------------------------------------------------

# Writers write the columns ``id``, ``vector`` and ``payload``, which the readers find by their names.


class Item(Protocol):
    """An item to write: an id, a vector (d,) and a payload."""

    @property
    def id(self) -> int | str: ...

    @property
    def vector(self) -> NDArray[np.float32]: ...

    @property
    def payload(self) -> dict[str, Any]: ...


def write_items(path: Path, items: Iterable[Item], n: int, width: int) -> None:
    """Write n items with vectors of ``width`` numbers; the suffix of the path names the format.

    The file is written atomically. In Parquet and npz files, ids are all integers or all text. A Parquet file
    has a column for each field whose values have one type, and the rest of the payloads as JSON; its writer
    iterates twice over the items. In npz files, ``payload`` holds the bytes of all payloads as JSON, and that
    of row i ends before ``payload_ends[i]``.
    """
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        raise ValueError(f"{path}: expected a suffix among {' '.join(WRITERS)}, got {path.suffix!r}")
    with write_atomically(path) as temporary:
        writer(temporary, items, n, width)


def _write_json_lines(path: Path, items: Iterable[Item], n: int, width: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        for item in items:
            row = {"id": item.id, "vector": item.vector.tolist(), "payload": item.payload}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


_MAX_COLUMNS = 1000  # for fields; a payload may use names as if they were values
_RESERVED = {"", "id", "vector", PAYLOAD}  # in any case: a reader takes ID for a column of ids
_EXACT = 2**53  # larger integers are not exact as floats
_INT64 = range(-(2**63), 2**63)


class _FieldTypes:
    """The types of the fields of payloads, to write those with one type as columns."""

    def __init__(self) -> None:
        self._seen: dict[str, set[str]] = {}

    def add(self, payload: dict[str, Any]) -> None:
        for name, value in payload.items():
            if name in self._seen or len(self._seen) < _MAX_COLUMNS:
                self._seen.setdefault(name, set()).add(_find_type(value))

    def choose_columns(self) -> dict[str, str]:
        """Return the type of each field that becomes a column; an explicit null stays in the JSON."""
        columns = {}
        for name, types in self._seen.items():
            given = types - {"null"}
            if given == {"integer", "float"}:
                given = {"float"}
            if len(given) == 1 and "other" not in given and name.lower() not in _RESERVED:
                (columns[name],) = given
        return columns


def _find_type(value: Any) -> str:
    """Return the type of a column that holds the value: bool, integer, float, text, texts, null or other."""
    match value:
        case None:
            return "null"
        case bool():
            return "bool"
        case int():
            return "integer" if value in _INT64 else "other"
        case float():
            return "float"
        case str():
            return "text"
        case list() if value and all(isinstance(one, str) for one in value):
            return "texts"
        case _:
            return "other"


def _fits(value: Any, column: str) -> bool:
    kind = _find_type(value)
    return kind == column or (column == "float" and kind == "integer" and abs(value) <= _EXACT)


def _write_parquet(path: Path, items: Iterable[Item], n: int, width: int) -> None:
    arrow = import_extra("pyarrow", "writing Parquet")
    parquet = import_extra("pyarrow.parquet", "writing Parquet")
    types, id_type = _FieldTypes(), None
    for item in items:
        id_type = id_type or (arrow.int64() if isinstance(item.id, int) else arrow.string())
        types.add(item.payload)
    id_type, columns = id_type or arrow.int64(), types.choose_columns()
    arrow_types = {
        "bool": arrow.bool_(),
        "integer": arrow.int64(),
        "float": arrow.float64(),
        "text": arrow.string(),
        "texts": arrow.list_(arrow.string()),
    }
    fields = {"id": id_type, "vector": arrow.list_(arrow.float32(), width)}
    fields |= {name: arrow_types[kind] for name, kind in columns.items()} | {PAYLOAD: arrow.string()}
    schema = arrow.schema(list(fields.items()))
    with parquet.ParquetWriter(path, schema) as writer:
        for part in _split_items(items):
            values = np.concatenate([item.vector for item in part])
            arrays = [
                arrow.array(_validate_ids(part, int if id_type == arrow.int64() else str), id_type),
                arrow.FixedSizeListArray.from_arrays(arrow.array(values, arrow.float32()), width),
                *(
                    arrow.array([_take_column(item.payload, name, kind) for item in part], arrow_types[kind])
                    for name, kind in columns.items()
                ),
                arrow.array([_dump_rest(item.payload, columns) for item in part], arrow.string()),
            ]
            writer.write_batch(arrow.RecordBatch.from_arrays(arrays, schema=schema))


def _take_column(payload: dict[str, Any], name: str, kind: str) -> Any:
    value = payload.get(name)
    return value if _fits(value, kind) else None


def _dump_rest(payload: dict[str, Any], columns: dict[str, str]) -> str | None:
    """Return the fields that are in no column as JSON; None if there are none."""
    rest = {
        name: value
        for name, value in payload.items()
        if name not in columns or not _fits(value, columns[name])
    }
    return json.dumps(rest, ensure_ascii=False) if rest else None


def _write_npz(path: Path, items: Iterable[Item], n: int, width: int) -> None:
    """Write an npz file. Vectors are streamed; ids and payloads stay in memory until the end."""
    ids: list[int | str] = []
    texts: list[bytes] = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("vector.npy", "w", force_zip64=True) as file:
            header = {"descr": "<f4", "fortran_order": False, "shape": (n, width)}
            npy_format.write_array_header_1_0(file, header)
            for part in _split_items(items):
                ids += _validate_ids(part, type(ids[0] if ids else part[0].id))
                texts += [_dump_payload(item).encode() for item in part]
                file.write(np.concatenate([item.vector for item in part]).astype("<f4").tobytes())
        # Not an array of texts: NumPy pads each of them to the length of the longest.
        ends = np.cumsum([len(text) for text in texts], dtype="<i8")
        with archive.open(f"{PAYLOAD}.npy", "w", force_zip64=True) as file:
            header = {"descr": "|u1", "fortran_order": False, "shape": (int(ends[-1]) if texts else 0,)}
            npy_format.write_array_header_1_0(file, header)
            file.writelines(texts)
        id_array = np.array(ids, None if ids else np.int64)
        for name, column in (("id", id_array), (PAYLOAD_ENDS, ends)):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                npy_format.write_array(file, column, allow_pickle=False)


def _split_items(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield the items in lists of up to ``_BATCH``."""
    rows = iter(items)
    while part := list(itertools.islice(rows, _BATCH)):
        yield part


def _validate_ids(part: list[Item], kind: type) -> list[Any]:
    """Return the ids; raise ValueError for one that the file cannot hold."""
    for item in part:
        if not isinstance(item.id, kind):
            raise ValueError(
                f"expected ids that are all {kind.__name__}, as the first one, got {item.id!r}: "
                "choose .jsonl, which holds both"
            )
        if isinstance(item.id, str) and item.id.endswith("\0"):
            raise ValueError(f"expected ids that do not end in NUL, got {item.id!r}: choose .jsonl")
    return [item.id for item in part]


def _dump_payload(item: Item) -> str:
    return json.dumps(item.payload, ensure_ascii=False)


WRITERS: dict[str, Callable[[Path, Iterable[Item], int, int], None]] = {
    ".parquet": _write_parquet,
    ".jsonl": _write_json_lines,
    ".npz": _write_npz,
}
"""The function that writes a file of each suffix."""
