"""Which item is in which slot, at one moment."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from posh.collection.storage import DamageError
from posh.index.append_only import AppendOnlyArray

__all__ = ["Directory"]

Seqs = npt.NDArray[np.int64]
Slots = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Directory:
    """Items by slot: ``seqs``, ascending, ``names``, their ids, and ``live``, which are still there.

    Slots are those of the index and, like its, given anew by ``compacted`` only, which ``numbering`` counts.

    >>> import numpy as np
    >>> directory = Directory.empty().with_items(np.array([4, 7]), np.array(["a", 3], object))
    >>> directory.without(directory.slots_of(np.array([4]))).names_of(np.array([[1, -1]]))
    array([[3, None]], dtype=object)
    """

    numbering: int
    seqs: AppendOnlyArray
    names: AppendOnlyArray
    live: AppendOnlyArray
    n_live: int

    @classmethod
    def empty(cls, numbering: int = 0) -> Directory:
        """No items."""
        return cls.of(np.empty(0, np.int64), np.empty(0, object), np.empty(0, bool), numbering)

    @classmethod
    def of(cls, seqs: Seqs, names: npt.NDArray[Any], live: Mask, numbering: int = 0) -> Directory:
        """Take over arrays (n,)."""
        return cls(
            numbering,
            AppendOnlyArray.of(seqs),
            AppendOnlyArray.of(names),
            AppendOnlyArray.of(live),
            int(live.sum()),
        )

    @property
    def n_slots(self) -> int:
        """Slots in use, those of removed items included."""
        return self.seqs.n

    @property
    def last_seq(self) -> int:
        """The largest seq, of a removed item perhaps; 0 if there is none."""
        return int(self.seqs.rows[-1]) if self.n_slots else 0

    def with_items(self, seqs: Seqs, names: npt.NDArray[Any]) -> Directory:
        """Add items at the end, whose seqs are larger than all others."""
        return replace(
            self,
            seqs=self.seqs.with_rows(seqs),
            names=self.names.with_rows(names),
            live=self.live.with_rows(np.ones(len(seqs), bool)),
            n_live=self.n_live + len(seqs),
        )

    def without(self, slots: Slots) -> Directory:
        """Remove items."""
        live = self.live.rows.copy()
        live[slots] = False
        return replace(self, live=AppendOnlyArray.of(live), n_live=self.n_live - len(slots))

    def compacted(self) -> Directory:
        """The same items in new slots, without those of removed ones."""
        live = self.live.rows
        seqs, names = self.seqs.rows[live], self.names.rows[live]
        return Directory.of(seqs, names, np.ones(len(seqs), bool), self.numbering + 1)

    def renumbered(self, seqs: Seqs) -> Directory:
        """The items with these seqs, ascending, in this order; those that are not there count as removed."""
        places = np.minimum(np.searchsorted(self.seqs.rows, seqs), max(0, self.n_slots - 1))
        live = np.zeros(len(seqs), bool)
        names = np.full(len(seqs), None, object)
        if self.n_slots:
            live = (self.seqs.rows[places] == seqs) & self.live.rows[places]
            names[live] = self.names.rows[places[live]]
        return Directory.of(seqs, names, live, self.numbering + 1)

    def slots_of(self, seqs: Seqs) -> Slots:
        """Slots of seqs, all of which must have one."""
        slots = np.searchsorted(self.seqs.rows, seqs)
        if len(seqs) and not (slots.max() < self.n_slots and (self.seqs.rows[slots] == seqs).all()):
            raise DamageError("rows of items that are not there")
        return slots

    def names_of(self, slots: Slots) -> npt.NDArray[Any]:
        """Ids by slot, of any shape; None where the slot is -1."""
        if not self.n_slots:
            return np.full(slots.shape, None, object)
        names = self.names.rows[np.maximum(slots, 0)]
        names[slots < 0] = None
        return names
