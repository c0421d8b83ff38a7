"""Queries of the user to calibrate with, and a watch for queries that differ from the calibrated ones."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from posh._model_files import Arrays, require_array
from posh._runtime import one_blas_thread
from posh._validate import validate_vectors
from posh.errors import RecallWarning
from posh.index.nearest.metric import as_reals
from posh.index.nearest.space import Space
from posh.preprocess import Float32

__all__ = [
    "LEAST",
    "NO_WATCH",
    "OwnQueries",
    "QueryWatch",
    "find_low_score",
    "sample_queries",
]

LEAST = 50
"""Different queries that a calibration needs: with fewer, chance decides."""

_CHOOSING, _REPORTING = 1000, 500  # queries that are used, at most

Doubles = npt.NDArray[np.float64]


def sample_queries(queries: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a random sample of queries (n, d), as large as a calibration uses, in random order."""
    order = np.random.default_rng(0).permutation(len(queries))
    return np.asarray(queries[order[: _CHOOSING + _REPORTING]])


@dataclass(frozen=True, eq=False)
class OwnQueries:
    """Queries of the user: a random sample of the ``n_given``, in random order.

    Searches are tuned with ``choosing`` (m, d). Their recall is measured with ``reporting`` (r, d), half as
    many, which chose nothing.
    """

    choosing: npt.NDArray[Any]
    reporting: npt.NDArray[Any]
    n_given: int

    @classmethod
    def of(cls, queries: npt.ArrayLike, n_features: int | None) -> OwnQueries:
        """Sample and split queries (n, d); raise ValueError if they are wrong, or too few differ.

        >>> own = OwnQueries.of(np.eye(90), 90)
        >>> own.choosing.shape, own.reporting.shape
        ((60, 90), (30, 90))
        """
        array = validate_vectors(queries, n_features, model="the index", name="queries")
        some = as_reals(sample_queries(array))
        n_different = len(np.unique(some, axis=0))
        if n_different < LEAST:
            raise ValueError(
                f"expected at least {LEAST} different queries to calibrate with, 300 or more for a narrow "
                f"interval, got {n_different}: give more, or none to calibrate with held-out documents"
            )
        n_reporting = len(some) // 3
        return cls(some[n_reporting:], some[:n_reporting], len(array))

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.choosing.nbytes + self.reporting.nbytes

    def to_arrays(self) -> Arrays:
        """Return the arrays of a file."""
        return {
            "queries_choosing": self.choosing,
            "queries_reporting": self.reporting,
            "queries_given": np.array(self.n_given, np.int64),
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays, n_features: int) -> OwnQueries:
        """Return the queries of :meth:`to_arrays`; raise ValueError or KeyError if they are wrong."""
        dtype = np.float64 if arrays["queries_choosing"].dtype == np.float64 else np.float32
        choosing, reporting = (
            require_array(arrays, name, dtype, (None, n_features))
            for name in ("queries_choosing", "queries_reporting")
        )
        n_given = int(require_array(arrays, "queries_given", np.int64, (), low=1))
        if not len(choosing) or not len(reporting):
            raise ValueError("expected queries to calibrate with, found none")
        return cls(choosing, reporting, n_given)


# Queries that differ -------------------------------------------------------------------------------------

_LOW = 0.1  # quantile of the scores of best lists
_COMPARED = 200  # queries that are compared with the calibration together
_EVERY = 16  # of queries that come one by one, one of these many is looked at
_PAUSE = 10_000  # queries until others are compared, then twice as many, and so on
_DIFFERENT = 0.25  # share of queries below the quantile
_LISTS = 5  # the least number of best lists of these queries: those about one topic say little


def find_low_score(space: Space, queries: Float32, groups: list[npt.NDArray[np.int64]]) -> float:
    """Return a score of best lists that nine tenths of each group of prepared queries (m, d) exceed."""
    scores = _score_best_lists(space, queries)[1]
    return min(float(np.quantile(scores[group], _LOW)) for group in groups)


def _score_best_lists(space: Space, queries: Float32) -> tuple[npt.NDArray[np.int64], Doubles]:
    """Return the best lists (m,) of prepared queries (m, d), and their scores (m,) without query lengths."""
    with one_blas_thread:
        scores = space.score_lists(queries)
    lists = scores.argmax(axis=1)
    best = scores.max(axis=1).astype(np.float64)
    if not space.metric.is_distance:
        best /= np.maximum(np.linalg.norm(queries, axis=1), np.finfo(np.float32).tiny)
    return lists, best


class QueryWatch:
    """Compares queries of searches with those of the calibration, and warns once if they differ.

    Nine tenths of the latter have best lists with scores above ``low``; if it is NaN, nothing is compared.
    A quarter of the others below it is more than chance explains. Some of the first queries are
    compared, then of the next 10,000, 20,000, and so on. So a search only counts: ``left`` is the number of
    queries before others are looked at. The counts of concurrent searches may be lost, which does no harm.
    """

    def __init__(self, low: float) -> None:
        self.left = math.inf if math.isnan(low) else 0.0
        self._low = low
        self._pause = _PAUSE
        self._seen: list[npt.NDArray[Any]] = []
        self._has_warned = False

    def renew(self, low: float) -> QueryWatch:
        """Return a watch for another calibration, which does not warn if this one did."""
        new = QueryWatch(low)
        if self._has_warned:
            new._stop()
        return new

    def look(self, space: Space, X: npt.NDArray[Any]) -> None:
        """Look at some of the queries (m, d), or at one (d,), and compare them if there are enough."""
        queries = X.reshape(-1, space.n_features)
        n_seen = sum(map(len, self._seen))
        some = queries[:: max(1, len(queries) // (_COMPARED - n_seen))][: _COMPARED - n_seen]
        seen = [*self._seen, some.copy()]
        if n_seen + len(some) < _COMPARED:
            self._seen, self.left = seen, _EVERY * len(some)
            return
        self._seen, self.left = [], self._pause
        self._pause *= 2
        share = self._share_of_different(space, np.concatenate(seen))
        if share > _DIFFERENT:
            self._stop()
            warnings.warn(
                f"expected queries like those that searches were calibrated with, got others: {share:.0%} of "
                f"{_COMPARED} are as far from the documents as {_LOW:.0%} of these were. They may find less "
                "than was asked for: call calibrate(queries) with a sample of your queries",
                RecallWarning,
                stacklevel=5,
            )

    def _stop(self) -> None:
        self.left, self._has_warned = math.inf, True

    def _share_of_different(self, space: Space, queries: npt.NDArray[Any]) -> float:
        """Return the share of queries whose best lists have low scores.

        It is 0 if they are in a few lists only.
        """
        lists, scores = _score_best_lists(space, space.metric.prepare_queries(queries).vectors)
        if len(np.unique(lists)) < min(_LISTS, space.n_lists):
            return 0.0
        return float((scores < self._low).mean())


NO_WATCH = QueryWatch(math.nan)
"""Compares nothing."""
