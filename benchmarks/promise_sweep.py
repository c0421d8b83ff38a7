"""Distributions × metrics × histories: one index each, searched for every k, recall and filter.

``measure_group`` builds one index and yields a record, ready for JSON, for each of its settings.
"""

from __future__ import annotations

import itertools
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

import posh
from benchmarks.promise_data import DISTRIBUTIONS, Draw, Rng, Vectors, clusters
from benchmarks.promise_situations import Queries, search_with
from benchmarks.promise_truth import Ids, measure, true_answers

__all__ = ["FILTERS", "KS", "RECALLS", "Group", "all_groups", "measure_group", "n_settings", "quick_groups"]

METRICS = ("cosine", "euclidean", "dot")
KS = (1, 10, 100, 300, 1000)
RECALLS = (0.90, 0.95, 0.99)
FILTERS = ("none", "random", "correlated", "anti-correlated")
LEAST = 3000  # documents that a filter leaves: fewer would all be compared

Record = dict[str, Any]


class Group(NamedTuple):
    """The settings that share an index."""

    distribution: str
    metric: str
    history: str
    n: int
    seed: int

    def rng(self) -> Rng:
        """Return a generator that depends on the group alone."""
        return np.random.default_rng(zlib.crc32(repr(self).encode()))


@dataclass(frozen=True, eq=False)
class Corpus:
    """An index, the vectors (n_ids, d) of all ids, the ids that are present, and ways to draw queries."""

    index: posh.Index
    vectors: Vectors
    ids: Ids
    draws: dict[str, Draw]


def all_groups(n: int, seed: int) -> list[Group]:
    """Return the complete product."""
    return [Group(*key, n, seed) for key in itertools.product(DISTRIBUTIONS, METRICS, HISTORIES)]


def quick_groups(n: int, seed: int) -> list[Group]:
    """Return one group for each distribution, with every pair of a metric and a history once."""
    metrics, histories = itertools.cycle(METRICS), itertools.cycle(HISTORIES)
    return [Group(name, next(metrics), next(histories), n, seed) for name in DISTRIBUTIONS]


def n_settings(group: Group) -> int:
    """Return the number of records of a group."""
    return (2 if group.history == "drifted" else 1) * len(FILTERS) * len(KS) * len(RECALLS)


# Histories ----------------------------------------------------------------------------------------------


def _built(draw: Draw, metric: str, rng: Rng, n: int) -> Corpus:
    """All documents in one call."""
    vectors = draw(rng, n)
    return Corpus(posh.Index.build(vectors, metric=metric), vectors, np.arange(n), {"all": draw})


