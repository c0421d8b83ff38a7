"""Linear algebra that several hashers share.

The scores of all vectors never exist at the same time: vectors are projected tile by tile, and each thread
reuses the memory of one tile. Products of matrices are divided into tiles of a fixed size as well, so that
they are the same, bit for bit, with any number of threads: BLAS divides a product by the number of its
threads, and its rounding depends on the division. So BLAS is limited to one thread here, which also prevents
two thread pools from competing for the cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.linalg

from posh import kernels
from posh._runtime import iterate_cancellable, no_fork, one_blas_thread, resolve_threads, track_progress
from posh.preprocess import Float32, Preprocess

__all__ = [
    "ROWS",
    "SMALL",
    "TILE",
    "WIDTH",
    "Projection",
    "Team",
    "draw_orthogonal",
    "find_nearest_units",
    "for_each_tile",
    "improve_procrustes",
    "reorthogonalize",
    "run_all",
    "slice_tiles",
    "solve_procrustes",
]

T = TypeVar("T")

TILE = 512  # vectors; the scores of a tile (2 MB at 1024 bits) stay in the cache until they are used
WIDTH = 256  # rows or columns of a tile of a product: with fewer, BLAS would be slower
ROWS = 1024  # vectors per step of find_nearest_units
SMALL = 256  # columns up to which the exact solution takes hardly longer than the approximate one

_RUN = 8  # tiles that a thread takes at a time; with fewer, distributing work would take too long
# BLAS computes a row identically at any position if the number of rows is a multiple of BLAS's block.
_PAD = 16
# Weights of the previous solution, relative to the root mean square of M's singular values. The second one
# keeps the condition number so low that products in float32 are exact enough.
_PULL, _PULL_FLOAT32 = 1e-3, np.float32(0.03)


# Projection ----------------------------------------------------------------------------------------


class Projection:
    """Computes scores of up to ``n_rows`` vectors in its own memory. Each thread needs its own."""

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
            return self._score(Z, self._scores[:padded])[:n]

    def _score(self, Z: Float32, out: Float32) -> Float32:
        """Write the scores of preprocessed vectors to ``out``; a subclass may have a faster algorithm."""
        return np.matmul(Z, self._weights.T, out=out)


def for_each_tile(
    X: npt.NDArray[Any],
    make_projection: Callable[[int], Projection],
    take: Callable[[Float32, slice], None],
    n_threads: int,
) -> None:
    """Call ``take(scores, rows)`` for each tile of ``X``, from ``n_threads`` threads.

    ``make_projection(n_rows)`` builds a projection for tiles of up to ``n_rows`` vectors.
    """
    if len(X) <= _PAD:  # a few vectors: starting threads would take longer than the work
        take(make_projection(len(X))(X), slice(0, len(X)))
        return
    tiles = [slice(start, min(start + TILE, len(X))) for start in range(0, len(X), TILE)]
    size = max(1, min(_RUN, len(tiles) // (4 * n_threads)))
    runs = [tiles[first : first + size] for first in range(0, len(tiles), size)]
    n_threads = min(n_threads, len(runs))
    spare = [make_projection(min(TILE, len(X))) for _ in range(n_threads)]

    def work(run: list[slice]) -> None:
        projection = spare.pop()
        try:
            for rows in run:
                take(projection(X[rows]), rows)
        finally:
            spare.append(projection)

    with one_blas_thread, ThreadPoolExecutor(n_threads) as pool:
        run_all(work, runs, n_threads, pool, "encoding")


# Threads -------------------------------------------------------------------------------------------


def run_all(
    work: Callable[[T], None], items: list[T], n_threads: int, pool: Executor, title: str | None = None
) -> None:
    """Call ``work`` for each item, in this thread and ``n_threads - 1`` of ``pool``; a title shows a bar.

    This thread works, too, because it receives Ctrl-C: it would not notice while it waits for a lock.
    """
    left = iter(items)  # all threads share the iterator, which yields each item once

    def take_items() -> Iterator[None]:
        try:
            for item in left:
                work(item)
                yield
        finally:  # if an exception ends this thread, the others stop, too
            _exhaust(left)

    steps: Iterable[None] = take_items()
    if title:
        steps = track_progress(steps, title, "block", -(-len(items) // n_threads))
    else:
        steps = iterate_cancellable(steps)
    helpers = [pool.submit(_exhaust, take_items()) for _ in range(n_threads - 1)]
    try:
        _exhaust(steps)
    finally:
        _exhaust(left)
        wait(helpers)
    for helper in helpers:
        helper.result()


def _exhaust(steps: Iterable[Any]) -> None:
    for _ in steps:
        pass


def slice_tiles(n: int) -> list[slice]:
    """Divide ``n`` rows into tiles of 256.

    >>> slice_tiles(300)
    [slice(0, 256, None), slice(256, 300, None)]
    """
    return [slice(start, min(start + WIDTH, n)) for start in range(0, n, WIDTH)]


class Team:
    """Threads on all cores inside this context: new threads for each product would cost too much.

    >>> import numpy as np
    >>> with Team() as team:
    ...     team.compute_gram(np.ones((3, 2), np.float32))
    array([[3., 3.],
           [3., 3.]], dtype=float32)
    """

    def __enter__(self) -> Self:
        self._n_threads = resolve_threads()
        with ExitStack() as stack:
            stack.enter_context(one_blas_thread)
            self._pool = stack.enter_context(ThreadPoolExecutor(self._n_threads))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def run(self, work: Callable[[T], None], items: list[T]) -> None:
        """Call ``work`` for each item; the calls must not depend on one another."""

        def work_unforked(item: T) -> None:
            with no_fork:
                work(item)

        run_all(work_unforked, items, min(self._n_threads, len(items)), self._pool)

    def multiply(self, A: Float32, B: Float32) -> Float32:
        """Return A @ B."""
        out = np.empty((len(A), B.shape[1]), np.float32)

        def multiply_tile(rows: slice) -> None:
            np.matmul(A[rows], B, out=out[rows])

        self.run(multiply_tile, slice_tiles(len(A)))
        return out

    def compute_gram(self, A: Float32) -> Float32:
        """Return A.T @ A, from the tiles on and below the diagonal."""
        out = np.empty((A.shape[1], A.shape[1]), np.float32)

        def multiply_tile(columns: slice) -> None:
            below = slice(columns.start, None)
            np.matmul(A[:, below].T, A[:, columns], out=out[below, columns])
            out[columns, columns.stop :] = out[columns.stop :, columns].T

        self.run(multiply_tile, slice_tiles(A.shape[1]))
        return out


# Orthonormal columns -------------------------------------------------------------------------------


def draw_orthogonal(n_rows: int, n_columns: int, rng: np.random.Generator) -> Float32:
    """Draw orthonormal columns from a Gaussian matrix, float32 (n_rows, n_columns), n_rows >= n_columns."""
    Q, R = np.linalg.qr(rng.standard_normal((n_rows, n_columns)))
    return np.asarray(Q * np.sign(np.diag(R)), np.float32)


def solve_procrustes(M: npt.NDArray[Any], previous: Float32) -> Float32:
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


def improve_procrustes(M: Float32, previous: Float32, team: Team) -> Float32:
    """Return a W with orthonormal columns (up to 1e-3) and about the largest tr(WᵀM), in less time.

    This is :func:`solve_procrustes` with products in float32 and with a larger weight of ``previous``. W
    maximises tr(WᵀM) plus that weight times tr(Wᵀ ``previous``). So tr(WᵀM) is never smaller than for
    ``previous``, up to rounding, and repeated steps converge to the solution. Only directions in which M is
    small, which hardly matter, need several steps. The result does not depend on the number of threads.
    """
    size = np.float32(np.linalg.norm(M) / np.sqrt(M.shape[1]))
    if size == 0.0 or M.shape[1] <= SMALL:
        return solve_procrustes(M, previous)
    W = M / size + _PULL_FLOAT32 * previous
    # np.linalg.eigh computes in float64, and releases the GIL, unlike SciPy's.
    vectors = np.linalg.eigh(team.compute_gram(W))[1]
    W = team.multiply(W, vectors)
    # The lengths of the columns are the singular values, more exactly than the roots of the eigenvalues.
    W /= np.sqrt(np.einsum("ij,ij->j", W, W))
    return team.multiply(W, vectors.T)


def reorthogonalize(W: Float32, team: Team) -> Float32:
    """Return W with columns that are orthonormal up to 1e-5, if they were up to 1e-3.

    This is a Newton-Schulz step: it turns E = WᵀW − I into about ¾ E².
    """
    excess = team.compute_gram(W)
    excess.flat[:: len(excess) + 1] -= 1.0
    return W - team.multiply(W, np.float32(0.5) * excess)


# Nearest units -------------------------------------------------------------------------------------


def find_nearest_units(Z: Float32, W: Float32) -> tuple[npt.NDArray[np.uint16], Float32]:
    """Return for each row of Z (n, d) the row number in W with the largest product, and that product.

    The lower row of W wins a tie.
    """
    winner = np.empty(len(Z), np.uint16)
    best = np.empty(len(Z), np.float32)
    for start in iterate_cancellable(range(0, len(Z), ROWS)):
        rows = slice(start, start + ROWS)
        scores = Z[rows] @ W.T
        winner[rows] = kernels.winners(scores, 1)[:, 0]
        best[rows] = np.take_along_axis(scores, winner[rows, None].astype(np.int64), axis=1)[:, 0]
    return winner, best
