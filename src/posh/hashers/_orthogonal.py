"""Matrices with orthonormal columns: random ones, and the nearest one to a given matrix (Procrustes)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg

from posh._threads import one_blas_thread
from posh.hashers._products import Team
from posh.preprocess import Float32

# Weights of the previous solution, relative to the root mean square of M's singular values. The second one
# keeps the condition number so low that products in float32 will do.
_PULL, _PULL_FLOAT32 = 1e-3, np.float32(0.03)
SMALL = 256  # columns up to which the exact solution takes hardly longer than the approximate one


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


def procrustes_step(M: Float32, previous: Float32, team: Team) -> Float32:
    """Return a W with orthonormal columns (up to 1e-3) and about the largest tr(WᵀM), in less time.

    This is :func:`procrustes` with products in float32 and with a larger weight of ``previous``. W maximises
    tr(WᵀM) plus that weight times tr(Wᵀ ``previous``). So tr(WᵀM) is never smaller than for ``previous``, up
    to rounding, and repeated steps lead to the solution. Only directions in which M is small, which hardly
    matter, need several steps. The result does not depend on the number of threads.
    """
    size = np.float32(np.linalg.norm(M) / np.sqrt(M.shape[1]))
    if size == 0.0 or M.shape[1] <= SMALL:
        return procrustes(M, previous)
    W = M / size + _PULL_FLOAT32 * previous
    vectors = np.linalg.eigh(team.gram(W))[1]  # computes in float64, and releases the GIL, unlike SciPy's
    W = team.times(W, vectors)
    # The lengths of the columns are the singular values, more exactly than the roots of the eigenvalues.
    W /= np.sqrt(np.einsum("ij,ij->j", W, W))
    return team.times(W, vectors.T)


def polished(W: Float32, team: Team) -> Float32:
    """Return W with columns that are orthonormal up to 1e-5, if they were up to 1e-3.

    This is a Newton-Schulz step: it turns E = WᵀW − I into about ¾ E².
    """
    excess = team.gram(W)
    excess.flat[:: len(excess) + 1] -= 1.0
    return W - team.times(W, np.float32(0.5) * excess)
