"""Products of float32 matrices that are the same, bit for bit, with any number of threads.

BLAS divides a product among its threads by their number, and its rounding depends on how it divides. Here our
threads share tiles of a fixed size, and BLAS computes each tile with one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType
from typing import Self, TypeVar

import numpy as np

from posh._threads import cores, no_fork, one_blas_thread
from posh.hashers._tiles import do_all
from posh.preprocess import Float32

__all__ = ["WIDTH", "Team", "slices"]

WIDTH = 256  # rows or columns of a tile: with fewer, BLAS would be slower

T = TypeVar("T")


def slices(n: int) -> list[slice]:
    """The tiles of ``n`` rows.

    >>> slices(300)
    [slice(0, 256, None), slice(256, 300, None)]
    """
    return [slice(start, min(start + WIDTH, n)) for start in range(0, n, WIDTH)]


class Team:
    """Threads on all cores, while in this context: new threads for each product would cost too much.

    >>> import numpy as np
    >>> with Team() as team:
    ...     team.gram(np.ones((3, 2), np.float32))
    array([[3., 3.],
           [3., 3.]], dtype=float32)
    """

    def __enter__(self) -> Self:
        self._n_threads = cores()
        with ExitStack() as stack:
            stack.enter_context(one_blas_thread)
            self._pool = stack.enter_context(ThreadPoolExecutor(self._n_threads))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def do(self, work: Callable[[T], None], items: list[T]) -> None:
        """Call ``work`` for each item; the calls must not depend on one another."""

        def careful(item: T) -> None:
            with no_fork:
                work(item)

        do_all(careful, items, min(self._n_threads, len(items)), self._pool)

    def times(self, A: Float32, B: Float32) -> Float32:
        """Return A @ B."""
        out = np.empty((len(A), B.shape[1]), np.float32)

        def tile(rows: slice) -> None:
            np.matmul(A[rows], B, out=out[rows])

        self.do(tile, slices(len(A)))
        return out

    def gram(self, A: Float32) -> Float32:
        """Return A.T @ A, from the tiles on and below the diagonal."""
        out = np.empty((A.shape[1], A.shape[1]), np.float32)

        def tile(columns: slice) -> None:
            below = slice(columns.start, None)
            np.matmul(A[:, below].T, A[:, columns], out=out[below, columns])
            out[columns, columns.stop :] = out[columns.stop :, columns].T

        self.do(tile, slices(A.shape[1]))
        return out
