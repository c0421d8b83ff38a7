"""Layouts of maps: items in the plane so that nearest neighbours are close.

A force-directed layout of the graph of nearest neighbours, as LargeVis and UMAP compute it: neighbours
attract each other, random pairs repel each other. All items move at once, so that a step is a few operations
on arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from posh._runtime import iterate_cancellable
from posh.hashers.base import Hasher
from posh.index.brute_force import METRICS, find_nearest
from posh.index.codes.index import CodeIndex
from posh.preprocess import Float32

__all__ = ["arrange", "find_neighbours"]

_EPOCHS = 150
_NEGATIVES = 5  # random items that repel an item, per neighbour that attracts it
_STEP = 1.0  # at the start; decreases to zero
_LONGEST = 4.0  # of the move by one pair
_NEAR = 0.01  # squared distance below which repulsion does not grow
_SIZE = 10.0  # of the start


def find_neighbours(
    vectors: Float32, k: int, metric: str | None, hasher: Hasher[Any] | None
) -> NDArray[np.int64]:
    """Return the k nearest neighbours (n, k) among vectors (n, d), as the metric or the codes rank them.

    Without a metric, codes of ``hasher`` are compared; without either, Euclidean distances. Inner products
    have no neighbourhoods, because all items are near to the longest vectors: cosines take their place.
    """
    n = len(vectors)
    k = max(0, min(k, n - 1))
    if metric is None and hasher is not None:
        found = CodeIndex(hasher).add(vectors).search(vectors, k=k + 1).ids
    else:
        prepared = METRICS["cosine" if metric == "dot" else metric or "euclidean"](vectors)
        found = find_nearest(prepared, np.arange(n), prepared, k + 1, is_distance=True).slots
    is_other = (found != np.arange(n)[:, None]) & (found >= 0)  # an item is not its own neighbour
    first = np.argsort(~is_other, axis=1, kind="stable")[:, :k]
    others = np.where(is_other, found, np.arange(n)[:, None])
    return np.take_along_axis(others, first, axis=1)


def arrange(neighbours: NDArray[np.int64], start: Float32, seed: int = 0) -> Float32:
    """Return places (n, 2) of items, from a rough layout ``start`` (n, 2) and their neighbours (n, k).

    The result is the same for the same arguments.

    >>> import numpy as np
    >>> ring = (np.arange(40)[:, None] // 20 * 20) + np.array([[1, 2, 3]])
    >>> places = arrange(ring, np.random.default_rng(0).normal(size=(40, 2)))
    >>> gap = np.linalg.norm(places[:20].mean(0) - places[20:].mean(0))
    >>> bool(gap > places[:20].std(0).max())
    True
    """
    n, k = neighbours.shape
    if not n:
        return np.zeros((0, 2), np.float32)
    rng = np.random.default_rng(seed)
    places = _scale(start, rng)
    for epoch in iterate_cancellable(range(_EPOCHS)):
        step = np.float32(_STEP * (1 - epoch / _EPOCHS))
        for column in rng.permutation(k):
            _attract(places, neighbours[:, column], step)
            _repel(places, rng.integers(0, n, (_NEGATIVES, n)), step)
    places -= places.mean(axis=0)
    return places


def _scale(start: Float32, rng: np.random.Generator) -> Float32:
    """Centre and scale the start; equal places get different ones."""
    places = np.asarray(start, np.float64)
    places = places - places.mean(axis=0)
    places = places * (_SIZE / max(float(np.abs(places).max(initial=0)), 1e-30))
    return np.asarray(places + rng.normal(scale=1e-2, size=places.shape), np.float32)


def _attract(places: Float32, others: NDArray[np.int64], step: np.float32) -> None:
    """Move each item and its neighbour towards each other."""
    apart = places - places[others]
    squared = np.einsum("ij,ij->i", apart, apart)
    moves = apart * (step * -2 / (1 + squared))[:, None]
    np.clip(moves, -_LONGEST * step, _LONGEST * step, out=moves)
    for axis in range(2):
        back = np.bincount(others, moves[:, axis], len(places)).astype(np.float32)
        places[:, axis] += moves[:, axis] - back


def _repel(places: Float32, others: NDArray[np.int64], step: np.float32) -> None:
    """Move each item away from ``others`` (m, n)."""
    apart = places - places[others]
    squared = np.einsum("mij,mij->mi", apart, apart)
    moves = apart * (step * 2 / ((_NEAR + squared) * (1 + squared)))[..., None]
    np.clip(moves, -_LONGEST * step, _LONGEST * step, out=moves)
    places += moves.sum(axis=0)
