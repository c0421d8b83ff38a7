"""The embedded collection: SQLite stores the items, the native index searches them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from posh._validate import validate_integer, validate_real
from posh.collection import indexing, opening, store, tables, text_index
from posh.collection.base import BaseCollection, Id, Include, Item, Payload
from posh.collection.database import limit_time
from posh.collection.filters import OTHER, Exists, Filter, explain_nothing, iterate_conditions
from posh.collection.maintenance import write_backup
from posh.collection.opening import OpenOptions
from posh.collection.snapshot import (
    CollectionSnapshot,
    make_hits,
    rank_vectors,
    search_snapshot,
    search_snapshot_radius,
)
from posh.collection.store import ReadOnlyStore, Store
from posh.collection.tables import Connection
from posh.collection.text import NO_TEXT, Fusion, TextOptions, TextQuery, fuse
from posh.hashers.base import Hasher
from posh.index.codes.snapshot import CodeSnapshot
from posh.index.hits import Hits, RadiusHits
from posh.index.nearest.options import NearestParams, RadiusParams
from posh.index.nearest.queries import OwnQueries
from posh.index.nearest.report import IndexReport, make_report
from posh.index.nearest.snapshot import NearestSnapshot
from posh.index.params import SearchParams
from posh.preprocess import Float32

__all__ = ["Collection"]


class Collection(BaseCollection):
    """A durable collection in a folder, which is created if it does not exist.

    A write returns when it is on the disk. After a crash, every write that returned is present, and every
    other write is present completely or not at all. Searches never wait for writes. Some indexes are trained
    on their items (``refine="decoder"``, ``structure="ivf"``): a write that doubles their number retrains
    them.

    Parameters
    ----------
    path : the folder. One process at a time may have it open for writing, with any number of threads.
    hasher : a fitted hasher. A new collection may have none until :meth:`fit`. If the collection has another
        hasher, this is an error: see :meth:`reindex`.
    metadata : a small JSON object for a new collection, see :attr:`metadata`.
    text : the names of fields of payloads that ``search(text=…)`` looks through, for a new collection; by
        default none, see :meth:`index_text`.
    tokenizer : the tokenizer of SQLite's FTS5 that splits text into words, by default
        ``"unicode61 remove_diacritics 2"``; others are ``"porter unicode61 remove_diacritics 2"`` for
        English and ``"trigram"`` for languages without spaces.
    read_only : open an existing collection for searching and reading. Any number of processes may do so, even
        while one writes. They see the state at the time of opening until :meth:`refresh`. Until then,
        SQLite's log keeps all later writes, so refresh from time to time. Writes raise
        :class:`posh.StorageError`.
    index_options : with a hasher, options of :class:`posh.CodeIndex`, such as ``refine="decoder"``; otherwise
        those of :class:`posh.Index`, such as ``metric="cosine", recall=0.95``. By default an existing
        collection keeps those that it has.

    Examples
    --------
    >>> import posh, tempfile
    >>> data = posh.datasets.load("digits")
    >>> hasher = posh.POSH(n_bits=256, n_active=16, random_state=0).fit(data.base)
    >>> payloads = [{"label": int(label)} for label in data.base_labels]
    >>> with tempfile.TemporaryDirectory() as folder, posh.Collection(folder, hasher) as digits:
    ...     _ = digits.upsert(range(len(data.base)), data.base, payloads)
    ...     ids, scores = digits.search(data.queries[:5], k=3, filter={"label": {"in": [3, 5]}})
    >>> sorted({data.base_labels[item_id].item() for item_id in ids.ravel()})
    [3, 5]
    >>> with tempfile.TemporaryDirectory() as folder, posh.Collection(folder, metric="cosine") as digits:
    ...     _ = digits.upsert(range(len(data.base)), data.base)
    ...     digits.search(data.queries, k=10).ids.shape, digits.report().recall
    ((200, 10), 1.0)

    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        hasher: Hasher[Any] | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        text: str | Sequence[str] | None = None,
        tokenizer: str | None = None,
        read_only: bool = False,
        **index_options: Any,
    ) -> None:
        options = OpenOptions.validate(hasher, metadata, index_options, text, tokenizer)
        self._open(path, options, read_only=read_only)

    def _open(self, path: str | os.PathLike[str], options: OpenOptions, *, read_only: bool = False) -> None:
        self.path = Path(path).absolute()  # the process may change its working folder
        self._store = ReadOnlyStore(self.path, options) if read_only else Store(self.path, options)
        self._metadata = opening.read_metadata(self._store.database)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        hasher: Hasher[Any] | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        text: str | Sequence[str] | None = None,
        tokenizer: str | None = None,
        **index_options: Any,
    ) -> Self:
        """Create a new collection; raise ``FileExistsError`` if the folder is not empty."""
        options = OpenOptions.validate(hasher, metadata, index_options, text, tokenizer)
        collection = cls.__new__(cls)
        collection._open(path, replace(options, is_new=True))
        return collection

    def __repr__(self) -> str:
        if self._store.is_closed:
            return f"Collection({str(self.path)!r}, closed)"
        snapshot = self._store.snapshot
        metric, hasher = snapshot.options.get("metric"), self.hasher
        kind = metric or ("no hasher" if hasher is None else type(hasher).__name__)
        read_only = ", read-only" if self._store.is_read_only else ""
        return f"Collection({str(self.path)!r}, {snapshot.slot_table.n_live:,} items, {kind}{read_only})"

    @property
    def n_features(self) -> int | None:
        """The number of columns of all vectors; None until the first vectors or a hasher decide it."""
        return self._snapshot().n_features

    @property
    def hasher(self) -> Hasher[Any] | None:
        """The hasher whose codes are searched; do not change it. None until there is one."""
        index = self._snapshot().index
        return index.hasher if isinstance(index, CodeSnapshot) else None

    @property
    def metadata(self) -> Payload:
        """A copy of the small JSON object that belongs to the collection; see :meth:`set_metadata`."""
        self._store.require_open()
        return tables.load_payload(self._metadata)

    @property
    def index_options(self) -> dict[str, Any]:
        """All options of the index; without an index, only those that the user has given."""
        snapshot = self._snapshot()
        return dict(snapshot.options) if snapshot.index is None else asdict(snapshot.index.options)

    @property
    def filter_seconds(self) -> float | None:
        """Seconds that a filter or a text may take before it raises ``TimeoutError``; None sets no limit.

        You can set it. Masks that were computed before the timeout stay cached.
        """
        return self._store.filter_seconds

    @filter_seconds.setter
    def filter_seconds(self, seconds: float | None) -> None:
        if self._store.is_read_only and seconds is not None:  # its threads share a connection, and its clock
            raise ValueError("expected a collection that is open for writing, got one that is open read-only")
        self._store.filter_seconds = None if seconds is None else validate_real("seconds", seconds, 0.0)

    @property
    def payload_bytes(self) -> int | None:
        """Largest size of a payload, in bytes of JSON, after :meth:`update_payload`; None sets no limit.

        You can set it. Without a limit, many small updates could make a payload larger than memory.
        """
        return self._store.payload_bytes

    @payload_bytes.setter
    def payload_bytes(self, n_bytes: int | None) -> None:
        self._store.payload_bytes = None if n_bytes is None else validate_integer("n_bytes", n_bytes, 2)

    def measured_recall(self) -> float | None:
        """Return the measured share of the 10 nearest items that searches find; None if it is not known."""
        return indexing.find_recall(self._snapshot().index)

    def field_kinds(self, limit: int = 1000) -> dict[str, list[str]]:
        """Return the kinds of values in each field that filters can ask for, up to ``limit`` kinds.

        >>> import posh, tempfile
        >>> with tempfile.TemporaryDirectory() as folder, posh.create(folder, metric="cosine") as shop:
        ...     _ = shop.upsert(["a"], [[1.0, 0.0]], [{"price": 3, "tags": ["new"]}])
        ...     shop.field_kinds()
        {'price': ['number'], 'tags': ['list of strings']}
        """
        self._store.require_open()
        with self._store.database.reading() as connection:
            return tables.read_field_kinds(connection, validate_integer("limit", limit, 1))

    def memory_usage(self) -> int:
        """Return the bytes of memory that the index takes; ids take more memory."""
        index = self._snapshot().index
        return 0 if index is None else index.memory_usage()["total"]

    def compares_all(self, params: NearestParams) -> bool:
        """Whether a search compares the vectors of all items, by request or because its recall needs it."""
        index = self._snapshot().index
        return isinstance(index, NearestSnapshot) and index.compares_all(params)

    def _snapshot(self) -> CollectionSnapshot:
        self._store.require_open()
        return self._store.snapshot

    def _search(self, vectors: Float32, params: SearchParams, where: Filter | None, include: Include) -> Hits:
        tree = None if where is None else where.tree
        if include.has_fields:
            with self._store.reading_filtered(tree) as (snapshot, mask, connection):
                found = search_snapshot(snapshot, vectors, params, None if where is None else mask)
                read_items = partial(tables.find_items, connection, charge=include.charge)
                return found.with_items(read_items, include.payloads, include.vectors)
        if tree is None:
            return search_snapshot(self._snapshot(), vectors, params, None)
        self._store.require_open()
        snapshot, mask = self._store.evaluate_filter(tree)
        return search_snapshot(snapshot, vectors, params, mask)

    @property
    def text(self) -> TextOptions | None:
        """The fields and the tokenizer of the text index; None without one."""
        return self._snapshot().text

    def _index_text(self, options: TextOptions | None) -> None:
        self._store.require_open()
        self._store.index_text(options)

    def _search_text(
        self,
        texts: list[TextQuery],
        vectors: Float32 | None,
        params: SearchParams,
        fusion: Fusion,
        where: Filter | None,
        include: Include,
    ) -> Hits:
        self._store.require_open()
        tree = None if where is None else where.tree
        depth = params.k if vectors is None else max(params.k, fusion.depth)
        with self._store.reading_filtered(tree) as (snapshot, mask, connection):
            if snapshot.text is None:
                raise ValueError(NO_TEXT)
            allowed, table = None if tree is None else mask, snapshot.slot_table
            with limit_time(connection, self.filter_seconds):
                by_text = [text_index.search(connection, text, depth, table, allowed) for text in texts]
            if vectors is None:
                hits = make_hits(table, by_text, params.k, "bm25")
            else:
                by_vector = rank_vectors(snapshot, vectors, params.change(k=depth, min_score=None), allowed)
                fused = [fuse(*both, fusion, params.k) for both in zip(by_vector, by_text, strict=True)]
                hits = make_hits(table, fused, params.k, "rrf")
            hits = hits.above(params.min_score)
            if not include.has_fields:
                return hits
            read_items = partial(tables.find_items, connection, charge=include.charge)
            return hits.with_items(read_items, include.payloads, include.vectors)

    def _search_radius(
        self, vectors: Float32, params: RadiusParams, where: Filter | None, include: Include
    ) -> RadiusHits:
        tree = None if where is None else where.tree
        if include.has_fields:
            with self._store.reading_filtered(tree) as (snapshot, mask, connection):
                found = search_snapshot_radius(snapshot, vectors, params, None if where is None else mask)
                read_items = partial(tables.find_items, connection, charge=include.charge)
                return found.with_items(read_items, include.payloads, include.vectors)
        if tree is None:
            return search_snapshot_radius(self._snapshot(), vectors, params, None)
        self._store.require_open()
        snapshot, mask = self._store.evaluate_filter(tree)
        return search_snapshot_radius(snapshot, vectors, params, mask)

    def _count(self, where: Filter | None) -> int:
        if where is None:
            return self._snapshot().slot_table.n_live
        self._store.require_open()
        snapshot, mask = self._store.evaluate_filter(where.tree)
        return int(np.count_nonzero(mask & snapshot.slot_table.live.rows))

    def _explain_nothing(self, where: Filter) -> str | None:
        if not self._snapshot().slot_table.n_live:
            return None
        fields = {leaf.field for leaf in iterate_conditions(where.tree)}
        with self._store.database.reading() as connection:
            kinds = {field: tables.read_kinds_of(connection, field) for field in fields}
        for field in (field for field in fields if not kinds[field]):
            snapshot, mask = self._store.evaluate_filter(Exists(field))
            kinds[field] = [OTHER] if (mask & snapshot.slot_table.live.rows).any() else []
        return explain_nothing(where.tree, kinds, list(self.field_kinds()))

    def _get(self, ids: list[Id]) -> list[Item | None]:
        self._store.require_open()
        with self._store.database.reading() as connection:
            found = tables.find_items(connection, ids)
        return [found.get(item_id) for item_id in ids]

    def _items(self, where: Filter | None, after: Id | None, limit: int | None) -> Iterator[Item]:
        self._store.require_open()
        return self._iterate(where, after, limit)

    def _iterate(self, where: Filter | None, after: Id | None, limit: int | None) -> Iterator[Item]:
        tree = None if where is None else where.tree
        with self._store.reading_filtered(tree) as (snapshot, mask, connection):
            seqs = snapshot.slot_table.seqs.rows[mask]
            if after is not None:
                seqs = seqs[seqs > tables.find_seq(connection, after)]
            for item in tables.read_items(connection, seqs[:limit]):
                self._store.require_open()
                yield item

    def _sample(self, n: int) -> Float32:
        self._store.require_open()
        with self._store.reading() as (snapshot, connection):
            return indexing.sample_vectors(connection, snapshot.slot_table, n, snapshot.n_features or 1)

    def _sample_items(self, n: int) -> Iterator[Item]:
        self._store.require_open()
        with self._store.reading() as (snapshot, connection):
            for item in tables.read_items(connection, indexing.sample_seqs(snapshot.slot_table, n)):
                self._store.require_open()
                yield item

    def _upsert(self, ids: list[Id], vectors: Float32, payloads: list[Payload]) -> None:
        self._write(store.upsert, len(ids), ids, vectors, payloads)

    def _delete(self, ids: list[Id]) -> int:
        return self._write(store.delete, len(ids), ids)

    def _delete_where(self, where: Filter, limit: int | None) -> int:
        def step(connection: Connection, snapshot: CollectionSnapshot) -> CollectionSnapshot:
            mask = self._store.make_mask(where.tree, snapshot, connection)
            ids = snapshot.slot_table.ids.rows[mask & snapshot.slot_table.live.rows][:limit].tolist()
            return store.delete(connection, snapshot, self._store.generations, ids)

        self._store.require_open()
        self._store.evaluate_filter(where.tree)  # the long part, done before the write lock is held
        before, after = self._store.write(step)
        return before.slot_table.n_live - after.slot_table.n_live

    def _update_payload(self, ids: list[Id], payloads: list[Payload], *, replace: bool) -> None:
        updates = dict(zip(ids, payloads, strict=True))
        self._write(store.update_payload, len(ids), updates, replace, self.payload_bytes)

    def _write(self, write: Callable[..., CollectionSnapshot], n_changed: int, *args: Any) -> int:
        """Run a write of :mod:`posh.collection.store`; return the decrease of the number of items."""

        def step(connection: Connection, snapshot: CollectionSnapshot) -> CollectionSnapshot:
            return write(connection, snapshot, self._store.generations, *args)

        before, after = self._store.write(step, n_changed)
        return before.slot_table.n_live - after.slot_table.n_live

    def _set_metadata(self, metadata: Payload) -> None:
        text = tables.dump_payload(metadata)
        with self._store.writing() as connection:
            tables.put_meta(connection, {"metadata": text})
        self._metadata = text

    def _reindex(self, hasher: Hasher[Any] | None, options: Mapping[str, Any]) -> None:
        self._store.reindex(hasher, options)

    def _calibrate(self, queries: Float32 | None) -> None:
        self._store.calibrate(None if queries is None else OwnQueries.of(queries, self.n_features))

    def _report(self) -> IndexReport:
        index = self._snapshot().index
        if not isinstance(index, NearestSnapshot):
            raise ValueError("expected a collection with a metric and items to report on, got one without")
        return make_report(index)

    def refresh(self) -> Self:
        """Switch to the newest state, which takes as long as opening; does nothing without ``read_only``."""
        if isinstance(self._store, ReadOnlyStore):
            self._store.refresh()
            self._metadata = opening.read_metadata(self._store.database)
        return self

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy a consistent snapshot of the collection to a new folder; searches and writes continue.

        The copy appears only when it is complete, even after a power failure. An existing path raises
        ``FileExistsError``. Open the copy like any collection: the first opening builds its index.
        """
        self._store.require_open()
        with self._store.database.reading() as connection:
            write_backup(connection, Path(path).absolute())

    def __reduce__(self) -> Any:
        """Pickle a read-only collection as its path; it is opened again where it is loaded."""
        if not self._store.is_read_only:
            raise TypeError(
                f"expected a read-only collection to pickle, got {self!r}: open it with read_only=True, or "
                "give its path to the other process"
            )
        return partial(type(self), read_only=True), (str(self.path),)

    def compact(self) -> Self:
        """Erase deleted and replaced items from memory and all files, while writes wait; save the index."""
        self._store.compact()
        return self

    def close(self) -> None:
        """Close the collection; save the index first if that makes the next opening much faster."""
        self._store.close()
