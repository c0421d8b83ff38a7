"""Matrices with orthonormal columns: random ones, and the nearest one to a given matrix (Procrustes)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg

from posh._threads import one_blas_thread
from posh.hashers._products import gram, times
from posh.preprocess import Float32

# Weights of the previous solution, relative to the root mean square of M's singular values. The second one
# keeps the condition number so low that float32 will do.
_PULL, _PULL_FLOAT32 = 1e-3, np.float32(0.03)
_SMALL = 256  # columns up to which the exact solution takes as little time as the approximate one
_ORTHONORMAL = 5e-6  # largest entry of |WᵀW − I| that passes: about what float32 can tell
_POLISHES = 6  # Newton-Schulz steps before we give up; the first matrices of a fit need 3, later ones 1


def random_orthogonal(n_rows: int, n_columns: int, rng: np.random.Generator) -> Float32:
    """Orthonormal columns from a Gaussian matrix, float32 (n_rows, n_columns), n_rows >= n_columns."""
    Q, R = np.linalg.qr(rng.standard_normal((n_rows, n_columns)))
    return np.asarray(Q * np.sign(np.diag(R)), np.float32)


def procrustes(M: npt.NDArray[Any], previous: Float32) -> Float32:
    """Return the W with orthonormal columns that maximises tr(WᵀM): U Vᵀ of the SVD M = U S Vᵀ.

    ``previous``, a matrix with orthonormal columns, is added to M with a small weight. Where M is (nearly)
    zero, U Vᵀ is arbitrary, and ``previous`` decides it. It also bounds the condition number, so that we can
    compute W = M (MᵀM)^(-1/2) from the eigenvectors of the small Gram matrix. An SVD of M takes several times
    as long.
    """
    M = np.asarray(M, np.float64)
    size = np.linalg.norm(M) / np.sqrt(M.shape[1])
    if size == 0.0:
        return previous
    M = M / size + _PULL * previous
    with one_blas_thread:  # with more threads, the rounding would depend on their number
        eigenvalues, vectors = scipy.linalg.eigh(M.T @ M, driver="evd", check_finite=False)
        return np.asarray(M @ ((vectors / np.sqrt(eigenvalues)) @ vectors.T), np.float32)


def procrustes_step(M: Float32, previous: Float32) -> Float32:
    """Return a W with orthonormal columns and about the largest tr(WᵀM), in a fraction of the time.

    This is :func:`procrustes` in float32 and with a larger weight of ``previous``. W still maximises tr(WᵀM)
    plus that weight times tr(Wᵀ ``previous``), so it never has a smaller tr(WᵀM) than ``previous`` (up to
    rounding), and repeated steps lead to the solution. Only directions in which M is small, which hardly
    matter, need several steps.

    Newton-Schulz steps W (3 I − WᵀW) / 2 remove the errors of float32. They do not change what W converges
    to. If they do not converge, the exact solution is returned.
    """
    size = np.float32(np.linalg.norm(M) / np.sqrt(M.shape[1]))
    if size == 0.0 or M.shape[1] <= _SMALL:
        return procrustes(M, previous)
    W = M / size + _PULL_FLOAT32 * previous
    with one_blas_thread:
        eigenvalues, vectors = np.linalg.eigh(gram(W))  # unlike SciPy's, it releases the GIL
    # Float32 may make a small eigenvalue negative.
    roots = np.sqrt(np.maximum(eigenvalues, np.square(_PULL_FLOAT32 / 2)))
    W = times(W, times(vectors / roots, vectors.T))
    for _ in range(_POLISHES):
        excess = gram(W)
        excess.flat[:: len(excess) + 1] -= 1.0
        if np.abs(excess).max() < _ORTHONORMAL:
            return W
        W -= times(W, np.float32(0.5) * excess)
    return procrustes(M, previous)
