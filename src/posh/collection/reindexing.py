"""Codes of another hasher for all items, while searches and writes go on with the old ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np

from posh.collection import building, tables
from posh.collection.directory import Directory
from posh.collection.moment import Moment
from posh.collection.storage import Connection
from posh.hashers.base import Hasher
from posh.index.snapshot import IndexSnapshot

__all__ = ["Reindexing"]

OneMoment = Callable[[], AbstractContextManager[tuple[Moment, Connection]]]
Write = Callable[[], AbstractContextManager[Connection]]


class Reindexing:
    """A new generation of codes in the making: ``begin``, all ``steps``, then ``finish``.

    ``one_moment`` gives a moment and a connection that reads at it, ``writing`` a transaction. Until the
    transaction of ``finish`` is committed, the generation in the database does not count.
    """

    def __init__(
        self, hasher: Hasher[Any], options: Mapping[str, Any], one_moment: OneMoment, writing: Write
    ) -> None:
        self.number = 0  # until it has begun
        self._options = options
        self._index = building.empty_index(hasher, options)
        self._one_moment, self._writing = one_moment, writing
        self._learned_from = 0
        self._after = 0

    def begin(self) -> int:
        """Write down that a generation is being made, and give its number."""
        with self._writing() as connection:
            (last,) = connection.execute("SELECT max(number) FROM generations").fetchone()
            self.number = (last or 0) + 1
            content = self._index.hasher.to_bytes()
            connection.execute("INSERT INTO generations VALUES (?, ?, NULL)", (self.number, content))
        return self.number

    def steps(self) -> Iterator[None]:
        """Go through the items block by block until few are left that were written meanwhile."""
        full = True
        while full:
            with self._one_moment() as (moment, connection):
                if self._must_learn(moment.directory):
                    self._learn(connection, moment.directory)
                block = next(self._blocks(connection, building.BLOCK), None)
            if block is None:
                return
            codes = self._index.encode(block.vectors)
            with self._writing() as connection:
                tables.insert_codes(connection, self.number, block.seqs, codes)
            self._add(block, codes)
            full = len(block.seqs) == building.BLOCK
            yield

    def finish(self, connection: Connection, moment: Moment) -> Moment:
        """Within a transaction that no write can come before: the rest, and the moment that follows."""
        if self._must_learn(moment.directory):
            self._learn(connection, moment.directory)
        for block in self._blocks(connection):
            codes = self._index.encode(block.vectors)
            tables.insert_codes(connection, self.number, block.seqs, codes)
            self._add(block, codes)
        if self._learned_from:
            building.write_trained_state(connection, self.number, self._index, self._learned_from)
        n_features = self._index.hasher.n_features_in_
        meta = {"generation": self.number, "n_features": n_features, "options": json.dumps(self._options)}
        tables.put_meta(connection, meta | {"snapshot": None, "version": moment.version + 1})
        index, directory = self._without_removed(moment.directory)
        return replace(
            moment,
            version=moment.version + 1,
            n_features=n_features,
            options=self._options,
            generation=self.number,
            directory=directory,
            index=index,
            learned_from=self._learned_from,
        )

    def _must_learn(self, directory: Directory) -> bool:
        return self._index.needs_training and not self._learned_from and directory.n_live > 0

    def _learn(self, connection: Connection, directory: Directory) -> None:
        self._index = building.learned(connection, self._index, directory)
        self._learned_from = directory.n_live

    def _blocks(self, connection: Connection, limit: int = -1) -> Iterator[tables.Block]:
        d = self._index.hasher.n_features_in_
        return tables.blocks(connection, building.BLOCK, after=self._after, n_features=d, limit=limit)

    def _add(self, block: tables.Block, codes: Any) -> None:
        self._index = self._index.with_documents(block.seqs, block.vectors, codes)
        self._after = int(block.seqs[-1])

    def _without_removed(self, directory: Directory) -> tuple[IndexSnapshot, Directory]:
        """The new index and its directory, without the items that were removed or replaced meanwhile."""
        in_slots = directory.renumbered(self._index.ids_by_slot)
        return self._index.without(np.flatnonzero(~in_slots.live.rows)), in_slots
