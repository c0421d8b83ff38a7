"""k-means for the lists of an index: the lists nearest to vectors are found with 8-bit numbers.

The numbers of a centroid have 7 bits, those of a vector 8. Almost all vectors get the list that exact numbers
would give them, and the others one that is nearly as near.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from posh import _native, kernels
from posh._runtime import track_progress
from posh.preprocess import Float32, Float64

__all__ = ["assign", "sums_by_list", "train_lists"]

_ROWS = 8192  # vectors at a time, which bounds the temporary memory
_TINY = 1e-30  # times the longest centroid: smaller numbers become 0, and float32 can hold the others


def train_lists(
    X: npt.NDArray[Any],
    n_lists: int,
    *,
    metric: str,
    rng: np.random.Generator,
    n_threads: int,
    sample_per_list: int = 100,
    epochs: int = 8,
) -> Float32:
    """Run k-means on a sample of vectors (n, d), n ≥ 1; return centroids, float32 (n_lists, d).

    With ``metric="cosine"`` it is spherical: vectors count by their direction, and centroids are unit vectors
    (zero if all vectors are). Otherwise centroids are means. A list that gets no vectors begins again at a
    vector of one of the largest lists. ``n_threads`` changes the time, never the result.

    >>> import numpy as np
    >>> X = np.float32([[0, 1], [0, 2], [8, 0], [9, 0]])
    >>> rng = np.random.default_rng(0)
    >>> centroids = train_lists(X, 2, metric="euclidean", rng=rng, n_threads=1)
    >>> sorted(centroids.tolist())
    [[0.0, 1.5], [8.5, 0.0]]
    """
    rows = np.sort(rng.permutation(len(X))[: sample_per_list * n_lists])
    sample = np.asarray(X[rows], np.float32)
    if metric == "cosine":
        sample = _normalize(sample)
    centroids = sample[np.resize(rng.permutation(len(sample)), n_lists)]
    for _ in track_progress(range(epochs), "lists"):
        lists = assign(sample, centroids, metric, n_threads)
        sums, counts = sums_by_list(sample, lists, n_lists)
        centroids = _compute_centres(sums, counts, metric)
        empty = np.flatnonzero(~centroids.any(axis=1)) if metric == "cosine" else np.flatnonzero(counts == 0)
        centroids[empty] = sample[_draw_from_largest(lists, counts, len(empty), rng)]
    return centroids


def assign(X: npt.NDArray[Any], centroids: Float32, metric: str, n_threads: int) -> npt.NDArray[np.int32]:
    """Return the list of each vector (n, d), int32 (n,): that of the nearest centroid, up to 8-bit rounding.

    "Nearest" is the least angle for ``metric="cosine"``, otherwise the least distance. The list of a vector
    depends neither on the other vectors nor on ``n_threads``. Equally near: the lower number.

    >>> import numpy as np
    >>> assign(np.float32([[9, 1], [1, 5]]), np.float32([[0, 1], [1, 0]]), "cosine", n_threads=1)
    array([1, 0], dtype=int32)
    """
    if metric == "cosine":
        centroids = _normalize(centroids)
    origin, router = _build_router(centroids, metric)
    lists, memory = np.empty(len(X), np.int32), np.empty((min(len(X), _ROWS), X.shape[1]), np.float32)
    for rows in track_progress(_slice_rows(len(X), _ROWS), "assigning", "block", -(-len(X) // _ROWS)):
        centred = memory[: len(lists[rows])]
        vectors = _normalize(X[rows], centred) if metric == "cosine" else X[rows]
        np.subtract(vectors, origin, out=centred, dtype=np.float32)
        router.nearest(centred, lists[rows], n_threads, kernels.active())
    return lists


def _build_router(centroids: Float32, metric: str) -> tuple[Float32, _native.Router]:
    """Return the origin (d,) to subtract from vectors, and the router that finds their nearest lists.

    The router's numbers are relative to the largest one. Subtracting the mean of the centroids leaves more
    digits for their differences. Scores are divided by the length of the longest centroid, since
    squares of huge numbers would overflow.
    """
    origin = centroids.mean(axis=0, dtype=np.float64).astype(np.float32)
    centred = centroids.astype(np.float64) - origin
    longest = np.linalg.norm(centred, axis=1).max() or 1.0
    centred /= longest
    # The score of a centred vector v and a centred centroid c is v·c + bias: for unit vectors and cosine
    # (v + origin)·c, else (|v|² - |v - c|²) / 2.
    half_squares = 0.5 * longest * np.square(centred).sum(axis=1)
    bias = centred @ origin if metric == "cosine" else -half_squares
    return origin, _native.Router(_zero_tiny(centred), bias.astype(np.float32))


def _zero_tiny(centroids: npt.NDArray[Any]) -> Float32:
    return np.ascontiguousarray(np.where(np.abs(centroids) < _TINY, 0.0, centroids), np.float32)


def sums_by_list(
    X: Float32, lists: npt.NDArray[np.int32], n_lists: int
) -> tuple[Float64, npt.NDArray[np.int64]]:
    """Return the sum of the vectors of each list, (n_lists, d), and their counts, (n_lists,)."""
    sums = np.zeros((n_lists, X.shape[1]))
    for rows in _slice_rows(len(X), max(2 * _ROWS, 8 * n_lists)):
        own = lists[rows]
        members = sp.csc_array(
            (np.ones(len(own), np.float32), own, np.arange(len(own) + 1)), shape=(n_lists, len(own))
        )
        sums += members @ X[rows]
    return sums, np.bincount(lists, minlength=n_lists)


def _compute_centres(sums: Float64, counts: npt.NDArray[np.int64], metric: str) -> Float32:
    """Return the means, or for cosine the directions, of the sums of lists; zero for empty lists."""
    means = sums / np.maximum(counts, 1)[:, None]
    return _normalize(means) if metric == "cosine" else means.astype(np.float32)


def _draw_from_largest(
    lists: npt.NDArray[np.int32], counts: npt.NDArray[np.int64], n: int, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Draw rows (n,) of vectors of the largest lists; a list counts half after each vector that it gives."""
    heap = [(-float(counts[number]), int(number)) for number in np.flatnonzero(counts)]
    heapq.heapify(heap)
    givers = np.empty(n, np.int64)
    for i in range(n):
        size, giver = heap[0]
        givers[i] = giver
        heapq.heapreplace(heap, (size / 2, giver))
    order = np.argsort(lists, kind="stable")
    first = np.cumsum(counts) - counts
    return np.asarray(order[first[givers] + rng.integers(counts[givers])])


def _normalize(rows: npt.NDArray[Any], out: Float32 | None = None) -> Float32:
    """Return the rows divided by their lengths, float32; zero rows stay zero. Any finite numbers work."""
    rows = np.asarray(rows, np.float32)
    out = np.empty(rows.shape, np.float32) if out is None else out
    peak = np.maximum(rows.max(axis=1), -rows.min(axis=1))[:, None]
    np.divide(rows, np.where(peak > 0.0, peak, np.float32(1.0)), out=out)
    length = np.sqrt(np.einsum("ij,ij->i", out, out))[:, None]
    out /= np.maximum(length, np.float32(1.0))  # only a zero row has a length below 1
    return out


def _slice_rows(n: int, size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, n, size))
