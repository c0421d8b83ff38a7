"""Choose the lists that a search visits, from documents whose true neighbours are known.

A list whose routing score is ``gap`` below that of the best list has the weight (1 + gap / c)^-power; the
scale c is in ``native/blocks.h``. The *lift* of a list is its weight, divided by the mean weight of all live
documents. A search visits the lists whose lift reaches a bound, so that a query with many lists at about the
same distance visits more of them. At equal recall this visits 17 to 25 % fewer documents than a fixed number
of lists (docs/decisions/0001-lists-by-weight.md).

The bound that finds a share of the k nearest is measured for several ranks k. A filter or deletions that
leave every tenth document make the k nearest of them as hard to find as the 10 k nearest of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from posh._model_files import Arrays, require_array
from posh.index.nearest.space import Space
from posh.preprocess import Float32

__all__ = [
    "ALL_LISTS",
    "RANKS",
    "Among",
    "Neighbours",
    "Reach",
    "ReachTable",
    "Regional",
    "lifts_of",
    "measure_reach",
    "scales_of",
]

Doubles = npt.NDArray[np.float64]
Lists = npt.NDArray[np.int32]

RANKS = (1, 3, 10, 30, 100, 300, 1000)
"""Ranks of neighbours that are known exactly."""

_RECALLS = np.array([0.5, 0.7, 0.8, 0.85, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.985, 0.99, 0.995, 0.999])
_POWERS = (3, 5, 8, 12, 18, 27)
_TYPICAL = 0.95  # recall at which powers are compared
_COLUMNS = 64  # neighbours of each query that are looked at for a rank
_COUNTED = 200  # queries with which visited documents are counted
_SMALLEST = 1e-30  # lift that the kernels can tell from 0
_NONE = 1e-300  # a lift whose logarithm is a number
_LEAST_REGIONAL = 100  # documents of a rank


class Reach(NamedTuple):
    """The rule that selects the lists of a search, and the average share of all documents in them."""

    power: int
    lift: float
    share: float


ALL_LISTS = Reach(1, 0.0, 1.0)


class Regional(NamedTuple):
    """The nearest document of each query (row) in some region: its rank among all documents, and its list.

    Of the documents of its list it is one of the nearest to the query, so that its list is farther away than
    the lists of other documents of that rank.
    """

    rows: npt.NDArray[np.int64]
    ranks: Doubles
    lists: Lists

    def near(self, rank: float) -> Regional:
        """Return those of about this rank."""
        chosen = (self.ranks > rank / 3) & (self.ranks <= rank)
        return Regional(self.rows[chosen], self.ranks[chosen], self.lists[chosen])


class Neighbours(NamedTuple):
    """The lists of the true neighbours of queries, nearest first.

    ``nearest`` (m, depth) has all of them, ``sampled`` (m, s) those in a random sample of ``n`` documents.
    ``groups`` are row numbers of queries; the recall must be reached by each group. ``regional`` are
    neighbours among the documents of a region only, as a filter may leave them.
    """

    nearest: Lists
    sampled: Lists
    n: int
    groups: list[npt.NDArray[np.int64]]
    regional: Regional

    def ranks(self) -> list[int]:
        """Ranks to measure: up to the depth exactly, then three times as far each, up to half of all."""
        ranks = [rank for rank in RANKS if rank <= self.nearest.shape[1]]
        while ranks and 3 * ranks[-1] <= self.n // 2 and self.sampled.shape[1]:
            ranks.append(3 * ranks[-1])
        return ranks

    def around(self, rank: int, *, tail: bool) -> Lists:
        """Lists (m, c) of neighbours up to this rank, or of its second half only."""
        known, place = self.nearest, rank
        if rank > known.shape[1]:
            known = self.sampled
            place = min(max(1, round(rank * known.shape[1] / self.n)), known.shape[1])
        first = place // 2 if tail else 0
        columns = np.unique(np.linspace(first, place - 1, min(_COLUMNS, place - first)).astype(np.int64))
        return known[:, columns]


class Among(IntEnum):
    """The documents among which neighbours up to a rank are searched for."""

    ALL = 0
    RANDOM = 1  # a random sample of all: neighbours have ranks up to that of the last one
    REGION = 2  # a region that may be far from the query


@dataclass(frozen=True, eq=False)
class ReachTable:
    """Measured bounds: for each of ``ranks`` (n,) ascending, each member of :class:`Among`, each recall (r,).

    ``powers``, ``lifts`` and ``shares`` are (n, 3, r). A lift below ``_SMALLEST`` stands for all lists.
    """

    ranks: Doubles
    recalls: Doubles
    powers: Doubles
    lifts: Doubles
    shares: Doubles

    def choose(self, rank: float, recall: float, among: Among = Among.ALL) -> Reach:
        """Return the lists to visit for the neighbours up to a rank."""
        row = int(np.searchsorted(self.ranks, rank * (1 - 1e-9)))
        if row == len(self.ranks) or recall > self.recalls[-1]:
            return ALL_LISTS
        place = min(int(np.searchsorted(self.recalls, recall)), len(self.recalls) - 1)
        power, lift, share = (table[row, among] for table in (self.powers, self.lifts, self.shares))
        if lift[place] < _SMALLEST:
            return ALL_LISTS
        found = lift[place], share[place]
        if place and power[place - 1] == power[place]:
            at, known = np.log(1 - max(recall, self.recalls[0])), np.log(1 - self.recalls[[place, place - 1]])
            ends = [place, place - 1]
            found = np.exp(np.interp(at, known, np.log(lift[ends]))), np.interp(at, known, share[ends])
        return Reach(int(power[place]), float(found[0]), float(found[1]))

    def to_arrays(self) -> Arrays:
        """Return the arrays of a file."""
        return {f"reach_{name}": value for name, value in vars(self).items()}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> ReachTable:
        """Return the table of :meth:`to_arrays`; raise ValueError or KeyError if it is wrong."""
        ranks = require_array(arrays, "reach_ranks", np.float64, (None,))
        recalls = require_array(arrays, "reach_recalls", np.float64, (None,))
        n, r = len(ranks), len(recalls)
        powers = require_array(arrays, "reach_powers", np.float64, (n, len(Among), r))
        lifts = require_array(arrays, "reach_lifts", np.float64, (n, len(Among), r))
        shares = require_array(arrays, "reach_shares", np.float64, (n, len(Among), r))
        if not n or not r or (np.diff(ranks) <= 0).any() or (np.diff(recalls) <= 0).any():
            raise ValueError("expected ascending ranks and recalls, found others")
        if (
            recalls[0] <= 0
            or recalls[-1] >= 1
            or (powers < 1).any()
            or (powers > 1000).any()
            or (lifts <= 0).any()
        ):
            raise ValueError(
                "expected recalls between 0 and 1, powers and positive lifts, found other numbers"
            )
        return cls(ranks, recalls, powers, lifts, shares)


def scales_of(space: Space, queries: Float32, routing: Float32) -> Doubles:
    """Return the scale of gaps (m,) for prepared queries (m, d) and their routing scores (m, n_lists)."""
    spread = space.spread
    if not space.metric.is_distance:
        return np.asarray(np.linalg.norm(queries.astype(np.float64), axis=1) * spread)
    difference = queries - space.centroids[routing.argmax(axis=1)]
    return np.asarray(0.5 * (spread**2 + np.einsum("ij,ij->i", difference, difference, dtype=np.float64)))


def lifts_of(routing: Float32, scales: Doubles, n_live: Doubles, power: int) -> Doubles:
    """Return the lifts (m, n_lists) of lists with ``n_live`` (n_lists,) documents."""
    gaps = routing.max(axis=1, keepdims=True) - routing.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        weights = (1 + gaps / scales[:, None]) ** -float(power)
    weights[~(scales > 0)] = 1.0  # gaps say nothing
    weights[:, n_live == 0] = 0.0
    return np.asarray(weights * (n_live.sum() / (weights @ n_live))[:, None])


class Coverage:
    """The mean share of documents in the lists whose lifts (m, n_lists) reach a bound, and the inverse."""

    def __init__(self, lifts: Doubles, n_live: Doubles) -> None:
        some = lifts[:: max(1, len(lifts) // _COUNTED)]
        order = np.argsort(-some, axis=None)
        self._lifts = some.ravel()[order]  # descending
        counts = np.broadcast_to(n_live, some.shape).ravel()[order]
        self._shares = np.cumsum(counts) / (len(some) * n_live.sum())

    def share(self, bounds: Doubles) -> Doubles:
        """Return the shares (r,) for bounds (r,)."""
        n_reaching = np.searchsorted(-self._lifts, -bounds, "right")
        return np.asarray(np.where(n_reaching > 0, self._shares[n_reaching - 1], 0.0))

    def bound(self, shares: Doubles) -> Doubles:
        """Return the highest bounds (r,) for which the shares reach these (r,)."""
        place = np.searchsorted(self._shares, shares * (1 - 1e-9))
        return np.asarray(self._lifts[np.minimum(place, len(self._lifts) - 1)])


def measure_reach(routing: Float32, scales: Doubles, n_live: Doubles, neighbours: Neighbours) -> ReachTable:
    """Measure which lists find the neighbours of queries with these routing scores (m, n_lists)."""
    lifts = {power: lifts_of(routing, scales, n_live, power) for power in _POWERS}
    coverage = {power: Coverage(own, n_live) for power, own in lifts.items()}
    ranks = neighbours.ranks()
    powers, bounds, shares = np.empty((3, len(ranks), len(Among), len(_RECALLS)))
    for row, rank in enumerate(ranks):
        nearest = neighbours.around(rank, tail=False)
        power = _best_power(lifts, coverage, nearest, neighbours.groups)
        own = lifts[power]
        found = {
            Among.ALL: _bounds(own, nearest, neighbours.groups, _RECALLS),
            Among.RANDOM: _bounds(own, neighbours.around(rank, tail=True), neighbours.groups, _RECALLS),
            Among.REGION: _regional_bounds(own, neighbours.regional.near(rank), _RECALLS),
        }
        found[Among.REGION] = np.minimum(found[Among.RANDOM], found[Among.REGION])
        for among in Among:
            bound = np.minimum.accumulate(found[among])
            if row:  # no rank needs less than a lower one, whose power may differ
                bound = np.minimum(bound, coverage[power].bound(shares[row - 1, among]))
            powers[row, among] = power
            bounds[row, among] = np.maximum(bound, _NONE)
            shares[row, among] = coverage[power].share(bounds[row, among])
    return ReachTable(np.array(ranks, np.float64), _RECALLS, powers, bounds, shares)


def _best_power(
    lifts: dict[int, Doubles],
    coverage: dict[int, Coverage],
    lists: Lists,
    groups: list[npt.NDArray[np.int64]],
) -> int:
    """Return the power whose lifts (m, n_lists) visit the fewest documents."""

    def share(power: int) -> float:
        bound = _bounds(lifts[power], lists, groups, np.array([_TYPICAL]))
        return float(coverage[power].share(bound)[0])

    return min(lifts, key=share)


def _bounds(lifts: Doubles, lists: Lists, groups: list[npt.NDArray[np.int64]], recalls: Doubles) -> Doubles:
    """Return the lifts (r,) that find these shares of the neighbours in every group of queries.

    The share must be reached with one standard error to spare.
    """
    own = np.take_along_axis(lifts, lists, axis=1)
    found = []
    for group in groups:
        some = own[group]
        first = np.quantile(some, 1 - recalls)
        errors = [_standard_error(some >= bound, lists[group]) for bound in first]
        found.append(np.quantile(some, np.maximum(0, 1 - recalls - errors)))
    return np.asarray(np.maximum(np.min(found, axis=0) * (1 - 1e-6), _NONE))


def _standard_error(is_found: npt.NDArray[np.bool_], lists: Lists) -> float:
    """Return the standard error of the mean: neighbours of a query, or in a list, are found together.

    With inner products a few documents may be the nearest of most queries, which then visit their lists or
    do not: many queries say little.
    """
    by_query = is_found.mean(axis=1).std() / np.sqrt(len(is_found))
    deviations = (is_found - is_found.mean()).ravel()
    by_list = np.sqrt((np.bincount(lists.ravel(), weights=deviations) ** 2).sum()) / is_found.size
    return float(max(by_query, by_list))


def _regional_bounds(lifts: Doubles, regional: Regional, recalls: Doubles) -> Doubles:
    """Return the lifts (r,) that find these shares of documents; infinite if there are too few to tell."""
    if len(regional.rows) < _LEAST_REGIONAL:
        return np.full(len(recalls), np.inf)
    errors = np.sqrt(recalls * (1 - recalls) / len(np.unique(regional.rows)))
    own = lifts[regional.rows, regional.lists]
    return np.asarray(
        np.maximum(np.quantile(own, np.maximum(0, 1 - recalls - errors)) * (1 - 1e-6), _SMALLEST)
    )
