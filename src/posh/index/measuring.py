"""Measure an index with its own documents as queries."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from posh import kernels
from posh._threads import cores
from posh.index.brute_force import nearest
from posh.index.calibration import Calibration, with_limits
from posh.index.code_index import SlotScores
from posh.index.reach import RANKS, Neighbours, Reach, Regional, lifts_of, measure_reach, scales_of
from posh.index.samples import is_held_out, random_order, sample_slots
from posh.index.sliced import Slots
from posh.index.space import Space
from posh.index.tuning import KS, Effort, KnownNeighbours, Search, Tuning, recalls_of, tune, without_own
from posh.preprocess import Float32

if TYPE_CHECKING:
    from posh.index.blocks import BlockIndex

__all__ = ["mean_residual", "measure", "visited_share"]

_QUERIES = 1000  # of the first measurement
_LEAST_QUERIES = 500  # if fewer documents are held out from training, others are queries too
_NEWEST = 5  # part of the documents that must reach the recall by itself
_ALL_QUERIES, _NEW_QUERIES = 400, 250  # of later ones, of all and of the newest documents
_REGIONS = np.tile([0.02, 0.1, 0.3], 6)  # shares of all lists
_RESIDUALS = 2000  # documents whose residuals are looked at


def measure(index: BlockIndex, recall: float) -> tuple[Calibration, Tuning]:
    """Measure the searches of an index whose counts are calibrated.

    If the index was measured before, its newest documents must reach the recall by themselves: they may be of
    another kind, and so may be the queries to come.
    """
    live = np.flatnonzero(index.live.rows)
    slots, groups = _query_slots(live, with_newest=index.was_measured)
    rows = index.stored.rows.rows if index.stored.has_vectors else index.vectors(np.arange(len(index)))
    list_of = np.empty(len(index), np.int32)
    index.blocks.lists_of_slots(list_of)
    known = _known_neighbours(index, rows, live, slots, list_of)
    assert index.calibration is not None
    calibration = with_limits(index.calibration, index.space, known.queries, known.true.scores)
    return calibration, _tuning(replace(index, calibration=calibration), recall, known, rows, list_of, groups)


def _tuning(
    index: BlockIndex,
    recall: float,
    known: KnownNeighbours,
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

    def search(vectors: Float32, k: int, effort: Effort) -> SlotScores:
        # With the first limit of k: that of k + 1 could be much lower.
        settings = index.settings(k, effort, n_more=1)
        return index.stored.search(index.blocks, settings, vectors, k + 1, cores())

    def visited(chosen: Reach, k: int) -> npt.NDArray[np.float64]:
        lifts = lifts_of(routing, scales, n_live, chosen.power)
        return np.asarray((np.take_along_axis(lifts, known.lists[:, :k], axis=1) >= chosen.lift).mean(axis=1))

    codes = tune(search, known, reach, visited, groups)
    tuning = Tuning(n, len(known.queries), reach, codes, np.empty((0, 4)), 0.0)
    share = visited_share(tuning, index.space, recall)
    trained = share if index.tuning is None else index.tuning.trained_share
    return replace(tuning, trained_share=trained, measured=_verified(tuning, index, known, search, recall))


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
    index: BlockIndex,
    rows: npt.NDArray[np.generic],
    live: Slots,
    slots: Slots,
    list_of: npt.NDArray[np.int32],
) -> KnownNeighbours:
    """Return documents as queries with their true neighbours."""
    queries = index.space.metric.like_queries(np.asarray(rows[slots], np.float32))
    depth = max(1, min(RANKS[-1], len(live) - 1))
    true = nearest(rows, live, queries, depth + 1, is_distance=index.space.metric.is_distance)
    others = without_own(true, slots, depth)
    is_distance = index.space.metric.is_distance
    return KnownNeighbours(queries, slots, others, list_of[others.slots], rows, is_distance)


class _Sample(NamedTuple):
    """A random sample of documents: their lists (s,), and their scores (m, s), -inf for the query itself."""

    lists: npt.NDArray[np.int32]
    scores: Float32

    @classmethod
    def of(
        cls,
        index: BlockIndex,
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
        similarity = space.list_scores(space.centroids[rng.integers(space.n_lists, size=1)])[0]
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


def mean_residual(index: BlockIndex, rows: npt.NDArray[np.generic], slots: Slots) -> float:
    """Return the mean squared residual of some of these documents."""
    some = np.asarray(rows[slots[:: max(1, len(slots) // _RESIDUALS)]], np.float32)
    if not len(some):
        return 0.0
    residuals = some - index.space.centroids[index.space.lists_of(some)]
    return float(np.einsum("ij,ij->i", residuals, residuals).mean())


def visited_share(tuning: Tuning, space: Space, recall: float) -> float:
    """Return the share of documents that a search for ten neighbours visits."""
    effort = tuning.effort(space, recall, 10, 10.0)
    return 1.0 if effort is None else effort.reach.share


def _verified(
    tuning: Tuning, index: BlockIndex, known: KnownNeighbours, search: Search, recall: float
) -> npt.NDArray[np.float64]:
    """Return rows of ``Tuning.measured``: the recall of whole searches."""
    measured = []
    for k in [k for k in KS if k <= known.true.slots.shape[1]]:
        effort = tuning.effort(index.space, recall, k, float(k))
        some = known.first(max(100, 30_000 // k))
        shares = np.ones(1) if effort is None else recalls_of(search, some, k, effort)
        measured.append((k, shares.mean(), shares.std() / np.sqrt(len(shares)), len(some.queries)))
    return np.array(measured).reshape(-1, 4)
