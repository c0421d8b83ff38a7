"""One moment of a collection: immutable, replaced as a whole by every write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from posh.collection.directory import Directory
from posh.index.snapshot import IndexSnapshot

__all__ = ["Moment"]

_SPARE = 10_000  # slots of removed items that are not worth compacting


@dataclass(frozen=True, eq=False)
class Moment:
    """What a search sees.

    ``version`` counts the writes and is in the database too: so it is known which moment of the one belongs
    to which of the other. ``index`` is None without a hasher; its slots are those of the directory.
    ``options`` are its options as they were given, ``generation`` the number of its codes in the database, 0
    without a hasher. ``last_seq`` is the largest seq that was ever used, ``ids_sum`` the checksum of all ids,
    and ``learned_from`` the number of items that the index has learned from, if it learns.
    """

    version: int
    n_features: int | None
    options: Mapping[str, Any]
    generation: int
    directory: Directory
    index: IndexSnapshot | None
    last_seq: int
    ids_sum: int
    learned_from: int = 0

    def compacted(self) -> Moment:
        """The same items in new slots, without those of removed ones."""
        if self.directory.n_live == self.directory.n_slots:
            return self
        index = None if self.index is None else self.index.compacted()
        return replace(self, directory=self.directory.compacted(), index=index)

    def tidy(self) -> Moment:
        """Compacted if more than half of many slots are of removed items: memory stays in proportion."""
        removed = self.directory.n_slots - self.directory.n_live
        return self.compacted() if removed > max(_SPARE, self.directory.n_live) else self
