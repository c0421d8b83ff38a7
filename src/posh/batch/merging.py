"""The k best of several lists of the k best: exact, whatever the order of the lists."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from posh.preprocess import Float32

__all__ = ["merged"]

Ids = npt.NDArray[np.int64]


def merged(some: tuple[Ids, Float32], others: tuple[Ids, Float32], k: int) -> tuple[Ids, Float32]:
    """Return the k best ids and scores (m, k) of two results for the same queries, (m, k') and (m, k'').

    The higher score comes first, and of equal scores the lower id. The id -1 means that there is no result.

    >>> some = np.array([[3, 5]]), np.array([[0.9, 0.5]], np.float32)
    >>> others = np.array([[1, -1]]), np.array([[0.5, -np.inf]], np.float32)
    >>> merged(some, others, 2)
    (array([[3, 1]]), array([[0.9, 0.5]], dtype=float32))
    """
    ids = np.concatenate([some[0], others[0]], axis=1)
    scores = np.concatenate([some[1], others[1]], axis=1)
    missing = ids < 0
    by_id = np.where(missing, np.iinfo(np.int64).max, ids)
    order = np.lexsort((by_id, -scores, missing), axis=1)
    ids, scores = np.take_along_axis(ids, order, 1), np.take_along_axis(scores, order, 1)
    _require_distinct(ids)
    return ids[:, :k], scores[:, :k]


def _require_distinct(ids: Ids) -> None:
    ascending = np.sort(ids, axis=1)
    again = ascending[:, 1:][(ascending[:, 1:] == ascending[:, :-1]) & (ascending[:, 1:] >= 0)]
    if len(again):
        raise ValueError(
            f"expected each id in one shard only, got {again[0]} from two: give documents other ids"
        )
