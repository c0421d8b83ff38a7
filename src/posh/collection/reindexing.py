"""Codes of another hasher for all items, while searches and writes go on with the old codes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np

from posh.collection import build_index, tables
from posh.collection.base import SAMPLE
from posh.collection.database import Connection, Database
from posh.collection.snapshot import CollectionSnapshot, SlotTable
from posh.hashers.base import Hasher
from posh.index.snapshot import IndexSnapshot

__all__ = ["Reindexing", "drop_unused_codes", "own_hasher"]

_ROWS = 10_000  # codes removed in one transaction: others may write in between

Reading = Callable[[], AbstractContextManager[tuple[CollectionSnapshot, Connection]]]
Writing = Callable[[], AbstractContextManager[Connection]]


class Reindexing:
    """Makes a new generation of codes: call ``begin``, go through all ``steps``, then call ``finish``.

    ``reading`` gives a snapshot and a connection that reads the same state; ``writing`` gives a transaction.
    The new generation counts when the transaction of ``finish`` is committed.
    """

    def __init__(
        self, hasher: Hasher[Any], options: Mapping[str, Any], reading: Reading, writing: Writing
    ) -> None:
        self.generation = 0  # until begin
        self._options = options
        self._index = build_index.empty_index(hasher, options)
        self._reading, self._writing = reading, writing
        self._n_trained = 0
        self._after = 0  # the seq of the last item that has a new code

    def begin(self) -> int:
        """Enter the new generation in the database and return its number."""
        with self._writing() as connection:
            self.generation = build_index.new_generation(connection, self._index.hasher)
        return self.generation

    def steps(self) -> Iterator[None]:
        """Encode the items block by block, until less than a block is left."""
        full = True
        while full:
            with self._reading() as (snapshot, connection):
                self._train_once(connection, snapshot.slot_table)
                block = next(self._blocks(connection, build_index.BLOCK), None)
            if block is None:
                break
            codes = self._index.encode(block.vectors)
            with self._writing() as connection:
                tables.insert_codes(connection, self.generation, block.seqs, codes)
            self._add(block, codes)
            full = len(block.seqs) == build_index.BLOCK
            yield
        self._index = self._index.measured()

    def finish(self, connection: Connection, snapshot: CollectionSnapshot) -> CollectionSnapshot:
        """Encode the rest and return the snapshot that follows; within a transaction under the write lock."""
        self._train_once(connection, snapshot.slot_table)
        for block in self._blocks(connection):
            codes = self._index.encode(block.vectors)
            tables.insert_codes(connection, self.generation, block.seqs, codes)
            self._add(block, codes)
        self._index = self._index.measured()  # again only if others have written many items meanwhile
        if self._n_trained:
            args = (self.generation, self._index, self._n_trained, snapshot.last_seq)
            build_index.write_trained_state(connection, *args)
        n_features = self._index.hasher.n_features_in_
        meta = {"generation": self.generation, "n_features": n_features, "options": json.dumps(self._options)}
        tables.put_meta(connection, meta | {"snapshot": None, "version": snapshot.version + 1})
        index, table = self._without_deleted(snapshot.slot_table)
        return replace(
            snapshot,
            version=snapshot.version + 1,
            n_features=n_features,
            options=self._options,
            generation=self.generation,
            slot_table=table,
            index=index,
            n_trained=self._n_trained,
        )

    def _train_once(self, connection: Connection, table: SlotTable) -> None:
        if self._index.needs_training and not self._n_trained and table.n_live > 0:
            self._index = build_index.train(connection, self._index, table)
            self._n_trained = table.n_live

    def _blocks(self, connection: Connection, limit: int = -1) -> Iterator[tables.Block]:
        d = self._index.hasher.n_features_in_
        return tables.read_blocks(connection, build_index.BLOCK, after=self._after, n_features=d, limit=limit)

    def _add(self, block: tables.Block, codes: Any) -> None:
        self._index = self._index.with_documents(block.seqs, block.vectors, codes, more_follow=True)
        self._after = int(block.seqs[-1])

    def _without_deleted(self, table: SlotTable) -> tuple[IndexSnapshot, SlotTable]:
        """Return the new index and its slot table, without the items that others deleted or replaced."""
        in_slots = table.rearranged(self._index.ids_by_slot)
        return self._index.without(np.flatnonzero(~in_slots.live.rows)), in_slots


def own_hasher(
    connection: Connection, snapshot: CollectionSnapshot, options: Mapping[str, Any]
) -> tuple[Hasher[Any], Mapping[str, Any]]:
    """Return the hasher and the options of a collection to which nobody gives another hasher.

    The hasher stays what it is, unless options bring a metric or another structure: that of a metric depends
    on both. A metric that the collection did not have brings its defaults.
    """
    index, metric = snapshot.index, options.get("metric")
    if index is not None:
        now = (index.options.metric, index.options.structure)
        if metric is None or (metric, options.get("structure", now[1])) == now:
            return index.hasher, options
    if index is None or index.options.metric is None:
        options = build_index.with_defaults(options)
    X = build_index.sample_vectors(connection, snapshot.slot_table, SAMPLE, snapshot.n_features or 1)
    like = X if len(X) else np.eye(2, snapshot.n_features, dtype=np.float32)  # only the width matters
    return build_index.metric_hasher(options, like), options


def drop_unused_codes(database: Database) -> bool:
    """Remove some codes of a generation that does not count; return whether there may be more."""
    with database.writing() as connection:
        current = tables.get_meta(connection, "generation")
        unused = connection.execute(
            "SELECT number FROM generations WHERE number <> ? LIMIT 1", (current,)
        ).fetchone()
        if unused is None:
            return False
        last = connection.execute(
            "SELECT seq FROM codes WHERE generation = ? ORDER BY seq LIMIT 1 OFFSET ?", (*unused, _ROWS)
        ).fetchone()
        if last is None:
            connection.execute("DELETE FROM codes WHERE generation = ?", unused)
            connection.execute("DELETE FROM generations WHERE number = ?", unused)
        else:
            connection.execute("DELETE FROM codes WHERE generation = ? AND seq <= ?", (*unused, *last))
        return True
