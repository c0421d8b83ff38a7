"""Nearest vectors without any approximation: every vector is compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from posh._runtime import iterate_cancellable, no_fork
from posh.index.arrays import Slots
from posh.index.hits import SlotScores
from posh.preprocess import Float32, normalize_rows

__all__ = ["METRICS", "find_nearest", "find_reaching", "measure_distances", "measure_true_distances"]

_QUERIES, _DOCUMENTS = 256, 16_384  # compared together

Doubles = npt.NDArray[np.float64]

METRICS: dict[str, Callable[[Float32], Float32]] = {"euclidean": np.asarray, "cosine": normalize_rows}
"""How vectors are prepared so that the metric orders them as Euclidean distances do."""


def find_nearest(
    vectors: npt.NDArray[Any], slots: Slots, queries: Float32, k: int, *, is_distance: bool
) -> SlotScores:
    """Return the k best of the documents at these ascending slots, for queries (m, d).

    ``vectors`` (n_slots, d) are float32 or float16. Scores are products, or minus squared distances. Products
    of matrices in float32 only choose candidates. Documents whose score rounding may have made too low are
    among them, and float64 decides.

    >>> import numpy as np
    >>> vectors = np.array([[0.0, 1.0], [1.0, 1.0], [1.0, 0.0]], np.float32)
    >>> find_nearest(vectors, np.arange(3), vectors[2:], 2, is_distance=False)
    SlotScores(slots=array([[1, 2]]), scores=array([[1., 1.]], dtype=float32))
    """
    found = SlotScores(
        np.full((len(queries), k), -1, np.int64), np.full((len(queries), k), -np.inf, np.float32)
    )
    for start in range(0, len(queries), _QUERIES):
        some = queries[start : start + _QUERIES]
        for row, chosen in enumerate(_choose_candidates(vectors, slots, some, k, is_distance), start):
            wide = vectors[chosen].astype(np.float64)
            own = queries[row].astype(np.float64)
            scores = (-((wide - own) ** 2).sum(axis=1) if is_distance else wide @ own).astype(np.float32)
            best = np.lexsort((chosen, -scores))[:k]
            found.slots[row, : len(best)] = chosen[best]
            found.scores[row, : len(best)] = scores[best]
    return found


def find_reaching(
    vectors: npt.NDArray[Any], slots: Slots, queries: Float32, bounds: Float32, *, is_distance: bool
) -> tuple[Slots, Slots, Float32]:
    """Return rows of queries, slots and scores of all documents whose scores reach the bounds (m,).

    The arguments, and the way in which scores are computed, are those of :func:`find_nearest`. The best of
    each query are first, row after row.

    >>> import numpy as np
    >>> vectors = np.array([[0.0, 1.0], [1.0, 1.0], [1.0, 0.0]], np.float32)
    >>> find_reaching(vectors, np.arange(3), vectors[2:], np.float32([1.0]), is_distance=False)
    (array([0, 0]), array([1, 2]), array([1., 1.], dtype=float32))
    """
    found = [(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))]
    for start in range(0, len(queries), _QUERIES):
        part = slice(start, start + _QUERIES)
        for rows, chosen in _iterate_candidates(vectors, slots, queries[part], bounds[part], is_distance):
            wide, own = vectors[chosen].astype(np.float64), queries[part][rows].astype(np.float64)
            products = -((wide - own) ** 2).sum(axis=1) if is_distance else np.einsum("ij,ij->i", wide, own)
            scores = products.astype(np.float32)
            passing = scores >= bounds[part][rows]
            found.append((rows[passing] + start, chosen[passing], scores[passing]))
    all_rows, all_slots, all_scores = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
    order = np.lexsort((all_slots, -all_scores, all_rows))
    return all_rows[order], all_slots[order], all_scores[order]


def _iterate_candidates(
    vectors: npt.NDArray[Any], slots: Slots, queries: Float32, bounds: Float32, is_distance: bool
) -> Iterator[tuple[Slots, Slots]]:
    """Yield rows of queries and slots of documents that may reach the bounds, a few thousand at a time."""
    lengths = np.linalg.norm(queries, axis=1).astype(np.float64)
    limits = 0.5 * (bounds + lengths**2) if is_distance else bounds.astype(np.float64)
    for start in iterate_cancellable(range(0, len(slots), _DOCUMENTS)):
        own = slots[start : start + _DOCUMENTS]
        scores, longest = _score_block(vectors, own, queries, is_distance)
        lowest = _compute_threshold(limits[:, None], lengths, longest, queries.shape[1])
        rows, columns = np.divmod(np.flatnonzero(scores >= lowest[:, None]), len(own))
        for first in range(0, len(rows), _DOCUMENTS):
            some = slice(first, first + _DOCUMENTS)
            yield rows[some], own[columns[some]]


def _score_block(
    vectors: npt.NDArray[Any], slots: Slots, queries: Float32, is_distance: bool
) -> tuple[Float32, float]:
    """Return scores (m, s) in float32, and the length of the longest document.

    Scores of distances lack the part that depends on the query alone.
    """
    is_run = slots[-1] - slots[0] == len(slots) - 1
    documents = np.asarray(vectors[slots[0] : slots[-1] + 1] if is_run else vectors[slots], np.float32)
    squares = np.einsum("ij,ij->i", documents, documents)
    with no_fork:
        scores = queries @ documents.T
    if is_distance:
        scores -= 0.5 * squares
    return scores, float(np.sqrt(squares.max(initial=0.0)))


def _choose_candidates(
    vectors: npt.NDArray[Any], slots: Slots, queries: Float32, k: int, is_distance: bool
) -> list[Slots]:
    """Return for each query the slots that may be among the k best."""
    best = np.full((len(queries), k), -np.inf, np.float32)  # the k highest scores, in any order
    nothing = np.empty(0, np.int64)
    kept: list[tuple[Slots, Slots, Float32]] = [(nothing, nothing, np.empty(0, np.float32))]
    lengths = np.linalg.norm(queries, axis=1).astype(np.float64)
    longest = 0.0
    for start in iterate_cancellable(range(0, len(slots), _DOCUMENTS)):
        own = slots[start : start + _DOCUMENTS]
        scores, length = _score_block(vectors, own, queries, is_distance)
        longest = max(longest, length)
        if start == 0:  # later, only the few that may be among the best are put in order
            best = _keep_best(best, scores, k)
        lowest = _compute_threshold(best, lengths, longest, queries.shape[1])
        places = np.flatnonzero(scores >= lowest[:, None])  # faster than nonzero
        rows, columns = np.divmod(places, len(own))
        found = scores.ravel()[places]
        kept.append((rows, own[columns], found))
        if start:
            best = _keep_best(best, _arrange_by_row(rows, found, len(queries)), k)
    lowest = _compute_threshold(best, lengths, longest, queries.shape[1])
    rows = np.concatenate([part[0] for part in kept])
    passing = np.concatenate([part[2] for part in kept]) >= lowest[rows]
    rows, chosen = rows[passing], np.concatenate([part[1] for part in kept])[passing]
    order = np.argsort(rows, kind="stable")
    return np.split(chosen[order], np.searchsorted(rows[order], np.arange(1, len(queries))))


def _keep_best(best: Float32, scores: Float32, k: int) -> Float32:
    """Return the k highest (m, k) of both, in any order."""
    return np.partition(np.concatenate([best, scores], axis=1), -k, axis=1)[:, -k:]


def _arrange_by_row(rows: Slots, values: Float32, n_rows: int) -> Float32:
    """Return values, ordered by their rows, as a matrix (n_rows, most in a row) with -inf behind them."""
    counts = np.bincount(rows, minlength=n_rows)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    table = np.full((n_rows, int(counts.max(initial=0))), -np.inf, np.float32)
    table[rows, np.arange(len(rows)) - starts[rows]] = values
    return table


def _compute_threshold(best: Float32 | Doubles, lengths: Doubles, longest: float, n_features: int) -> Doubles:
    """Return for each query the lowest score of a document that may be among the best despite rounding."""
    unit = (n_features + 8) * float(np.finfo(np.float32).eps)
    return np.asarray(best.min(axis=1) - 2.0 * unit * longest * (lengths + longest))


def measure_distances(base: Float32, queries: Float32, ids: Slots, metric: str) -> Doubles:
    """Return the distances (m, n) of queries (m, d) from the rows ``ids`` (m, n) of the base; inf for -1.

    >>> measure_distances(np.float32([[3, 4]]), np.float32([[0, 0]]), np.array([[0, -1]]), "euclidean")
    array([[ 5., inf]])
    """
    prepare = METRICS[metric]
    distances = np.empty(ids.shape)
    for row, (query, rows) in enumerate(zip(prepare(queries), ids, strict=True)):
        difference = prepare(base[np.maximum(rows, 0)]).astype(np.float64) - query
        distances[row] = np.where(rows < 0, np.inf, np.linalg.norm(difference, axis=1))
    return distances


def measure_true_distances(base: Float32, queries: Float32, k: int, metric: str) -> Doubles:
    """Return the distances (m, k) of queries (m, d) from their k nearest rows of the base, nearest first.

    >>> measure_true_distances(np.float32([[0], [5], [7]]), np.float32([[4]]), 2, "euclidean")
    array([[1., 3.]])
    """
    prepare = METRICS[metric]
    found = find_nearest(prepare(base), np.arange(len(base)), prepare(queries), k, is_distance=True)
    return np.sort(measure_distances(base, queries, found.slots, metric), axis=1)
