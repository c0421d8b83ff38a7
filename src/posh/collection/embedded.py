"""The embedded collection: SQLite keeps, the native index searches."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import numpy as np

from posh import _validate
from posh.collection import building, changes, opening, tables
from posh.collection.base import NO_HASHER, BaseCollection, Id, Item, Matches, Payload
from posh.collection.engine import Engine
from posh.collection.filters import Filter
from posh.collection.given import Given
from posh.collection.moment import Moment
from posh.collection.storage import Connection
from posh.hashers.base import Hasher
from posh.index.params import SearchParams
from posh.preprocess import Float32

__all__ = ["Collection"]


class Collection(BaseCollection):
    """A durable collection in a folder, which is made if it is not there.

    Parameters
    ----------
    path : the folder. One process at a time may have it open, with any number of threads.
    hasher : a fitted hasher. A new collection may do without until :meth:`fit`; one that has another is an
        error: see :meth:`reindex`.
    metadata : a small JSON object for a new collection, see :attr:`metadata`.
    index_options : those of :class:`posh.Index`, such as ``refine="decoder"``; by default what it has.

    A write returns when it is on the disk; after a crash, every write that returned is there and every other
    one is there completely or not at all. Searches never wait for writes. Of an index that learns from its
    items (``refine="decoder"``, ``structure="ivf"``), a write that doubles their number makes it learn again.

    Examples
    --------
    >>> import posh, tempfile
    >>> data = posh.datasets.load("digits")
    >>> hasher = posh.POSH(n_bits=256, n_active=16, random_state=0).fit(data.base)
    >>> payloads = [{"label": int(label)} for label in data.base_labels]
    >>> with tempfile.TemporaryDirectory() as folder, posh.Collection(folder, hasher) as digits:
    ...     _ = digits.upsert(range(len(data.base)), data.base, payloads)
    ...     ids, scores = digits.search(data.queries[:5], k=3, filter={"label": {"in": [3, 5]}})
    >>> sorted({data.base_labels[number].item() for number in ids.ravel()})
    [3, 5]

    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        hasher: Hasher[Any] | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        **index_options: Any,
    ) -> None:
        self.path = Path(path).absolute()  # wherever the process goes
        self._engine = Engine(self.path, Given.checked(hasher, metadata, index_options))
        self._metadata = opening.read_metadata(self._engine.database)

    def __repr__(self) -> str:
        if self._engine.is_closed:
            return f"Collection({str(self.path)!r}, closed)"
        moment = self._engine.moment
        hasher = "no hasher" if moment.index is None else type(moment.index.hasher).__name__
        return f"Collection({str(self.path)!r}, {moment.directory.n_live:,} items, {hasher})"

    @property
    def n_features(self) -> int | None:
        """The number of columns of all vectors; None until the first vectors or a hasher decide it."""
        return self._moment().n_features

    @property
    def hasher(self) -> Hasher[Any] | None:
        """The hasher whose codes are searched, not to be changed; None until there is one."""
        index = self._moment().index
        return None if index is None else index.hasher

    @property
    def metadata(self) -> Payload:
        """A small JSON object that is kept with the collection, as a copy; see :meth:`set_metadata`."""
        self._engine.require_open()
        return tables.loads(self._metadata)

    @property
    def index_options(self) -> dict[str, Any]:
        """The options of :class:`posh.Index`: all of them, or those given until there is a hasher."""
        moment = self._moment()
        return dict(moment.options) if moment.index is None else asdict(moment.index.options)

    @property
    def filter_seconds(self) -> float | None:
        """How long a filter may be looked up before it is a ``TimeoutError``; None: as long as it takes.

        It can be set. A part of the masks that were found by then is remembered.
        """
        return self._engine.filter_seconds

    @filter_seconds.setter
    def filter_seconds(self, seconds: float | None) -> None:
        self._engine.filter_seconds = None if seconds is None else _validate.real("seconds", seconds, 0.0)

    def memory_usage(self) -> int:
        """Bytes that the index takes; ids take more, beside it."""
        index = self._moment().index
        return 0 if index is None else index.memory_usage()["total"]

    def _moment(self) -> Moment:
        self._engine.require_open()
        return self._engine.moment

    def _search(self, vectors: Float32, params: SearchParams, tree: Filter | None) -> Matches:
        moment, allowed = self._moment(), None
        if tree is not None:
            moment, allowed = self._engine.filtered(tree)
        if moment.index is None:
            raise ValueError(NO_HASHER)
        slots, scores, kind = moment.index.nearest(vectors, params, allowed)
        return Matches(moment.directory.names_of(slots), scores, kind)

    def _count(self, tree: Filter | None) -> int:
        if tree is None:
            return self._moment().directory.n_live
        self._engine.require_open()
        moment, mask = self._engine.filtered(tree)
        return int(np.count_nonzero(mask & moment.directory.live.rows))

    def _get(self, ids: list[Id]) -> list[Item | None]:
        self._engine.require_open()
        with self._engine.database.reading() as connection:
            found = tables.get(connection, ids)
        return [found.get(number) for number in ids]

    def _items(self, tree: Filter | None, after: Id | None, limit: int | None) -> Iterator[Item]:
        self._engine.require_open()
        return self._iterate(tree, after, limit)

    def _iterate(self, tree: Filter | None, after: Id | None, limit: int | None) -> Iterator[Item]:
        with self._engine.chosen(tree) as (moment, mask, connection):
            seqs = moment.directory.seqs.rows[mask]
            if after is not None:
                seqs = seqs[seqs > tables.seq_of(connection, after)]
            for item in tables.take_items(connection, seqs[:limit]):
                self._engine.require_open()
                yield item

    def _sample(self, n: int) -> Float32:
        self._engine.require_open()
        with self._engine.one_moment() as (moment, connection):
            return building.sample(connection, moment.directory, n, moment.n_features or 1)

    def _upsert(self, ids: list[Id], vectors: Float32, payloads: list[Payload]) -> None:
        def step(connection: Connection, moment: Moment) -> Moment:
            return changes.upsert(connection, moment, self._engine.generations, ids, vectors, payloads)

        self._engine.change(step, len(ids))

    def _delete(self, ids: list[Id]) -> int:
        def step(connection: Connection, moment: Moment) -> Moment:
            return changes.delete(connection, moment, self._engine.generations, ids)

        before, after = self._engine.change(step, len(ids))
        return before.directory.n_live - after.directory.n_live

    def _set_metadata(self, metadata: Payload) -> None:
        text = tables.dumps(metadata)
        with self._engine.writing() as connection:
            tables.put_meta(connection, {"metadata": text})
        self._metadata = text

    def _reindex(self, hasher: Hasher[Any], options: Mapping[str, Any]) -> None:
        self._engine.reindex(hasher, options)

    def compact(self) -> Self:
        """Give back the memory and the room on the disk of what was deleted or replaced; write a snapshot."""
        self._engine.compact()
        return self

    def close(self) -> None:
        """Close the collection, after a snapshot of the index if that spares the next opening much."""
        self._engine.close()
