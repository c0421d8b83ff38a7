"""SphericalHash: spherical k-means for learning, winner-take-all for hashing (the paper's Algorithm 2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from posh._runtime import track_progress
from posh._validate import validate_choice, validate_integer
from posh.codes import Codes
from posh.hashers._linalg import ROWS, find_nearest_units
from posh.hashers.base import STEP_OPERATIONS, EpochHasher, FitCost
from posh.preprocess import Float32, normalize_rows

__all__ = ["SphericalHash"]


class SphericalHash(EpochHasher):
    """Hasher with ``n_bits`` unit vectors, each the direction of the training vectors that it wins.

    Parameters
    ----------
    n_bits, n_active
        The paper's D and α.
    n_epochs
        Passes over the data.
    empty
        Treatment of a unit that wins no training vector in an epoch. ``"zero"`` sets it to zero, as in the
        paper's listing: its score is then 0 for every vector, so it wins only where fewer than ``n_active``
        scores are positive. ``"keep"`` does not change it. ``"resample"`` sets it to a random training
        vector, so that it soon wins some.
    reduce
        As in :class:`POSH`.
    random_state : int, RandomState or None
        Source of the random numbers.

    Attributes
    ----------
    weights_ : float32 (n_bits, d')
        Rows of unit length (or zero), for the d' features that ``reduce`` leaves.
    objective_
        Mean cosine between a training vector and its unit, per epoch.

    Examples
    --------
    >>> import numpy as np, posh
    >>> X = np.random.default_rng(0).normal(size=(500, 16))
    >>> posh.SphericalHash(n_bits=64, n_active=4, random_state=0).fit(X).encode(X)
    Codes(n=500, n_active=4, n_bits=64)

    """

    def __init__(
        self,
        n_bits: int = 1024,
        n_active: int = 32,
        *,
        n_epochs: int = 50,
        empty: str = "zero",
        reduce: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.n_bits = n_bits
        self.n_active = n_active
        self.n_epochs = n_epochs
        self.empty = empty
        self.reduce = reduce
        self.random_state = random_state

    def _check_params(self) -> None:
        super()._check_params()
        validate_integer("n_epochs", self.n_epochs, 1)
        validate_choice("empty", self.empty, ("zero", "keep", "resample"))

    def _estimate_learning(self, n: int, d: int) -> FitCost:
        n_steps = -(-n // ROWS)
        epoch = n * self.n_bits * d + 4 * n * self.n_bits + 10 * self.n_bits * d + n_steps * STEP_OPERATIONS
        return FitCost(8 * n * d + 20 * self.n_bits * d + 4 * ROWS * self.n_bits, self.n_epochs * epoch)

    def _run_epochs(self, Z: Float32, rng: np.random.Generator) -> Iterator[tuple[Float32, float]]:
        Z = normalize_rows(Z)
        W = normalize_rows(rng.standard_normal((self.n_bits, Z.shape[1]), np.float32))
        for _ in track_progress(range(self.n_epochs), "SphericalHash"):
            winner, cosine = find_nearest_units(Z, W)
            moved = normalize_rows(Codes(winner[:, None], self.n_bits).to_csr().T @ Z)
            idle = np.bincount(winner, minlength=self.n_bits) == 0
            if self.empty == "keep":
                moved[idle] = W[idle]
            elif self.empty == "resample":
                moved[idle] = Z[rng.integers(len(Z), size=int(idle.sum()))]
            W = moved
            yield W, float(cosine.mean())
