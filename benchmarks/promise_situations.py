"""Situations in which a recall that was measured once is wrong later, or for other searches.

Each function of :data:`SITUATIONS` takes a random generator and a number of documents, and yields cases: an
index with a history, its documents and queries. It calls nothing but the public interface.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import posh
from benchmarks.promise_data import (
    Rng,
    Vectors,
    clusters,
    gaussian,
    like_embeddings,
    three_columns,
    uneven_clusters,
)
from benchmarks.promise_truth import Ids, Measured, Search, measure, true_answers

__all__ = ["SITUATIONS", "Case", "Queries", "measure_case", "search_with"]

METRIC = "cosine"
ALL, STRICT = (0.90, 0.95, 0.99), (0.90, 0.99)


@dataclass(frozen=True, eq=False)
class Case:
    """A search, the vectors (n_ids, d) of all ids, the ids that may be found, and the queries."""

    variant: str
    search: Search
    vectors: Vectors
    ids: Ids
    queries: Vectors
    ks: tuple[int, ...] = (10,)
    recalls: tuple[float, ...] = (0.95,)
    is_single: bool = False


@dataclass(frozen=True)
class Queries:
    """Numbers of queries: for k up to 10, for larger k, and one at a time."""

    few_neighbours: int = 1000
    many_neighbours: int = 200
    single: int = 60

    def number(self, k: int) -> int:
        """Return the number of queries for k neighbours."""
        return self.few_neighbours if k <= 10 else self.many_neighbours


def measure_case(case: Case, queries: Queries) -> Iterator[Measured]:
    """Measure each k and each recall of a case."""
    for k in case.ks:
        asked = case.queries[: queries.number(k)]
        answers = true_answers(METRIC, case.vectors, case.ids, asked, [k])[k]
        n_single = len(asked) if case.is_single else queries.single
        for recall in case.recalls:
            yield measure(case.search, answers, asked, k, recall, n_single)


def search_with(index: posh.Index | posh.Collection, mask: Any = None) -> Search:
    """Return the search of an index or a collection, if there is a mask only among these ids (n_ids,)."""

    def search(queries: Vectors, k: int, recall: float) -> Ids:
        ids = index.search(queries, k, recall=recall, filter=mask).ids
        return np.where(ids == None, -1, ids).astype(np.int64) if ids.dtype == object else ids  # noqa: E711

    return search


# The situations -----------------------------------------------------------------------------------------


def replaced(rng: Rng, n: int) -> Iterator[Case]:
    """Write every id again, with vectors of another model."""
    old, draw = clusters(rng), clusters(rng, n_clusters=1000, spread=0.7)
    before, vectors, queries, ids = old(rng, n), draw(rng, n), draw(rng, 1000), np.arange(n)
    index = posh.Index.build(before, metric=METRIC)
    for part in np.array_split(ids, 4):
        index.update(vectors[part], part)
    yield Case("update", search_with(index), vectors, ids, queries)
    with tempfile.TemporaryDirectory() as folder:
        index.compact().save(folder)
        yield Case("compact, load", search_with(posh.Index.load(folder)), vectors, ids, queries)
    with tempfile.TemporaryDirectory() as folder:
        with posh.Collection(folder, metric=METRIC, recall=0.95) as collection:
            collection.upsert(ids, before)
            for part in np.array_split(ids, 4):
                collection.upsert(part, vectors[part])
            yield Case("upsert", search_with(collection), vectors, ids, queries)
            collection.compact()
        with posh.Collection(folder) as collection:
            yield Case("compact, open", search_with(collection), vectors, ids, queries)


def _grown_by_others(rng: Rng, n: int, *, is_like_new: bool) -> Iterator[Case]:
    for growth in (0.30, 0.49):
        n_new = int(growth * n)
        old, new = clusters(rng), clusters(rng, n_clusters=1000, spread=0.7)
        vectors = np.concatenate([old(rng, n), new(rng, n_new)])
        queries = np.concatenate([old(rng, 1000), new(rng, int(growth * 1000))])
        queries = new(rng, 1000) if is_like_new else rng.permutation(queries)[:1000]
        index = posh.Index.build(vectors[:n], metric=METRIC).add(vectors[n:])
        case = Case(f"{growth:.0%} more", search_with(index), vectors, np.arange(len(vectors)), queries)
        yield case if is_like_new else replace(case, recalls=(0.90, 0.95))


def grown(rng: Rng, n: int) -> Iterator[Case]:
    """Add documents of another kind; queries are like all documents."""
    yield from _grown_by_others(rng, n, is_like_new=False)


def asked_for_the_new(rng: Rng, n: int) -> Iterator[Case]:
    """Add documents of another kind; queries are like these."""
    yield from _grown_by_others(rng, n, is_like_new=True)


def filtered(rng: Rng, n: int) -> Iterator[Case]:
    """Filter by something that depends on the vectors."""
    n *= 3  # a tenth of them are enough for an approximate search
    n_clusters, ks = 60, (10, 100)
    centres = rng.standard_normal((n_clusters, 32))
    labels = rng.integers(0, n_clusters, n + 1000)
    rows = (centres[labels] + 0.7 * rng.standard_normal((len(labels), 32))).astype(np.float32)
    vectors, queries = rows[:n], rows[n:]
    index = posh.Index.build(vectors, metric=METRIC)
    side = rows @ rng.standard_normal(32).astype(np.float32)
    for variant, mask, asked in (
        ("6 of 60 clusters", labels[:n] < 6, queries),
        ("far half-space", side[:n] < 0, queries[side[n:] > 0]),
    ):
        search = search_with(index, mask)
        yield Case(variant, search, vectors, np.flatnonzero(mask), asked, ks, STRICT)


def shrunk(rng: Rng, n: int) -> Iterator[Case]:
    """Delete 92 % of the documents."""
    n *= 4  # enough are left for an approximate search
    draw = clusters(rng, n_clusters=1000, spread=0.7)
    vectors, ids = draw(rng, n), rng.permutation(n)
    index = posh.Index.build(vectors, metric=METRIC).delete(ids[: int(0.92 * n)])
    yield Case("", search_with(index), vectors, np.sort(ids[int(0.92 * n) :]), draw(rng, 300), (100,), ALL)


def nearest_one(rng: Rng, n: int) -> Iterator[Case]:
    """Ask for one neighbour."""
    tiny = clusters(rng, n_clusters=n // 4, d=32, spread=0.02)
    for variant, draw in (("tiny clusters", tiny), ("d = 3", three_columns(rng))):
        vectors = draw(rng, n)
        index = posh.Index.build(vectors, metric=METRIC)
        yield Case(variant, search_with(index), vectors, np.arange(n), draw(rng, 1000), (1,), ALL)


def many_neighbours(rng: Rng, n: int) -> Iterator[Case]:
    """Ask for more neighbours than were ever measured."""
    kinds = {"clusters": clusters(rng), "uneven clusters": uneven_clusters(rng), "ball": gaussian(rng)}
    for variant, draw in kinds.items():
        vectors = draw(rng, n)
        index = posh.Index.build(vectors, metric=METRIC)
        yield Case(variant, search_with(index), vectors, np.arange(n), draw(rng, 200), (300, 1000), ALL)


def periodic(rng: Rng, n: int) -> Iterator[Case]:
    """Mix in documents of another kind as every 16th row, which a fixed sample may consist of."""
    draw, other = gaussian(rng), clusters(rng, n_clusters=10, d=32, spread=0.3, mean=3.0)
    for first in (0, 15):
        vectors, queries = draw(rng, n), draw(rng, 1000)
        vectors[first::16] = other(rng, len(vectors[first::16]))
        queries[::16] = other(rng, len(queries[::16]))
        index = posh.Index.build(vectors, metric=METRIC)
        yield Case(f"from row {first}", search_with(index), vectors, np.arange(n), queries)


def one_at_a_time(rng: Rng, n: int) -> Iterator[Case]:
    """Search for one query at a time."""
    for variant, draw in {"clusters": clusters(rng), "like embeddings": like_embeddings(rng)}.items():
        vectors = draw(rng, n)
        index = posh.Index.build(vectors, metric=METRIC)
        case = (search_with(index), vectors, np.arange(n), draw(rng, 1000))
        yield Case(variant, *case, (10, 100), (0.99,), is_single=True)


SITUATIONS: dict[str, Callable[[Rng, int], Iterator[Case]]] = {
    "every id written again with vectors of another model": replaced,
    "30–49 % more documents of another kind, queries like all": grown,
    "30–49 % more documents of another kind, queries like these": asked_for_the_new,
    "a filter that depends on the vectors": filtered,
    "92 % of the documents deleted": shrunk,
    "one neighbour, tiny clusters or d = 3": nearest_one,
    "300 and 1,000 neighbours": many_neighbours,
    "every 16th row of another kind": periodic,
    "one query at a time": one_at_a_time,
}
