"""A collection whose items and codes are in Milvus."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np

from posh.collection import build_index
from posh.collection.base import BaseCollection, Id, Include, Item, Payload
from posh.collection.filters import Filter
from posh.collection.opening import OpenOptions, checked_index_options
from posh.errors import ServiceError
from posh.hashers.base import Hasher
from posh.index.hits import Hits
from posh.index.params import SearchParams
from posh.index.report import IndexReport
from posh.milvus import opening, reading, writing
from posh.milvus.connection import Milvus
from posh.milvus.keys import id_of, key_of
from posh.milvus.opening import MilvusSnapshot
from posh.milvus.searching import ItemChangedError, Scored, Search, kind_of
from posh.milvus.settings import SettingsTable
from posh.milvus.table import MAX_HITS, require_small
from posh.preprocess import Float32

__all__ = ["MilvusCollection"]

_TRIES = 5  # searches, if items are written between Milvus's answer and ours


class MilvusCollection(BaseCollection):
    """A collection in Milvus, which is made if it is not there.

    Codes are sparse vectors there, so scores are those of :class:`posh.Collection`. Milvus finds candidates.
    The scores of ``scoring="asymmetric"``, of ``refine="vectors"`` and ``"cosine"`` and of a metric are
    computed here, from the vectors of the candidates. With a metric, Milvus compares all vectors.

    A write is durable when Milvus says so. What is more than one request may hold is written in parts: each
    part is written completely or not at all, in order. Any number of processes may search and write. But
    while one calls :meth:`fit` or :meth:`reindex`, others must not write, and must open the collection again
    after it. Writes of this process wait meanwhile.

    Parameters
    ----------
    milvus : an address, see :class:`posh.milvus.Milvus`, or a connection, which stays open.
    name : letters, digits and ``_``. In Milvus there are ``<name>__settings`` and ``<name>__items_<n>``.
    hasher, metadata, index_options : as for :class:`posh.Collection`, without ``refine="decoder"`` and
        ``"sbiht"``. Options of structures are kept for a copy to the embedded engine, and not used.

    Examples
    --------
    >>> import posh.milvus
    >>> posh.milvus.MilvusCollection("shop.db", "my shop")
    Traceback (most recent call last):
    ValueError: expected a name of up to 200 letters, digits and '_' that does not begin with a digit, \
