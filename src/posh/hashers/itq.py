"""ITQ: the rotation of PCA components that is nearest to its own signs (Gong et al. 2013)."""

from __future__ import annotations

from typing import Any

import numpy as np

from posh._runtime import track_progress
from posh._validate import validate_integer
from posh.hashers._linalg import draw_orthogonal, solve_procrustes
from posh.hashers.base import DenseHasher, FitCost, estimate_procrustes
from posh.preprocess import Float32

__all__ = ["ITQ"]


class ITQ(DenseHasher):
    """Signs of a learned rotation W: minimises Σ ‖sign(W x) − W x‖² over the signs and W in turn.

    With more features than bits, PCA to ``n_bits`` components comes first; with fewer features than
    bits, W has orthonormal columns instead of being square.

    Parameters
    ----------
    n_bits
        The length of the codes.
    n_epochs
        Alternations; the authors use 50.
    random_state : int, RandomState or None
        Source of the random numbers.

    Attributes
    ----------
    objective_
        Mean of ‖sign(W x) − W x‖² per epoch, on centred data of unit root mean square.

    Examples
    --------
    >>> import numpy as np, posh
    >>> X = np.random.default_rng(0).normal(size=(100, 16))
    >>> posh.ITQ(n_bits=8, random_state=0).fit(X).encode(X)
    PackedCodes(n=100, n_bits=8)

    """

    def __init__(self, n_bits: int = 64, *, n_epochs: int = 50, random_state: Any = None) -> None:
        self.n_bits = n_bits
        self.n_epochs = n_epochs
        self.random_state = random_state

    def _check_params(self) -> None:
        super()._check_params()
        validate_integer("n_epochs", self.n_epochs, 1)

    def _estimate_learning(self, n: int, d: int) -> FitCost:
        step = estimate_procrustes(self.n_bits, d)
        scores = 2 * n * self.n_bits * d + 10 * n * self.n_bits
        return FitCost(20 * n * self.n_bits + step.bytes, self.n_epochs * (scores + step.operations))

    def _learn(self, Z: Float32, rng: np.random.Generator) -> tuple[Float32, list[float]]:
        W = draw_orthogonal(self.n_bits, Z.shape[1], rng)
        objective = []
        for _ in track_progress(range(self.n_epochs), type(self).__name__):
            scores = Z @ W.T
            signs = np.where(scores > 0, np.float32(1), np.float32(-1))
            objective.append(float(np.square(signs - scores).sum(axis=1).mean()))
            W = solve_procrustes(signs.T @ Z, previous=W)
        return W, objective