def _grown(draw: Draw, metric: str, rng: Rng, n: int) -> Corpus:
    """A quarter first, the rest in six parts."""
    vectors = draw(rng, n)
    index = posh.Index.build(vectors[: n // 4], metric=metric)
    for part in np.array_split(vectors[n // 4 :], 6):
        index.add(part)
    return Corpus(index, vectors, np.arange(n), {"all": draw})


def _replaced(draw: Draw, metric: str, rng: Rng, n: int) -> Corpus:
    """Documents of another kind, then every id again in four parts."""
    vectors, ids = draw(rng, n), np.arange(n)
    index = posh.Index.build(_other_kind(draw, rng)(rng, n), metric=metric)
    for part in np.array_split(ids, 4):
        index.update(vectors[part], part)
    return Corpus(index, vectors, ids, {"all": draw})


def _shrunk(draw: Draw, metric: str, rng: Rng, n: int) -> Corpus:
    """Twice as many documents, of which nine in ten are deleted."""
    n *= 2
    vectors, ids = draw(rng, n), rng.permutation(n)
    index = posh.Index.build(vectors, metric=metric).delete(ids[: n * 9 // 10])
    return Corpus(index, vectors, np.sort(ids[n * 9 // 10 :]), {"all": draw})


def _drifted(draw: Draw, metric: str, rng: Rng, n: int) -> Corpus:
    """Seven tenths of another kind, then the others: queries like all documents, and like the new ones."""
    n_old, other = n * 7 // 10, _other_kind(draw, rng)
    vectors = np.concatenate([other(rng, n_old), draw(rng, n - n_old)])
    index = posh.Index.build(vectors[:n_old], metric=metric).add(vectors[n_old:])

    def draw_both(rng: Rng, n: int) -> Vectors:
        is_old = rng.random((n, 1)) < 0.7
        return np.where(is_old, other(rng, n), draw(rng, n))

    return Corpus(index, vectors, np.arange(n), {"all": draw_both, "new": draw})


def _other_kind(draw: Draw, rng: Rng) -> Draw:
    """Return clusters that are easy to search, of the width and the typical length of a distribution."""
    rows = draw(rng, 1000)
    easy = clusters(rng, n_clusters=10, d=rows.shape[1], spread=0.3, mean=1.0)
    lengths = np.median(np.linalg.norm(rows, axis=1)), np.median(np.linalg.norm(easy(rng, 1000), axis=1))
    return lambda rng, n: np.float32(lengths[0] / lengths[1]) * easy(rng, n)


HISTORIES: dict[str, Callable[[Draw, str, Rng, int], Corpus]] = {
    "built": _built,
    "grown": _grown,
    "replaced": _replaced,
    "shrunk": _shrunk,
    "drifted": _drifted,
}


# Filters and measurements -------------------------------------------------------------------------------


def _filtered(corpus: Corpus, draw: Draw, m: int, rng: Rng) -> Iterator[tuple[str, Ids, Vectors]]:
    """Yield each filter's name, the ids that pass, and m queries.

    Two filters leave the documents that are farthest in a random direction. Queries of the correlated one are
    on their side of the median, those of the anti-correlated one on the other side.
    """
    ids, n_passing = corpus.ids, max(LEAST, len(corpus.ids) // 10)
    queries = rng.permutation(draw(rng, 2 * m))  # some distributions draw rows in an order
    yield "none", ids, queries[:m]
    yield "random", np.sort(rng.permutation(ids)[:n_passing]), queries[:m]
    direction = rng.standard_normal(queries.shape[1], np.float32)
    order = np.argsort(corpus.vectors[ids] @ direction)
    farthest = np.sort(ids[order[-n_passing:]])
    queries = queries[np.argsort(queries @ direction)]
    yield "correlated", farthest, rng.permutation(queries[m:])
    yield "anti-correlated", farthest, rng.permutation(queries[:m])


def measure_group(group: Group, n_queries: Queries) -> Iterator[Record]:
    """Build the index of a group, and measure all of its settings."""
    rng = group.rng()
    draw = DISTRIBUTIONS[group.distribution](rng)
    corpus = HISTORIES[group.history](draw, group.metric, rng, group.n)
    for kind, draw_queries in corpus.draws.items():
        for name, passing, queries in _filtered(corpus, draw_queries, n_queries.few_neighbours, rng):
            mask = None
            if name != "none":
                mask = np.zeros(len(corpus.vectors), bool)
                mask[passing] = True
            about = {**group._asdict(), "queries": kind, "filter": name, "n_passing": len(passing)}
            for record in _measure_filter(corpus, group.metric, mask, passing, queries, n_queries):
                yield about | record


def _measure_filter(
    corpus: Corpus, metric: str, mask: Any, passing: Ids, queries: Vectors, n_queries: Queries
) -> Iterator[Record]:
    search = search_with(corpus.index, mask)
    for m, ks in itertools.groupby(KS, key=n_queries.number):
        answers = true_answers(metric, corpus.vectors, passing, queries[:m], list(ks))
        for k, recall in itertools.product(answers, RECALLS):
            start = time.perf_counter()
            measured = measure(search, answers[k], queries[:m], k, recall, n_queries.single)
            seconds = round(time.perf_counter() - start, 4)
            yield asdict(measured) | {"is_short": measured.is_short, "seconds": seconds}
