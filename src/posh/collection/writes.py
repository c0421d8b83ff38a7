"""Writes: what each does to the database, and the snapshot that follows.

Both are done within one transaction, before its commit. If one of them fails, nothing has changed.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from posh._progress import cancellable
from posh.collection import build_index, rows, tables
from posh.collection.base import Id, Item, Payload
from posh.collection.database import Connection
from posh.collection.rows import StoredId
from posh.collection.snapshot import CollectionSnapshot, Seqs, Slots
from posh.index.snapshot import IndexSnapshot
from posh.preprocess import Float32

__all__ = ["delete", "update_payload", "upsert"]

_NEVER = threading.Event()  # is never set
_AT_ONCE = 32  # items that are read together to be changed
_PART_BYTES = 1 << 24  # of changed items that are in memory together


def upsert(
    connection: Connection,
    snapshot: CollectionSnapshot,
    generations: Sequence[int],
    ids: list[Id],
    vectors: Float32,
    payloads: list[Payload],
) -> CollectionSnapshot:
    """Write items in place of those with the same ids; ``generations`` are those that have codes."""
    if snapshot.n_features not in (None, vectors.shape[1]):
        raise ValueError(
            f"expected vectors with {snapshot.n_features} columns, as others have written meanwhile, "
            f"got {vectors.shape[1]}"
        )
    if snapshot.index is None and snapshot.options.get("metric") is not None:
        snapshot = _with_first_index(connection, snapshot, vectors)
    replaced = tables.delete(connection, ids, generations)
    slots = _slots(snapshot, replaced)
    seqs = np.arange(snapshot.last_seq + 1, snapshot.last_seq + 1 + len(ids))
    added_sum = tables.insert(connection, seqs, ids, payloads, vectors)
    if snapshot.n_features is None:
        tables.put_meta(connection, {"n_features": vectors.shape[1]})
    ids_array = np.empty(len(ids), object)
    ids_array[:] = ids
    following = replace(
        snapshot,
        n_features=vectors.shape[1],
        slot_table=snapshot.slot_table.without(slots).with_items(seqs, ids_array),
        last_seq=int(seqs[-1]),
    )
    if snapshot.index is not None:
        following = _with_documents(connection, following, snapshot.index.without(slots), seqs, vectors)
    return _end(connection, following, replaced, added_sum)


def delete(
    connection: Connection, snapshot: CollectionSnapshot, generations: Sequence[int], ids: list[Id]
) -> CollectionSnapshot:
    """Delete the items with these ids that exist."""
    deleted = tables.delete(connection, ids, generations)
    if not deleted:
        return snapshot
    slots = _slots(snapshot, deleted)
    following = replace(snapshot, slot_table=snapshot.slot_table.without(slots))
    if snapshot.index is not None:
        with cancellable(_NEVER):
            following = _measured(connection, following, snapshot.index.without(slots))
    return _end(connection, following, deleted, 0)


def update_payload(
    connection: Connection,
    snapshot: CollectionSnapshot,
    generations: Sequence[int],
    updates: Mapping[Id, Payload],
    replace: bool,
    max_bytes: int | None,
) -> CollectionSnapshot:
    """Write items again with other payloads, some at a time: together, their payloads may be large."""
    items: list[Item] = []
    n_bytes = 0
    for item in tables.items_in_parts(connection, list(updates), _AT_ONCE):
        own = {} if replace else item.payload
        payload = own | updates[item.id]
        size = len(rows.dump_payload(payload).encode())
        if max_bytes is not None and size > max_bytes:
            raise ValueError(
                f"expected payloads of at most {max_bytes:,} bytes, got {size:,} for {item.id!r:.80}: "
                "keep large content elsewhere"
            )
        items.append(item._replace(payload=payload))
        n_bytes += size + item.vector.nbytes
        if n_bytes > _PART_BYTES:
            snapshot, items, n_bytes = _written_again(connection, snapshot, generations, items), [], 0
    return _written_again(connection, snapshot, generations, items) if items else snapshot


def _written_again(
    connection: Connection, snapshot: CollectionSnapshot, generations: Sequence[int], items: list[Item]
) -> CollectionSnapshot:
    ids, vectors, payloads = zip(*items, strict=True)
    return upsert(connection, snapshot, generations, list(ids), np.stack(vectors), list(payloads))


def _slots(snapshot: CollectionSnapshot, items: list[StoredId]) -> Slots:
    return snapshot.slot_table.slots_of(np.array([item.seq for item in items], np.int64))


def _with_first_index(
    connection: Connection, snapshot: CollectionSnapshot, vectors: Float32
) -> CollectionSnapshot:
    """Begin the first generation of an empty collection, with the hasher of its metric."""
    options = build_index.with_defaults(snapshot.options)
    hasher = build_index.metric_hasher(options, vectors)
    generation = build_index.new_generation(connection, hasher)
    tables.put_meta(connection, {"generation": generation, "options": json.dumps(options)})
    index = build_index.empty_index(hasher, options)
    return replace(snapshot, generation=generation, options=options, index=index)


def _with_documents(
    connection: Connection, snapshot: CollectionSnapshot, index: IndexSnapshot, seqs: Seqs, vectors: Float32
) -> CollectionSnapshot:
    """Add new items to the index, and train it again first if it needs that.

    Training is not cancelled: the next write would have to begin it again, and would be cancelled likewise.
    """
    codes: Any = index.encode(vectors)
    tables.insert_codes(connection, snapshot.generation, seqs, codes)
    with cancellable(_NEVER):
        if build_index.must_train_again(index, snapshot.n_trained, snapshot.slot_table.n_live):
            return _trained(connection, snapshot, index)
        return _measured(connection, snapshot, index.with_documents(seqs, vectors, codes, more_follow=True))


def _measured(
    connection: Connection, snapshot: CollectionSnapshot, index: IndexSnapshot
) -> CollectionSnapshot:
    """Measure an index within the write that changed it, if it is small or if one write changed most of it.

    Otherwise the store does so in the background.
    """
    was_due = snapshot.index is not None and snapshot.index.is_due
    if index.is_due and (len(index) <= build_index.AT_ONCE or (index.is_overdue and not was_due)):
        index = index.measured()
        args = (snapshot.generation, index, snapshot.n_trained, snapshot.last_seq)
        build_index.write_trained_state(connection, *args)
    return replace(snapshot, index=index)


def _trained(
    connection: Connection, snapshot: CollectionSnapshot, index: IndexSnapshot
) -> CollectionSnapshot:
    """Train the index on all items, and build it again."""
    table = snapshot.slot_table.compacted()
    trained = build_index.train(connection, index, table)
    filled = build_index.fill(connection, snapshot.generation, trained, table).measured()
    build_index.write_trained_state(connection, snapshot.generation, filled, table.n_live, snapshot.last_seq)
    return replace(snapshot, slot_table=table, index=filled, n_trained=table.n_live)


def _end(
    connection: Connection, snapshot: CollectionSnapshot, deleted: list[StoredId], added_sum: int
) -> CollectionSnapshot:
    """Count the write, in the database and in the snapshot."""
    deleted_sum = sum(rows.id_checksum(item.seq, item.id) for item in deleted)
    following = replace(
        snapshot,
        version=snapshot.version + 1,
        ids_sum=rows.ids_checksum(snapshot.ids_sum, added_sum, deleted_sum),
    )
    tables.put_meta(
        connection,
        {"version": following.version, "last_seq": following.last_seq, "ids_sum": following.ids_sum},
    )
    return following.compacted_if_half_empty()
