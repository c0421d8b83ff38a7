"""Projection tile by tile, so that the scores of all vectors never exist at the same time.

A tile holds up to 512 vectors, and each thread reuses the memory of one tile. Our threads divide the tiles,
and BLAS is limited to one thread: two thread pools would compete for the cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from posh._progress import progress, steps_of
from posh._threads import no_fork, one_blas_thread
from posh.preprocess import Float32, Preprocess

__all__ = ["TILE", "Projection", "do_all", "for_each_tile"]

T = TypeVar("T")

TILE = 512  # vectors; the scores of a tile (2 MB at 1024 bits) stay in the cache until they are used
_RUN = 8  # tiles that a thread takes at a time; with fewer, handing out work would take too long
# BLAS computes a row alike, wherever it stands, if the number of rows is a multiple of BLAS's block.
_PAD = 16


class Projection:
    """Computes scores of up to ``n_rows`` vectors in memory of its own. Each thread needs its own."""

    def __init__(self, preprocess: Preprocess, weights: Float32, n_rows: int) -> None:
        n_rows += -n_rows % _PAD
        self._preprocess, self._weights = preprocess, weights
        self._centred = np.empty((n_rows, len(preprocess.mean)), np.float32)
        self._scores = np.empty((n_rows, len(weights)), np.float32)

    def __call__(self, X: npt.NDArray[Any]) -> Float32:
        """Return the scores of vectors (n, d), float32 (n, n_bits); the next call overwrites them."""
        n = len(X)
        padded = n + -n % _PAD
        centred = self._centred[:padded]
        self._preprocess.centre(X, centred[:n])
        centred[n:] = centred[n - 1 : n]
        with no_fork:
            Z = self._preprocess.reduce(centred)
            return self._scores_of(Z, self._scores[:padded])[:n]

    def _scores_of(self, Z: Float32, out: Float32) -> Float32:
        """Write the scores of preprocessed vectors to ``out``; a subclass may have a faster way."""
        return np.matmul(Z, self._weights.T, out=out)


def for_each_tile(
    X: npt.NDArray[Any],
    new_projection: Callable[[int], Projection],
    take: Callable[[Float32, slice], None],
    n_threads: int,
) -> None:
    """Call ``take(scores, rows)`` for each tile of ``X``, from ``n_threads`` threads.

    ``new_projection(n_rows)`` makes a projection for tiles of up to ``n_rows`` vectors.
    """
    if len(X) <= _PAD:  # a few vectors: setting up threads would take longer than the work
        take(new_projection(len(X))(X), slice(0, len(X)))
        return
    tiles = [slice(start, min(start + TILE, len(X))) for start in range(0, len(X), TILE)]
    size = max(1, min(_RUN, len(tiles) // (4 * n_threads)))
    runs = [tiles[first : first + size] for first in range(0, len(tiles), size)]
    n_threads = min(n_threads, len(runs))
    spare = [new_projection(min(TILE, len(X))) for _ in range(n_threads)]

    def work(run: list[slice]) -> None:
        projection = spare.pop()
        try:
            for rows in run:
                take(projection(X[rows]), rows)
        finally:
            spare.append(projection)

    with one_blas_thread, ThreadPoolExecutor(n_threads) as pool:
        do_all(work, runs, n_threads, pool, "encoding")


def do_all(
    work: Callable[[T], None], items: list[T], n_threads: int, pool: Executor, title: str | None = None
) -> None:
    """Call ``work`` for each item, in this thread and ``n_threads - 1`` of ``pool``; a bar if it has a title.

    This thread works, too, because it gets Ctrl-C: it would not notice while it waits for a lock.
    """
    left = iter(items)  # all threads share the iterator, which gives each item once

    def share() -> Iterator[None]:
        try:
            for item in left:
                work(item)
                yield
        finally:  # if an exception ends this thread, the others stop, too
            _exhaust(left)

    own: Iterable[None] = share()
    own = progress(own, title, "block", -(-len(items) // n_threads)) if title else steps_of(own)
    helpers = [pool.submit(_exhaust, share()) for _ in range(n_threads - 1)]
    try:
        _exhaust(own)
    finally:
        _exhaust(left)
        wait(helpers)
    for helper in helpers:
        helper.result()


def _exhaust(steps: Iterable[Any]) -> None:
    for _ in steps:
        pass
