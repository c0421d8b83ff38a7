"""Range searches: all documents whose score reaches a bound.

The scan of lists needs no threshold of its own, because the bound is one. The number of lists that a query
must visit depends on the number of its results: the one with r results needs the lists of its r nearest,
whose effort is calibrated for ``search`` (:mod:`posh.index.nearest.reach`). A sample of the documents tells r
roughly. Queries that find more than their effort was meant for are searched again with more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from posh.index.arrays import Mask, Slots
from posh.index.brute_force import find_reaching
from posh.index.nearest.measuring import RADIUS_SLACK, Effort
from posh.index.nearest.metric import MetricQueries
from posh.index.nearest.options import RadiusParams
from posh.index.nearest.reach import ALL_LISTS, Among
from posh.preprocess import Float32

if TYPE_CHECKING:
    from posh.index.nearest.lists import Lists

__all__ = ["RadiusSlots", "search_radius"]

_FIRST_RANK = 10.0  # results that the first round is prepared for at least
_TOLERATED = 1.5  # times the results that a round was prepared for: the effort grows slowly with the number
_QUERIES = 8192  # searched together
_RESULTS = 1 << 22  # expected of the queries that are searched together: bounds the memory
_WIDEST = 0.5  # margin without a measurement, relative to the length of residuals

Doubles = npt.NDArray[np.float64]


class RadiusSlots(NamedTuple):
    """The slots and scores of all results, query after query, and the number of each query, (m,).

    ``is_cut`` (m,) says which queries had more results than the limit.
    """

    counts: npt.NDArray[np.int64]
    slots: Slots
    scores: Float32
    is_cut: npt.NDArray[np.bool_]

    @classmethod
    def none(cls, n_queries: int) -> RadiusSlots:
        """Return no results for each query."""
        nothing = np.empty(0, np.int64), np.empty(0, np.float32)
        return cls(np.zeros(n_queries, np.int64), *nothing, np.zeros(n_queries, bool))

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Where the results of each query begin, (m + 1,)."""
        return np.concatenate([[0], np.cumsum(self.counts)])

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """The query of each result."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def select(self, chosen: Mask) -> RadiusSlots:
        """Return the results of a mask."""
        counts = np.bincount(self.rows[chosen], minlength=len(self.counts))
        return RadiusSlots(counts, self.slots[chosen], self.scores[chosen], self.is_cut)

    def cut(self, limit: int | None) -> RadiusSlots:
        """Return the best ``limit`` results of each query."""
        if limit is None or not (self.counts > limit).any():
            return self
        places = np.arange(len(self.slots)) - self.offsets[self.rows]
        return self.select(places < limit)._replace(is_cut=self.counts > limit)


def search_radius(
    lists: Lists, X: npt.NDArray[Any], params: RadiusParams, allowed: Mask | None
) -> RadiusSlots:
    """Find all documents whose score reaches ``params.min_score``, for queries (m, d)."""
    found = [RadiusSlots.none(0)]
    search = _RadiusSearch(lists, params, allowed)
    for start in range(0, len(X), _QUERIES):
        rows = X[start : start + _QUERIES]
        queries = lists.space.metric.prepare_queries(rows)
        bounds = _prepare_bounds(params.bound, queries.factors)
        ranks = search.first_ranks(queries.vectors, bounds)
        n_expected = np.cumsum(ranks * search.share)
        ends = [*np.flatnonzero(np.diff(n_expected // _RESULTS)) + 1, len(rows)]
        for part in map(slice, [0, *ends[:-1]], ends):
            some = MetricQueries(queries.vectors[part], queries.factors[part])
            found.append(search.run(some, bounds[part], ranks[part]))
    parts = zip(*found, strict=True)
    return RadiusSlots(*(np.concatenate(arrays) for arrays in parts))


def _prepare_bounds(bound: np.float32, factors: Doubles) -> Float32:
    """Return bounds (m,) of the scores of prepared vectors, low enough that rounding loses nothing."""
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        bounds = np.where(factors > 0, np.float64(bound) / factors, -np.inf).astype(np.float32)
        if bound <= -np.finfo(np.float32).max:  # lower scores are rounded to this one
            bounds[:] = -np.inf
        return np.nextafter(bounds, np.float32(-np.inf))


class _RadiusSearch:
    """A range search of lists with fixed parameters, among the documents of ``allowed``, or all."""

    def __init__(self, lists: Lists, params: RadiusParams, allowed: Mask | None) -> None:
        self._lists, self._params, self._allowed = lists, params, allowed
        self._n_allowed = lists.n_live
        self._among = Among.ALL
        if allowed is not None:
            self._n_allowed = int(np.count_nonzero(allowed & lists.live.rows))
            if lists.depends_on_vectors(allowed):
                self._among = Among.REGION
        self.share = self._n_allowed / max(1, lists.n_live)

    @property
    def _compares_all(self) -> bool:
        """Whether all documents are compared, because it was asked for or because they are few."""
        n = None if self._allowed is None else self._n_allowed
        return self._lists.choose_effort(self._params.as_search, n) is None

    def first_ranks(self, queries: Float32, bounds: Float32) -> Doubles:
        """Return for prepared queries about how many of all documents reach the bounds, (m,)."""
        ranks = np.full(len(queries), _FIRST_RANK / max(self.share, 1e-9))
        if self._lists.stored.has_vectors or self._allowed is not None:
            sampled = self._lists.count_reaching(queries, bounds)
            if self._among is Among.REGION:
                # Results say little about the ranks of documents in a region, so they must not be too low.
                sampled += self._lists.n_live / max(1, self._lists.n_sampled)
            ranks = np.maximum(ranks, sampled)
        return ranks

    def run(self, queries: MetricQueries, bounds: Float32, ranks: Doubles) -> RadiusSlots:
        """Return the results of prepared queries, which have about ``ranks`` (m,) among all documents."""
        metric, params = self._lists.space.metric, self._params
        found = self._compare(queries.vectors, bounds) if self._compares_all else None
        if found is None:
            found = self._search_rounds(queries.vectors, bounds, ranks)
        scores = found.scores[:, None].copy()
        metric.native.scale_scores(queries.factors[found.rows], scores)
        found = found._replace(scores=scores[:, 0])
        return found.select(found.scores >= params.bound).cut(params.limit)

    def _search_rounds(self, queries: Float32, bounds: Float32, ranks: Doubles) -> RadiusSlots:
        """Search with more and more effort, until it suits the number of results of each query."""
        parts: list[tuple[npt.NDArray[np.int64], RadiusSlots]] = []
        newest = np.empty(len(queries), np.int64)  # the part with the results of each query
        left = np.arange(len(queries))
        while len(left):
            efforts = self._group(ranks[left])
            again = []
            for rank, chosen in efforts:
                rows = left[chosen]
                part, is_complete = self._search(queries[rows], bounds[rows], rank)
                newest[rows] = len(parts)
                parts.append((rows, part))
                ranks[rows] = part.counts / max(self.share, 1e-9)
                if not is_complete:
                    again.append(rows[ranks[rows] > _TOLERATED * rank])
            left = np.concatenate(again) if again else left[:0]
        return _join(parts, newest)

    def _group(self, ranks: Doubles) -> list[tuple[float, Slots]]:
        """Return the ranks that efforts were measured for, and the places of the queries that need them."""
        tuning = self._lists.tuning
        known = np.append(tuning.reach.ranks if tuning is not None else [], np.inf)
        places = np.searchsorted(known, ranks / _TOLERATED)
        return [(float(known[place]), np.flatnonzero(places == place)) for place in np.unique(places)]

    def _search(self, queries: Float32, bounds: Float32, rank: float) -> tuple[RadiusSlots, bool]:
        """Search with the effort for results up to a rank; also return whether no effort finds more."""
        lists = self._lists
        chosen = self._choose_effort(rank)
        if chosen is None and lists.stored.has_vectors:
            return self._compare(queries, bounds), True
        is_complete = chosen is None
        if chosen is None:  # the best that is possible without vectors
            chosen = lists.widest_effort(), _WIDEST * lists.space.spread
        effort, margin = chosen
        counts, slots, scores = lists.stored.search_radius(
            lists.blocks,
            lists.settings(1, effort),
            queries,
            bounds,
            margin,
            self._allowed,
            self._params.as_search.threads,
        )
        return RadiusSlots(counts, slots, scores, np.zeros(len(counts), bool)), is_complete

    def _choose_effort(self, rank: float) -> tuple[Effort, float] | None:
        """Return the effort and the margin for results up to a rank; None if only comparing all suffices."""
        lists, tuning = self._lists, self._lists.tuning
        if tuning is None or tuning.radius is None:
            return None
        recall = lists.wanted_recall(self._params.recall, self._among)
        if recall >= min(1.0, tuning.radius.found):
            return None
        reach = tuning.reach.choose(rank, recall / tuning.radius.found, self._among)
        if reach is ALL_LISTS:
            return None
        return Effort(0, reach, RADIUS_SLACK, 1.0), tuning.radius.margin

    def _compare(self, queries: Float32, bounds: Float32) -> RadiusSlots:
        """Compare all documents."""
        lists = self._lists
        passing = lists.live.rows if self._allowed is None else self._allowed & lists.live.rows
        rows, slots, scores = find_reaching(
            lists.stored.rows.rows,
            np.flatnonzero(passing),
            queries,
            bounds,
            is_distance=lists.space.metric.is_distance,
        )
        counts = np.bincount(rows, minlength=len(queries))
        return RadiusSlots(counts, slots, scores, np.zeros(len(counts), bool))


def _join(
    parts: list[tuple[npt.NDArray[np.int64], RadiusSlots]], newest: npt.NDArray[np.int64]
) -> RadiusSlots:
    """Return the results of each query from its newest part; a part belongs to the queries of its rows."""
    if len(parts) == 1 and len(parts[0][0]) == len(newest):
        return parts[0][1]
    kept = []
    for number, (rows, part) in enumerate(parts):
        owners = rows[part.rows]
        is_newest = newest[owners] == number
        kept.append((owners[is_newest], part.slots[is_newest], part.scores[is_newest]))
    owners, slots, scores = (np.concatenate(arrays) for arrays in zip(*kept, strict=True))
    order = np.argsort(owners, kind="stable")
    counts = np.bincount(owners, minlength=len(newest))
    return RadiusSlots(counts, slots[order], scores[order], np.zeros(len(counts), bool))
