"""Items from the rows of Milvus, in the order of writing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from posh.collection.filters import Filter, passes
from posh.collection.types import Id, Include, Item
from posh.index.hits import Hits
from posh.index.params import SearchParams
from posh.milvus.expressions import sieve
from posh.milvus.keys import key_of
from posh.milvus.searching import ItemChangedError, Scored
from posh.milvus.table import ItemTable, Row

__all__ = ["completed", "hits_of", "item_of", "items_after", "passing", "sampled_items"]

_PAGE = 1000  # items that are read together


def passing(table: ItemTable, where: Filter | None) -> Iterator[Row]:
    """Yield the rows that pass a filter, in any order, without vectors."""
    if where is None:
        return table.scan("")
    rows = table.scan(sieve(where.tree), "payload")
    return (row for row in rows if passes(where.tree, row.payload or {}))


def _is_same(read: Mapping[str, Row], row: Row) -> bool:
    return row.key in read and read[row.key].seq == row.seq


def item_of(row: Row) -> Item:
    """The item of a row that was read with its payload and its vector."""
    assert row.payload is not None
    assert row.vector is not None
    return Item(row.id, row.vector, row.payload)


def hits_of(found: Sequence[Scored], params: SearchParams, kind: str) -> Hits:
    """The hits of queries, without those whose scores are too low."""
    ids = np.full((len(found), params.k), None, object)
    scores = np.full((len(found), params.k), -np.inf, np.float32)
    for i, scored in enumerate(found):
        ids[i, : len(scored.rows)] = [row.id for row in scored.rows]
        scores[i, : len(scored.rows)] = scored.scores
    return Hits(ids, scores, kind).above(params.min_score)


def items_after(
    table: ItemTable | None, where: Filter | None, after: Id | None, limit: int | None
) -> Iterator[Item]:
    """Yield the items that pass a filter, in the order of writing, see :meth:`posh.Collection.items`.

    The keys are of one moment. What is written or deleted before it is read is left out.
    """
    least = -1
    if after is not None:
        found = {} if table is None else table.get([key_of(after)])
        if not found:
            raise KeyError(f"expected after to be the id of an item, got {after!r}, which is not there")
        least = found[key_of(after)].seq
    if table is not None:
        rows = [row for row in passing(table, where) if row.seq > least]
        yield from _read(table, sorted(rows, key=lambda row: row.seq)[:limit])


def sampled_items(table: ItemTable | None, n: int) -> Iterator[Item]:
    """Yield n items, chosen as in the embedded engine."""
    rows = [] if table is None else sorted(table.scan(""), key=lambda row: row.seq)
    chosen = np.sort(np.random.default_rng(0).permutation(len(rows))[:n])
    return iter(()) if table is None else _read(table, [rows[i] for i in chosen])


def completed(hits: Hits, table: ItemTable, found: list[Scored], include: Include) -> Hits:
    """The hits with payloads and vectors, of the state that was searched."""
    rows = {row.id: row for scored in found for row in scored.rows}

    def items(ids: list[Id]) -> dict[Id, Item]:
        wanted = [rows[item_id] for item_id in ids]
        read = table.get([row.key for row in wanted], "payload", "vector")
        for row in wanted:
            if not _is_same(read, row):
                raise ItemChangedError(row.key)
        return {row.id: item_of(read[row.key]) for row in wanted}

    return hits.completed(items, *include)


def _read(table: ItemTable, rows: Sequence[Row]) -> Iterator[Item]:
    for start in range(0, len(rows), _PAGE):
        page = rows[start : start + _PAGE]
        read = table.get([row.key for row in page], "payload", "vector")
        yield from (item_of(read[row.key]) for row in page if _is_same(read, row))
