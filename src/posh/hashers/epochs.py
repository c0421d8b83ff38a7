"""Sparse hashers that learn in epochs, passes over the data, and can be used after each epoch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Self

import numpy as np
import numpy.typing as npt

from posh.hashers.base import SparseHasher
from posh.preprocess import Float32

__all__ = ["EpochHasher"]


class EpochHasher(SparseHasher):
    """A sparse hasher whose ``fit`` goes over the data several times.

    >>> import posh
    >>> issubclass(posh.POSH, posh.EpochHasher)
    True
    """

    @abstractmethod
    def _epochs(self, Z: Float32, rng: np.random.Generator) -> Iterator[tuple[Float32, float]]:
        """Yield for each pass over Z (n, d') the weights (n_bits, d') after it and the objective in it."""

    def _learn(self, Z: Float32, rng: np.random.Generator) -> tuple[Float32, list[float]]:
        objective, weights = [], np.empty((0, 0), np.float32)
        for weights, value in self._epochs(Z, rng):  # noqa: B007  # the last weights are returned
            objective.append(value)
        return weights, objective

    def fit_epochs(self, X: npt.ArrayLike) -> Iterator[Self]:
        """Learn as ``fit`` does and yield the hasher itself after each epoch, ready to encode.

        >>> import numpy as np, posh
        >>> X = np.random.default_rng(0).normal(size=(500, 16))
        >>> hasher = posh.SphericalHash(64, 4, n_epochs=3, random_state=0)
        >>> [len(state.objective_) for state in hasher.fit_epochs(X)]
        [1, 2, 3]
        """
        preprocess, Z = self._prepared(X)
        objective: list[float] = []
        for weights, value in self._epochs(Z, self._rng()):
            objective.append(value)
            yield self._learned(X, preprocess, weights, objective)
