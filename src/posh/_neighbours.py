"""The true nearest neighbours, by comparing everything with everything."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from posh._progress import progress
from posh.hashers._units import unit_rows

__all__ = ["METRICS", "distances", "true_distances"]

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

METRICS: dict[str, Callable[[Float32], Float32]] = {"euclidean": np.asarray, "cosine": unit_rows}
"""How vectors are prepared so that the metric orders them as Euclidean distances do."""

_SPARE = 32  # float32 products nominate so many more than k, and float64 decides
_SCORES = 1 << 23  # products held at once


def distances(base: Float32, queries: Float32, ids: npt.NDArray[np.int64], metric: str) -> Float64:
    """Distances (m, n) of queries (m, d) from the rows ``ids`` (m, n) of the base; inf where the id is -1.

    >>> distances(np.float32([[3, 4]]), np.float32([[0, 0]]), np.array([[0, -1]]), "euclidean")
    array([[ 5., inf]])
    """
    prepare = METRICS[metric]
    result = np.empty(ids.shape)
    for row, (query, own) in enumerate(zip(prepare(queries), ids, strict=True)):
        difference = prepare(base[np.maximum(own, 0)]).astype(np.float64) - query
        result[row] = np.where(own < 0, np.inf, np.linalg.norm(difference, axis=1))
    return result


def true_distances(base: Float32, queries: Float32, k: int, metric: str) -> Float64:
    """Distances (m, k) of queries (m, d) from their k nearest rows of the base (n, d), nearest first.

    >>> true_distances(np.float32([[0], [5], [7]]), np.float32([[4]]), 2, "euclidean")
    array([[1., 3.]])
    """
    ids = _nominate(base, METRICS[metric](queries), k + _SPARE, metric)
    return np.sort(distances(base, queries, ids, metric), axis=1)[:, :k]


def _nominate(base: Float32, queries: Float32, n: int, metric: str) -> npt.NDArray[np.int64]:
    """Rows (m, n) of the base that are nearest as far as float32 can tell; fewer if the base has fewer."""
    ids = np.empty((len(queries), 0), np.int64)
    scores = np.empty((len(queries), 0), np.float32)
    step = max(n, _SCORES // len(queries))
    for start in progress(range(0, len(base), step), "true neighbours", "block"):
        block = METRICS[metric](base[start : start + step])
        own = 0.5 * np.einsum("ij,ij->i", block, block) - queries @ block.T  # ‖q − x‖²/2 − ‖q‖²/2
        rows = _smallest(own, n)
        ids = np.hstack([ids, start + rows])
        scores = np.hstack([scores, np.take_along_axis(own, rows, axis=1)])
        kept = _smallest(scores, n)
        ids, scores = np.take_along_axis(ids, kept, axis=1), np.take_along_axis(scores, kept, axis=1)
    return ids


def _smallest(scores: Float32, n: int) -> npt.NDArray[np.int64]:
    """Columns (m, n) of the smallest scores of each row, in any order."""
    if scores.shape[1] <= n:
        return np.tile(np.arange(scores.shape[1]), (len(scores), 1))
    return np.asarray(np.argpartition(scores, n - 1, axis=1)[:, :n])
