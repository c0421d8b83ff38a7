"""Writing items to files that the readers give back: the columns ``id``, ``vector`` and ``payload``."""

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

from posh import _files
from posh.datasets._guard import require
from posh.vector_files.contract import PAYLOAD, PAYLOAD_ENDS

__all__ = ["WRITERS", "write_items"]

_ROWS = 8192  # that are in memory at once


class Item(Protocol):
    """What is written: an id, a vector (d,) and a payload."""

    @property
    def id(self) -> int | str: ...

    @property
    def vector(self) -> NDArray[np.float32]: ...

    @property
    def payload(self) -> dict[str, Any]: ...


def write_items(path: Path, items: Iterable[Item], n: int, width: int) -> None:
    """Write n items with vectors of ``width`` numbers; the suffix of the path says how.

    The file is complete when it appears under its name. In Parquet and npz, payloads are JSON, and ids are
    all integers or all text. In npz, ``payload`` has the bytes of all payloads, and that of row i ends before
    ``payload_ends[i]``.
    """
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        raise ValueError(f"{path}: expected a suffix among {' '.join(WRITERS)}, got {path.suffix!r}")
    with _files.atomic_write(path) as temporary:
        writer(temporary, items, n, width)


def _write_json_lines(path: Path, items: Iterable[Item], n: int, width: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        for item in items:
            row = {"id": item.id, "vector": item.vector.tolist(), "payload": item.payload}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _write_parquet(path: Path, items: Iterable[Item], n: int, width: int) -> None:
    arrow = require("pyarrow", "writing Parquet")
    parquet = require("pyarrow.parquet", "writing Parquet")
    parts = _parts(items)
    first = next(parts, [])
    id_type = arrow.int64() if not first or isinstance(first[0].id, int) else arrow.string()
    fields = {"id": id_type, "vector": arrow.list_(arrow.float32(), width), "payload": arrow.string()}
    schema = arrow.schema(list(fields.items()))
    with parquet.ParquetWriter(path, schema) as writer:
        for part in itertools.chain([first], parts):
            values = np.concatenate([item.vector for item in part]) if part else np.empty(0, np.float32)
            columns = [
                arrow.array(_ids(part, int if id_type == arrow.int64() else str), id_type),
                arrow.FixedSizeListArray.from_arrays(arrow.array(values, arrow.float32()), width),
                arrow.array([_text(item) for item in part], arrow.string()),
            ]
            writer.write_batch(arrow.RecordBatch.from_arrays(columns, schema=schema))


def _write_npz(path: Path, items: Iterable[Item], n: int, width: int) -> None:
    """Write vectors as they come; ids and payloads are in memory until the end."""
    ids: list[int | str] = []
    texts: list[bytes] = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("vector.npy", "w", force_zip64=True) as file:
            header = {"descr": "<f4", "fortran_order": False, "shape": (n, width)}
            npy_format.write_array_header_1_0(file, header)
            for part in _parts(items):
                ids += _ids(part, type(ids[0] if ids else part[0].id))
                texts += [_text(item).encode() for item in part]
                file.write(np.concatenate([item.vector for item in part]).astype("<f4").tobytes())
        # Not an array of texts: NumPy gives each of them the room of the longest one.
        ends = np.cumsum([len(text) for text in texts], dtype="<i8")
        with archive.open(f"{PAYLOAD}.npy", "w", force_zip64=True) as file:
            header = {"descr": "|u1", "fortran_order": False, "shape": (int(ends[-1]) if texts else 0,)}
            npy_format.write_array_header_1_0(file, header)
            file.writelines(texts)
        id_array = np.array(ids, None if ids else np.int64)
        for name, column in (("id", id_array), (PAYLOAD_ENDS, ends)):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                npy_format.write_array(file, column, allow_pickle=False)


def _parts(items: Iterable[Item]) -> Iterator[list[Item]]:
    rows = iter(items)
    while part := list(itertools.islice(rows, _ROWS)):
        yield part


def _ids(part: list[Item], kind: type) -> list[Any]:
    for item in part:
        if not isinstance(item.id, kind):
            raise ValueError(
                f"expected ids that are all {kind.__name__}, as the first one, got {item.id!r}: "
                "choose .jsonl, which holds both"
            )
        if isinstance(item.id, str) and item.id.endswith("\0"):
            raise ValueError(f"expected ids that do not end in NUL, got {item.id!r}: choose .jsonl")
    return [item.id for item in part]


def _text(item: Item) -> str:
    return json.dumps(item.payload, ensure_ascii=False)


WRITERS: dict[str, Callable[[Path, Iterable[Item], int, int], None]] = {
    ".parquet": _write_parquet,
    ".jsonl": _write_json_lines,
    ".npz": _write_npz,
}
