"""Exact search over codes by plain matrix products: the reference for every faster index."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from posh import _validate
from posh.codes import Codes, PackedCodes

__all__ = ["Hits", "search"]

_DOCUMENTS = 8192  # base codes expanded to floats at once
_QUERIES = 256


class Hits(NamedTuple):
    """Results of a search, best first: ``ids`` int64 (m, k) and ``scores`` int32 (m, k)."""

    ids: npt.NDArray[np.int64]
    scores: npt.NDArray[np.int32]


def search(base: Codes | PackedCodes, queries: Codes | PackedCodes, k: int) -> Hits:
    """Return the k best base codes of each query: most common bits first, then the lower row.

    The score is the number of shared set bits (sparse codes) or of equal bits (dense codes).

    >>> import posh
    >>> base = posh.Codes([[0, 2], [1, 2], [1, 3]], n_bits=4)
    >>> search(base, base[:1], k=2)
    Hits(ids=array([[0, 1]]), scores=array([[2, 1]], dtype=int32))
    """
    if type(base) is not type(queries) or base.n_bits != queries.n_bits:
        raise ValueError(f"expected queries like the base, {base}, got {queries}")
    k = _validate.integer("k", k, 1, len(base), " (the number of base codes)")
    ids = np.empty((len(queries), k), np.int64)
    scores = np.empty((len(queries), k), np.int32)
    for start in range(0, len(queries), _QUERIES):
        rows = slice(start, start + _QUERIES)
        ids[rows], scores[rows] = _best(_scores(base, _expand(queries[rows])), k)
    return Hits(ids, scores)


def _expand(codes: Codes | PackedCodes) -> npt.NDArray[np.float32]:
    """Vectors whose products are the scores: 0/1 for sparse codes, a shifted ±1 for dense ones."""
    if isinstance(codes, Codes):
        return codes.to_dense(np.float32)
    signs = 2.0 * codes.to_dense(np.float32) - 1.0
    # With one more coordinate of √n_bits, the product is n_bits + (equal − different) = 2 equal.
    last = np.full((len(codes), 1), np.sqrt(codes.n_bits), np.float32)
    return np.asarray(np.hstack([signs, last]) / np.sqrt(2.0), np.float32)


def _scores(base: Codes | PackedCodes, queries: npt.NDArray[np.float32]) -> npt.NDArray[np.int32]:
    parts = [
        np.rint(queries @ _expand(base[start : start + _DOCUMENTS]).T)
        for start in range(0, len(base), _DOCUMENTS)
    ]
    return np.concatenate(parts, axis=1).astype(np.int32)


def _best(scores: npt.NDArray[np.int32], k: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    n = scores.shape[1]
    # One integer per document that orders by score, then by the lower id; negated, as partition is ascending.
    keys = np.arange(n, dtype=np.int64) - scores.astype(np.int64) * n
    if k < n:
        keys = np.partition(keys, k - 1, axis=1)[:, :k]
    keys.sort(axis=1)
    ids = keys % n
    return ids, ((ids - keys) // n).astype(np.int32)
