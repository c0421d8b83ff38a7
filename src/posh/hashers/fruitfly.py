"""FruitFly: random weights, either sparse, as in the insect, or orthogonal, as the paper recommends."""

from __future__ import annotations

from typing import Any

import numpy as np

from posh._validate import validate_choice, validate_real
from posh.hashers._linalg import draw_orthogonal
from posh.hashers.base import ORTHOGONAL_BYTES, FitCost, SparseHasher
from posh.preprocess import Float32

__all__ = ["FruitFly"]


class FruitFly(SparseHasher):
    """Random projection followed by winner-take-all (Dasgupta et al. 2017; the paper's eq. 1).

    Parameters
    ----------
    n_bits, n_active
        The paper's D and α.
    weights
        ``"bernoulli"`` (entries are 1 with probability ``p``, else 0) or ``"orthogonal"`` (orthonormal
        columns from a Gaussian matrix: a little more accurate, the paper's figure 1b).
    p
        Density of Bernoulli weights; the paper uses 0.2.
    reduce
        As in :class:`POSH`.
    random_state : int, RandomState or None
        Source of the random numbers.

    Examples
    --------
    >>> import numpy as np, posh
    >>> X = np.random.default_rng(0).normal(size=(100, 16))
    >>> posh.FruitFly(n_bits=64, n_active=4, weights="orthogonal", random_state=0).fit(X).encode(X)
    Codes(n=100, n_active=4, n_bits=64)

    """

    def __init__(
        self,
        n_bits: int = 1024,
        n_active: int = 32,
        *,
        weights: str = "bernoulli",
        p: float = 0.2,
        reduce: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.n_bits = n_bits
        self.n_active = n_active
        self.weights = weights
        self.p = p
        self.reduce = reduce
        self.random_state = random_state

    def _check_params(self) -> None:
        super()._check_params()
        validate_choice("weights", self.weights, ("bernoulli", "orthogonal"))
        validate_real("p", self.p, 0.0, 1.0, open_low=True)

    def _estimate_learning(self, n: int, d: int) -> FitCost:
        if self.weights == "orthogonal":
            return FitCost(ORTHOGONAL_BYTES * self.n_bits * d, 8 * self.n_bits * d * d)
        return super()._estimate_learning(n, d)

    def _learn(self, Z: Float32, rng: np.random.Generator) -> tuple[Float32, list[float]]:
        shape = (self.n_bits, Z.shape[1])
        if self.weights == "orthogonal":
            return draw_orthogonal(*shape, rng), []
        return (rng.random(shape) < self.p).astype(np.float32), []
