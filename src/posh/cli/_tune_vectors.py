"""Measure recall, speed and memory of an index for several recalls that are asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import posh
from posh._runtime import track_progress
from posh.index.nearest.vectors import STORES

__all__ = ["K", "Setting", "Split", "best_seen", "chosen", "front", "measured_settings", "scores", "split"]

K = 10
_QUERIES, _ALONE = 1000, 200  # timed in one batch and one by one
_RECALLS = (0.7, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995)  # that are asked for, besides the user's
_CLOSE = 0.85  # of the highest speed: less memory is worth more than the rest
_AS_FAST = 0.95  # times are not more precise
_ALIKE = 0.002  # recalls that differ by less are not told apart
_ROUNDING = 1e-9  # of a mean of shares

Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Split:
    """Vectors to build an index of, and others to search for."""

    base: Float32
    queries: Float32


@dataclass(frozen=True)
class Setting:
    """A recall that was asked for, and measurements; ``asked`` is None if all vectors are compared."""

    store: str
    asked: float | None
    recall: float
    per_second: float  # queries in a batch, on all cores
    alone_per_second: float  # queries one by one, on one core
    bytes_per_vector: float
    is_default: bool = False  # what Index.build chooses for the recall that was asked for

    def beats(self, other: Setting) -> bool:
        """Whether nothing that can be measured speaks for the other one."""
        is_smaller = self.bytes_per_vector < other.bytes_per_vector
        is_faster = self.per_second > other.per_second
        return (
            self.recall >= other.recall - _ALIKE
            and self.per_second >= _AS_FAST * other.per_second
            and (is_smaller or (is_faster and self.bytes_per_vector == other.bytes_per_vector))
        )


def split(X: Float32, n_queries: int = _QUERIES) -> Split:
    """Hold out queries, at most a tenth of the vectors (n, d), drawn with a fixed seed."""
    if len(X) < 2:
        raise ValueError(f"expected at least 2 vectors to tune with, got {len(X)}")
    n = max(1, min(n_queries, len(X) // 10))
    held_out = np.zeros(len(X), bool)
    held_out[np.random.default_rng(0).permutation(len(X))[:n]] = True
    return Split(X[~held_out], X[held_out])


def measured_settings(data: Split, metric: str, recall: float) -> Iterator[Setting]:
    """Build an index for each way to store vectors, and measure its efforts on the held-out queries."""
    true: Float32 | None = None
    for store in STORES:
        index = posh.Index.build(data.base, metric=metric, recall=recall, store=store)
        if true is None:  # of the first store, which keeps vectors as they are
            nearest = index.search(data.queries, min(K, len(data.base)), exact=True)
            true = scores(index, data, nearest.ids)
        exact = [] if store == "int8" else [None]
        for asked in track_progress([*sorted({recall, *_RECALLS}), *exact], f"measuring {store}", "setting"):
            yield _measured(index, data, asked, true)


def front(settings: list[Setting], marked: Setting) -> list[Setting]:
    """Those that no other one beats, the defaults, and the marked one, by recall."""
    kept = [
        one
        for one in settings
        if one.is_default or one is marked or not any(other.beats(one) for other in settings)
    ]
    return sorted(kept, key=lambda one: (one.recall, -one.per_second))


def chosen(settings: list[Setting], recall: float) -> Setting | None:
    """Return a setting that reached the recall, a default if one did; None if nothing reached it.

    Of several, it is the one with the least memory among those that are about as fast as the fastest.
    """
    able = [one for one in settings if one.recall >= recall - _ROUNDING]
    able = [one for one in able if one.is_default] or able
    fastest = max((one.per_second for one in able), default=0.0)
    fast = [one for one in able if one.per_second >= _CLOSE * fastest]
    return min(fast, key=lambda one: (one.bytes_per_vector, -one.per_second), default=None)


def best_seen(settings: list[Setting]) -> Setting:
    """Return the setting with the highest recall; of equal ones the fastest."""
    return max(settings, key=lambda one: (one.recall, one.per_second))


def _measured(index: posh.Index, data: Split, asked: float | None, true: Float32) -> Setting:
    k = true.shape[1]

    def search(queries: Float32, n_threads: int | None = None) -> posh.Hits:
        return index.search(queries, k, n_threads=n_threads, recall=asked, exact=asked is None)

    found = scores(index, data, search(data.queries).ids)
    alone = data.queries[:_ALONE, None]
    return Setting(
        store=index.options.store,
        asked=asked,
        recall=float(shares(true, found).mean()),
        per_second=len(data.queries) / _best_of_three(lambda: search(data.queries)),
        alone_per_second=len(alone) / _best_of_three(lambda: [search(query, 1) for query in alone]),
        bytes_per_vector=index.memory_usage()["total"] / len(index),
        is_default=asked == index.options.recall,
    )


def scores(index: posh.Index, data: Split, ids: npt.NDArray[np.int64]) -> Float32:
    """The scores (m, k) of found documents by the metric, from the vectors as they came; best first.

    A missing one, whose id is -1, has the score -inf.
    """
    queries, rows = data.queries.astype(np.float64), data.base[ids].astype(np.float64)
    if index.options.metric == "euclidean":
        found = -((queries[:, None] - rows) ** 2).sum(axis=2)
    else:
        found = np.einsum("md,mkd->mk", queries, rows)
    if index.options.metric == "cosine":
        lengths = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(rows, axis=2)
        found = found / np.where(lengths > 0, lengths, 1.0)
    return -np.sort(-np.where(ids < 0, -np.inf, found), axis=1).astype(np.float32)


def shares(true: Float32, found: Float32) -> npt.NDArray[np.float64]:
    """Return the share of the k nearest that each query found, from the scores (m, k) of both, best first.

    A document counts if its score is as good as that of the k-th nearest, up to rounding: equal ones may
    take each other's places.

    >>> import numpy as np
    >>> shares(np.float32([[0.9, 0.8]]), np.float32([[0.9, 0.7]]))
    array([0.5])
    """
    rounding = 4e-6 * np.abs(true).max(axis=1, keepdims=True).astype(np.float64)
    return np.asarray((found >= true[:, -1:] - rounding).mean(axis=1))


def _best_of_three(call: Callable[[], object]) -> float:
    def once() -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    return min(once() for _ in range(3))
