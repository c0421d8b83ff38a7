"""Exact search over codes by plain matrix products: the reference for every faster index."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from posh import _validate
from posh.codes import Codes, PackedCodes
from posh.index.hits import Hits

__all__ = ["search"]

_DOCUMENTS = 8192  # base codes expanded to floats at once
_SCORES = 1 << 24  # scores held at once


def search(base: Codes | PackedCodes, queries: Codes | PackedCodes, k: int) -> Hits:
    """Return the k best base codes of each query: most shared bits first, then the lower row.

    The score is the number of shared set bits (sparse codes) or of equal bits (dense codes).

    >>> import posh
    >>> base = posh.Codes([[0, 2], [1, 2], [1, 3]], n_bits=4)
    >>> search(base, base[:1], k=2)
    Hits(ids=array([[0, 1]]), scores=array([[2, 1]], dtype=int32), kind='overlap')
    """
    if type(base) is not type(queries) or base.n_bits != queries.n_bits:
        raise ValueError(f"expected queries like the base, {base}, got {queries}")
    if len(base) == 0:
        raise ValueError("expected at least one base code to search, got none")
    k = _validate.validate_integer("k", k, 1, len(base), " (the number of base codes)")
    ids = np.empty((len(queries), k), np.int64)
    scores = np.empty((len(queries), k), np.int32)
    step = max(1, _SCORES // len(base))
    for start in range(0, len(queries), step):
        rows = slice(start, start + step)
        ids[rows], scores[rows] = _select_best(_compute_scores(base, queries[rows]), k)
    return Hits(ids, scores, "overlap" if isinstance(base, Codes) else "equal-bits")


def _expand(codes: Codes | PackedCodes) -> npt.NDArray[np.float32]:
    """Return vectors whose products are the scores: zeros and ones for sparse codes, signs for dense ones."""
    dense = codes.to_dense(np.float32)
    return np.asarray(dense if isinstance(codes, Codes) else 2.0 * dense - 1.0, np.float32)


def _compute_scores(base: Codes | PackedCodes, queries: Codes | PackedCodes) -> npt.NDArray[np.int64]:
    scores = np.empty((len(queries), len(base)), np.int64)
    left = _expand(queries)
    for start in range(0, len(base), _DOCUMENTS):
        block = base[start : start + _DOCUMENTS]
        scores[:, start : start + len(block)] = np.rint(left @ _expand(block).T)
    return scores if isinstance(base, Codes) else (base.n_bits + scores) // 2


def _select_best(
    scores: npt.NDArray[np.int64], k: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    n = scores.shape[1]
    # One integer per document that orders by score, then by the lower id; negated, as partition is ascending.
    keys = np.arange(n) - scores * n
    if k < n:
        keys = np.partition(keys, k - 1, axis=1)[:, :k]
    keys.sort(axis=1)
    ids = keys % n
    return ids, ((ids - keys) // n).astype(np.int32)