got 'my shop'

    """

    def __init__(
        self,
        milvus: Milvus | str | os.PathLike[str],
        name: str,
        hasher: Hasher[Any] | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        **index_options: Any,
    ) -> None:
        self._open(milvus, name, OpenOptions.checked(hasher, metadata, index_options), must_exist=False)

    def _open(
        self,
        milvus: Milvus | str | os.PathLike[str],
        name: str,
        options: OpenOptions,
        *,
        must_exist: bool,
    ) -> None:
        self.name = opening.require_name(name)
        self._owns_connection = not isinstance(milvus, Milvus)
        self._milvus = milvus if isinstance(milvus, Milvus) else Milvus(milvus)
        self._writing, self._seqs, self._closed = threading.RLock(), writing.Seqs(), False
        self._stored = SettingsTable(self._milvus, name)
        try:
            self._snapshot = opening.first_snapshot(self._milvus, name, options, must_exist=must_exist)
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(
        cls,
        milvus: Milvus | str | os.PathLike[str],
        name: str,
        hasher: Hasher[Any] | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        **index_options: Any,
    ) -> Self:
        """Make a new collection; one that is there already is a ``FileExistsError``."""
        options = replace(OpenOptions.checked(hasher, metadata, index_options), is_new=True)
        collection = cls.__new__(cls)
        collection._open(milvus, name, options, must_exist=False)
        return collection

    @classmethod
    def existing(cls, milvus: Milvus | str | os.PathLike[str], name: str) -> Self:
        """Open a collection; one that is not there is a ``FileNotFoundError``."""
        collection = cls.__new__(cls)
        collection._open(milvus, name, OpenOptions.checked(None, None, {}), must_exist=True)
        return collection

    def __repr__(self) -> str:
        closed = ", closed" if self._closed else ""
        return f"MilvusCollection({self._milvus.uri!r}, {self.name!r}{closed})"

    @property
    def n_features(self) -> int | None:
        """The number of columns of all vectors; None until the first vectors or a hasher decide it."""
        return self._now().settings.n_features

    @property
    def hasher(self) -> Hasher[Any] | None:
        """The hasher whose codes are searched; do not change it. None until there is one."""
        return self._now().settings.hasher

    @property
    def metadata(self) -> Payload:
        """A copy of the small JSON object that belongs to the collection."""
        return copy.deepcopy(self._now().settings.metadata)

    @property
    def index_options(self) -> dict[str, Any]:
        """The options of :class:`posh.Index`; without a hasher or a metric, only those that were given."""
        snapshot = self._now()
        return dict(snapshot.settings.options if snapshot.index is None else vars(snapshot.index.options))

    def memory_usage(self) -> int | None:
        """None: Milvus does not tell."""
        self._now()
        return None

    def compact(self) -> Self:
        """Do nothing: Milvus gives back room by itself."""
        self._now()
        return self

    def close(self) -> None:
        """Close the collection, and the connection unless it was given; a second call does nothing."""
        self._closed = True
        if self._owns_connection:
            self._milvus.close()

    def _now(self) -> MilvusSnapshot:
        if self._closed:
            raise ValueError("expected an open collection, got a closed one: open it again")
        return self._snapshot

    # Reading -------------------------------------------------------------------------------------------

    def _count(self, where: Filter | None) -> int:
        table = self._now().table
        if table is None:
            return 0
        return table.count() if where is None else sum(1 for _ in reading.passing(table, where))

    def _get(self, ids: list[Id]) -> list[Item | None]:
        table = self._now().table
        keys = [key_of(item_id) for item_id in ids]
        rows = {} if table is None else table.get(list(dict.fromkeys(keys)), "payload", "vector")
        return [reading.item_of(rows[key]) if key in rows else None for key in keys]

    def _items(self, where: Filter | None, after: Id | None, limit: int | None) -> Iterator[Item]:
        self._now()
        return self._iterate(where, after, limit)

    def _iterate(self, where: Filter | None, after: Id | None, limit: int | None) -> Iterator[Item]:
        table = self._now().table
        for item in reading.items_after(table, where, after, limit):
            self._now()
            yield item

    def _sample(self, n: int) -> Float32:
        vectors = [item.vector for item in self._sample_items(n)]
        return np.array(vectors, np.float32).reshape(len(vectors), self.n_features or 1)

    def _sample_items(self, n: int) -> Iterator[Item]:
        return reading.sampled_items(self._now().table, n)

    def _search(self, vectors: Float32, params: SearchParams, where: Filter | None, include: Include) -> Hits:
        snapshot = self._now()
        assert snapshot.index is not None
        options, hasher = snapshot.index.options, snapshot.index.hasher
        complete = params.completed(options, hasher)
        if params.k > MAX_HITS:
            raise ValueError(f"expected k at most {MAX_HITS:,}, as Milvus has it, got {params.k:,}")
        kind = kind_of(options, hasher, complete.scoring)
        if snapshot.table is None or not len(vectors):
            return reading.hits_of([Scored([], [])] * len(vectors), params, kind)
        search = Search(snapshot.table, hasher, options, complete, where)
        for _ in range(_TRIES):
            try:
                found = search.run(vectors)
                hits = reading.hits_of(found, params, kind)
                return reading.completed(hits, snapshot.table, found, include) if any(include) else hits
            except ItemChangedError:
                continue
        raise ServiceError(f"{self!r}: items were written during each of {_TRIES} searches: try again later")

    def _report(self) -> IndexReport:
        self._now()
        raise ValueError(
            "expected an index with a metric and documents that measures what searches find, got Milvus: "
            "copy the collection to a folder and ask there"
        )

    # Writing -------------------------------------------------------------------------------------------

    def _upsert(self, ids: list[Id], vectors: Float32, payloads: list[Payload]) -> None:
        require_small(payloads)
        with self._writing:
            if self._now().table is None:
                self._snapshot = writing.with_table(self._milvus, self.name, self._snapshot, vectors.shape[1])
            writing.put(self._snapshot, ids, vectors, payloads, self._seqs.take(len(ids)))

    def _delete(self, ids: list[Id]) -> int:
        with self._writing:
            table = self._now().table
            found = [] if table is None else list(table.get([key_of(item_id) for item_id in ids]))
            if table is not None:
                table.delete(found)
            return len(found)

    def _delete_where(self, where: Filter, limit: int | None) -> int:
        with self._writing:
            table = self._now().table
            rows = (
                []
                if table is None
                else sorted(reading.passing(table, where), key=lambda row: row.seq)[:limit]
            )
            return self._delete([id_of(row.key) for row in rows])

    def _update_payload(self, ids: list[Id], payloads: list[Payload], *, replace: bool) -> None:
        with self._writing:
            items = self._get(ids)
            for item_id, item in zip(ids, items, strict=True):
                if item is None:
                    raise KeyError(f"expected ids of stored items, got {item_id!r:.80}, which is not there")
            there = [item for item in items if item is not None]
            if not replace:
                payloads = [item.payload | own for item, own in zip(there, payloads, strict=True)]
            self._upsert(ids, np.array([item.vector for item in there], np.float32), payloads)

    def _set_metadata(self, metadata: Payload) -> None:
        with self._writing:
            settings = replace(self._now().settings, metadata=metadata)
            self._stored.write(settings, same_hasher=True)
            self._snapshot = replace(self._snapshot, settings=settings)

    def _reindex(self, hasher: Hasher[Any] | None, options: Mapping[str, Any]) -> None:
        with self._writing:
            settings = self._now().settings
            own = checked_index_options({**settings.options, **options})
            if hasher is None and options.get("metric") is None:
                hasher = settings.hasher
            if hasher is None and own.get("metric") is None:
                raise TypeError(
                    "expected a fitted hasher or a metric, got neither: give one, reindex(metric='cosine')"
                )
            copied = None if hasher is None else build_index.own_copy(hasher)
            self._snapshot = writing.reindexed(
                self._milvus, self.name, self._snapshot, replace(settings, hasher=copied, options=own)
            )
