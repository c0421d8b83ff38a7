"""Hadamard: structured random weights with a fast projection."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import scipy.linalg

from posh import kernels
from posh._model_files import Arrays
from posh.hashers._linalg import Projection
from posh.hashers.base import FitCost, SparseHasher
from posh.preprocess import Float32, Preprocess

__all__ = ["Hadamard", "draw_signs"]


class Hadamard(SparseHasher):
    """Hadamard matrices times random signs, followed by winner-take-all.

    The weights are a stack of Hadamard matrices, each with the columns of the data multiplied by random
    signs. So a fast transform projects a vector with additions, ``n_bits · log₂(size)`` of them, whereas a
    matrix product needs ``n_bits · d'`` multiplications. Nothing but mean and scale (and PCA, if there are
    more features than bits) is learned.

    ``size``, the number of rows of each matrix, is the smallest power of two with d' columns. The columns of
    ``weights_`` are then orthonormal. If ``n_bits`` is not a multiple of this power of two, ``size`` is the
    largest power of two that divides ``n_bits``, and several columns of the data share one of the matrix.
    Those columns of ``weights_`` are orthogonal in expectation only: prefer powers of two for ``n_bits``.

    The weights of one column of the data differ by their signs only, and those of the first column of a
    matrix are all equal. With a single matrix (d' > ``n_bits`` / 2), codes therefore do not depend on the
    first column of the data; and vectors with a single non-zero entry get equal scores for half of the bits.

    Parameters
    ----------
    n_bits, n_active
        Length of the codes and number of set bits.
    reduce
        As in :class:`POSH`.
    random_state : int, RandomState or None
        Source of the random signs.

    Examples
    --------
    >>> import numpy as np, posh
    >>> X = np.random.default_rng(0).normal(size=(100, 16))
    >>> hasher = posh.Hadamard(n_bits=64, n_active=8, random_state=0).fit(X)
    >>> hasher.encode(X)
    Codes(n=100, n_active=8, n_bits=64)
    >>> hasher.signs_.shape
    (4, 16)

    """

    def __init__(
        self, n_bits: int = 256, n_active: int = 128, *, reduce: str = "auto", random_state: Any = None
    ) -> None:
        self.n_bits = n_bits
        self.n_active = n_active
        self.reduce = reduce
        self.random_state = random_state

    @property
    def signs_(self) -> Float32:
        """Signs of the columns before each transform, ±1, float32 (n_bits / size, d').

        The scores ``m * size`` to ``(m + 1) * size - 1`` of a preprocessed vector z are proportional to the
        Walsh-Hadamard transform of ``signs_[m] * z``, with columns from ``size`` on added to those from 0 on.
        """
        self._require_fitted()
        return np.sign(_take_first_rows(self.weights_))

    def _estimate_learning(self, n: int, d: int) -> FitCost:
        size = _choose_size(self.n_bits, d)
        return FitCost(8 * size * size + 4 * (size + self.n_bits) * d, 20 * (size * size + self.n_bits * d))

    def _learn(self, Z: Float32, rng: np.random.Generator) -> tuple[Float32, list[float]]:
        signs = draw_signs(self.n_bits, Z.shape[1], rng)
        return _stack_matrices(signs / np.sqrt(np.float32(self.n_bits)), self.n_bits // len(signs)), []

    def _make_projection(self, n_rows: int) -> Projection:
        return _FastProjection(self.preprocess_, self.weights_, n_rows)

    def _restore_state(self, state: Arrays) -> Self:
        super()._restore_state(state)
        first = _take_first_rows(self.weights_)
        if not np.array_equal(self.weights_, _stack_matrices(first, self.n_bits // len(first))):
            raise ValueError("weights_ are not Hadamard matrices times signs")
        return self


def draw_signs(n_bits: int, n_columns: int, rng: np.random.Generator) -> Float32:
    """Return signs as :attr:`Hadamard.signs_` are, (n_bits / size, n_columns)."""
    size = _choose_size(n_bits, n_columns)
    signs = rng.choice(np.array([-1, 1], np.float32), (n_bits // size, n_columns))
    # Equal signs here would add the same to all scores: winner-take-all would ignore this column.
    signs[:, 0] = rng.permutation(np.resize(np.array([-1, 1], np.float32), len(signs)))
    return signs


class _FastProjection(Projection):
    """Projection by the fast transform: the scores of the weights, up to rounding."""

    def __init__(self, preprocess: Preprocess, weights: Float32, n_rows: int) -> None:
        super().__init__(preprocess, weights, n_rows)
        self._signs = np.ascontiguousarray(_take_first_rows(weights))

    def _score(self, Z: Float32, out: Float32) -> Float32:
        return kernels.hadamard_project(Z, self._signs, out)


def _choose_size(n_bits: int, n_columns: int) -> int:
    """Return the rows of a matrix: a power of two that divides n_bits, at least n_columns if possible."""
    largest = int(n_bits) & -int(n_bits)
    return min(largest, 1 << (n_columns - 1).bit_length())


def _take_first_rows(weights: Float32) -> Float32:
    """Return the first row of each matrix: ones times the scaled signs."""
    return weights[:: _choose_size(*weights.shape)]


def _stack_matrices(signs: Float32, size: int) -> Float32:
    """Return Hadamard matrices (size, size), each times a row of ``signs`` (n_bits / size, d')."""
    matrix = scipy.linalg.hadamard(size, np.float32)[:, np.arange(signs.shape[1]) % size]
    return np.asarray((matrix * signs[:, None]).reshape(-1, signs.shape[1]))
