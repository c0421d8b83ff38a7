"""Matrices with orthonormal columns: random ones, and the nearest one to a given matrix (Procrustes)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg

from posh.preprocess import Float32

_PULL = 1e-3  # weight of the previous solution, relative to the root mean square of M's singular values


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
    eigenvalues, vectors = scipy.linalg.eigh(M.T @ M, driver="evd", check_finite=False)
    return np.asarray(M @ ((vectors / np.sqrt(eigenvalues)) @ vectors.T), np.float32)
