"""POSH: Procrustean Orthogonal Sparse Hashing (the paper's Algorithm 1)."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from posh import _validate, kernels
from posh._progress import progress
from posh.codes import Codes
from posh.hashers._orthogonal import procrustes, random_orthogonal
from posh.hashers.base import SparseHasher
from posh.preprocess import Float32, Preprocess
from posh.store import Arrays, expect

__all__ = ["POSH"]


class POSH(SparseHasher):
    """Learns orthonormal columns W that make W x close to its own winner-take-all code.

    Minimises Σ ‖hᵢ − W xᵢ‖² over W with WᵀW = I and codes hᵢ with ``n_active`` set bits, by turns: codes
    are the winners of W x; W solves the orthogonal Procrustes problem for M = Σ hᵢ xᵢᵀ, which is
    accumulated over mini-batches and epochs. The result does not depend on the scale of the data.

    Parameters
    ----------
    n_bits, n_active : the paper's D and α.
    n_epochs, batch_size : passes over the data, and vectors per mini-batch.
    lag : W is recomputed once the vectors seen since the last time exceed this fraction of all seen.
        M moves by no more than that fraction in between, so the time goes down and the result stays.
        0 recomputes after every mini-batch, to the letter of Algorithm 1.
    random_state : int, ``RandomState`` or None.

    Attributes
    ----------
    weights_ : float32 (n_bits, n_features), orthonormal columns.
    objective_ : mean of ‖h − W x‖² per epoch, on centred data of unit root mean square.
    moment_, counts_ : M and the number of times each bit won, from which ``partial_fit`` goes on.

    Examples
    --------
    >>> import numpy as np, posh
    >>> X = np.random.default_rng(0).normal(size=(500, 16))
    >>> hasher = posh.POSH(n_bits=64, n_active=4, n_epochs=5, random_state=0).fit(X)
    >>> hasher.encode(X)
    Codes(n=500, n_active=4, n_bits=64)
    >>> bool(np.allclose(hasher.weights_.T @ hasher.weights_, np.eye(16), atol=1e-5))
    True

    """

    moment_: Float32
    counts_: npt.NDArray[np.int64]
    n_seen_: int

    def __init__(
        self,
        n_bits: int = 1024,
        n_active: int = 32,
        *,
        n_epochs: int = 50,
        batch_size: int = 100,
        lag: float = 0.05,
        random_state: Any = None,
    ) -> None:
        self.n_bits = n_bits
        self.n_active = n_active
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.lag = lag
        self.random_state = random_state

    def partial_fit(self, X: npt.ArrayLike, y: Any = None) -> Self:
        """Go on learning from one more batch of vectors (n, d) of a stream.

        The mean follows the stream: M and the mean are kept so that the centred M is exact at any time.
        The first call needs at least two vectors, from which the scale is taken.
        """
        self._check_params()
        first = not hasattr(self, "weights_")
        X = self._check_vectors(X, reset=first, min_rows=2 if first else 1)
        if X.shape[1] > self.n_bits:
            raise ValueError(
                f"expected at most n_bits={self.n_bits} columns for partial_fit, got {X.shape[1]}: "
                "reduce them first (sklearn.decomposition.IncrementalPCA) or use fit"
            )
        if first:
            self.preprocess_ = Preprocess.fit(X)
            self._start(X.shape[1], self._rng())
            self.objective_ = np.empty(0)
        else:
            self._follow_mean(X)
        loss = self._epoch(self.preprocess_(X))
        self.objective_ = np.append(self.objective_, loss)
        self.n_iter_ = len(self.objective_)
        return self

    def _check_params(self) -> None:
        super()._check_params()
        _validate.integer("n_epochs", self.n_epochs, 1)
        _validate.integer("batch_size", self.batch_size, 1)
        _validate.real("lag", self.lag, 0.0, 1.0)

    def _learn(self, Z: Float32, rng: np.random.Generator) -> tuple[Float32, list[float]]:
        self._start(Z.shape[1], rng)
        Z = Z[rng.permutation(len(Z))]
        objective = [self._epoch(Z) for _ in progress(range(self.n_epochs), "POSH")]
        self._refresh()
        return self.weights_, objective

    def _start(self, n_features: int, rng: np.random.Generator) -> None:
        self.weights_ = random_orthogonal(self.n_bits, n_features, rng)
        self.moment_ = np.zeros_like(self.weights_)
        self.counts_ = np.zeros(self.n_bits, np.int64)
        self.n_seen_ = self._n_at_refresh = 0

    def _epoch(self, Z: Float32) -> float:
        """Visit every row once and return the mean of ‖h − W z‖²."""
        gain = 0.0
        for start in range(0, len(Z), self.batch_size):
            gain += self._accumulate(Z[start : start + self.batch_size])
            if self.n_seen_ - self._n_at_refresh > self.lag * self.n_seen_:
                self._refresh()
        # ‖h − Wz‖² = n_active − 2 h·Wz + ‖z‖², because WᵀW = I.
        return self.n_active - (2.0 * gain - float(np.vdot(Z, Z))) / len(Z)

    def _refresh(self) -> None:
        self.weights_ = procrustes(self.moment_, previous=self.weights_)
        self._n_at_refresh = self.n_seen_

    def _accumulate(self, batch: Float32) -> float:
        """Add Σ h zᵀ of a mini-batch to M and return Σ h·Wz."""
        scores = batch @ self.weights_.T
        codes = Codes(kernels.winners(scores, self.n_active), self.n_bits)
        self.moment_ += codes.to_csr().T @ batch
        self.counts_ += np.bincount(codes.active.ravel(), minlength=self.n_bits)
        self.n_seen_ += len(batch)
        return float(np.take_along_axis(scores, codes.active.astype(np.int64), axis=1).sum(dtype=np.float64))

    def _state(self) -> Arrays:
        seen = np.array([self.n_seen_, self._n_at_refresh])
        return super()._state() | {"moment_": self.moment_, "counts_": self.counts_, "n_seen": seen}

    def _restore(self, state: Arrays) -> Self:
        super()._restore(state)
        self.moment_ = expect(state, "moment_", np.float32, self.weights_.shape)
        self.counts_ = expect(state, "counts_", np.int64, (self.n_bits,))
        self.n_seen_, self._n_at_refresh = expect(state, "n_seen", np.int64, (2,)).tolist()
        return self

    def _follow_mean(self, X: npt.NDArray[Any]) -> None:
        old = self.preprocess_
        shift = (X.mean(axis=0, dtype=np.float64) - old.mean) * (len(X) / (self.n_seen_ + len(X)))
        self.preprocess_ = Preprocess(old.mean + shift, old.scale)
        self.moment_ -= np.outer(self.counts_, shift / old.scale).astype(np.float32)
