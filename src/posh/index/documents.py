"""The documents of an index: immutable, replaced as a whole by every change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from posh._arrays import MappedFile
from posh.codes import Codes
from posh.index import string_ids
from posh.index.append_only import AppendOnlyArray
from posh.index.code_index import AnyCodes, CodeIndex
from posh.index.refine import Refiner
from posh.index.sliced import Mask, Slots
from posh.index.string_ids import Ids
from posh.preprocess import Float32

__all__ = ["LAST_ID", "Documents"]

_AT_ONCE = 8192  # documents whose rows are made together
LAST_ID = 2**63 - 1
"""The largest id that is a number. It must be given: automatic ids stop before it."""


@dataclass(frozen=True, eq=False)
class Documents:
    """Documents by slot, which is their order of addition; slots of deleted documents are not used again.

    ``structure`` holds their codes and is what a search scans. ``refiner_rows`` are the numbers that the
    refiner needs of each document. ``ids`` are int64, or objects if one was a string. If every id is its
    slot, ``ids_are_slots`` is set, and a search need not look ids up. ``next_id`` is above every number that
    was ever an id; at ``LAST_ID`` no automatic ids are left. ``mapped`` are the files whose memory arrays may
    be.
    """

    structure: CodeIndex
    ids: AppendOnlyArray
    refiner_rows: AppendOnlyArray
    ids_are_slots: bool
    next_id: int
    mapped: tuple[MappedFile, ...] = ()

    @classmethod
    def of(
        cls,
        structure: CodeIndex,
        ids: Ids,
        refiner_rows: Float32,
        *,
        next_id: int = 0,
        mapped: tuple[MappedFile, ...] = (),
    ) -> Documents:
        """Take over complete arrays; ids and ``next_id`` decide what the next id is."""
        return cls(
            structure,
            AppendOnlyArray.of(ids),
            AppendOnlyArray.of(refiner_rows),
            _are_slots(ids, 0),
            max(next_id, _above(ids)),
            mapped,
        )

    @property
    def n_slots(self) -> int:
        """Slots in use, those of deleted documents included."""
        return self.ids.n

    @property
    def n_live(self) -> int:
        """Documents that were not deleted."""
        return self.structure.n_live

    @property
    def live(self) -> Mask:
        """Which slots hold documents that were not deleted, (n_slots,)."""
        return self.structure.live.rows

    def with_documents(
        self, codes: AnyCodes | None, X: npt.NDArray[Any] | None, ids: Ids, refiner: Refiner | None
    ) -> tuple[Documents, Refiner | None]:
        """Add documents; also return the refiner, which may have learned from their vectors X (n, d).

        If it has, the rows of the documents before change, too.
        """
        refiner, earlier_rows = self._learned(codes, X, refiner)
        rows = np.empty((len(ids), 0), np.float32) if refiner is None else refiner.rows_of(codes, X)
        added = replace(
            self,
            structure=self.structure.with_codes(codes, X),
            ids=string_ids.appended(self.ids, ids),
            refiner_rows=earlier_rows.with_rows(rows),
            ids_are_slots=self.ids_are_slots and _are_slots(ids, self.n_slots),
            next_id=max(self.next_id, _above(ids)),
        )
        return added, refiner

    def _learned(
        self, codes: Any, X: npt.NDArray[Any] | None, refiner: Refiner | None
    ) -> tuple[Refiner | None, AppendOnlyArray]:
        """Return the refiner after documents to be added, and its rows of those present."""
        n = 0 if refiner is None or X is None else refiner.n_to_learn_from
        if refiner is None or X is None or not n:
            return refiner, self.refiner_rows
        grown, is_new = refiner.with_pairs(codes[:n], X[:n])
        if not is_new:
            return grown, self.refiner_rows
        present = Codes.trusted(self.structure.codes.rows, grown.hasher.n_bits)
        rows = np.empty((len(present), grown.row_width()), np.float32)
        for start in range(0, len(present), _AT_ONCE):
            some = slice(start, start + _AT_ONCE)
            rows[some] = grown.rows_of(present[some], None)
        return grown, AppendOnlyArray.of(rows)

    def measured(self, added: npt.NDArray[Any] | None = None) -> Documents:
        """With new measurements of the documents, if the structure needs any; ``added`` (n, d) came last."""
        return replace(self, structure=self.structure.measured(added))

    def without(self, slots: Slots) -> Documents:
        """Remove the documents at these slots."""
        return replace(self, structure=self.structure.without(slots))

    def ids_of(self, slots: Slots) -> Ids:
        """The ids of documents by slot; -1 stays -1, or becomes None if ids are objects."""
        if self.ids_are_slots:
            return slots
        if self.ids.buffer.dtype.hasobject:
            return string_ids.by_slot(self.ids.rows, slots)
        return np.where(slots < 0, -1, self.ids.rows[np.maximum(slots, 0)])

    def memory_usage(self) -> dict[str, int]:
        """Bytes in use by part, and in total."""
        structure = self.structure
        parts = {
            "structure": structure.nbytes,
            "codes": structure.codes.buffer.nbytes,
            "vectors": structure.vector_nbytes,
            "ids": string_ids.nbytes(self.ids) + structure.live.buffer.nbytes,
            "refiner": self.refiner_rows.buffer.nbytes,
        }
        return parts | {"total": sum(parts.values())}

    def require_files(self) -> None:
        """Raise a FormatError if somebody has changed the size of a mapped file."""
        for file in self.mapped:
            file.check()

    def compacted(self) -> Documents:
        """The same documents without the slots of deleted ones."""
        return Documents.of(
            self.structure.compacted(),
            self.ids.rows[self.live],
            self.refiner_rows.rows[self.live],
            next_id=self.next_id,
            mapped=self.mapped,
        )

    def detached(self) -> Documents:
        """The same documents, to which one may add what these never see."""
        return replace(
            self,
            structure=self.structure.detached(),
            ids=self.ids.detached(),
            refiner_rows=self.refiner_rows.detached(),
        )


def _are_slots(ids: Ids, first_slot: int) -> bool:
    slots = np.arange(first_slot, first_slot + len(ids))
    return ids.dtype != object and bool(np.array_equal(ids, slots))


def _above(ids: Ids) -> int:
    if ids.dtype == object:
        ids = np.array([value for value in ids.tolist() if isinstance(value, int)], np.int64)
    return min(int(ids.max()) + 1, LAST_ID) if len(ids) else 0
