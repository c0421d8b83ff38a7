"""Measure the recall of searches on the documents of an index, and choose the effort that a recall needs.

Some documents are held out from training and serve as queries whose true neighbours are known, unless the
user gave queries (:mod:`posh.index.nearest.queries`). A true neighbour is found if its list is visited
(:mod:`posh.index.nearest.reach`) and codes and 8-bit numbers do not lose it on the way. The two shares are
measured separately and multiplied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from posh import kernels
from posh._model_files import Arrays, require_array
from posh._runtime import resolve_threads, track_progress
from posh.index.arrays import Mask, Slots
from posh.index.brute_force import find_nearest
from posh.index.hits import SlotScores
from posh.index.nearest.calibration import Calibration, with_limits
from posh.index.nearest.options import NearestParams
from posh.index.nearest.queries import find_low_score
from posh.index.nearest.reach import (
    RANKS,
    Among,
    Neighbours,
    Reach,
    ReachTable,
    Regional,
    lifts_of,
    measure_reach,
    scales_of,
)
from posh.index.nearest.space import Space
from posh.preprocess import Float32

if TYPE_CHECKING:
    from posh.index.nearest.lists import Lists

__all__ = [
    "KS",
    "RADIUS_SLACK",
    "Effort",
    "KnownNeighbours",
    "Measured",
    "Measurements",
    "RadiusCodes",
    "Tuning",
    "drop_held_out",
    "is_held_out",
    "mean_residual",
    "measure",
    "random_order",
    "sample_slots",
]

KS = (1, 10, 100, 1000)
"""Numbers of results for which the recall of whole searches is measured."""

_CODE_KS = (1, 10, 30, 100, 300, 1000)  # for which codes are: between two of them they may find less

_N_PROBE, _SLACK, _OVERSAMPLE = 20, 1.25, 1.4  # defaults of an effort that is set by hand
_SLACKS = (0.75, 1.0, 1.5, 2.0, 3.0)
_FEW_COLUMNS, _NO_SKIPPING = 8, (100.0,)  # the codes of so few columns say little: they skip nothing
_OVERSAMPLES = (1.4, 3.0, 8.0, 32.0)
_RESULTS = 30_000  # results of the queries that measure codes
_LEAST_CODE_QUERIES = 100
_ROUTED = 0.98  # recall of routing while codes are measured
_ENOUGH = 0.9985  # recall of codes: more careful searches are not tried
_GAIN = 0.001  # recall that more candidates must add at least
_ROUNDING = 1e-12  # of scores in float64, relative
_SCORE_ROUNDING = 1e-5  # of scores in float32, relative
_MARGINS = range(-9, 0)  # powers of two: margins of 8-bit scores, relative to the length of residuals
RADIUS_SLACK = 2.0
"""Slack of range searches, whose limit is known from the start: no document enters before it is."""

Doubles = npt.NDArray[np.float64]
Search = Callable[["KnownNeighbours", int, "Effort"], Slots]
"""Returns the slots (m, k) of the k nearest that a search finds, without the queries themselves."""


class Effort(NamedTuple):
    """The parameters of a search.

    ``n_probe`` lists are visited, or if it is 0, those whose lift reaches a bound. ``slack`` says how
    carefully codes skip documents, ``oversample`` how many vectors are compared per result.
    """

    n_probe: int
    reach: Reach
    slack: float
    oversample: float

    @classmethod
    def by_hand(cls, params: NearestParams) -> Effort:
        """Return the effort that the parameters of a search set."""
        return cls(
            _N_PROBE if params.n_probe is None else params.n_probe,
            Reach(1, 0.0, 0.0),
            _SLACK if params.slack is None else params.slack,
            _OVERSAMPLE if params.oversample is None else params.oversample,
        )


class Measured(NamedTuple):
    """The share of the true k nearest that searches found, its standard error, and the number of queries."""

    k: int
    recall: float
    error: float
    n_queries: int


class RadiusCodes(NamedTuple):
    """The effort of codes and 8-bit numbers in range searches.

    ``margin`` is by how much 8-bit scores may be too low, divided by the length of the vector that is
    compared; ``found`` is the share of documents in visited lists that are found with it.
    """

    margin: float
    found: float


class KnownNeighbours(NamedTuple):
    """Prepared queries (m, d), their own slots (m,), and their true neighbours (m, depth).

    Neighbours are best first, without the query itself; the slot of a query that is no document is -1.
    ``lists`` (m, depth) are their lists, ``vectors`` (n_slots, d) those of all documents.
    """

    queries: Float32
    own_slots: Slots
    true: SlotScores
    lists: npt.NDArray[np.int32]
    vectors: npt.NDArray[Any]
    is_distance: bool

    def first(self, n: int) -> KnownNeighbours:
        """Return the first n queries."""
        return self.part(slice(n))

    def part(self, rows: slice) -> KnownNeighbours:
        """Return the queries of these rows."""
        true = SlotScores(self.true.slots[rows], self.true.scores[rows])
        return self._replace(
            queries=self.queries[rows], own_slots=self.own_slots[rows], true=true, lists=self.lists[rows]
        )

    def shares(self, found: Slots, k: int) -> Doubles:
        """Return the share of its k nearest that each query found, from slots (m, k).

        A document counts that is one of them, or whose score equals that of the k-th. Scores are compared in
        float64: those of neighbours may differ by less than the rounding errors of float32.
        """
        true = self.true.slots[:, :k]
        first = np.arange(len(true))[:, None] * len(self.vectors)
        is_true = np.isin(found + first, true + first)
        rows, columns = np.nonzero(~is_true & (found >= 0))
        last = self._scores(np.arange(len(true)), true[:, -1])
        own = self._scores(rows, found[rows, columns])
        is_true[rows, columns] = own >= last[rows] - _ROUNDING * np.abs(last[rows])
        return np.asarray((is_true & (found >= 0)).mean(axis=1))

    def _scores(self, rows: Slots, slots: Slots) -> Doubles:
        queries, vectors = self.queries[rows].astype(np.float64), self.vectors[slots].astype(np.float64)
        if self.is_distance:
            return np.asarray(-((queries - vectors) ** 2).sum(axis=1))
        return np.asarray((queries * vectors).sum(axis=1))


@dataclass(frozen=True, eq=False)
class Tuning:
    """The measurements of ``n_docs`` documents; ``n_queries`` measured the recall.

    ``codes`` (n, 4) are k, slack, oversample, and the share of neighbours in visited lists that was found.
    ``measured`` (n, 4) are rows of :class:`Measured` for the recall of the index. ``dimension`` is the local
    dimension of the documents around queries, see :func:`local_dimension`. ``low_score`` is that of queries,
    see :func:`~posh.index.nearest.queries.find_low_score`, and NaN if it is unknown. ``radius`` are the codes
    of range searches, None in files of older versions.
    """

    n_docs: int
    n_queries: int
    reach: ReachTable
    codes: Doubles
    measured: Doubles
    dimension: float
    low_score: float
    radius: RadiusCodes | None = None

    def choose_effort(
        self, space: Space, recall: float, k: int, rank: float, among: Among = Among.ALL
    ) -> Effort | None:
        """Return the cheapest effort that finds this share; None if only comparing all vectors does.

        ``rank`` is that of the k-th result among all documents, see :class:`ReachTable`.
        """
        if recall >= 1.0:  # a measurement with some queries cannot promise that for all
            return None
        efforts = [
            Effort(0, self.reach.choose(rank, recall / found, among), slack, oversample)
            for slack, oversample, found in self._codes_for(k, rank)
            if found > recall
        ]
        return min(efforts, key=lambda effort: _cost(effort, k, space), default=None)

    def _codes_for(self, k: int, rank: float) -> Iterator[tuple[float, float, float]]:
        """Yield slack, oversample and the lowest share that codes find of the nearest k, and up to a rank."""
        ks = np.unique(self.codes[:, 0])
        first = max(0, int(np.searchsorted(ks, k, "right")) - 1)
        last = max(first, min(int(np.searchsorted(ks, max(k, rank * (1 - 1e-9)))), len(ks) - 1))
        tables = [self.codes[self.codes[:, 0] == own] for own in ks[first : last + 1]]
        for slack, oversample in np.unique(np.concatenate(tables)[:, 1:3], axis=0).tolist():
            # A search that is more careful than one that was measured finds at least as much.
            found = [table[(table[:, 1:3] <= (slack, oversample)).all(axis=1), 3] for table in tables]
            yield slack, oversample, float(min(own.max(initial=0.0) for own in found))

    def rows(self) -> list[Measured]:
        """Return the recalls that were measured, by k."""
        return [Measured(int(k), recall, error, int(n)) for k, recall, error, n in self.measured.tolist()]

    def to_arrays(self) -> Arrays:
        """Return the arrays of a file."""
        dimension = {"tuned_dimension": np.array(self.dimension)} if np.isfinite(self.dimension) else {}
        low_score = {"tuned_low_score": np.array(self.low_score)} if np.isfinite(self.low_score) else {}
        return (
            self.reach.to_arrays()
            | dimension
            | low_score
            | ({} if self.radius is None else {"tuned_radius": np.array(self.radius)})
            | {
                "tuned_with": np.array([self.n_docs, self.n_queries]),
                "tuned_codes": self.codes,
                "tuned_recall": self.measured,
            }
        )

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Tuning:
        """Return the tuning of :meth:`to_arrays`; raise ValueError or KeyError if it is wrong."""
        n_docs, n_queries = require_array(arrays, "tuned_with", np.int64, (2,), low=1).tolist()
        dimension = np.inf  # unknown in files of older versions
        if "tuned_dimension" in arrays:
            dimension = float(require_array(arrays, "tuned_dimension", np.float64, ()))
        low_score = np.nan
        if "tuned_low_score" in arrays:
            low_score = float(require_array(arrays, "tuned_low_score", np.float64, ()))
        codes = require_array(arrays, "tuned_codes", np.float64, (None, 4))
        measured = require_array(arrays, "tuned_recall", np.float64, (None, 4))
        least, most = (1, 0, 1, 0), (2**31, 1e6, 1e6, 1)
        if not len(codes) or (codes < least).any() or (codes > most).any():
            raise ValueError("expected a table of measured searches, found other numbers")
        radius = None
        if "tuned_radius" in arrays:
            radius = RadiusCodes(*require_array(arrays, "tuned_radius", np.float64, (2,), low=0).tolist())
        reach = ReachTable.from_arrays(arrays)
        return cls(n_docs, n_queries, reach, codes, measured, dimension, low_score, radius)


def _cost(effort: Effort, k: int, space: Space) -> float:
    """Return a number roughly proportional to the time of a search; the same on every machine.

    Visiting a list takes longer if more of its documents pass. Candidates are compared column by column.
    """
    visits = effort.reach.share * space.n_lists * (1 + effort.slack)
    return visits + k * effort.oversample * space.n_features / 500


def _measure_tables(
    search: Search,
    known: KnownNeighbours,
    reach: ReachTable,
    visited: Callable[[Reach, int], Doubles],
    groups: list[npt.NDArray[np.int64]],
) -> Doubles:
    """Measure the share of neighbours in visited lists that codes find, as rows of ``Tuning.codes``.

    ``visited`` returns for each query the share of its k nearest that is in the lists of a reach. The share
    is that of the group of queries that finds the least.
    """
    depth = known.true.slots.shape[1]
    rows: list[tuple[float, ...]] = []
    ks = [k for k in _CODE_KS if k < depth] + [min(depth, _CODE_KS[-1])]
    for k in track_progress(ks, "measuring recall", "k"):
        chosen = reach.choose(k, _ROUTED)
        some = known.first(max(_LEAST_CODE_QUERIES, _RESULTS // k))
        routed = visited(chosen, k)
        parts = [group[group < len(some.queries)] for group in groups]

        def find(
            slack: float,
            oversample: float,
            k: int = k,
            chosen: Reach = chosen,
            some: KnownNeighbours = some,
            routed: Doubles = routed,
            parts: list[npt.NDArray[np.int64]] = parts,
        ) -> float:
            found = measure_recalls(search, some, k, Effort(0, chosen, slack, oversample))
            shares = [found[part].mean() / max(routed[part].mean(), 1e-9) for part in parts if len(part)]
            return min(1.0, float(min(shares)))

        slacks = _SLACKS if known.queries.shape[1] >= _FEW_COLUMNS else _NO_SKIPPING
        rows += [(k, *row) for row in _measure_codes(find, slacks)]
    return np.array(rows)


def _measure_radius_codes(
    index: Lists,
    known: KnownNeighbours,
    reach: ReachTable,
    visited: Callable[[Reach, int], Doubles],
    groups: list[npt.NDArray[np.int64]],
) -> RadiusCodes:
    """Measure range searches with the scores of the k-th true neighbours as bounds, for several k.

    The margin is doubled until 8-bit numbers lose next to nothing. The share that is found is the lowest of
    all k and groups of queries.
    """
    ks = [k for k in KS if k <= known.true.slots.shape[1]]

    def find(k: int, margin: float) -> float:
        chosen, some = reach.choose(k, _ROUTED), known.first(max(_LEAST_CODE_QUERIES, _RESULTS // k))
        last = some.true.scores[:, k - 1]
        bounds = np.asarray(last - _SCORE_ROUNDING * np.abs(last), np.float32)
        settings = index.settings(1, Effort(0, chosen, RADIUS_SLACK, 1.0))
        counts, slots, _ = index.stored.search_radius(
            index.blocks, settings, some.queries, bounds, margin, None, resolve_threads()
        )
        rows = np.repeat(np.arange(len(counts)), counts)
        first = np.arange(len(counts))[:, None] * len(known.vectors)
        is_true = np.isin(slots + rows * len(known.vectors), some.true.slots[:, :k] + first)
        shares = np.bincount(rows[is_true], minlength=len(counts)) / k
        routed, parts = visited(chosen, k), [group[group < len(counts)] for group in groups]
        return min(float(shares[own].mean() / max(routed[own].mean(), 1e-9)) for own in parts if len(own))

    margin = found = 0.0
    for exponent in _MARGINS:
        margin = index.space.spread * 2.0**exponent
        found = min(find(k, margin) for k in ks)
        if found >= _ENOUGH:
            break
    return RadiusCodes(margin, min(1.0, found))


def _measure_codes(
    find: Callable[[float, float], float], slacks: tuple[float, ...]
) -> Iterator[tuple[float, float, float]]:
    """Yield slack, oversample and recall for more and more careful searches, as long as these find more."""
    best = 0.0
    for oversample in _OVERSAMPLES:
        before = best
        for slack in slacks:
            found = find(slack, oversample)
            best = max(best, found)
            yield slack, oversample, found
            if found >= _ENOUGH:
                break
        if best >= _ENOUGH or (before and best < before + _GAIN):
            return


def measure_recalls(search: Search, known: KnownNeighbours, k: int, effort: Effort) -> Doubles:
    """Return the share of its k nearest that each query finds."""
    return known.shares(search(known, k, effort), k)


def drop_own(found: SlotScores, own_slots: Slots, k: int) -> SlotScores:
    """Return the k best (m, k) of more, without the query's own slot."""
    order = np.argsort(found.slots == own_slots[:, None], axis=1, kind="stable")[:, :k]
    return SlotScores(
        np.take_along_axis(found.slots, order, axis=1), np.take_along_axis(found.scores, order, axis=1)
    )


