"""Retrieval metrics: pure functions of arrays.

A ranking is a row of results, best first. A result is relevant if it has the query's label
(:func:`average_precision`, :func:`precision`), or if it is one of the true neighbours: by its id
(:func:`recall`) or by its distance (:func:`recall_by_distance`). These functions return one value per query;
:func:`interval` turns such values, or one value per trial, into a mean with a confidence interval.

>>> import numpy as np
>>> retrieved = np.array([[1, 0, 1, 0]])              # labels of the results of one query
>>> average_precision(retrieved, np.array([1]))       # (1/1 + 2/3) / 2
array([0.83333333])
>>> precision(retrieved, np.array([1]), at=2)
array([0.5])
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias
from uuid import UUID

import numpy as np
import numpy.typing as npt
import scipy.stats

from posh._validate import validate_integer, validate_labels, validate_real

__all__ = [
    "Interval",
    "average_precision",
    "interval",
    "mean_average_precision",
    "precision",
    "recall",
    "recall_by_distance",
]

Float64 = npt.NDArray[np.float64]
_QUERIES = 256  # queries per step, which bounds the memory for rankings of the whole base
_MISSING = -1  # the number of a missing id


class HasIds(Protocol):
    """Results of searches, such as :class:`posh.Hits`."""

    @property
    def ids(self) -> npt.NDArray[Any]:
        """Ids (m, k), best first."""


Ids: TypeAlias = HasIds | npt.ArrayLike | Sequence[Sequence[Hashable]]


class Interval(NamedTuple):
    """A mean and the limits of its confidence interval."""

    mean: float
    low: float
    high: float


def average_precision(
    retrieved_labels: npt.ArrayLike, query_labels: npt.ArrayLike, at: int | None = None
) -> Float64:
    """Return the average precision of each query, float64 (m,).

    ``retrieved_labels`` is (m, n): the labels of the results, best first; ``query_labels`` is (m,).
    AP@n = Σᵢ precision(i) · rel(i) over the first n results, divided by the number of relevant results
    *among those n* (the definition that matches the paper's tables), and 0 if none is relevant. With
    the whole base ranked and ``at=None`` it is the classical average precision.
    """
    retrieved, queries = _validate_rankings(retrieved_labels, query_labels, at)
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
    """Return MAP@``at``, the mean of :func:`average_precision` over the queries.

    >>> mean_average_precision([[1, 0], [0, 1]], [1, 1])
    0.75
    """
    return float(average_precision(retrieved_labels, query_labels, at).mean())


def precision(retrieved_labels: npt.ArrayLike, query_labels: npt.ArrayLike, at: int | None = None) -> Float64:
    """Return the fraction of the first ``at`` results with the query's label, float64 (m,)."""
    retrieved, queries = _validate_rankings(retrieved_labels, query_labels, at)
    return np.asarray((retrieved == queries[:, None]).mean(axis=1))


def recall(found: Ids, true: Ids, at: int | None = None) -> Float64:
    """Return the share of the true ids among the first ``at`` found ids of each query, float64 (m,).

    ``found`` is (m, n), the ids of n results, best first; ``true`` is (m, k), the ids of the true neighbours.
    Either may be the :class:`posh.Hits` of a search, such as one with ``exact=True`` for the true neighbours.

    Ids are integers, strings or other hashable objects; 1 and ``"1"`` are two ids, and a UUID equals its
    string, as in an index. Missing ids never count: -1 in an array of integers, None in one of objects. A
    repeated id counts once. Each query needs at least one true id.

    Of several equally near documents, only those among the true ids count; with
    :func:`recall_by_distance`, all of them count.

    >>> recall([[3, 1, 8, -1]], [[1, 2, 3, 4]])
    array([0.5])
    >>> recall([["a", "b"], ["c", None]], [["b", "a"], ["c", "d"]])
    array([1. , 0.5])
    """
    found_ids, true_ids = _as_ids(found), _as_ids(true)
    if found_ids.ndim != 2 or true_ids.ndim != 2 or len(found_ids) != len(true_ids) or true_ids.size == 0:
        raise ValueError(
            f"expected ids (m >= 1, n) and true ids (m, k >= 1), got {found_ids.shape} and {true_ids.shape}: "
            "ids of a single query are one row, [ids]"
        )
    found_rows, true_rows = map(_drop_repetitions, _number_ids(_take_first(found_ids, at), true_ids))
    n_true = (true_rows != _MISSING).sum(axis=1)
    if not n_true.all():
        raise ValueError(
            f"expected a true id for each query, got none for query {n_true.argmin()}: leave this query out"
        )
    together = np.sort(np.hstack([found_rows, true_rows]), axis=1)  # ids in both are now adjacent
    is_shared = (together[:, 1:] == together[:, :-1]) & (together[:, 1:] != _MISSING)
    return np.asarray(is_shared.sum(axis=1) / n_true)


def recall_by_distance(
    found_distances: npt.ArrayLike,
    true_distances: npt.ArrayLike,
    at: int | None = None,
    tolerance: float = 1e-6,
) -> Float64:
    """Return the share of the k nearest neighbours among the first ``at`` results, float64 (m,).

    ``found_distances`` is (m, n): the true distances of n distinct results, inf for missing ones.
    ``true_distances`` is (m, k): the distances of the k nearest neighbours. Both are floating-point numbers;
    :func:`recall` compares ids. A result counts if it is as near as the k-th neighbour, up to a relative
    ``tolerance``. So any of several equally near results is correct.

    >>> recall_by_distance([[0.1, 0.5, 0.9]], [[0.1, 0.2]])
    array([0.5])
    """
    found, true = _as_distances(found_distances), _as_distances(true_distances)
    if found.ndim != 2 or true.ndim != 2 or len(found) != len(true) or true.size == 0:
        raise ValueError(
            f"expected distances (m >= 1, n) and (m, k >= 1), got {found.shape} and {true.shape}"
        )
    if np.isnan(found).any():
        raise ValueError("expected distances, got NaN: use inf for a missing result")
    if not np.isfinite(true).all():
        raise ValueError(
            "expected finite true distances, got NaN or inf: leave out queries without k neighbours"
        )
    kth = true.max(axis=1, keepdims=True)
    n_near = (_take_first(found, at) <= kth + tolerance * np.abs(kth)).sum(axis=1)
    return np.asarray(np.minimum(n_near, true.shape[1]) / true.shape[1])


def interval(values: npt.ArrayLike, level: float = 0.95) -> Interval:
    """Return the mean of independent values (per query or per trial) and its Student-t interval.

    A single value has no interval: its limits are NaN.

    >>> interval([1.0, 2.0, 3.0]).mean
    2.0
    """
    sample = np.asarray(values, np.float64)
    if sample.ndim != 1 or len(sample) == 0:
        raise ValueError(f"expected a 1-D array of at least one value, got shape {sample.shape}")
    level = validate_real("level", level, 0.0, 1.0, open_low=True)
    mean = float(sample.mean())
    if len(sample) == 1:
        return Interval(mean, float("nan"), float("nan"))
    half = float(
        scipy.stats.t.ppf(0.5 + level / 2, len(sample) - 1) * sample.std(ddof=1) / np.sqrt(len(sample))
    )
    return Interval(mean, mean - half, mean + half)


def _validate_rankings(
    retrieved_labels: npt.ArrayLike, query_labels: npt.ArrayLike, at: int | None
) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.generic]]:
    retrieved = np.asarray(retrieved_labels)
    if retrieved.ndim != 2 or retrieved.size == 0:
        raise ValueError(f"expected labels of the results as (m >= 1, n >= 1), got {retrieved.shape}")
    queries = validate_labels(query_labels, len(retrieved), "query labels")
    return _take_first(retrieved, at), queries


