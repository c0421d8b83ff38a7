"""Retrieval metrics: pure functions of arrays.

A ranking is a row of results, best first. A result is relevant if it has the query's label
(:func:`average_precision`, :func:`precision`) or if it is near enough (:func:`recall`). These functions
return one value per query; :func:`interval` turns such values, or one value per trial, into a mean with a
confidence interval.

>>> import numpy as np
>>> retrieved = np.array([[1, 0, 1, 0]])              # labels of the results of one query
>>> average_precision(retrieved, np.array([1]))       # (1/1 + 2/3) / 2
array([0.83333333])
>>> precision(retrieved, np.array([1]), at=2)
array([0.5])
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.stats

from posh import _validate

__all__ = ["Interval", "average_precision", "interval", "mean_average_precision", "precision", "recall"]

Float64 = npt.NDArray[np.float64]
_QUERIES = 256  # queries per step, which bounds the memory for rankings of the whole base


class Interval(NamedTuple):
    """A mean and the limits of its confidence interval."""

    mean: float
    low: float
    high: float


def average_precision(
    retrieved_labels: npt.ArrayLike, query_labels: npt.ArrayLike, at: int | None = None
) -> Float64:
    """Average precision of each query, float64 (m,).

    ``retrieved_labels`` is (m, n): the labels of the results, best first; ``query_labels`` is (m,).
    AP@n = Σᵢ precision(i) · rel(i) over the first n results, divided by the number of relevant results
    *among those n* (the definition that matches the paper's tables), and 0 if none is relevant. With
    the whole base ranked and ``at=None`` it is the classical average precision.
    """
    retrieved, queries = _rankings(retrieved_labels, query_labels, at)
    result = np.zeros(len(retrieved))
    ranks = np.arange(1, retrieved.shape[1] + 1)
    for start in range(0, len(retrieved), _QUERIES):
        rows = slice(start, start + _QUERIES)
        relevant = retrieved[rows] == queries[rows, None]
        found = np.cumsum(relevant, axis=1)
        total = np.where(relevant, found / ranks, 0.0).sum(axis=1)
        result[rows] = np.divide(total, found[:, -1], out=np.zeros(len(total)), where=found[:, -1] > 0)
    return result


def mean_average_precision(
    retrieved_labels: npt.ArrayLike, query_labels: npt.ArrayLike, at: int | None = None
) -> float:
    """MAP@``at``: the mean of :func:`average_precision` over the queries.

    >>> mean_average_precision([[1, 0], [0, 1]], [1, 1])
    0.75
    """
    return float(average_precision(retrieved_labels, query_labels, at).mean())


def precision(retrieved_labels: npt.ArrayLike, query_labels: npt.ArrayLike, at: int | None = None) -> Float64:
    """Fraction of the first ``at`` results that have the query's label, float64 (m,)."""
    retrieved, queries = _rankings(retrieved_labels, query_labels, at)
    return np.asarray((retrieved == queries[:, None]).mean(axis=1))


def recall(
    retrieved_distances: npt.ArrayLike,
    true_distances: npt.ArrayLike,
    at: int | None = None,
    tolerance: float = 1e-6,
) -> Float64:
    """Fraction of the k true nearest neighbours among the first ``at`` results of each query, float64 (m,).

    ``true_distances`` is (m, k): the true distances of the k nearest neighbours. ``retrieved_distances``
    is (m, n): the true distances of the n results, inf for missing ones. A result counts if it is no farther
    than the k-th neighbour, up to a relative ``tolerance``. So among equal distances, any result is right.

    >>> recall([[0.1, 0.5, 0.9]], [[0.1, 0.2]])
    array([0.5])
    """
    retrieved = np.asarray(retrieved_distances, np.float64)
    true = np.asarray(true_distances, np.float64)
    if retrieved.ndim != 2 or true.ndim != 2 or len(retrieved) != len(true) or true.size == 0:
        raise ValueError(f"expected distances (m, n) and (m, k), got {retrieved.shape} and {true.shape}")
    if np.isnan(true).any() or np.isnan(retrieved).any():
        raise ValueError("expected distances, got NaN: use inf for a missing result")
    if at is not None:
        retrieved = retrieved[
            :, : _validate.integer("at", at, 1, retrieved.shape[1], " (the number of results)")
        ]
    kth = true.max(axis=1, keepdims=True)
    found = (retrieved <= kth + tolerance * np.abs(kth)).sum(axis=1)
    return np.asarray(np.minimum(found, true.shape[1]) / true.shape[1])


def interval(values: npt.ArrayLike, level: float = 0.95) -> Interval:
    """Mean of independent values (one per query, or one per trial) and its Student-t interval.

    A single value has no interval: its limits are NaN.

    >>> interval([1.0, 2.0, 3.0]).mean
    2.0
    """
    sample = np.asarray(values, np.float64)
    if sample.ndim != 1 or len(sample) == 0:
        raise ValueError(f"expected a 1-D array of at least one value, got shape {sample.shape}")
    level = _validate.real("level", level, 0.0, 1.0, open_low=True)
    mean = float(sample.mean())
    if len(sample) == 1:
        return Interval(mean, float("nan"), float("nan"))
    half = float(
        scipy.stats.t.ppf(0.5 + level / 2, len(sample) - 1) * sample.std(ddof=1) / np.sqrt(len(sample))
    )
    return Interval(mean, mean - half, mean + half)


def _rankings(
    retrieved_labels: npt.ArrayLike, query_labels: npt.ArrayLike, at: int | None
) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.generic]]:
    retrieved = np.asarray(retrieved_labels)
    if retrieved.ndim != 2 or retrieved.size == 0:
        raise ValueError(f"expected labels of the results as (m >= 1, n >= 1), got {retrieved.shape}")
    queries = _validate.labels(query_labels, len(retrieved), "query labels")
    if at is not None:
        at = _validate.integer("at", at, 1, retrieved.shape[1], " (the number of results)")
    return retrieved[:, :at], queries