# Measuring -----------------------------------------------------------------------------------------------

_QUERIES = 1000  # of the first measurement
_LEAST_QUERIES = 500  # if fewer documents are held out from training, others are queries too
_NEWEST = 5  # part of the documents that must reach the recall by itself
_ALL_QUERIES, _NEW_QUERIES = 400, 250  # of later ones, of all and of the newest documents
_REGIONS = np.tile([0.02, 0.1, 0.3], 6)  # shares of all lists
_RESIDUALS = 2000  # documents whose residuals are looked at
_BALL = 100  # neighbours that tell the local dimension


class Measurements(NamedTuple):
    """The result of :func:`measure`: queries with known neighbours, and groups that must reach the recall.

    The recall of whole searches is measured with ``reporting``.
    """

    calibration: Calibration
    tuning: Tuning
    known: KnownNeighbours
    groups: list[npt.NDArray[np.int64]]
    reporting: KnownNeighbours


def measure(index: Lists, recall: float) -> Measurements:
    """Measure the searches of an index whose counts are calibrated.

    If the index was measured before, its newest documents must reach the recall by themselves: they may be of
    another kind, and so may be the queries to come. If the user gave queries, these must reach it.
    """
    live = np.flatnonzero(index.live.rows)
    rows = index.stored.rows.rows if index.stored.has_vectors else index.vectors(np.arange(len(index)))
    list_of = np.empty(len(index), np.int32)
    index.blocks.lists_of_slots(list_of)
    find = partial(_known_neighbours, index, rows, live, list_of)
    if index.queries is None:
        slots, groups = _query_slots(live, with_newest=index.was_measured)
        queries = index.space.metric.as_queries(np.asarray(rows[slots], np.float32))
        known = reporting = find(queries, slots)
    else:
        prepared = [
            index.space.metric.prepare_queries(part).vectors
            for part in (index.queries.choosing, index.queries.reporting)
        ]
        both = find(np.concatenate(prepared), None)
        n = len(prepared[0])
        known, reporting, groups = both.part(slice(n)), both.part(slice(n, None)), [np.arange(n)]
    assert index.calibration is not None
    calibration = with_limits(index.calibration, index.space, known.queries, known.true.scores)
    calibrated = replace(index, calibration=calibration)
    tuning = _tuning(calibrated, recall, known, reporting, rows, list_of, groups)
    return Measurements(calibration, tuning, known, groups, reporting)


