"""POSH: Procrustean Orthogonal Sparse Hashing (the paper's Algorithm 1)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import validate_data

from posh import kernels
from posh._model_files import Arrays, require_array
from posh._runtime import iterate_cancellable, track_progress
from posh._validate import validate_integer, validate_real, validate_vectors
from posh.codes import Codes
from posh.hashers._linalg import (
    SMALL,
    WIDTH,
    Team,
    draw_orthogonal,
    improve_procrustes,
    reorthogonalize,
    slice_tiles,
    solve_procrustes,
)
from posh.hashers.base import STEP_OPERATIONS, EpochHasher, FitCost, estimate_procrustes
from posh.preprocess import Float32, Preprocess, move_extremes_in, prepare_training

__all__ = ["POSH"]

_BLOCK = 2048  # vectors that are scored at a time, at most, unless a mini-batch is larger


class POSH(EpochHasher):
    """Hasher with orthonormal columns W that make W x close to its own winner-take-all code.

    Minimises Σ ‖hᵢ − W xᵢ‖² over W with WᵀW = I and over codes hᵢ with ``n_active`` set bits, in turn. The
    codes are the winners of W x. W solves the orthogonal Procrustes problem for M = Σ hᵢ xᵢᵀ, a sum over all
    mini-batches and epochs so far. The result does not depend on the scale of the data.

    Parameters
    ----------
    n_bits, n_active
        The paper's D and α.
    n_epochs, batch_size
        Passes over the data, and vectors per mini-batch.
    lag
        W is recomputed when the number of vectors seen has grown by this fraction since the last time, and at
        the end. M hardly changes in between, so this saves time and hardly changes the result. 0 recomputes W
        after every mini-batch, as Algorithm 1 does. With more than 256 features, W is a close approximation
        until the end, when it is computed exactly.
    reduce
        Reduction by PCA of vectors with more features than ``n_bits``: ``"auto"`` keeps 128 components (or
        ``n_active`` if that is more, or ``n_bits`` if that is less), ``"paper"`` keeps ``n_active``, the
        paper's rule. The logger ``posh`` reports the reduction.
    random_state : int, RandomState or None
        Source of the random numbers.

    Attributes
    ----------
    weights_ : float32 (n_bits, d')
        Orthonormal columns, one for each of the d' features that ``reduce`` leaves.
    objective_
        Mean of ‖h − W x‖² per epoch, on centred data of unit root mean square.
    moment_, counts_
        M, and the number of wins of each bit; ``partial_fit`` continues from them.

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
        lag: float = 0.2,
        reduce: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.n_bits = n_bits
        self.n_active = n_active
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.lag = lag
        self.reduce = reduce
        self.random_state = random_state

    def partial_fit(self, X: npt.ArrayLike, y: Any = None) -> Self:
        """Learn from one more batch of vectors (n, d) of a stream.

        The mean is that of all vectors seen so far, and M is always exact for the current mean. The scale is
        that of the first batch, which needs at least two vectors.
        """
        first = not hasattr(self, "weights_")
        self._check_params() if first else self._require_fitted()
        array = validate_vectors(X, min_rows=2) if first else self._validate_input(X)
        if array.shape[1] > self.n_bits:
            raise ValueError(
                f"expected at most n_bits={self.n_bits} columns for partial_fit, got {array.shape[1]}: "
                "reduce them first (sklearn.decomposition.IncrementalPCA) or use fit"
            )
        array = prepare_training(array) if first else self._move_extremes_in(array)
        if first:
            preprocess = Preprocess.fit(array)
            moments = _Moments.start(self.n_bits, array.shape[1], self._make_rng())
        else:
            preprocess, moments = self._recentre(array)
        loss = moments.visit(preprocess(array), self)
        validate_data(self, X, reset=first, skip_check_array=True)
        self.objective_ = np.append([] if first else self.objective_, loss)
        self.n_iter_ = len(self.objective_)
        self.preprocess_ = preprocess
        self._adopt(moments)
        return self

    def _check_params(self) -> None:
        super()._check_params()
        validate_integer("n_epochs", self.n_epochs, 1)
        validate_integer("batch_size", self.batch_size, 1)
        validate_real("lag", self.lag, 0.0, 1.0)

    def _estimate_learning(self, n: int, d: int) -> FitCost:
        batch, refresh = min(n, self.batch_size), estimate_procrustes(self.n_bits, d)
        n_batches = self.n_epochs * -(-n // batch)
        n_refreshes = n_batches
        if self.lag > 0.0:
            n_refreshes = min(n_batches, int(1 / self.lag + math.log1p(n_batches) / math.log1p(self.lag)) + 2)
        scoring = 4 * WIDTH * self.n_bits + 40 * min(n, max(batch, _BLOCK)) * self.n_active
        n_bytes = 4 * n * d + 16 * self.n_bits * d + refresh.bytes + scoring
        epoch = n * d * (self.n_bits + self.n_active) + 4 * n * self.n_bits
        accumulating = n_batches * (2 * self.n_bits * d + STEP_OPERATIONS)
        return FitCost(n_bytes, self.n_epochs * epoch + accumulating + n_refreshes * refresh.operations)

    def _run_epochs(self, Z: Float32, rng: np.random.Generator) -> Iterator[tuple[Float32, float]]:
        moments = _Moments.start(self.n_bits, Z.shape[1], rng)
        Z = Z[rng.permutation(len(Z))]
        for epoch in track_progress(range(self.n_epochs), "POSH"):
            objective = moments.visit(Z, self)
            if epoch == self.n_epochs - 1:
                moments.finish()
                self._adopt(moments)
            yield moments.weights, objective

    def _adopt(self, moments: _Moments) -> None:
        self.weights_, self.moment_, self.counts_ = moments.weights, moments.moment, moments.counts
        self.n_seen_, self._n_at_refresh = moments.n_seen, moments.n_at_refresh

    def _recentre(self, X: npt.NDArray[Any]) -> tuple[Preprocess, _Moments]:
        """Return the moments so far, centred at the mean of all vectors including X."""
        old, n = self.preprocess_, self.n_seen_
        shift = (X.mean(axis=0, dtype=np.float64) - old.mean) * (len(X) / (n + len(X)))
        moment = self.moment_ - np.outer(self.counts_, shift / old.scale).astype(np.float32)
        moments = _Moments(self.weights_, moment, self.counts_.copy(), n, self._n_at_refresh)
        return Preprocess(old.mean + shift, old.scale), moments

    def _move_extremes_in(self, X: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Move in the vectors of X that are extreme compared with those seen before."""
        known = self.preprocess_
        known.centre(X, np.empty(X.shape, np.float32))  # raises for vectors that encode would reject
        return move_extremes_in(X, known.mean, known.scale * np.sqrt(len(known.mean)))

    def _dump_state(self) -> Arrays:
        seen = np.array([self.n_seen_, self._n_at_refresh])
        return super()._dump_state() | {"moment_": self.moment_, "counts_": self.counts_, "n_seen": seen}

    def _restore_state(self, state: Arrays) -> Self:
        super()._restore_state(state)
        self.moment_ = require_array(state, "moment_", np.float32, self.weights_.shape)
        self.counts_ = require_array(state, "counts_", np.int64, (self.n_bits,), low=0)
        self.n_seen_, self._n_at_refresh = require_array(state, "n_seen", np.int64, (2,), low=1).tolist()
        return self


@dataclass
class _Moments:
    """The state of Algorithm 1.

    ``weights`` is W, ``moment`` is M = Σ h zᵀ, ``counts`` is the number of wins of each bit. ``n_at_refresh``
    is the value of ``n_seen`` when W was last computed.
    """

    weights: Float32
    moment: Float32
    counts: npt.NDArray[np.int64]
    n_seen: int = 0
    n_at_refresh: int = 0

    @classmethod
    def start(cls, n_bits: int, n_features: int, rng: np.random.Generator) -> _Moments:
        """Return a random W before any vector is seen."""
        weights = draw_orthogonal(n_bits, n_features, rng)
        return cls(weights, np.zeros_like(weights), np.zeros(n_bits, np.int64))

    def visit(self, Z: Float32, params: POSH) -> float:
        """Visit every row of Z (n, d) once and return the mean of ‖h − W z‖²."""
        gain, start = 0.0, self.weights
        with Team() as team:
            for rows in iterate_cancellable(self._plan_blocks(len(Z), params)):
                gain += self._accumulate(Z[rows], params.n_active, team)
                if self.n_seen >= (1.0 + params.lag) * self.n_at_refresh:
                    self.weights = improve_procrustes(self.moment, self.weights, team)
                    self.n_at_refresh = self.n_seen
            if self.weights is not start and self.weights.shape[1] > SMALL:
                self.weights = reorthogonalize(self.weights, team)
        # ‖h − Wz‖² = n_active − 2 h·Wz + ‖z‖², because WᵀW = I.
        return params.n_active - (2.0 * gain - float(np.vdot(Z, Z))) / len(Z)

    def finish(self) -> None:
        """Solve the Procrustes problem for the current M exactly."""
        self.weights = solve_procrustes(self.moment, previous=self.weights)
        self.n_at_refresh = self.n_seen

    def _plan_blocks(self, n: int, params: POSH) -> Iterator[slice]:
        """Divide n rows into blocks of mini-batches for which W stays the same."""
        # Blocks change the rounding. The paper's tables were reproduced with few features and without blocks.
        largest = _BLOCK if self.weights.shape[1] > SMALL else params.batch_size
        start = 0
        while start < n:
            n_until_refresh = min(largest, (1.0 + params.lag) * self.n_at_refresh - self.n_seen)
            size = params.batch_size * max(1, math.ceil(n_until_refresh / params.batch_size))
            yield slice(start, start + size)
            start += size

    def _accumulate(self, block: Float32, n_active: int, team: Team) -> float:
        """Add Σ h zᵀ of a block of rows to M and return Σ h·Wz."""
        active = np.empty((len(block), n_active), np.uint16)
        tiles = slice_tiles(len(block))
        gains = np.zeros(len(tiles))

        def score(number: int) -> None:
            rows = tiles[number]
            scores = block[rows] @ self.weights.T
            won = kernels.winners(scores, n_active, active[rows]).astype(np.int64)
            gains[number] = np.take_along_axis(scores, won, axis=1).sum(dtype=np.float64)

        team.run(score, list(range(len(tiles))))
        codes = Codes.wrap(active, len(self.weights))
        by_bit = codes.to_csr().T.tocsr()

        def add(columns: slice) -> None:
            self.moment[:, columns] += by_bit @ block[:, columns]

        team.run(add, slice_tiles(block.shape[1]))
        self.counts += np.bincount(active.ravel(), minlength=codes.n_bits)
        self.n_seen += len(block)
        return float(gains.sum())
