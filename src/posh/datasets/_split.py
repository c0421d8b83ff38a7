"""Fixed divisions of a set into base and queries."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Split", "shuffled", "split_at_random", "split_by_class"]

_SEED = 0


class Split(NamedTuple):
    """Row numbers of the base and of the queries, disjoint and in random order."""

    base: NDArray[np.int64]
    queries: NDArray[np.int64]


def shuffled(n: int) -> NDArray[np.int64]:
    """Return the numbers 0..n-1 in an order that is the same for ever.

    RandomState, because NumPy promises its streams never change; those of Generator may.
    """
    return np.random.RandomState(_SEED).permutation(n).astype(np.int64, copy=False)


def split_at_random(n: int, n_queries: int) -> Split:
    """Choose ``n_queries`` of ``n`` rows as queries."""
    order = shuffled(n)
    return Split(base=order[n_queries:], queries=order[:n_queries])


def split_by_class(labels: NDArray[np.integer], quota: NDArray[np.integer]) -> Split:
    """Choose ``quota[c]`` queries from every class ``c`` of ``labels`` (n,)."""
    order = shuffled(len(labels))
    is_query = np.zeros(len(labels), dtype=bool)
    for label, count in enumerate(quota):
        is_query[np.flatnonzero(labels[order] == label)[:count]] = True
    return Split(base=order[~is_query], queries=order[is_query])