def _tuning(
    index: Lists,
    recall: float,
    known: KnownNeighbours,
    reporting: KnownNeighbours,
    rows: npt.NDArray[np.generic],
    list_of: npt.NDArray[np.int32],
    groups: list[npt.NDArray[np.int64]],
) -> Tuning:
    n = index.n_live
    n_live = np.bincount(list_of[list_of >= 0], minlength=index.space.n_lists).astype(np.float64)
    routing = np.empty((len(known.queries), index.space.n_lists), np.float32)
    index.blocks.routing_scores(known.queries, routing, kernels.active())
    scales = scales_of(index.space, known.queries, routing)
    sample = _Sample.of(index, rows, known, list_of)
    regional = _regional(index.space, known, sample, n)
    neighbours = Neighbours(known.lists, sample.by_distance(), n, groups, regional)
    reach = measure_reach(routing, scales, n_live, neighbours)

    def search(some: KnownNeighbours, k: int, effort: Effort) -> Slots:
        if index.queries is not None:
            settings = index.settings(k, effort)
            return index.stored.search(index.blocks, settings, some.queries, k, resolve_threads()).slots
        # With the first limit of k: that of k + 1 could be much lower.
        settings = index.settings(k, effort, n_more=1)
        found = index.stored.search(index.blocks, settings, some.queries, k + 1, resolve_threads())
        others = drop_own(found, some.own_slots, k).slots
        # Inner products: a document that is not one of its own k nearest takes no place of another, so that
        # the search for k + 1 was more careful than the one for k.
        rows = np.flatnonzero((found.slots[:, :k] != some.own_slots[:, None]).all(axis=1))
        if len(rows):
            settings, queries = index.settings(k, effort), some.queries[rows]
            others[rows] = index.stored.search(index.blocks, settings, queries, k, resolve_threads()).slots
        return others

    def visited(chosen: Reach, k: int) -> npt.NDArray[np.float64]:
        lifts = lifts_of(routing, scales, n_live, chosen.power)
        return np.asarray((np.take_along_axis(lifts, known.lists[:, :k], axis=1) >= chosen.lift).mean(axis=1))

    codes = _measure_tables(search, known, reach, visited, groups)
    radius = _measure_radius_codes(index, known, reach, visited, groups)
    dimension, nothing = local_dimension(known), np.empty((0, 4))
    low_score = find_low_score(index.space, known.queries, groups)
    tuning = Tuning(n, len(reporting.queries), reach, codes, nothing, dimension, low_score, radius)
    return replace(tuning, measured=_verify(tuning, index, reporting, search, recall))


