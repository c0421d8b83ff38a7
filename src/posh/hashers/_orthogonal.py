"""Orthogonal matrices: random ones, and the nearest one to a given matrix (Procrustes)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg

from posh.preprocess import Float32, Float64

_WELL_CONDITIONED = 1e-11  # smallest / largest eigenvalue of the Gram matrix that float64 still resolves


def random_orthogonal(n_rows: int, n_columns: int, rng: np.random.Generator) -> Float32:
    """Orthonormal columns from a Gaussian matrix, float32 (n_rows, n_columns), n_rows >= n_columns."""
    return procrustes(rng.standard_normal((n_rows, n_columns)))


def procrustes(M: npt.NDArray[Any]) -> Float32:
    """Return the matrix with orthonormal columns nearest to M (n_rows >= n_columns): U Vᵀ of M = U S Vᵀ.

    Equal to M (MᵀM)^(-1/2): the eigenvectors of the small Gram matrix are several times cheaper than
    an SVD of M, which is left for matrices without full column rank.
    """
    M = np.asarray(M, np.float64)
    eigenvalues, vectors = scipy.linalg.eigh(M.T @ M, driver="evd", check_finite=False)
    if eigenvalues[0] > _WELL_CONDITIONED * eigenvalues[-1]:
        W = M @ (vectors / np.sqrt(eigenvalues)) @ vectors.T
        return polish(W).astype(np.float32)
    U, _, Vt = scipy.linalg.svd(M, full_matrices=False, check_finite=False)
    return np.asarray(U @ Vt, np.float32)


def polish(W: Float64) -> Float64:
    """One Newton-Schulz step: squares the distance of WᵀW from the identity."""
    return 1.5 * W - 0.5 * W @ (W.T @ W)
