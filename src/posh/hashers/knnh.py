"""KNNH: ITQ learned from neighbourhood means (He et al. 2019)."""

from __future__ import annotations

from typing import Any

import numpy as np

from posh._runtime import track_progress
from posh._validate import validate_integer
from posh.hashers.base import STEP_OPERATIONS, FitCost
from posh.hashers.itq import ITQ
from posh.preprocess import Float32

__all__ = ["KNNH"]

_ROWS = 1024  # vectors per step of the search for neighbours


class KNNH(ITQ):
    """ITQ whose training vectors are replaced by the mean of their nearest neighbours.

    Parameters
    ----------
    n_bits, n_epochs, random_state
        As in :class:`ITQ`.
    n_neighbors
        Number of neighbours, including the vector itself, that are averaged; the paper uses 20. With fewer
        training vectors, all of them.

    Examples
    --------
    >>> import numpy as np, posh
    >>> X = np.random.default_rng(0).normal(size=(100, 16))
    >>> posh.KNNH(n_bits=8, random_state=0).fit(X).encode(X)
    PackedCodes(n=100, n_bits=8)

    """

    def __init__(
        self, n_bits: int = 64, *, n_epochs: int = 50, n_neighbors: int = 20, random_state: Any = None
    ) -> None:
        super().__init__(n_bits, n_epochs=n_epochs, random_state=random_state)
        self.n_neighbors = n_neighbors

    def _check_params(self) -> None:
        super()._check_params()
        validate_integer("n_neighbors", self.n_neighbors, 1)

    def _estimate_learning(self, n: int, d: int) -> FitCost:
        after, k = super()._estimate_learning(n, d), min(self.n_neighbors, n)
        n_bytes = max(after.bytes, 8 * min(n, _ROWS) * (n + k) + 4 * k * d) + 8 * n * d
        return FitCost(n_bytes, after.operations + 2 * n * n * d + 2 * n * k * d + n * STEP_OPERATIONS // 10)

    def _learn(self, Z: Float32, rng: np.random.Generator) -> tuple[Float32, list[float]]:
        return super()._learn(average_neighbours(Z, self.n_neighbors), rng)


def average_neighbours(Z: Float32, n_neighbors: int) -> Float32:
    """Replace each row of Z (n, d) by the mean of its ``n_neighbors`` nearest rows, including itself."""
    from sklearn.neighbors import NearestNeighbors  # slow to import, and no other hasher needs it

    k = min(n_neighbors, len(Z))
    nearest = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(Z)
    means = np.empty_like(Z)
    for start in track_progress(range(0, len(Z), _ROWS), "neighbours", "block"):
        rows = slice(start, start + _ROWS)
        neighbours = nearest.kneighbors(Z[rows], return_distance=False)
        means[rows] = [Z[nearby].mean(axis=0) for nearby in neighbours]
    return means
