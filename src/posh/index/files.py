"""Files of an index, format version 3: a folder of arrays with a manifest (see :mod:`posh._durable`).

The manifest has ``kind``, ``"nearest"`` (:class:`posh.Index`) or ``"codes"`` (:class:`posh.CodeIndex`), and
``params``, the parameters of the constructor. Arrays of both kinds:

=================  ===============================================================================
ids, id_text,      see :mod:`posh.index.ids`
next_id
removed            slots of deleted documents, int64; zeros stand for all but their numbers
=================  ===============================================================================

Up to format version 2, the blocks of lists had no ``block_columns``: columns were padded to multiples of 64.
Format version 1 had one kind; an index with a metric had a hasher, whose codes gave the shape of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from posh._durable import MappedFile, read_folder, write_folder
from posh._model_files import Arrays
from posh.errors import FormatError

__all__ = ["FORMAT", "SavedIndex", "convert_errors", "read_index", "write_index"]

FORMAT, VERSION = "posh-index", 3
HASHER = "hasher.safetensors"
_CLASSES = {"nearest": "posh.Index", "codes": "posh.CodeIndex"}
T = TypeVar("T")


@dataclass(frozen=True)
class SavedIndex:
    """The content of an index folder; arrays are validated when an index is made from them."""

    path: Path
    version: int
    kind: str
    params: dict[str, Any]
    arrays: Arrays
    files: dict[str, bytes]
    mapped: tuple[MappedFile, ...]
    verify: bool

    def require_kind(self, kind: str) -> None:
        """Raise FormatError if the folder holds an index of the other class."""
        if self.kind != kind:
            raise FormatError(
                f"{self.path}: expected a saved {_CLASSES[kind]}, found a {_CLASSES[self.kind]}: "
                f"open it with posh.open or {_CLASSES[self.kind]}.load"
            )


def write_index(
    path: Path, kind: str, params: Mapping[str, Any], arrays: Arrays, files: Mapping[str, bytes]
) -> None:
    """Write the folder of an index, replacing a saved index there in one step."""
    write_folder(path, FORMAT, VERSION, {"kind": kind, "params": dict(params)}, arrays, files)


def read_index(path: str | os.PathLike[str], *, mmap: bool, verify: bool) -> SavedIndex:
    """Read the folder of an index; raise FormatError if anything is wrong with it."""
    where = Path(path)
    content = read_folder(where, FORMAT, VERSION, mmap=mmap, verify=verify)

    def make() -> SavedIndex:
        manifest = content.manifest
        version, params = int(manifest["version"]), dict(manifest["params"])
        kind = manifest["kind"] if version > 1 else "nearest" if params.get("metric") else "codes"
        if kind not in _CLASSES:
            raise ValueError(f"an index of the kind {kind!r}")
        return SavedIndex(where, version, kind, params, content.arrays, content.files, content.mapped, verify)

    return convert_errors(where, make)


def convert_errors(path: str | os.PathLike[str], read: Callable[[], T]) -> T:
    """Call ``read`` and convert any error that wrong content causes to a FormatError."""
    try:
        return read()
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{Path(path)}: the index is not consistent ({error})") from error
