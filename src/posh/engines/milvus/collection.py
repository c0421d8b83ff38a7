"""A collection whose items and codes are stored in Milvus."""

from __future__ import annotations

import copy
import itertools
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Self, cast

import numpy as np

from posh._runtime import track_progress
from posh.collection.base import BaseCollection, Id, Include, Item, Payload
from posh.collection.filters import Filter, passes
from posh.collection.indexing import resolve_index
from posh.collection.opening import OpenOptions, validate_index_options
from posh.engines.milvus import opening
from posh.engines.milvus.connection import Milvus
from posh.engines.milvus.opening import MilvusSnapshot
from posh.engines.milvus.search import (
    CodeSearch,
    ItemChangedError,
    MetricSearch,
    Scored,
    build_document_vectors,
    build_expression,
)
from posh.engines.milvus.table import (
    MAX_HITS,
    ItemTable,
    NewRow,
    Row,
    Settings,
    SettingsTable,
    decode_key,
    encode_key,
    measure_payloads,
)
from posh.errors import ServiceError
from posh.hashers.base import Hasher
from posh.index.codes.options import CodeParams
from posh.index.codes.snapshot import CodeSnapshot
from posh.index.hits import Hits
from posh.index.nearest.report import IndexReport
from posh.index.params import SearchParams
from posh.preprocess import Float32

__all__ = ["MilvusCollection"]

_MAX_ATTEMPTS = 5  # of a search during which items are written
_PAGE = 1000  # items that are read together
_BLOCK = 2000  # items that are encoded and written together


