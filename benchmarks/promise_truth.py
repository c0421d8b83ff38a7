"""The true nearest documents, and the share of them that a search finds.

Products in float32 choose candidates with a bound of their rounding errors, and float64 decides. A document
counts as right if its true score reaches that of the k-th nearest, up to the rounding of a float32: documents
with equal scores may take each other's places.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.promise_data import Vectors

__all__ = ["Answers", "Measured", "Search", "measure", "true_answers"]

TOLERANCE = 0.02
"""A search falls short if it finds this much less than it promised, beyond two standard errors."""

ROUNDING = 1e-6
"""Scores that differ by this share are equal: those of a search are float32."""

_ROWS = 64  # queries compared with all documents together

Ids = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]
Search = Callable[[Vectors, int, float], Ids]
"""Ids (m, k) of the k nearest documents: ``search(queries, k, recall)``; -1 where nothing was found."""


@dataclass(frozen=True, eq=False)
class Answers:
    """The right answers to queries for their k nearest documents.

    ``keys`` are query · n_ids + id, in ascending order; ``n_true`` is k, or the number of documents if there
    are fewer. There are more right answers than that if scores are equal.
    """

    keys: Ids
    n_ids: int
    n_true: int

    def shares(self, found: Ids) -> Doubles:
        """Return the share of the nearest documents among the ids (m, k) found for the first m queries."""
        rows = np.repeat(np.arange(len(found)), found.shape[1])
        ids = found.ravel()
        keys = np.unique((rows * self.n_ids + ids)[ids >= 0])  # an id that comes twice counts once
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        right = keys[self.keys[places] == keys]
        return np.bincount(right // self.n_ids, minlength=len(found)) / self.n_true


def true_answers(
    metric: str, vectors: Vectors, ids: Ids, queries: Vectors, ks: Sequence[int]
) -> dict[int, Answers]:
    """Return the right answers for each k, from a comparison of all documents with all queries (m, d).

    ``vectors`` (n_ids, d) has the vector of each id, and ``ids`` (n,) are the documents that may be found.
    """
    documents, points = _prepare(metric, vectors[ids], queries)
    keys: dict[int, list[Ids]] = {k: [] for k in ks}
    most = min(max(ks), len(ids))
    for row, chosen in enumerate(_candidates(metric, documents, points, most)):
        scores = _scores(metric, documents[chosen], points[row])
        order = np.argsort(-scores)
        falling = scores[order]
        for k in ks:
            last = falling[min(k, most) - 1]
            n_right = np.searchsorted(-falling, -(last - ROUNDING * abs(last)), side="right")
            keys[k].append(row * len(vectors) + np.sort(ids[chosen[order[:n_right]]]))
    return {k: Answers(np.concatenate(keys[k]), len(vectors), min(k, len(ids))) for k in ks}


def _prepare(metric: str, documents: Vectors, queries: Vectors) -> tuple[Doubles, Doubles]:
    """Normalise for cosines; for distances move the mean to the origin, where products are most accurate."""
    X, Q = documents.astype(np.float64), queries.astype(np.float64)
    if metric == "cosine":
        X, Q = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (X, Q))
    mean = X.mean(axis=0) if metric == "euclidean" else 0.0
    return X - mean, Q - mean


def _scores(metric: str, documents: Doubles, query: Doubles) -> Doubles:
    if metric == "euclidean":
        return np.asarray(-((documents - query) ** 2).sum(axis=1))
    return np.asarray(documents @ query)


def _candidates(metric: str, documents: Doubles, queries: Doubles, k: int) -> Iterator[Ids]:
    """Yield for each query the rows of all documents that may be among its k best, and ties of the k-th."""
    X, Q = documents.astype(np.float32), queries.astype(np.float32)
    halves = 0.5 * np.einsum("ij,ij->i", X, X) if metric == "euclidean" else np.zeros(len(X), np.float32)
    lengths, bound = np.linalg.norm(X, axis=1), np.float32((X.shape[1] + 4) * 2.0**-24)
    for start in range(0, len(Q), _ROWS):
        some = Q[start : start + _ROWS]
        scores = some @ X.T - halves
        # Rounding changes a score by at most this; the second term makes ties of the k-th candidates, too.
        errors = bound * (np.outer(np.linalg.norm(some, axis=1), lengths) + halves)
        errors += ROUNDING * np.abs(scores)
        if metric == "euclidean":
            errors += ROUNDING * np.einsum("ij,ij->i", some, some)[:, None]
        lowest = np.partition(scores - errors, -k, axis=1)[:, -k]
        for row in range(len(some)):
            yield np.flatnonzero(scores[row] + errors[row] >= lowest[row])


@dataclass(frozen=True)
class Measured:
    """The share that a search found, in a batch and with one query at a time, with standard errors.

    ``n_different`` counts the single queries whose ids differ from those of the batch.
    """

    k: int
    promised: float
    found: float
    error: float
    n_queries: int
    found_single: float
    error_single: float
    n_single: int
    n_different: int

    @property
    def is_short(self) -> bool:
        """Whether one of the two is more than the tolerance below the promise, by two standard errors."""
        pairs = ((self.found, self.error), (self.found_single, self.error_single))
        return any(found + 2 * error < self.promised - TOLERANCE for found, error in pairs)


def measure(
    search: Search, answers: Answers, queries: Vectors, k: int, promised: float, n_single: int
) -> Measured:
    """Search for all queries in one batch, then for the first ``n_single`` one at a time."""
    batch = search(queries, k, promised)
    single = np.concatenate([search(query[None], k, promised) for query in queries[:n_single]])
    return Measured(
        k,
        promised,
        *_mean_and_error(answers.shares(batch)),
        len(batch),
        *_mean_and_error(answers.shares(single)),
        len(single),
        int((batch[:n_single] != single).any(axis=1).sum()),
    )


def _mean_and_error(shares: Doubles) -> tuple[float, float]:
    return round(float(shares.mean()), 5), round(float(shares.std()) / math.sqrt(len(shares)), 5)