def _take_first(results: npt.NDArray[Any], at: int | None) -> npt.NDArray[Any]:
    """Return the first ``at`` columns of results (m, n), or all."""
    if at is None:
        return results
    return results[:, : validate_integer("at", at, 1, results.shape[1], " (the number of results)")]


def _as_distances(values: npt.ArrayLike) -> Float64:
    array = np.asarray(values)
    if array.dtype.kind != "f":
        raise ValueError(
            f"expected distances as floating-point numbers, got {array.dtype}: compare ids with "
            "posh.metrics.recall(found, true), or convert integer distances with .astype(float)"
        )
    return array.astype(np.float64, copy=False)


def _as_ids(values: Any) -> npt.NDArray[Any]:
    """Return ids, or those of hits, as an array of integers, strings or objects."""
    values = getattr(values, "ids", values)
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(
            "expected ids with one length in all rows, got several lengths: pad rows with None, "
            "or with -1 if ids are integers"
        ) from error
    if array.dtype.kind in "US" and not isinstance(values, np.ndarray):
        array = np.array(values, object)  # otherwise NumPy converts the 1 of [1, "a"] to "1"
    if array.size and (array.dtype.kind in "bfc" or _has_floats(array)):
        raise ValueError(
            f"expected ids, got {'objects that are floats' if array.dtype.kind == 'O' else array.dtype}: "
            "compare distances with posh.metrics.recall_by_distance(found, true)"
        )
    return array


def _has_floats(array: npt.NDArray[Any]) -> bool:
    return array.dtype.kind == "O" and any(isinstance(value, float | np.floating) for value in array.flat)


def _number_ids(*arrays: npt.NDArray[Any]) -> list[npt.NDArray[np.int64]]:
    """Replace ids (m, n) by integers: equal ones for equal ids, ``_MISSING`` for missing ids."""
    if all(np.can_cast(array.dtype, np.int64) for array in arrays):
        return [array.astype(np.int64) for array in arrays]
    numbers: dict[Hashable, int] = {}

    def number(value: Hashable, missing: Hashable) -> int:
        if value == missing:
            return _MISSING
        return numbers.setdefault(str(value) if isinstance(value, UUID) else value, len(numbers))

    results = []
    for array in arrays:
        missing = _MISSING if array.dtype.kind in "iu" else None
        flat = [number(value, missing) for value in array.ravel().tolist()]
        results.append(np.array(flat, np.int64).reshape(array.shape))
    return results


def _drop_repetitions(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the rows (m, n) in order, with ``_MISSING`` in place of repetitions."""
    ordered = np.sort(ids, axis=1)
    ordered[:, 1:][ordered[:, 1:] == ordered[:, :-1]] = _MISSING
    return ordered
