"""Exact search by a matrix product: the reference for correctness."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from posh_reproduction.ann.contenders.base import Floats, Params, Search

__all__ = ["BruteForce"]

_FILE = "vectors.npy"


@dataclass
class _Matrix:
    X: Floats
    half_norms: Floats

    def searching(self, k: int, n_threads: int, **params: Any) -> Search:
        def search(Q: Floats) -> Any:
            scores = Q @ self.X.T - self.half_norms  # the larger, the nearer: −‖q − x‖²/2 + ‖q‖²/2
            best = np.argpartition(-scores, k - 1, axis=1)[:, :k]
            order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1)
            return np.take_along_axis(best, order, axis=1)

        return search

    def save(self, folder: Path) -> None:
        np.save(folder / _FILE, self.X)


class BruteForce:
    """NumPy's product of all queries with all vectors."""

    name, package = "brute-force", "numpy"

    def builds(self, n: int, d: int, metric: str) -> list[Params]:
        """There is nothing to choose."""
        return [{}]

    def searches(self, build: Params, k: int) -> list[list[Params]]:
        """There is nothing to choose."""
        return [[{}]]

    def build(self, X: Floats, metric: str, n_threads: int, **params: Any) -> _Matrix:
        """Keep the vectors."""
        return _Matrix(X, 0.5 * np.einsum("ij,ij->i", X, X))

    def load(self, folder: Path, d: int, metric: str, **params: Any) -> _Matrix:
        """Read the vectors."""
        return self.build(np.load(folder / _FILE), metric, 1)

    def version(self) -> str:
        """The version of NumPy."""
        return np.__version__

    def limit(self, kernel: str) -> bool:
        """Return False: BLAS has chosen its instructions before."""
        return False
