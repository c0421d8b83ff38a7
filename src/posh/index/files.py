"""Index files, format version 1: a folder with a manifest (see :mod:`posh._folder`).

=================  ===============================================================================
hasher             the model file of the hasher
codes, ids, kept   rows by slot: codes uint16 or uint8, ids int64, the rows of the refiner float32;
                   of ids that are strings see :mod:`posh.index.string_ids`
removed            slots of deleted documents, int64; zeros stand for all but their numbers
next_id            above every number that was ever an id, int64; 2^63 - 1 if no automatic ids are left
planes, parts      all planes one after the other, uint64; (offset, stride, n_docs, list) of each segment
centroids          of the lists, float32, and ``assignment``, the list of each slot, int32
decoder_…          the trained state of the refiner, and the sums that it goes on learning from
=================  ===============================================================================
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from posh._arrays import MappedFile
from posh._folder import read_folder, write_folder
from posh.errors import FormatError
from posh.hashers.base import Hasher, SparseHasher
from posh.index import string_ids
from posh.index.code_index import CodeIndex, without_deleted
from posh.index.documents import Documents
from posh.index.options import IndexOptions
from posh.index.refine import Refiner
from posh.index.sliced import Mask
from posh.index.string_ids import Ids
from posh.model_files import Arrays, expect

__all__ = ["Opened", "checked", "load", "save"]

FORMAT, VERSION = "posh-index", 1
_HASHER = "hasher.safetensors"
T = TypeVar("T")


def save(
    path: Path,
    options: dict[str, Any],
    hasher: Hasher[Any],
    refiner: Refiner | None,
    documents: Documents | None,
) -> None:
    """Write an index, with zeros in place of deleted documents.

    ``documents`` is None if nothing was ever added.
    """
    arrays: Arrays = {}
    if documents is not None:
        live = documents.live
        arrays = {
            "codes": without_deleted(documents.structure.codes.rows, live),
            **string_ids.to_arrays(_remaining_ids(documents.ids.rows, live)),
            "kept": without_deleted(documents.refiner_rows.rows, live),
            "removed": np.flatnonzero(~live),
            "next_id": np.array(documents.next_id, np.int64),
        }
        arrays |= documents.structure.to_arrays() | (refiner.to_arrays() if refiner else {})
    write_folder(path, FORMAT, VERSION, {"params": options}, arrays, {_HASHER: hasher.to_bytes()})


def _remaining_ids(ids: Ids, live: Mask) -> Ids:
    """Return ids (n,) with 0 in place of deleted ones if strings are among them; numbers alone stay."""
    return without_deleted(ids, live) if ids.dtype == object else ids


@dataclass(frozen=True)
class Opened:
    """The content of an index folder, checked as far as that needs no index."""

    hasher: Hasher[Any]
    params: dict[str, Any]
    arrays: Arrays
    mapped: tuple[MappedFile, ...]
    verify: bool

    def restore(
        self, structure: type[CodeIndex], options: IndexOptions, refiner: Refiner | None
    ) -> Documents | None:
        """The documents of the index."""
        arrays = self.arrays
        if "ids" not in arrays:
            return None
        ids = string_ids.from_arrays(arrays)
        n = len(ids)
        width = refiner.row_width() if refiner else 0
        refiner_rows = expect(arrays, "kept", np.float32, (n, width), look_inside=self.verify)
        if refiner:
            refiner.restore(arrays)
        codes = structure.from_arrays(self.hasher, options, self._codes(structure, n), arrays)
        removed = expect(arrays, "removed", np.int64, (None,), low=0)
        if len(removed):
            codes = codes.without(removed)
        if ids.dtype == object and len(set(ids[codes.live.rows].tolist())) < codes.n_live:
            raise ValueError("expected distinct ids, found one more than once")
        next_id = 0  # files of older versions do not have it
        if "next_id" in arrays:
            next_id = int(expect(arrays, "next_id", np.int64, (), low=0))
        return Documents.of(codes, ids, refiner_rows, next_id=next_id, mapped=self.mapped)

    def _codes(self, structure: type[CodeIndex], n: int) -> Any:
        if not structure.has_codes:
            return expect(self.arrays, "codes", np.uint8, (n, 0))
        if isinstance(self.hasher, SparseHasher):
            active = self.params["document_active"]
            codes = expect(self.arrays, "codes", np.uint16, (n, active))
            if self.verify and codes.size and codes.max() >= self.hasher.n_bits:
                raise ValueError(f"a code with bit {codes.max()} of {self.hasher.n_bits}")
            return codes
        return expect(self.arrays, "codes", np.uint8, (n, -(-self.hasher.n_bits // 8)))


def load(path: Path, *, mmap: bool, verify: bool) -> Opened:
    """Open an index folder; anything wrong with it is a :class:`~posh.errors.FormatError`."""
    content = read_folder(path, FORMAT, VERSION, mmap=mmap, verify=verify)
    hasher = checked(path, lambda: Hasher.from_bytes(content.files[_HASHER], path / _HASHER))
    return Opened(hasher, content.manifest["params"], content.arrays, content.mapped, verify)


def checked(path: str | os.PathLike[str], read: Callable[[], T]) -> T:
    """Call ``read`` and turn whatever wrong content makes it raise into a FormatError."""
    try:
        return read()
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{Path(path)}: the index is not consistent ({error})") from error
