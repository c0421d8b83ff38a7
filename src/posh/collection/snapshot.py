"""A snapshot of a collection: the immutable state that searches see, and the search of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from posh.collection import tables
from posh.collection.base import NO_HASHER, Id
from posh.collection.tables import Connection, DamageError, Seqs
from posh.collection.text import Fused, Ranking, TextOptions
from posh.index.arrays import AppendOnlyArray, Mask, Slots, cached
from posh.index.base import IndexSnapshot
from posh.index.hits import Hits, RadiusHits
from posh.index.nearest.options import RadiusParams
from posh.index.nearest.radius import RadiusSlots
from posh.index.nearest.snapshot import NearestSnapshot
from posh.index.params import SearchParams
from posh.preprocess import Float32

__all__ = ["CollectionSnapshot", "IdReader", "Mask", "Seqs", "SlotTable", "Slots", "StoredIds"]
__all__ += ["make_hits", "rank_vectors", "search_snapshot", "search_snapshot_radius"]

_FEW_IDS = 1000  # ids that are looked up; more are faster read together
_LOOKUPS = 16  # by one reader, before it reads all ids
_SPARE = 10_000  # slots of deleted items that are not worth compacting


class IdReader:
    """Reads ids from the database when they are first needed; many threads may use it.

    A few ids are looked up, all are read together if more are needed or after some searches. Until all are
    read, no item may be written: a write calls :meth:`SlotTable.load_ids` first.
    """

    def __init__(self, reading: Callable[[], AbstractContextManager[Connection]]) -> None:
        self._reading, self._lock = reading, threading.Lock()
        self._all: tuple[Seqs, npt.NDArray[Any]] | None = None
        self._n_lookups = 0

    def read_all(self) -> tuple[Seqs, npt.NDArray[Any]]:
        """Return the seqs of all items, ascending, and their ids."""
        with self._lock:
            if self._all is None:
                with self._reading() as connection:
                    self._all = tables.read_ids(connection)
            return self._all

    def find(self, seqs: Seqs) -> npt.NDArray[Any]:
        """Return the ids (n,) of these seqs; None for a seq without an item."""
        found = self._look_up(seqs) if self._all is None and len(seqs) <= _FEW_IDS else None
        ids = np.full(len(seqs), None, object)
        if found is not None:
            ids[:] = [found[seq] for seq in seqs.tolist()]
            return ids
        all_seqs, all_ids = self.read_all()
        if len(all_seqs):
            places = np.minimum(np.searchsorted(all_seqs, seqs), len(all_seqs) - 1)
            is_there = all_seqs[places] == seqs
            ids[is_there] = all_ids[places[is_there]]
        return ids

    def _look_up(self, seqs: Seqs) -> dict[int, Id] | None:
        """Return the ids by seq; None if one is missing, or if all ids had better be read."""
        self._n_lookups += 1
        if self._n_lookups > _LOOKUPS:
            return None
        distinct = np.unique(seqs)
        with self._reading() as connection:
            found = tables.read_ids_of(connection, distinct)
        return found if len(found) == len(distinct) else None


class StoredIds:
    """The ids of slots with these seqs, in place of an :class:`AppendOnlyArray` of them."""

    def __init__(self, seqs: Seqs, reader: IdReader) -> None:
        self.seqs, self.reader = seqs, reader

    @cached
    def rows(self) -> npt.NDArray[Any]:
        """The ids (n,)."""
        self.reader.read_all()
        return self.reader.find(self.seqs)

    def with_rows(self, rows: npt.NDArray[Any]) -> AppendOnlyArray:
        """Return an array with more ids."""
        return AppendOnlyArray.of(self.rows).with_rows(rows)

    def take(self, slots: Slots) -> npt.NDArray[Any]:
        """Return the ids in slots of any shape."""
        if "rows" in vars(self):
            return np.asarray(self.rows[slots])
        return self.reader.find(self.seqs[slots].ravel()).reshape(slots.shape)


@dataclass(frozen=True, eq=False)
class SlotTable:
    """The items by slot of the index.

    ``seqs``, ascending, and ``ids`` belong to the items; ``live`` is False for items that were deleted or
    replaced. Only :meth:`compact` and :meth:`rearrange` give items other slots; ``numbering`` counts how
    often that happened.

    >>> import numpy as np
    >>> table = SlotTable.empty().with_items(np.array([4, 7]), np.array(["a", 3], object))
    >>> table.without(table.find_slots(np.array([4]))).find_ids(np.array([[1, -1]]))
    array([[3, None]], dtype=object)
    """

    numbering: int
    seqs: AppendOnlyArray
    ids: AppendOnlyArray | StoredIds
    live: AppendOnlyArray
    n_live: int

    @classmethod
    def empty(cls, numbering: int = 0) -> SlotTable:
        """Return a table without items."""
        return cls.of(np.empty(0, np.int64), np.empty(0, object), np.empty(0, bool), numbering)

    @classmethod
    def of(cls, seqs: Seqs, ids: npt.NDArray[Any], live: Mask, numbering: int = 0) -> SlotTable:
        """Return a table of these arrays (n,), which it keeps."""
        return cls(
            numbering,
            AppendOnlyArray.of(seqs),
            AppendOnlyArray.of(ids),
            AppendOnlyArray.of(live),
            int(live.sum()),
        )

    @classmethod
    def stored(cls, seqs: Seqs, reader: IdReader, numbering: int = 0) -> SlotTable:
        """Return a table of items with these ascending seqs, whose ids are read when they are needed."""
        live = AppendOnlyArray.of(np.ones(len(seqs), bool))
        return cls(numbering, AppendOnlyArray.of(seqs), StoredIds(seqs, reader), live, len(seqs))

    def load_ids(self) -> None:
        """Read all ids, if that was put off: call it before items change."""
        _ = self.ids.rows

    @property
    def n_slots(self) -> int:
        """Slots in use, those of deleted items included."""
        return self.seqs.n

    @property
    def last_seq(self) -> int:
        """The largest seq in the table, perhaps of a deleted item; 0 if the table is empty."""
        return int(self.seqs.rows[-1]) if self.n_slots else 0

    def with_items(self, seqs: Seqs, ids: npt.NDArray[Any]) -> SlotTable:
        """Add items at the end; their seqs must be larger than all others."""
        return replace(
            self,
            seqs=self.seqs.with_rows(seqs),
            ids=self.ids.with_rows(ids),
            live=self.live.with_rows(np.ones(len(seqs), bool)),
            n_live=self.n_live + len(seqs),
        )

    def without(self, slots: Slots) -> SlotTable:
        """Delete the items in these slots."""
        live = self.live.rows.copy()
        live[slots] = False
        return replace(self, live=AppendOnlyArray.of(live), n_live=self.n_live - len(slots))

    def compact(self) -> SlotTable:
        """Give the items new slots, without gaps."""
        live = self.live.rows
        seqs, ids = self.seqs.rows[live], self.ids.rows[live]
        return SlotTable.of(seqs, ids, np.ones(len(seqs), bool), self.numbering + 1)

    def rearrange(self, seqs: Seqs) -> SlotTable:
        """Return a table with these ascending seqs; an item that this table lacks counts as deleted."""
        places = np.minimum(np.searchsorted(self.seqs.rows, seqs), max(0, self.n_slots - 1))
        live = np.zeros(len(seqs), bool)
        if self.n_slots:
            live = (self.seqs.rows[places] == seqs) & self.live.rows[places]
        if isinstance(self.ids, StoredIds):
            table = SlotTable.stored(seqs, self.ids.reader, self.numbering + 1)
            return replace(table, live=AppendOnlyArray.of(live), n_live=int(live.sum()))
        ids = np.full(len(seqs), None, object)
        ids[live] = self.ids.rows[places[live]]
        return SlotTable.of(seqs, ids, live, self.numbering + 1)

    def find_slots(self, seqs: Seqs) -> Slots:
        """Return the slots of seqs; a seq without a slot is a DamageError."""
        slots = np.searchsorted(self.seqs.rows, seqs)
        if len(seqs) and not (slots.max() < self.n_slots and (self.seqs.rows[slots] == seqs).all()):
            raise DamageError("rows of items that do not exist")
        return slots

    def find_ids(self, slots: Slots) -> npt.NDArray[Any]:
        """Return the ids in slots of any shape; None where the slot is -1."""
        if not self.n_slots:
            return np.full(slots.shape, None, object)
        if not isinstance(self.ids, StoredIds):
            ids = self.ids.rows[np.maximum(slots, 0)]
            ids[slots < 0] = None
            return ids
        ids = np.full(slots.shape, None, object)
        ids[slots >= 0] = self.ids.take(slots[slots >= 0])
        return ids


@dataclass(frozen=True, eq=False)
class CollectionSnapshot:
    """The state of a collection after one write.

    Parameters
    ----------
    version : the number of writes so far. The database stores it too, which shows whether a snapshot and a
        transaction have the same state.
    n_features : the number of columns of all vectors, None until it is known.
    options : the index options that the user has given.
    generation : the number of the codes in use, 0 without a hasher.
    slot_table : the items by slot.
    index : the index, whose slots are those of the table; None without a hasher.
    last_seq : the largest seq that was ever used.
    ids_sum : the sum of the checksums of all ids.
    n_trained : the number of items that the index was trained on, 0 if it needs no training.
    text : the options of the text index; None without one.

    """

    version: int
    n_features: int | None
    options: Mapping[str, Any]
    generation: int
    slot_table: SlotTable
    index: IndexSnapshot | None
    last_seq: int
    ids_sum: int
    n_trained: int = 0
    text: TextOptions | None = None

    @property
    def training(self) -> tuple[int, int, int]:
        """Identifies the trained state: the generation, and the numbers of trained and measured items."""
        return self.generation, self.n_trained, 0 if self.index is None else self.index.n_measured

    def compact(self) -> CollectionSnapshot:
        """Give the items new slots, without gaps."""
        if self.slot_table.n_live == self.slot_table.n_slots:
            return self
        index = None if self.index is None else self.index.compact()
        return replace(self, slot_table=self.slot_table.compact(), index=index)

    def compact_if_half_empty(self) -> CollectionSnapshot:
        """Compact if more than half of many slots belong to deleted items, which bounds memory."""
        n_deleted = self.slot_table.n_slots - self.slot_table.n_live
        return self.compact() if n_deleted > max(_SPARE, self.slot_table.n_live) else self


def search_snapshot(
    snapshot: CollectionSnapshot, vectors: Float32, params: SearchParams, allowed: Mask | None
) -> Hits:
    """Return the hits among the allowed slots of a snapshot."""
    if snapshot.index is None:
        return _find_nothing(len(vectors), params, snapshot.options)
    slots, scores, kind = snapshot.index.search_slots(vectors, params, allowed)
    return Hits(snapshot.slot_table.find_ids(slots), scores, kind).above(params.min_score)


def rank_vectors(
    snapshot: CollectionSnapshot, vectors: Float32, params: SearchParams, allowed: Mask | None
) -> list[Ranking]:
    """Return the best slots and their scores for each of the vectors (m, d), without missing hits."""
    if snapshot.index is None:
        _find_nothing(len(vectors), params, snapshot.options)  # raises without a metric
        return [(np.empty(0, np.int64), np.empty(0))] * len(vectors)
    slots, scores, _ = snapshot.index.search_slots(vectors, params, allowed)
    return [(row[row >= 0], row_scores[row >= 0]) for row, row_scores in zip(slots, scores, strict=True)]


def make_hits(table: SlotTable, rankings: Sequence[Ranking | Fused], k: int, kind: str) -> Hits:
    """Return the hits of rankings of up to k slots each."""
    slots = np.full((len(rankings), k), -1, np.int64)
    scores = np.full((len(rankings), k), -np.inf)
    parts = [np.full((len(rankings), k), np.nan) for _ in range(2 if kind == "rrf" else 0)]
    for i, (found, *columns) in enumerate(rankings):
        slots[i, : len(found)] = found
        for array, column in zip([scores, *parts], columns, strict=True):
            array[i, : len(found)] = column
    return Hits(table.find_ids(slots), scores, kind, None, None, *parts)


def search_snapshot_radius(
    snapshot: CollectionSnapshot, vectors: Float32, params: RadiusParams, allowed: Mask | None
) -> RadiusHits:
    """Return all hits within a radius among the allowed slots of a snapshot with a metric."""
    if isinstance(snapshot.index, NearestSnapshot):
        found = snapshot.index.search_radius_slots(vectors, params, allowed)
    else:  # there never was an item
        found = RadiusSlots.none(len(vectors))
    ids = snapshot.slot_table.find_ids(found.slots)
    return RadiusHits(found.offsets, ids, found.scores, snapshot.options["metric"], found.is_cut)


def _find_nothing(n_queries: int, params: SearchParams, options: Mapping[str, Any]) -> Hits:
    """Return the hits of a collection that has a metric and never had an item."""
    if options.get("metric") is None:
        raise ValueError(NO_HASHER)
    shape = (n_queries, params.k)
    return Hits(np.full(shape, None, object), np.full(shape, -np.inf, np.float32), options["metric"])