def _query_slots(live: Slots, *, with_newest: bool) -> tuple[Slots, list[npt.NDArray[np.int64]]]:
    """Return slots of documents to search for, and groups of them that must reach the recall each."""
    order = random_order(live)
    order = order[np.argsort(~is_held_out(order), kind="stable")]
    order = order[: max(_LEAST_QUERIES, int(is_held_out(live).sum()))]
    if not with_newest:
        return order[:_QUERIES], [np.arange(min(_QUERIES, len(order)))]
    newest = order[order >= live[len(live) - len(live) // _NEWEST]][:_NEW_QUERIES]
    slots = np.concatenate([order[:_ALL_QUERIES], newest])
    is_newest = np.arange(len(slots)) >= len(slots) - len(newest)
    mixed = random_order(np.arange(len(slots)))  # so that the first ones are of both groups
    groups = [np.flatnonzero(is_newest[mixed] == own) for own in (False, True)]
    return slots[mixed], [group for group in groups if len(group)]


def _known_neighbours(
    index: Lists,
    rows: npt.NDArray[np.generic],
    live: Slots,
    list_of: npt.NDArray[np.int32],
    queries: Float32,
    slots: Slots | None,
) -> KnownNeighbours:
    """Return prepared queries (m, d) with their true neighbours.

    ``slots`` (m,) are their own if they are documents, which are not among their neighbours.
    """
    is_distance = index.space.metric.is_distance
    if slots is None:
        others = find_nearest(rows, live, queries, min(RANKS[-1], len(live)), is_distance=is_distance)
        slots = np.full(len(queries), -1)
    else:
        depth = max(1, min(RANKS[-1], len(live) - 1))
        true = find_nearest(rows, live, queries, depth + 1, is_distance=is_distance)
        others = drop_own(true, slots, depth)
    return KnownNeighbours(queries, slots, others, list_of[others.slots], rows, is_distance)


def local_dimension(known: KnownNeighbours) -> float:
    """Estimate in how many dimensions neighbours are spread: the median over queries.

    Within a ball, the logarithms of distances relative to the farthest have the mean -1 / dimension (Levina
    and Bickel, 2004). Inner products become distances of documents that are lifted to the same length, and
    queries are scaled to it.
    """
    scores = known.true.scores[:, :_BALL].astype(np.float64)
    if known.is_distance:
        squares = -scores
    else:
        radius = float(np.sqrt(np.einsum("ij,ij->i", known.vectors, known.vectors, dtype=np.float64).max()))
        scores /= np.maximum(np.linalg.norm(known.queries, axis=1, keepdims=True), np.finfo(np.float32).tiny)
        squares = 2 * radius * (radius - scores)
    squares = np.maximum(squares, np.finfo(np.float32).tiny)
    logarithms = 0.5 * np.log(squares[:, :-1] / squares[:, -1:])
    return float(np.median(-1 / np.minimum(logarithms.mean(axis=1), -1e-9)))


class _Sample(NamedTuple):
    """A random sample of documents: their lists (s,), and their scores (m, s), -inf for the query itself."""

    lists: npt.NDArray[np.int32]
    scores: Float32

    @classmethod
    def of(
        cls,
        index: Lists,
        rows: npt.NDArray[np.generic],
        known: KnownNeighbours,
        list_of: npt.NDArray[np.int32],
    ) -> _Sample:
        slots = sample_slots(len(index), rows.shape[1])
        slots = slots[index.live.rows[slots]]
        sample = np.asarray(rows[slots], np.float32)
        scores = known.queries @ sample.T
        if index.space.metric.is_distance:
            scores -= 0.5 * np.einsum("ij,ij->i", sample, sample)
        scores[known.own_slots[:, None] == slots] = -np.inf
        return cls(list_of[slots], scores)

    def by_distance(self) -> npt.NDArray[np.int32]:
        """Return the lists (m, s), nearest document first."""
        return np.asarray(self.lists[np.argsort(-self.scores, axis=1)])


def _regional(space: Space, known: KnownNeighbours, sample: _Sample, n: int) -> Regional:
    """Return the nearest documents of queries in regions: lists around a random one.

    Up to the depth of known neighbours their ranks are exact, beyond it the sample tells them.
    """
    rng = np.random.default_rng(0)
    found = []
    for share in _REGIONS:
        similarity = space.score_lists(space.centroids[rng.integers(space.n_lists, size=1)])[0]
        region = similarity >= np.quantile(similarity, 1 - share)
        inside = region[known.lists]
        is_near = inside.any(axis=1)
        near, far = np.flatnonzero(is_near), np.flatnonzero(~is_near & region[sample.lists].any())
        columns = inside[near].argmax(axis=1)
        found.append(Regional(near, columns + 1.0, known.lists[near, columns]))
        scores = sample.scores[far]
        best = np.where(region[sample.lists], scores, -np.inf).argmax(axis=1)
        own = np.take_along_axis(scores, best[:, None], axis=1)
        ranks = np.count_nonzero(scores >= own, axis=1) * (n / len(sample.lists))
        found.append(Regional(far, ranks, sample.lists[best]))
    return Regional(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def mean_residual(index: Lists, rows: npt.NDArray[np.generic], slots: Slots) -> float:
    """Return the mean squared residual of some of these documents."""
    some = np.asarray(rows[slots[:: max(1, len(slots) // _RESIDUALS)]], np.float32)
    if not len(some):
        return 0.0
    residuals = some - index.space.centroids[index.space.assign_lists(some)]
    return float(np.einsum("ij,ij->i", residuals, residuals).mean())


def _verify(
    tuning: Tuning, index: Lists, known: KnownNeighbours, search: Search, recall: float
) -> npt.NDArray[np.float64]:
    """Return rows of ``Tuning.measured``: the recall of whole searches."""
    measured = []
    for k in [k for k in KS if k <= known.true.slots.shape[1]]:
        effort = tuning.choose_effort(index.space, recall, k, float(k))
        some = known.first(max(100, 30_000 // k))
        shares = np.ones(1) if effort is None else measure_recalls(search, some, k, effort)
        measured.append((k, shares.mean(), shares.std() / np.sqrt(len(shares)), len(some.queries)))
    return np.array(measured).reshape(-1, 4)


# Filters -------------------------------------------------------------------------------------------------

_FILTERED = 200  # queries


def measure_filtered(index: Lists, shares: tuple[float, ...], k: int) -> list[tuple[float, float, float]]:
    """Return shares of documents that pass random filters, the recall of the k nearest, and its error.

    Queries are those that measure the recall of all searches. Nothing is returned without stored vectors.
    """
    if not index.stored.has_vectors:
        return []
    rows, live = index.stored.rows.rows, np.flatnonzero(index.live.rows)
    metric, slots = index.space.metric, np.empty(0, np.int64)
    if index.queries is None:
        slots = _query_slots(live, with_newest=False)[0][:_FILTERED]
        queries = metric.restore(np.asarray(rows[slots], np.float32))
    else:
        queries = index.queries.reporting[:_FILTERED]
    prepared = metric.prepare_queries(queries).vectors
    order = np.random.default_rng(0).permutation(np.setdiff1d(live, slots))  # no filter lets a query pass
    measured = []
    for share in shares:
        passing = np.sort(order[: max(k, round(share * len(live)))])
        allowed = np.zeros(len(index), bool)
        allowed[passing] = True
        true = find_nearest(rows, passing, prepared, k, is_distance=metric.is_distance)
        found = index.search(queries, NearestParams(k), allowed).slots
        known = KnownNeighbours(prepared, slots, true, np.empty(0, np.int32), rows, metric.is_distance)
        found_shares = known.shares(found, k)
        error = found_shares.std() / np.sqrt(len(found_shares))
        measured.append((share, float(found_shares.mean()), float(error)))
    return measured


# Samples -------------------------------------------------------------------------------------------------

_HELD_OUT = 16  # one document of 16
_MIXING = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
_SAMPLED_NUMBERS, _MOST = 1 << 19, 4096


def _hashes(slots: Slots) -> npt.NDArray[np.uint64]:
    values = (slots.astype(np.uint64) + np.uint64(1)) * _MIXING[0]
    values ^= values >> np.uint64(31)
    return np.asarray(values * _MIXING[1])


def is_held_out(slots: Slots) -> Mask:
    """Return which documents lists are not trained on: to measure searches, they are like new queries.

    >>> is_held_out(np.arange(100_000)).mean().round(2)
    np.float64(0.06)
    """
    return np.asarray(_hashes(slots) >> np.uint64(32) < np.uint64((1 << 32) // _HELD_OUT))


def drop_held_out(slots: Slots) -> Slots:
    """Return the documents to train lists on: all if no others are left.

    >>> slots = np.arange(160)
    >>> len(drop_held_out(slots)), len(drop_held_out(slots[is_held_out(slots)]))
    (152, 8)
    """
    known = slots[~is_held_out(slots)]
    return known if len(known) else slots


def random_order(slots: Slots) -> Slots:
    """Return slots in an order that depends on nothing else.

    >>> random_order(np.arange(5)).tolist() == random_order(np.arange(5)[::-1]).tolist()
    True
    """
    return np.asarray(slots[np.argsort(_hashes(slots), kind="stable")])


def sample_slots(n_slots: int, n_features: int) -> Slots:
    """Return ascending slots, one from each of equal parts: as many as can be compared in little time."""
    n = min(n_slots, _MOST, max(512, _SAMPLED_NUMBERS // n_features))
    starts = np.arange(n + 1) * n_slots // max(1, n)
    return starts[:-1] + (_hashes(starts[:-1]) % np.maximum(1, np.diff(starts)).astype(np.uint64)).astype(
        np.int64
    )
