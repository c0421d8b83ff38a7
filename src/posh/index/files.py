"""Index files, format version 1: a folder with a manifest (see :mod:`posh._folder`).

=================  ===============================================================================
hasher             the model file of the hasher
codes, ids, kept   rows by slot: codes uint16 or uint8, ids int64, what the refiner keeps float32
removed            slots of removed documents, int64
next_id            above every id that was ever used, int64; 2^63 - 1 if no automatic ids are left
planes, parts      all planes one after the other, uint64; (offset, stride, n_docs, list) of each segment
centroids          of the lists, float32, and ``assignment``, the list of each slot, int32
decoder_…          what the refiner learned
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
from posh._bitsliced import MAX_DOCS, Segment
from posh._folder import read_folder, write_folder
from posh.errors import FormatError
from posh.hashers.base import Hasher, SparseHasher
from posh.index.ivf import Lists
from posh.index.refine import Refiner
from posh.index.segments import Segments
from posh.index.state import State
from posh.store import Arrays, expect

__all__ = ["Opened", "checked", "load", "save"]

FORMAT, VERSION = "posh-index", 1
_HASHER = "hasher.safetensors"
T = TypeVar("T")


def save(
    path: Path, params: dict[str, Any], hasher: Hasher[Any], refiner: Refiner | None, state: State | None
) -> None:
    """Write an index; ``state`` is None if nothing was ever added."""
    arrays: Arrays = {}
    if state is not None:
        removed = np.flatnonzero(~state.live.rows)
        arrays = {
            "codes": state.codes.rows,
            "ids": state.ids.rows,
            "kept": state.kept.rows,
            "removed": removed,
            "next_id": np.array(state.next_id, np.int64),
        }
        arrays |= _structure_arrays(state.structure) | (refiner.state() if refiner else {})
    write_folder(path, FORMAT, VERSION, {"params": params}, arrays, {_HASHER: hasher.to_bytes()})


@dataclass(frozen=True)
class Opened:
    """The content of an index folder, checked as far as that needs no index."""

    hasher: Hasher[Any]
    params: dict[str, Any]
    arrays: Arrays
    mapped: tuple[MappedFile, ...]
    verify: bool

    def restore(self, refiner: Refiner | None) -> State | None:
        """The state of the index."""
        arrays = self.arrays
        if "ids" not in arrays:
            return None
        n = len(arrays["ids"])
        ids = expect(arrays, "ids", np.int64, (n,))
        n_kept = refiner.n_kept() if refiner else 0
        kept = expect(arrays, "kept", np.float32, (n, n_kept), look_inside=self.verify)
        if refiner:
            refiner.restore(arrays)
        codes = self._codes(n)
        live = np.ones(n, bool)
        removed = expect(arrays, "removed", np.int64, (None,), low=0)
        live[removed] = False
        structure = self._structure(n)
        if structure is not None and len(structure) != n:
            raise ValueError(f"{len(structure)} documents in segments, {n} ids")
        if structure is not None and len(removed):
            structure = structure.without(removed)
        next_id = 0  # as in files of before it was kept
        if "next_id" in arrays:
            next_id = int(expect(arrays, "next_id", np.int64, (), low=0))
        return State.of(structure, codes, ids, kept, live, next_id=next_id, mapped=self.mapped)

    def _codes(self, n: int) -> Any:
        if isinstance(self.hasher, SparseHasher):
            active = self.params["document_active"]
            codes = expect(self.arrays, "codes", np.uint16, (n, active))
            if self.verify and codes.size and codes.max() >= self.hasher.n_bits:
                raise ValueError(f"a code with bit {codes.max()} of {self.hasher.n_bits}")
            return codes
        return expect(self.arrays, "codes", np.uint8, (n, -(-self.hasher.n_bits // 8)))

    def _structure(self, n: int) -> Segments | Lists | None:
        if not isinstance(self.hasher, SparseHasher):
            return None
        n_bits = self.hasher.n_bits
        flat = expect(self.arrays, "planes", np.uint64, (None,))
        table = expect(self.arrays, "parts", np.int64, (None, 4))
        if self.params["structure"] == "exact":
            return _segments(n_bits, flat, table)
        centroids = expect(
            self.arrays, "centroids", np.float32, (None, self.hasher.preprocess_.n_features_out)
        )
        assignment = expect(self.arrays, "assignment", np.int32, (n,))
        if len(assignment) and not 0 <= assignment.min() <= assignment.max() < len(centroids):
            raise ValueError(
                f"documents in lists {assignment.min()} .. {assignment.max()} of {len(centroids)}"
            )
        lists = tuple(_segments(n_bits, flat, table[table[:, 3] == i]) for i in range(len(centroids)))
        order = np.argsort(assignment, kind="stable").astype(np.int64)
        bounds = np.cumsum(np.bincount(assignment, minlength=len(centroids)))[:-1]
        slots = tuple(np.split(order, bounds))
        if [len(own) for own in lists] != [len(own) for own in slots]:
            raise ValueError("segments and lists differ in length")
        return Lists(n_bits, centroids, lists, slots, assignment)


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


def _structure_arrays(structure: Segments | Lists | None) -> Arrays:
    if structure is None:
        return {}
    if isinstance(structure, Segments):
        return _plane_arrays([(part, 0) for part in structure.parts])
    parts = [(part, i) for i, own in enumerate(structure.lists) for part in own.parts]
    return _plane_arrays(parts) | {"centroids": structure.centroids, "assignment": structure.assignment}


def _plane_arrays(parts: list[tuple[Segment, int]]) -> Arrays:
    rows, offset = [], 0
    for part, number in parts:
        rows.append((offset, part.planes.shape[1], part.n_docs, number))
        offset += part.planes.size
    flat = np.concatenate([part.planes.ravel() for part, _ in parts] or [np.empty(0, np.uint64)])
    return {"planes": flat, "parts": np.array(rows, np.int64).reshape(-1, 4)}


def _segments(n_bits: int, flat: Any, table: Any) -> Segments:
    parts = []
    for number, (offset, stride, n_docs, _) in enumerate(table.tolist()):
        if not (0 <= n_docs <= MAX_DOCS and 4 * -(-n_docs // 256) <= stride):
            raise ValueError(f"a segment of {n_docs} documents with a stride of {stride}")
        if not 0 <= offset <= offset + n_bits * stride <= len(flat):
            raise ValueError(f"a segment at {offset} outside of {len(flat)} words")
        planes = flat[offset : offset + n_bits * stride].reshape(n_bits, stride)
        parts.append(Segment(planes, n_docs, number * MAX_DOCS))
    return Segments(n_bits, tuple(parts))