class MilvusCollection(BaseCollection):
    """A collection in Milvus, which is created if it does not exist.

    Milvus stores codes as sparse vectors and finds candidates. Scores are those of :class:`posh.Collection`:
    for ``scoring="asymmetric"``, ``refine="vectors"``, ``refine="cosine"`` and a metric they are computed by
    the client from the vectors of the candidates. With a metric, Milvus compares all vectors.

    A write is durable when Milvus confirms it. Writes that exceed the size of a request are split into
    batches. Batches are written in order, each completely or not at all. Several processes may search and
    write concurrently. While one calls :meth:`fit` or :meth:`reindex`, the others must not write, and they
    must open the collection again afterwards. Writes of the same process wait for it.

    Parameters
    ----------
    milvus : Milvus, str or path
        Address, see :class:`posh.engines.milvus.Milvus`, or a connection, which :meth:`close` leaves open.
    name : str
        Letters, digits and ``_``. Milvus stores ``<name>__settings`` and ``<name>__items_<n>``.
    hasher, metadata, index_options
        As for :class:`posh.Collection`, without ``refine="decoder"`` and ``refine="sbiht"``. Options of
        structures have no effect; they are stored for a copy to the embedded engine.

    Examples
    --------
    >>> import posh.engines.milvus
    >>> posh.engines.milvus.MilvusCollection("shop.db", "my shop")
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
        self._open(milvus, name, OpenOptions.validate(hasher, metadata, index_options), must_exist=False)

    def _open(
        self,
        milvus: Milvus | str | os.PathLike[str],
        name: str,
        options: OpenOptions,
        *,
        must_exist: bool,
    ) -> None:
        self.name = opening.validate_name(name)
        self._owns_connection = not isinstance(milvus, Milvus)
        self._milvus = milvus if isinstance(milvus, Milvus) else Milvus(milvus)
        self._write_lock, self._last_seq, self._closed = threading.RLock(), 0, False
        self._settings_table = SettingsTable(self._milvus, name)
        try:
            self._snapshot = opening.open_snapshot(self._milvus, name, options, must_exist=must_exist)
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
        """Create a collection; raise FileExistsError if it exists."""
        options = replace(OpenOptions.validate(hasher, metadata, index_options), is_new=True)
        collection = cls.__new__(cls)
        collection._open(milvus, name, options, must_exist=False)
        return collection

    @classmethod
    def open(cls, milvus: Milvus | str | os.PathLike[str], name: str) -> Self:
        """Open a collection; raise FileNotFoundError if it does not exist."""
        collection = cls.__new__(cls)
        collection._open(milvus, name, OpenOptions.validate(None, None, {}), must_exist=True)
        return collection

    def __repr__(self) -> str:
        closed = ", closed" if self._closed else ""
        return f"MilvusCollection({self._milvus.uri!r}, {self.name!r}{closed})"

    @property
    def n_features(self) -> int | None:
        """The number of columns of all vectors; None until the first vectors or a hasher define it."""
        return self._get_snapshot().settings.n_features

    @property
    def hasher(self) -> Hasher[Any] | None:
        """The hasher whose codes are searched, or None. Do not modify it."""
        return self._get_snapshot().settings.hasher

    @property
    def metadata(self) -> Payload:
        """A copy of the JSON object that is stored with the collection."""
        return copy.deepcopy(self._get_snapshot().settings.metadata)

    @property
    def index_options(self) -> dict[str, Any]:
        """All index options; without a hasher and a metric, only those that were passed."""
        snapshot = self._get_snapshot()
        return dict(snapshot.settings.options) if snapshot.index is None else asdict(snapshot.index.options)

    def memory_usage(self) -> int | None:
        """Return None: Milvus does not report it."""
        self._get_snapshot()
        return None

    def compact(self) -> Self:
        """Do nothing: Milvus reclaims space itself."""
        self._get_snapshot()
        return self

    def close(self) -> None:
        """Close the collection, and its connection unless the caller passed one; may be called again."""
        self._closed = True
        if self._owns_connection:
            self._milvus.close()

    def _get_snapshot(self) -> MilvusSnapshot:
        if self._closed:
            raise ValueError("expected an open collection, got a closed one: open it again")
        return self._snapshot

    # Reading -------------------------------------------------------------------------------------------

    def _count(self, where: Filter | None) -> int:
        table = self._get_snapshot().table
        if table is None:
            return 0
        return table.count() if where is None else sum(1 for _ in _iterate_matching(table, where))

    def _get(self, ids: list[Id]) -> list[Item | None]:
        table = self._get_snapshot().table
        keys = [encode_key(item_id) for item_id in ids]
        rows = {} if table is None else table.get(list(dict.fromkeys(keys)), "payload", "vector")
        return [_build_item(rows[key]) if key in rows else None for key in keys]

    def _items(self, where: Filter | None, after: Id | None, limit: int | None) -> Iterator[Item]:
        self._get_snapshot()  # a closed collection raises now, not at the first item
        return self._iterate(where, after, limit)

    def _iterate(self, where: Filter | None, after: Id | None, limit: int | None) -> Iterator[Item]:
        table = self._get_snapshot().table
        for item in _iterate_items(table, where, after, limit):
            self._get_snapshot()
            yield item

    def _sample(self, n: int) -> Float32:
        vectors = [item.vector for item in self._sample_items(n)]
        return np.array(vectors, np.float32).reshape(len(vectors), self.n_features or 1)

    def _sample_items(self, n: int) -> Iterator[Item]:
        """Yield n items, chosen as in the embedded engine."""
        table = self._get_snapshot().table
        if table is None:
            return iter(())
        rows = sorted(table.scan(""), key=lambda row: row.seq)
        chosen = np.sort(np.random.default_rng(0).permutation(len(rows))[:n])
        return _read_items(table, [rows[i] for i in chosen])

    def _search(self, vectors: Float32, params: SearchParams, where: Filter | None, include: Include) -> Hits:
        snapshot = self._get_snapshot()
        index = snapshot.index
        assert index is not None
        if params.k > MAX_HITS:
            raise ValueError(f"expected k at most {MAX_HITS:,}, the limit of Milvus, got {params.k:,}")
        if isinstance(index, CodeSnapshot):
            assert isinstance(params, CodeParams)
            kind = index.score_kind(params.scoring)
        else:
            kind = index.options.metric
        if snapshot.table is None or not len(vectors):
            return _build_hits([Scored([], [])] * len(vectors), params, kind)
        search: MetricSearch | CodeSearch
        if isinstance(index, CodeSnapshot):
            complete = cast(CodeParams, params).complete(index.options, index.hasher)
            search = CodeSearch(snapshot.table, complete, where, index.hasher, index.options)
        else:
            search = MetricSearch(snapshot.table, params, where, kind)
        for _ in range(_MAX_ATTEMPTS):
            try:
                results = search.run(vectors)
                hits = _build_hits(results, params, kind)
                return _add_fields(hits, snapshot.table, results, include) if include.has_fields else hits
            except ItemChangedError:
                continue
        raise ServiceError(
            f"{self!r}: items were written during each of {_MAX_ATTEMPTS} searches: try again later"
        )

    def _calibrate(self, queries: Float32 | None) -> None:
        self._get_snapshot()
        raise ValueError(
            "expected a collection with a metric and items to calibrate, got one on Milvus: copy it to a "
            "folder and calibrate there"
        )

    def _report(self) -> IndexReport:
        self._get_snapshot()
        raise ValueError(
            "expected a collection with a metric and items to report on, got one on Milvus: copy it to a "
            "folder and report there"
        )

    # Writing -------------------------------------------------------------------------------------------

    def _upsert(self, ids: list[Id], vectors: Float32, payloads: list[Payload]) -> None:
        sizes = measure_payloads(payloads)
        with self._write_lock:
            if self._get_snapshot().table is None:
                self._snapshot = self._create_first_table(vectors.shape[1])
            rows = list(map(NewRow, ids, self._take_seqs(len(ids)), payloads, sizes))
            _write_rows(self._snapshot, rows, vectors)

    def _take_seqs(self, n: int) -> range:
        """Return the next n sequence numbers: nanoseconds since 1970, so that they rise across processes."""
        first = max(self._last_seq + 1, time.time_ns())
        self._last_seq = first + n - 1
        return range(first, first + n)

    def _create_first_table(self, n_features: int) -> MilvusSnapshot:
        settings = replace(self._snapshot.settings, n_features=n_features, generation=1)
        table = opening.create_table(self._milvus, self.name, settings)
        self._settings_table.write(settings)
        return replace(self._snapshot, settings=settings, table=table)

    def _delete(self, ids: list[Id]) -> int:
        with self._write_lock:
            table = self._get_snapshot().table
            if table is None:
                return 0
            keys = list(table.get([encode_key(item_id) for item_id in ids]))
            table.delete(keys)
            return len(keys)

    def _delete_where(self, where: Filter, limit: int | None) -> int:
        with self._write_lock:
            table = self._get_snapshot().table
            if table is None:
                return 0
            rows = sorted(_iterate_matching(table, where), key=lambda row: row.seq)[:limit]
            return self._delete([decode_key(row.key) for row in rows])

    def _update_payload(self, ids: list[Id], payloads: list[Payload], *, replace: bool) -> None:
        with self._write_lock:
            items = self._get(ids)
            for item_id, item in zip(ids, items, strict=True):
                if item is None:
                    raise KeyError(f"expected ids of stored items, got {item_id!r:.80}, which is not there")
            stored = [item for item in items if item is not None]
            if not replace:
                payloads = [item.payload | changes for item, changes in zip(stored, payloads, strict=True)]
            self._upsert(ids, np.array([item.vector for item in stored], np.float32), payloads)

    def _set_metadata(self, metadata: Payload) -> None:
        with self._write_lock:
            settings = replace(self._get_snapshot().settings, metadata=metadata)
            self._settings_table.write(settings, same_hasher=True)
            self._snapshot = replace(self._snapshot, settings=settings)

    def _reindex(self, hasher: Hasher[Any] | None, options: Mapping[str, Any]) -> None:
        with self._write_lock:
            settings = self._get_snapshot().settings
            valid = validate_index_options(options, has_hasher=hasher is not None)
            copied, complete = resolve_index(settings.hasher, settings.options, hasher, valid)
            validate_index_options(complete, has_hasher=copied is not None)
            self._snapshot = self._rebuild(replace(settings, hasher=copied, options=complete))

    def _rebuild(self, settings: Settings) -> MilvusSnapshot:
        """Write all items to a table of a new generation, which takes effect when it is complete.

        ``settings`` has the hasher and the options of the new generation. An interrupted call leaves a table
        that the next one replaces.
        """
        before = self._snapshot
        settings = replace(settings, generation=before.settings.generation + 1)
        index = opening.build_index_snapshot(settings.hasher, settings.options)
        if settings.hasher is not None:
            settings = replace(settings, n_features=settings.hasher.n_features_in_)
        table = None
        if settings.n_features is not None:
            table = opening.create_table(self._milvus, self.name, settings)
        after = MilvusSnapshot(settings, index, table)
        if before.table is not None:
            _copy_items(before.table, after)
        self._settings_table.write(settings)
        if before.table is not None:
            before.table.drop()
        if before.settings.hasher is not None:
            self._settings_table.delete_hasher(before.settings.generation)
        return after


# Reading -----------------------------------------------------------------------------------------------


def _iterate_matching(table: ItemTable, where: Filter | None) -> Iterator[Row]:
    """Yield the rows that pass a filter, in any order, without vectors."""
    if where is None:
        return table.scan("")
    rows = table.scan(build_expression(where.tree), "payload")
    return (row for row in rows if passes(where.tree, row.payload or {}))


def _iterate_items(
    table: ItemTable | None, where: Filter | None, after: Id | None, limit: int | None
) -> Iterator[Item]:
    """Yield the items that pass a filter in the order of writing, see :meth:`posh.Collection.items`.

    The keys are a consistent snapshot. Items that are written or deleted before they are read are left out.
    """
    first_seq = 0
    if after is not None:
        rows = {} if table is None else table.get([encode_key(after)])
        if not rows:
            raise KeyError(f"expected after to be the id of an item, got {after!r}, which is not there")
        first_seq = rows[encode_key(after)].seq + 1
    if table is not None:
        matching = [row for row in _iterate_matching(table, where) if row.seq >= first_seq]
        yield from _read_items(table, sorted(matching, key=lambda row: row.seq)[:limit])


def _read_items(table: ItemTable, rows: Sequence[Row]) -> Iterator[Item]:
    for start in range(0, len(rows), _PAGE):
        page = rows[start : start + _PAGE]
        read = table.get([row.key for row in page], "payload", "vector")
        yield from (_build_item(read[row.key]) for row in page if _is_unchanged(read, row))


def _is_unchanged(read: Mapping[str, Row], row: Row) -> bool:
    return row.key in read and read[row.key].seq == row.seq


def _build_item(row: Row) -> Item:
    assert row.payload is not None
    assert row.vector is not None
    return Item(row.id, row.vector, row.payload)


def _build_hits(results: Sequence[Scored], params: SearchParams, kind: str) -> Hits:
    """Return the hits of all queries whose scores are at least ``params.min_score``."""
    ids = np.full((len(results), params.k), None, object)
    scores = np.full((len(results), params.k), -np.inf, np.float32)
    for i, scored in enumerate(results):
        ids[i, : len(scored.rows)] = [row.id for row in scored.rows]
        scores[i, : len(scored.rows)] = scored.scores
    return Hits(ids, scores, kind).above(params.min_score)


def _add_fields(hits: Hits, table: ItemTable, results: list[Scored], include: Include) -> Hits:
    """Add payloads and vectors; raise ItemChangedError if an item has changed since the search."""
    rows = {row.id: row for scored in results for row in scored.rows}

    def read_items(ids: list[Id]) -> dict[Id, Item]:
        requested = [rows[item_id] for item_id in ids]
        read = table.get([row.key for row in requested], "payload", "vector")
        for row in requested:
            if not _is_unchanged(read, row):
                raise ItemChangedError(row.key)
        return {row.id: _build_item(read[row.key]) for row in requested}

    return hits.with_items(read_items, include.payloads, include.vectors)


# Writing -----------------------------------------------------------------------------------------------


def _write_rows(snapshot: MilvusSnapshot, rows: Sequence[NewRow], vectors: Float32) -> None:
    """Write items with their vectors (n, d) and codes to the table of a snapshot."""
    table, index = snapshot.table, snapshot.index
    assert table is not None
    for start in range(0, len(rows), _BLOCK):
        block = slice(start, start + _BLOCK)
        codes = None
        if isinstance(index, CodeSnapshot):
            codes = build_document_vectors(index.hasher, vectors[block], index.options.document_active)
        elif table.metric is None:
            codes = [{0: 1.0}] * len(vectors[block])  # never searched, but Milvus requires the field
        table.upsert(rows[block], vectors[block], codes)


def _copy_items(table: ItemTable, after: MilvusSnapshot) -> None:
    rows = table.scan("", "payload", "vector")
    blocks = iter(lambda: list(itertools.islice(rows, _BLOCK)), [])
    for block in track_progress(blocks, "encoding", "block", -(-table.count() // _BLOCK)):
        payloads = [row.payload or {} for row in block]
        sizes = measure_payloads(payloads)
        copies = [
            NewRow(row.id, row.seq, payload, size)
            for row, payload, size in zip(block, payloads, sizes, strict=True)
        ]
        _write_rows(after, copies, np.array([row.vector for row in block], np.float32))
