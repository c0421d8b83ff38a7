"""BioHash: competing units that learn by a local rule (Ryali et al. 2020; Krotov and Hopfield 2019)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from posh import kernels
from posh._runtime import iterate_cancellable, track_progress
from posh._validate import validate_choice, validate_integer, validate_real
from posh.hashers.base import STEP_OPERATIONS, EpochHasher, FitCost
from posh.preprocess import Float32, normalize_rows

__all__ = ["BioHash"]


class BioHash(EpochHasher):
    """Hasher whose units move towards the vectors for which they win. SphericalHash replaces these dynamics.

    For each vector x of a mini-batch the unit w with the largest product gets x − ⟨w, x⟩ w, and the unit
    of rank ``rank`` gets −``delta`` times that, with ⟨w, x⟩ = Σ sign(wᵢ) |wᵢ|^(p−1) xᵢ. The sum over the
    batch is divided by its largest absolute entry and multiplied by the learning rate.

    The defaults are those reported for Ryali et al., and they reproduce the paper's tables. With them little
    is learned: the norms of the units start at about √d and are still far from their limit 1 when the
    learning rate reaches 0. With a learning rate of 0.04 the norms reach the limit, and the codes are those
    of spherical k-means.

    Parameters
    ----------
    n_bits, n_active
        The paper's D and α.
    n_epochs, batch_size
        Passes over the data, and vectors per mini-batch.
    learning_rate
        Learning rate of the first epoch.
    schedule
        ``"linear"`` lets the learning rate fall to 0 over the epochs, ``"constant"`` does not.
    p
        Exponent of the inner product; 2 is the usual one.
    delta, rank
        Strength and rank of the unit that is repelled.
    stop_norm
        Learning ends after an epoch in which the mean norm of the units is no larger than this.
    reduce
        As in :class:`POSH`.
    random_state : int, RandomState or None
        Source of the random numbers.

    Attributes
    ----------
    objective_
        Mean of ⟨w, x⟩ / ‖w‖^(p−1) over vectors of unit length and their winners, per epoch.

    Examples
    --------
    >>> import numpy as np, posh
    >>> X = np.random.default_rng(0).normal(size=(500, 16))
    >>> posh.BioHash(n_bits=64, n_active=4, n_epochs=10, random_state=0).fit(X).encode(X)
    Codes(n=500, n_active=4, n_bits=64)

    """

    def __init__(
        self,
        n_bits: int = 1024,
        n_active: int = 32,
        *,
        n_epochs: int = 100,
        batch_size: int = 100,
        learning_rate: float = 0.02,
        schedule: str = "linear",
        p: float = 2.0,
        delta: float = 0.0,
        rank: int = 2,
        stop_norm: float = 1.06,
        reduce: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.n_bits = n_bits
        self.n_active = n_active
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.p = p
        self.delta = delta
        self.rank = rank
        self.stop_norm = stop_norm
        self.reduce = reduce
        self.random_state = random_state

    def _check_params(self) -> None:
        super()._check_params()
        validate_integer("n_epochs", self.n_epochs, 1)
        validate_integer("batch_size", self.batch_size, 1)
        validate_real("learning_rate", self.learning_rate, 0.0, open_low=True)
        validate_choice("schedule", self.schedule, ("linear", "constant"))
        validate_real("p", self.p, 1.0, open_low=True)
        validate_real("delta", self.delta, 0.0)
        validate_integer("rank", self.rank, 2, self.n_bits, " (n_bits)")
        validate_real("stop_norm", self.stop_norm, 0.0)

    def _estimate_learning(self, n: int, d: int) -> FitCost:
        size, batch = self.n_bits * d, min(n, self.batch_size)
        n_moving = min(self.n_bits, 2 * batch)
        power = 0 if self.p == 2.0 else 30 * size
        n_bytes = 8 * n * d + (4 if self.p == 2.0 else 20) * size
        ranked = self.rank if self.delta > 0.0 else 0
        n_bytes += 16 * batch * (self.n_bits + ranked) + 12 * n_moving * d
        products = n * d * (self.n_bits + n_moving) + 10 * n * self.n_bits
        epoch = products + 10 * size + -(-n // batch) * (power + 10 * n_moving * d + STEP_OPERATIONS)
        return FitCost(n_bytes, self.n_epochs * epoch)

    def _run_epochs(self, Z: Float32, rng: np.random.Generator) -> Iterator[tuple[Float32, float]]:
        Z = normalize_rows(Z)
        W = rng.standard_normal((self.n_bits, Z.shape[1]), np.float32)
        for epoch in track_progress(range(self.n_epochs), "BioHash"):
            fall = epoch / self.n_epochs if self.schedule == "linear" else 0.0
            rate = self.learning_rate * (1.0 - fall)
            order = rng.permutation(len(Z))
            starts = iterate_cancellable(range(0, len(Z), self.batch_size))
            gain = sum(self._apply_batch(W, Z[order[i : i + self.batch_size]], rate) for i in starts)
            yield self._compute_dual(W), gain / len(Z)
            if np.linalg.norm(W, axis=1).mean() <= self.stop_norm:
                return

    def _compute_dual(self, W: Float32) -> Float32:
        """Return the vectors whose ordinary inner product with x is ⟨w, x⟩."""
        return W if self.p == 2.0 else np.asarray(np.sign(W) * np.abs(W) ** np.float32(self.p - 1.0))

    def _apply_batch(self, W: Float32, batch: Float32, rate: float) -> float:
        """Update W in place for one mini-batch, and return the sum of the objective over the batch."""
        scores = batch @ self._compute_dual(W).T
        rows = np.arange(len(batch))
        first = kernels.winners(scores, 1)[:, 0].astype(np.int64)
        gate = np.zeros((len(batch), self.n_bits), np.float32)
        gate[rows, first] = 1.0
        if self.delta > 0.0:
            best = kernels.winners(scores, self.rank).astype(np.int64)
            last = np.take_along_axis(scores, best, axis=1).argmin(axis=1)
            gate[rows, best[rows, last]] -= self.delta
        moving = np.flatnonzero(gate.any(axis=0))  # most units neither win nor are repelled
        gate = gate[:, moving]
        activity = np.einsum("bj,bj->j", gate, scores[:, moving])
        step = gate.T @ batch - activity[:, None] * W[moving]
        norms = np.linalg.norm(W[first], axis=1)
        gain = float((scores[rows, first] / np.maximum(norms ** (self.p - 1.0), 1e-30)).sum())
        W[moving] += np.float32(rate / max(float(np.abs(step).max()), 1e-30)) * step
        return gain
