"""What a search returns."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Hits"]


class _Pair(NamedTuple):
    ids: npt.NDArray[np.int64]
    scores: npt.NDArray[Any]


class Hits(_Pair):
    """Results of a search, best first: ``ids, scores = hits``, both (m, k).

    Higher scores are better; equal scores are in order of addition. Where fewer than k items were found the
    id is -1 and the score -inf. ``kind`` says what the scores are:

    ============  ==============================================================================
    overlap       shared set bits of two sparse codes
    equal-bits    equal bits of two dense codes
    asymmetric    the query's projection summed over the set bits of the item
    decoder       minus the squared distance between the query and the decoded item
    sbiht         the same, decoded by SBIHT
    euclidean     minus the squared distance between the vectors
    cosine        cosine of the vectors
    ============  ==============================================================================

    Where a squared distance does not fit into float32, the score is the nearest number that does: the order
    is right nevertheless.

    >>> hits = Hits(np.array([[3]]), np.array([[7.0]]), "overlap")
    >>> ids, scores = hits
    >>> hits.kind
    'overlap'
    """

    kind: str

    def __new__(cls, ids: npt.NDArray[np.int64], scores: npt.NDArray[Any], kind: str) -> Hits:
        """Make hits of arrays (m, k)."""
        hits = super().__new__(cls, ids, scores)
        hits.kind = kind
        return hits

    def __repr__(self) -> str:
        return f"Hits(ids={self.ids!r}, scores={self.scores!r}, kind={self.kind!r})"
