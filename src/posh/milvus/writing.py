"""Writing items with their codes, and all items anew for another hasher or metric."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from posh._progress import progress
from posh.collection.types import Id, Payload
from posh.milvus import opening, sparse
from posh.milvus.connection import Milvus
from posh.milvus.opening import MilvusSnapshot
from posh.milvus.settings import Settings, SettingsTable
from posh.milvus.table import ItemTable
from posh.preprocess import Float32

__all__ = ["Seqs", "put", "reindexed", "with_table"]

_BLOCK = 2000  # items that are encoded and written together


class Seqs:
    """Numbers of writes: nanoseconds since 1970, so that they also rise from one process to the next."""

    def __init__(self) -> None:
        self._last = 0

    def take(self, n: int) -> Iterator[int]:
        """The next n numbers; call it with the lock of writes."""
        first = max(self._last + 1, time.time_ns())
        self._last = first + n - 1
        return iter(range(first, first + n))


def put(
    snapshot: MilvusSnapshot,
    ids: Sequence[Id],
    vectors: Float32,
    payloads: Sequence[Payload],
    seqs: Iterator[int],
) -> None:
    """Write items to the table of a snapshot."""
    table, index = snapshot.table, snapshot.index
    assert table is not None
    for start in range(0, len(ids), _BLOCK):
        part = slice(start, start + _BLOCK)
        codes = None
        if table.metric is None and index is not None:
            codes = sparse.code_vectors(index.hasher, vectors[part], index.options.document_active)
            codes = sparse.with_last(codes, sparse.last_dimension(index.hasher))
        elif table.metric is None:
            codes = [{0: 1.0}] * len(vectors[part])  # nobody searches them, and Milvus wants some
        table.upsert(list(zip(ids[part], seqs, payloads[part], strict=False)), vectors[part], codes)


def with_table(milvus: Milvus, name: str, snapshot: MilvusSnapshot, n_features: int) -> MilvusSnapshot:
    """Make the first table of a collection, for vectors with this number of columns."""
    settings = replace(snapshot.settings, n_features=n_features, generation=1)
    table = opening.new_table(milvus, name, settings)
    SettingsTable(milvus, name).write(settings)
    return replace(snapshot, settings=settings, table=table)


def reindexed(milvus: Milvus, name: str, before: MilvusSnapshot, settings: Settings) -> MilvusSnapshot:
    """Write all items to a table of a new generation, which counts when all of them are there.

    The settings have the hasher and the options of the new generation. An interrupted call leaves a table
    that the next one replaces.
    """
    settings = replace(settings, generation=before.settings.generation + 1)
    index = opening.index_of(settings.hasher, settings.options)
    if settings.hasher is not None:
        settings = replace(settings, n_features=settings.hasher.n_features_in_)
    table = None if settings.n_features is None else opening.new_table(milvus, name, settings)
    after = MilvusSnapshot(settings, index, table)
    if before.table is not None:
        _copy(before.table, after)
    stored = SettingsTable(milvus, name)
    stored.write(settings)
    if before.table is not None:
        before.table.drop()
    if before.settings.hasher is not None:
        stored.forget_hasher(before.settings.generation)
    return after


def _copy(table: ItemTable, after: MilvusSnapshot) -> None:
    rows = table.scan("", "payload", "vector")
    blocks = iter(lambda: list(itertools.islice(rows, _BLOCK)), [])
    for block in progress(blocks, "encoding", "block", -(-table.count() // _BLOCK)):
        vectors = np.array([row.vector for row in block], np.float32)
        payloads = [row.payload or {} for row in block]
        put(after, [row.id for row in block], vectors, payloads, iter([row.seq for row in block]))
