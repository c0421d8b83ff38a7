"""One moment of an index: immutable, replaced as a whole by every change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from posh._arrays import MappedFile
from posh.codes import Codes, PackedCodes
from posh.index.growing import Growing
from posh.index.ivf import Lists
from posh.index.segments import Segments
from posh.preprocess import Float32

__all__ = ["LAST_ID", "State"]

LAST_ID = 2**63 - 1
"""The largest id, an int64. It must be given: automatic ids stop before it."""

Rows = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class State:
    """Documents by slot, which is their order of addition; slots of removed documents are not used again.

    ``structure`` is what a search scans: segments, lists, or None for dense codes, which are scanned as
    they are. ``codes`` are the rows of :class:`~posh.codes.Codes` or :class:`~posh.codes.PackedCodes`,
    ``kept`` what a refiner keeps, ``live`` a mask. ``numbered`` tells that every id is its slot, which
    spares a search to look them up. ``next_id`` is above every id that was ever used; at ``LAST_ID`` no
    automatic ids are left. ``mapped`` are the files whose memory arrays may be.
    """

    structure: Segments | Lists | None
    codes: Growing
    ids: Growing
    kept: Growing
    live: Growing
    n_live: int
    numbered: bool
    next_id: int
    mapped: tuple[MappedFile, ...] = ()

    @classmethod
    def empty(cls, structure: Segments | Lists | None, code_width: int, n_kept: int) -> State:
        """No documents."""
        dtype = np.uint8 if structure is None else np.uint16
        return cls(
            structure,
            Growing.of(np.empty((0, code_width), dtype)),
            Growing.of(np.empty(0, np.int64)),
            Growing.of(np.empty((0, n_kept), np.float32)),
            Growing.of(np.empty(0, bool)),
            0,
            True,
            0,
        )

    @classmethod
    def of(
        cls,
        structure: Segments | Lists | None,
        codes: Rows,
        ids: Rows,
        kept: Rows,
        live: Rows,
        *,
        next_id: int = 0,
        mapped: tuple[MappedFile, ...] = (),
    ) -> State:
        """Take over complete arrays; ids and ``next_id`` decide what the next id is."""
        parts = [Growing.of(rows) for rows in (codes, ids, kept, live)]
        return cls(
            structure,
            parts[0],
            parts[1],
            parts[2],
            parts[3],
            int(live.sum()),
            _are_slots(ids, 0),
            max(next_id, _above(ids)),
            mapped,
        )

    def with_documents(
        self,
        codes: Codes | PackedCodes,
        ids: npt.NDArray[np.int64],
        kept: Float32,
        lists: npt.NDArray[np.int32] | None = None,
    ) -> State:
        """Add documents; ``lists`` are the lists that they belong to, if there are any."""
        structure = self.structure
        if isinstance(structure, Lists) and isinstance(codes, Codes) and lists is not None:
            structure = structure.with_codes(codes, lists)
        elif isinstance(structure, Segments) and isinstance(codes, Codes):
            structure = structure.with_codes(codes)
        rows: npt.NDArray[Any] = codes.active if isinstance(codes, Codes) else codes.bits
        return State(
            structure,
            self.codes.with_rows(rows),
            self.ids.with_rows(ids),
            self.kept.with_rows(kept),
            self.live.with_rows(np.ones(len(ids), bool)),
            self.n_live + len(ids),
            self.numbered and _are_slots(ids, self.ids.n),
            max(self.next_id, _above(ids)),
            self.mapped,
        )

    def without(self, slots: npt.NDArray[np.int64]) -> State:
        """Remove the documents at these slots."""
        live = self.live.rows.copy()
        live[slots] = False
        structure = None if self.structure is None else self.structure.without(slots)
        return replace(self, structure=structure, live=Growing.of(live), n_live=int(live.sum()))

    def ids_of(self, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The ids of documents by slot; -1 stays -1."""
        if self.numbered or not self.ids.n:
            return slots
        return np.where(slots < 0, -1, self.ids.rows[np.maximum(slots, 0)])

    def require_files(self) -> None:
        """Raise a FormatError if somebody has changed the size of a mapped file."""
        for file in self.mapped:
            file.check()

    def compacted(self) -> State:
        """The same documents without the slots of removed ones."""
        alive = np.flatnonzero(self.live.rows)
        structure = self.structure
        if structure is not None:
            codes = Codes.trusted(self.codes.rows[alive], structure.n_bits)
            if isinstance(structure, Lists):
                structure = structure.rebuilt(codes, alive)
            else:
                structure = Segments(codes.n_bits).with_codes(codes)
        return State.of(
            structure,
            *(part.rows[alive] for part in (self.codes, self.ids, self.kept, self.live)),
            next_id=self.next_id,
            mapped=self.mapped,
        )


def _are_slots(ids: Rows, first_slot: int) -> bool:
    return bool(np.array_equal(ids, np.arange(first_slot, first_slot + len(ids))))


def _above(ids: Rows) -> int:
    return min(int(ids.max()) + 1, LAST_ID) if len(ids) else 0
