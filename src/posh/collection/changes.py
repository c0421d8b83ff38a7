"""Writes: what they do to the database, within a transaction, and the moment that follows them.

Both are done before the transaction is committed: if one fails, nothing has happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from posh.collection import building, sums, tables
from posh.collection.base import Id, Payload
from posh.collection.moment import Moment
from posh.collection.storage import Connection
from posh.index.snapshot import IndexSnapshot
from posh.preprocess import Float32

__all__ = ["delete", "upsert"]

Seqs = npt.NDArray[np.int64]


def upsert(
    connection: Connection,
    moment: Moment,
    generations: Sequence[int],
    ids: list[Id],
    vectors: Float32,
    payloads: list[Payload],
) -> Moment:
    """Write items in place of those with the same ids; ``generations`` are those that have codes."""
    if moment.n_features not in (None, vectors.shape[1]):
        raise ValueError(
            f"expected vectors with {moment.n_features} columns, as others have written meanwhile, "
            f"got {vectors.shape[1]}"
        )
    gone = _deleted(connection, generations, ids)
    slots = _slots(moment, gone)
    seqs = np.arange(moment.last_seq + 1, moment.last_seq + 1 + len(ids))
    added = tables.insert(connection, seqs, ids, payloads, vectors)
    if moment.n_features is None:
        tables.put_meta(connection, {"n_features": vectors.shape[1]})
    names = np.empty(len(ids), object)
    names[:] = ids
    following = replace(
        moment,
        n_features=vectors.shape[1],
        directory=moment.directory.without(slots).with_items(seqs, names),
        last_seq=int(seqs[-1]),
    )
    if moment.index is not None:
        following = _indexed(connection, following, moment.index.without(slots), seqs, vectors)
    return _written(connection, following, gone, added)


def delete(connection: Connection, moment: Moment, generations: Sequence[int], ids: list[Id]) -> Moment:
    """Remove the items with these ids that are there."""
    gone = _deleted(connection, generations, ids)
    if not gone:
        return moment
    slots = _slots(moment, gone)
    index = None if moment.index is None else moment.index.without(slots)
    following = replace(moment, directory=moment.directory.without(slots), index=index)
    return _written(connection, following, gone, 0)


def _deleted(connection: Connection, generations: Sequence[int], ids: list[Id]) -> list[tables.Stored]:
    items = tables.find(connection, ids)
    tables.delete(connection, items, generations)
    return items


def _slots(moment: Moment, items: list[tables.Stored]) -> npt.NDArray[np.int64]:
    return moment.directory.slots_of(np.array([item.seq for item in items], np.int64))


def _indexed(
    connection: Connection, moment: Moment, index: IndexSnapshot, seqs: Seqs, vectors: Float32
) -> Moment:
    codes: Any = index.encode(vectors)
    tables.insert_codes(connection, moment.generation, seqs, codes)
    if not building.outgrown(index, moment.learned_from, moment.directory.n_live):
        return replace(moment, index=index.with_documents(seqs, vectors, codes))
    directory = moment.directory.compacted()
    fresh = building.learned(connection, index, directory)
    building.write_trained_state(connection, moment.generation, fresh, directory.n_live)
    filled = building.filled(connection, moment.generation, fresh, directory)
    return replace(moment, directory=directory, index=filled, learned_from=directory.n_live)


def _written(connection: Connection, moment: Moment, gone: list[tables.Stored], added: int) -> Moment:
    removed = sum(sums.of_id(item.seq, item.id) for item in gone)
    following = replace(
        moment, version=moment.version + 1, ids_sum=sums.together(moment.ids_sum, added, removed)
    )
    tables.put_meta(
        connection,
        {"version": following.version, "last_seq": following.last_seq, "ids_sum": following.ids_sum},
    )
    return following.tidy()
