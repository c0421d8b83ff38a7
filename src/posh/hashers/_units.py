"""Unit vectors, and the nearest of given unit vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from posh import kernels
from posh._progress import steps_of
from posh.preprocess import Float32

ROWS = 1024  # vectors per step of nearest_units


def lengths(A: Float32) -> Float32:
    """Return the length of each row, (n, 1)."""
    return np.asarray(np.linalg.norm(A, axis=1, keepdims=True))


def unit_rows(A: Float32, length: Float32 | None = None) -> Float32:
    """Return the rows divided by their ``length``, by default :func:`lengths`; zero rows stay zero."""
    length = lengths(A) if length is None else length
    return np.asarray(np.divide(A, length, out=np.zeros_like(A), where=length > 0))


def directions(X: npt.NDArray[Any]) -> Float32:
    """Return the rows with unit length, whatever their length was; zero rows stay zero."""
    if X.dtype == np.float32:
        rows = X
    else:
        with np.errstate(over="ignore"):
            rows = np.asarray(X, np.float32)
    squares = np.einsum("ij,ij->i", rows, rows)
    if len(rows) and squares.min() > 1e-30 and squares.max() < 1e30:  # so in nearly all cases
        return np.asarray(rows / np.sqrt(squares)[:, None])
    length = np.sqrt(squares)[:, None]
    odd = ~((length >= 1e-15) & (length <= 1e15))[:, 0]  # their squares may not fit into float32
    if odd.any():
        some = np.asarray(X[odd], np.result_type(X.dtype, np.float32))
        _, exponents = np.frexp(np.abs(some).max(axis=1, keepdims=True))
        rows = rows.copy()
        rows[odd] = np.ldexp(some, -exponents)
        length[odd] = np.sqrt(np.einsum("ij,ij->i", rows[odd], rows[odd]))[:, None]
    return unit_rows(rows, length)


def nearest_units(Z: Float32, W: Float32) -> tuple[npt.NDArray[np.uint16], Float32]:
    """Return for each row of Z (n, d) the number of the row of W with the largest product, and that product.

    Equal products: the lower row of W.
    """
    winner = np.empty(len(Z), np.uint16)
    best = np.empty(len(Z), np.float32)
    for start in steps_of(range(0, len(Z), ROWS)):
        rows = slice(start, start + ROWS)
        scores = Z[rows] @ W.T
        winner[rows] = kernels.winners(scores, 1)[:, 0]
        best[rows] = np.take_along_axis(scores, winner[rows, None].astype(np.int64), axis=1)[:, 0]
    return winner, best
