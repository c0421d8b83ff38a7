"""Products of float32 matrices that are the same, bit for bit, with any number of threads.

BLAS divides a product among its threads by their number, and its rounding depends on how it divides. Here our
threads share tiles of a fixed size, and BLAS computes each tile with one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from posh._threads import cores, no_fork, one_blas_thread
from posh.hashers._tiles import do_all
from posh.preprocess import Float32

__all__ = ["WIDTH", "gram", "in_threads", "slices", "times"]

WIDTH = 256  # rows or columns of a tile: with fewer, BLAS would be slower

T = TypeVar("T")


def slices(n: int) -> list[slice]:
    """The tiles of ``n`` rows.

    >>> slices(300)
    [slice(0, 256, None), slice(256, 300, None)]
    """
    return [slice(start, min(start + WIDTH, n)) for start in range(0, n, WIDTH)]


def in_threads(work: Callable[[T], None], items: list[T]) -> None:
    """Call ``work`` for each item, on all cores; the calls must not depend on one another."""

    def careful(item: T) -> None:
        with no_fork:
            work(item)

    with one_blas_thread:
        do_all(careful, items, min(cores(), len(items)))


def times(A: Float32, B: Float32) -> Float32:
    """Return A @ B."""
    out = np.empty((len(A), B.shape[1]), np.float32)

    def tile(rows: slice) -> None:
        np.matmul(A[rows], B, out=out[rows])

    in_threads(tile, slices(len(A)))
    return out


def gram(A: Float32) -> Float32:
    """Return A.T @ A, from the tiles on and below the diagonal."""
    out = np.empty((A.shape[1], A.shape[1]), np.float32)

    def tile(columns: slice) -> None:
        below = slice(columns.start, None)
        np.matmul(A[:, below].T, A[:, columns], out=out[below, columns])
        out[columns, columns.stop :] = out[columns.stop :, columns].T

    in_threads(tile, slices(A.shape[1]))
    return out
