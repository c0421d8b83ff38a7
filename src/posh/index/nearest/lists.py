"""Inverted lists of vectors: a search compares codes and 8-bit numbers of some lists before vectors.

The algorithm is in ``native/blocks.h`` and ``native/block_search.h``.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from posh import _native, kernels
from posh._model_files import Arrays, require_array
from posh._runtime import one_blas_thread, resolve_threads
from posh.errors import RecallWarning
from posh.index.arrays import AppendOnlyArray, Mask, Slots, get_fields, zero_deleted
from posh.index.brute_force import find_nearest
from posh.index.hits import SlotScores
from posh.index.nearest.calibration import Asked, Calibration, calibrate, spread_evenly, with_limits
from posh.index.nearest.drift import NO_DRIFT, Drift
from posh.index.nearest.graph import Graph, GraphEffort
from posh.index.nearest.measuring import (
    Effort,
    KnownNeighbours,
    Measured,
    Measurements,
    Tuning,
    drop_held_out,
    mean_residual,
    measure,
    sample_slots,
)
from posh.index.nearest.metric import Metric, as_reals
from posh.index.nearest.options import NearestOptions, NearestParams
from posh.index.nearest.queries import NO_WATCH, OwnQueries, QueryWatch
from posh.index.nearest.reach import ALL_LISTS, Among
from posh.index.nearest.rebalance import LEAST_MEAN, is_unbalanced, rebalance
from posh.index.nearest.space import CodeShape, Space, choose_n_lists
from posh.index.nearest.vectors import (
    VectorStore,
    damaged_slot,
    decode_vectors,
    erase_deleted,
    require_precision,
)
from posh.preprocess import Float32

__all__ = ["FEW", "ROWS_AT_ONCE", "Lists", "n_lists_for", "run_search", "training_size"]

FEW = 2048
"""Up to this number of documents, a search compares all vectors: faster than lists, and exact."""

ROWS_AT_ONCE = 524_288
"""Documents that are added at a time: an addition copies the blocks that it extends."""

_NO_VECTORS = np.empty((0, 1))  # of any width
_LEAST_NEW, _NEW = 3, 2.0  # lists that one addition may replace: at least, and per list of the mean size
_LEAST_ENERGY = 0.75  # share of the squares of residuals: of training documents, the reduction keeps 0.9
_DEEP = 1001  # documents that are found to learn first limits from
_CAREFUL = 4.0  # slack
_REGION_SLACK, _REGION_OVERSAMPLE = 3.0, 3.0  # codes were measured without a filter; far documents may differ
_REGION_MISSED = 0.3  # of the neighbours that may be missed: filters can be harder than the measured regions
_QUERIES_AT_ONCE = 1024  # that are compared with the sample
_TYPICAL_K, _MANY_QUERIES = 10, 300  # with fewer, the interval of the recall is wide
_ROUNDING = 1e-5  # of scores, relative to the largest
_VISIT = 7.0  # the time to visit a document in a list, in that to compare a number of a stored vector
_MOST_EFFORTS = 1000  # that are kept
_LEAST_IN_GRAPH = 0.25  # share of documents that pass a filter: with fewer, the lists are searched
_BLOCK_ARRAYS: dict[str, Any] = {
    "blocks": (np.uint8, (None,)),
    "block_table": (np.int64, (None, 3)),
    "block_groups": (np.float32, (None, 24)),
    "block_live": (np.uint64, (None,)),
}


def n_lists_for(options: NearestOptions, n: int) -> int:
    """Return the number of lists of n documents."""
    return min(options.n_lists or choose_n_lists(n), max(1, n))


def training_size(options: NearestOptions, n: int) -> int:
    """Return the number of vectors to train on for n documents: enough for each list and the calibration."""
    return max(10_000, 100 * n_lists_for(options, n))


@dataclass(frozen=True, eq=False)
class Lists:
    """Documents by slot in lists of blocks, immutable: changes return a new object that shares the rest.

    ``live`` is the mask of slots that were not deleted. ``calibration`` and ``tuning`` are None until there
    are enough documents to measure; ``drift`` counts writes since then. ``graph`` is another structure for
    the same documents, if the options ask for one. Searches are measured with ``queries`` of the user, or
    with held-out documents if there are none; ``watch`` warns of searches with others.
    """

    options: NearestOptions
    space: Space
    blocks: _native.Blocks
    stored: VectorStore
    live: AppendOnlyArray
    n_live: int = 0
    calibration: Calibration | None = None
    tuning: Tuning | None = None
    drift: Drift = NO_DRIFT
    was_measured: bool = False
    graph: Graph | None = None
    queries: OwnQueries | None = None
    watch: QueryWatch = NO_WATCH

    # Training --------------------------------------------------------------------------------------

    @classmethod
    def train(
        cls,
        options: NearestOptions,
        X: npt.NDArray[Any],
        n: int,
        also: npt.NDArray[Any] = _NO_VECTORS,
        shape: CodeShape | None = None,
    ) -> Self:
        """Return lists without documents for ``n`` documents like X (m, d); ``also`` must fit the metric."""
        rng = np.random.default_rng(options.random_state)
        known = drop_held_out(np.arange(len(X)))
        sample = X[np.sort(rng.permutation(known)[: training_size(options, n)])]
        metric = Metric.of(options.metric, sample).enlarge(also)
        prepared = metric.prepare(sample)
        require_precision(options.store, metric, prepared)
        may_reduce = options.store != "int8"
        n_lists = n_lists_for(options, n)
        return cls._empty(
            options, Space.train(metric, shape or CodeShape(), prepared, n_lists, n, rng, may_reduce)
        )

    @classmethod
    def _empty(cls, options: NearestOptions, space: Space) -> Self:
        stored = VectorStore.empty(options.store, space.n_features)
        return cls(
            options, space, _native.Blocks(space.native), stored, AppendOnlyArray.of(np.empty(0, bool))
        )

    @classmethod
    def from_trained_state(cls, options: NearestOptions, state: Arrays) -> Self:
        """Return lists without documents from the arrays of :meth:`trained_state`."""
        empty = cls._empty(options, Space.from_arrays(options.metric, state))
        if "drift" not in state:  # files of older versions: measured again when there are documents
            return empty
        queries = None
        if "queries_choosing" in state:
            queries = OwnQueries.from_arrays(state, empty.space.n_features)
        calibration = Calibration.from_arrays(state) if "calibration" in state else None
        tuning = Tuning.from_arrays(state) if "tuned_with" in state else None
        drift, was_measured = Drift.from_arrays(state), calibration is not None
        return replace(
            empty,
            calibration=calibration,
            tuning=tuning,
            drift=drift,
            was_measured=was_measured,
            queries=queries,
            watch=NO_WATCH if tuning is None else QueryWatch(tuning.low_score),
        )

    def trained_state(self) -> Arrays:
        """Return lists, projection and measurements, by name."""
        arrays = self.space.to_arrays()
        for part in (self.calibration, self.tuning, self.queries):
            arrays |= {} if part is None else part.to_arrays()
        return arrays | self.drift.to_arrays()

    # Searching -------------------------------------------------------------------------------------

    def search(self, X: npt.NDArray[Any], params: NearestParams, allowed: Mask | None) -> SlotScores:
        """Find the ``params.k`` nearest documents of queries (m, d), with the scores of the metric."""
        if allowed is not None:
            return self._search_filtered(X, params, allowed)
        search = self.prepare(params)
        if search is None:
            return self._compare_all(X, params, None)
        queries = as_reals(X)
        slots, scores, n_short = self._run(search, queries)
        if n_short:
            self.complete(queries, params, slots, scores)
        return SlotScores(slots, scores)

    def prepare(self, params: NearestParams, ids: Slots | None = None) -> _native.PreparedSearch | None:
        """Return a search with these parameters; None if it compares all vectors or has too few documents.

        It finds slots, or the ``ids`` (n_slots,) of these slots.
        """
        in_graph = self.choose_graph_effort(params)
        if in_graph is not None:
            return self._prepare_graph(params, in_graph, ids)
        effort = self.choose_effort(params)
        return None if effort is None or params.k > self.n_live else self._prepare_blocks(params, effort, ids)

    def _prepare_graph(
        self, params: NearestParams, effort: GraphEffort, ids: Slots | None = None
    ) -> _native.PreparedSearch:
        assert self.graph is not None
        live = None if self.n_live == len(self) else self.live.rows.view(np.uint8)
        return self.graph.native.prepare(
            _native.GraphSettings(*effort),
            self.space.metric.native,
            self.stored.native,
            live,
            ids,
            params.k,
            params.threads,
            kernels.active(),
        )

    def _prepare_blocks(
        self, params: NearestParams, effort: Effort, ids: Slots | None = None
    ) -> _native.PreparedSearch:
        return self.blocks.prepare(
            self.settings(params.k, effort),
            self.space.metric.native,
            self.stored.native,
            ids,
            params.k,
            params.threads,
            kernels.active(),
        )

    def _run(
        self, search: _native.PreparedSearch, queries: npt.NDArray[Any], allowed: Mask | None = None
    ) -> tuple[Slots, Float32, int]:
        found = run_search(search, queries, allowed)
        if found is None:
            raise self.space.metric.too_large(queries)
        return found

    def complete(
        self,
        X: npt.NDArray[Any],
        params: NearestParams,
        slots: Slots,
        scores: Float32,
        ids: Slots | None = None,
    ) -> None:
        """Search the lists for those queries for which the graph found fewer than k documents.

        ``slots`` (m, k) are ``ids`` of slots instead if these are given.
        """
        rows = np.flatnonzero(slots[:, -1] < 0)
        effort, queries = self.choose_effort(params), X.reshape(len(slots), -1)[rows]
        if effort is None:
            found = self._compare_all(queries, params, None)
        else:
            found = self._search_blocks(queries, params, effort)
        slots[rows] = found.slots if ids is None else np.where(found.slots < 0, -1, ids[found.slots])
        scores[rows] = found.scores

    def choose_effort(
        self,
        params: NearestParams,
        n_allowed: int | None = None,
        rank: float | None = None,
        among: Among | None = None,
    ) -> Effort | None:
        """Return the effort of a search; None if it compares all vectors, or all that pass a filter.

        With a filter, ``n_allowed`` documents pass. ``rank`` is that of the k-th of them among all documents,
        by default as if they were a random sample. ``among`` is by default all documents, or with a filter a
        random sample.
        """
        if params.exact and not self.stored.has_vectors:
            raise ValueError(
                "expected an index that stores vectors for exact=True, got store='int8': "
                "build it with store='float32'"
            )
        n = self.n_live if n_allowed is None else n_allowed
        if self.stored.has_vectors and (params.exact or n <= max(FEW, params.k)):
            return None
        if params.sets_effort:
            return self._effort_by_hand(params, n_allowed)
        effort = None
        if self.tuning is not None:
            among = (Among.ALL if n_allowed is None else Among.RANDOM) if among is None else among
            rank = params.k * self.tuning.n_docs / max(1, n) if rank is None else rank
            recall = self.wanted_recall(params.recall, among)
            effort = self._choose_measured_effort(self.tuning, recall, params.k, rank, among)
        if effort is None and not self.stored.has_vectors:  # the best that is possible without vectors
            return self.widest_effort()
        if effort is not None and n_allowed is not None and self._is_slower_than_comparing(effort, n_allowed):
            return None
        return effort

    def wanted_recall(self, recall: float | None, among: Among = Among.ALL) -> float:
        """Return the recall that efforts are chosen for: that of a search, or else of the index."""
        wanted = self.drift.with_margin(recall or self.options.recall)
        return 1 - (1 - wanted) * _REGION_MISSED if among is Among.REGION else wanted

    def _choose_measured_effort(
        self, tuning: Tuning, recall: float, k: int, rank: float, among: Among
    ) -> Effort | None:
        """Return ``tuning.choose_effort``, chosen once: for one query, this takes as long as the search."""
        efforts, key = self._efforts, (recall, k, rank, among)
        with contextlib.suppress(KeyError):
            return efforts[key]
        effort = tuning.choose_effort(self.space, recall, k, rank, among)
        if len(efforts) >= _MOST_EFFORTS:
            efforts.clear()
        efforts[key] = effort
        return effort

    @cached_property
    def _efforts(self) -> dict[tuple[float, int, float, Among], Effort | None]:
        return {}

    def _is_slower_than_comparing(self, effort: Effort, n_allowed: int) -> bool:
        """Return whether a search with a filter takes longer than comparing the documents that pass."""
        n_numbers = n_allowed * self.space.n_features
        return self.stored.has_vectors and n_numbers < _VISIT * effort.reach.share * self.n_live

    def widest_effort(self) -> Effort:
        """Return the effort of a search in all lists."""
        return Effort(self.space.n_lists, ALL_LISTS, _CAREFUL, 8.0)

    def choose_graph_effort(self, params: NearestParams) -> GraphEffort | None:
        """Return the effort of a search in the graph; None if the search does not use it."""
        graph = self.graph
        if graph is None or params.exact or params.sets_effort or not graph.fits(len(self), self.n_live):
            return None
        if params.k > self.n_live or self.n_live <= FEW:
            return None
        return graph.choose_effort(self.drift.with_margin(params.recall or self.options.recall), params.k)

    def _choose_filtered_graph_effort(self, params: NearestParams, n_allowed: int) -> GraphEffort | None:
        """Return the effort with which the graph finds k of a random sample; None if lists are better."""
        if n_allowed < _LEAST_IN_GRAPH * self.n_live:
            return None
        return self.choose_graph_effort(params.with_k(math.ceil(params.k * self.n_live / n_allowed)))

    def _effort_by_hand(self, params: NearestParams, n_allowed: int | None) -> Effort:
        """Return the effort of the parameters; a filter that leaves a tenth makes ``n_probe`` ten times."""
        effort = Effort.by_hand(params)
        if n_allowed is None:
            return effort
        n_probe = math.ceil(effort.n_probe * self.n_live / max(1, n_allowed))
        return effort._replace(n_probe=min(n_probe, self.space.n_lists))

    def _search_filtered(self, X: npt.NDArray[Any], params: NearestParams, allowed: Mask) -> SlotScores:
        """Find the nearest of the documents that pass a filter.

        The effort depends on the rank of the k-th of them among all documents. The first round assumes that
        they are a random sample; if many pass, it searches the graph. If the k-th score is lower than that of
        a random sample, a second round visits the lists for the rank of that score. If the filter depends on
        the vectors, or if the score is lower than by chance, it does so as if the documents that pass were a
        region.
        """
        n_allowed = int(np.count_nonzero(allowed & self.live.rows))
        effort = self.choose_effort(params, n_allowed)
        if effort is None:
            return self._compare_all(X, params, allowed)
        depends = self.depends_on_vectors(allowed)
        in_graph = None if depends else self._choose_filtered_graph_effort(params, n_allowed)
        if in_graph is None:
            found = self._search_blocks(X, params, effort, allowed)
        else:
            search = self._prepare_graph(params, in_graph)
            found = SlotScores(*self._run(search, as_reals(X), allowed & self.live.rows)[:2])
        if effort.n_probe or self.tuning is None:
            return found
        assumed = params.k * self.tuning.n_docs / max(1, n_allowed)
        ranks = np.maximum(self._estimate_ranks(X, found.scores[:, -1]), assumed)
        known = self.tuning.reach.ranks
        rows = np.searchsorted(known, ranks)
        in_region = np.full(len(ranks), depends) | (ranks > self._highest_rank_by_chance(assumed))
        again = in_region | (rows > np.searchsorted(known, assumed))
        if not again.any():
            return found
        for row, is_region in np.unique(np.stack([rows, in_region], axis=1)[again], axis=0).tolist():
            some = np.flatnonzero(again & (rows == row) & (in_region == is_region))
            rank = known[row] if row < len(known) else np.inf
            among = Among.REGION if is_region else Among.RANDOM
            found.slots[some], found.scores[some] = self._search_again(
                X[some], params, allowed, n_allowed, rank, among
            )
        return found

    def _search_again(
        self,
        X: npt.NDArray[Any],
        params: NearestParams,
        allowed: Mask,
        n_allowed: int,
        rank: float,
        among: Among,
    ) -> SlotScores:
        effort = self.choose_effort(params, n_allowed, rank, among)
        if effort is None:
            return self._compare_all(X, params, allowed)
        if among is Among.REGION:
            slack, oversample = max(effort.slack, _REGION_SLACK), max(effort.oversample, _REGION_OVERSAMPLE)
            effort = effort._replace(slack=slack, oversample=oversample)
        return self._search_blocks(X, params, effort, allowed)

    def depends_on_vectors(self, allowed: Mask) -> bool:
        """Return whether a filter selects lists differently from a random sample, by a chi-square test."""
        slots, lists = self._sampled
        counts = np.bincount(lists)
        passing = np.bincount(lists, weights=allowed[slots])
        share = passing.sum() / max(1, len(slots))
        expected = share * counts
        spread = np.maximum(expected * (1 - share), 1e-9)
        freedom = np.count_nonzero(counts) - 1
        if freedom < 1 or not 0 < share < 1:
            return False
        deviation = ((passing - expected) ** 2 / spread)[counts > 0].sum()
        return bool(deviation > freedom + 4 * math.sqrt(2 * freedom))

    @cached_property
    def _sampled(self) -> tuple[Slots, npt.NDArray[np.int32]]:
        """Slots of a random sample of documents, and their lists."""
        slots = sample_slots(len(self), self.space.n_features)
        slots = slots[self.live.rows[slots]]
        lists = np.empty(len(self), np.int32)
        self.blocks.lists_of_slots(lists)
        if lists[slots].min(initial=0) < 0:
            raise damaged_slot()
        return slots, lists[slots]

    @cached_property
    def _sampled_vectors(self) -> Float32:
        """Vectors (s, d) of the sample."""
        return self.vectors(self._sampled[0])

    @cached_property
    def _sampled_squares(self) -> Float32:
        """The squared lengths (s,) of these vectors."""
        return np.asarray(np.einsum("ij,ij->i", self._sampled_vectors, self._sampled_vectors))

    @property
    def n_sampled(self) -> int:
        """The size of the sample."""
        return len(self._sampled[0])

    def count_reaching(self, queries: Float32, bounds: Float32) -> npt.NDArray[np.float64]:
        """Estimate how many documents reach the bounds (m,), for prepared queries (m, d), from the sample."""
        counts = np.empty(len(queries))
        for start in range(0, len(queries), _QUERIES_AT_ONCE):
            part = slice(start, start + _QUERIES_AT_ONCE)
            counts[part] = self._count_sampled(self._score_sample(queries[part]), bounds[part])
        return counts

    def _score_sample(self, queries: Float32) -> Float32:
        """Return the scores (m, s) of the sample for prepared queries (m, d)."""
        sample = self._sampled_vectors
        with one_blas_thread:
            products = queries @ sample.T
        if self.space.metric.is_distance:
            squares = np.einsum("ij,ij->i", queries, queries)[:, None]
            products = 2 * products - self._sampled_squares - squares
        return np.asarray(products)

    def _estimate_ranks(self, X: npt.NDArray[Any], scores: Float32) -> npt.NDArray[np.float64]:
        """Estimate the ranks of these scores (m,) among all documents, from the sample."""
        metric = self.space.metric
        queries = metric.prepare_queries(X)
        sampled = metric.restore_scores(queries, self._score_sample(queries.vectors))
        return self._count_sampled(sampled, scores)

    def _count_sampled(self, sampled: Float32, bounds: Float32) -> npt.NDArray[np.float64]:
        """Estimate how many documents reach the bounds (m,), from the scores (m, s) of the sample."""
        # A document whose score is the bound may be in the sample: rounding, which differs between batches,
        # must not decide.
        rounding = _ROUNDING * np.abs(sampled).max(axis=1, initial=0.0, keepdims=True)
        counts = np.count_nonzero(sampled >= bounds[:, None] - rounding, axis=1)
        return np.asarray(counts * (self.n_live / max(1, self.n_sampled)))

    def _highest_rank_by_chance(self, rank: float) -> float:
        """Return the highest estimate of a rank that the choice of the sample explains."""
        step = self.n_live / max(1, self.n_sampled)  # ranks for each document of the sample
        return rank + (3 * math.sqrt(rank / step) + 1) * step

    def _compare_all(self, X: npt.NDArray[Any], params: NearestParams, allowed: Mask | None) -> SlotScores:
        metric = self.space.metric
        prepared = metric.prepare_queries(X)
        slots = np.flatnonzero(self.live.rows if allowed is None else allowed & self.live.rows)
        rows = self.stored.rows.rows
        found = find_nearest(rows, slots, prepared.vectors, params.k, is_distance=metric.is_distance)
        return SlotScores(found.slots, metric.restore_scores(prepared, found.scores))

    def _search_blocks(
        self, X: npt.NDArray[Any], params: NearestParams, effort: Effort, allowed: Mask | None = None
    ) -> SlotScores:
        slots, scores, _ = self._run(self._prepare_blocks(params, effort), as_reals(X), allowed)
        return SlotScores(slots, scores)

    def settings(self, k: int, effort: Effort, n_more: int = 0) -> _native.BlockSettings:
        """Return the kernel settings for the k nearest documents, and ``n_more``."""
        assert self.calibration is not None
        n_keep = math.ceil(min(k * effort.oversample, self.n_live)) + n_more
        bound = effort.reach.lift / max(1, self.n_live)
        n_probe = min(effort.n_probe, self.space.n_lists)
        asked = Asked(k, n_probe, effort.reach.power, bound, effort.slack, n_keep)
        return self.calibration.settings(self.space, asked)

    # State -----------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the slots in use, those of deleted documents included."""
        return self.live.n

    def vectors(self, slots: Slots) -> Float32:
        """Return prepared vectors by slot; decoded from 8 bits if none are stored."""
        if self.stored.has_vectors:
            return self.stored.at(slots)
        return decode_vectors(self.space, self.blocks, len(self))[slots]

    # Changing --------------------------------------------------------------------------------------

    def with_vectors(self, X: npt.NDArray[Any]) -> Self:
        """Add documents by their vectors X (n, d)."""
        lists = self._rescale(X) if self._has_other_scale(X) else self
        prepared = lists.space.metric.prepare(X)
        residual = mean_residual(lists, prepared, np.arange(len(prepared)))
        slots = np.arange(len(lists), len(lists) + len(X), dtype=np.uint32)
        return replace(
            lists,
            live=lists.live.with_rows(np.ones(len(X), bool)),
            n_live=lists.n_live + len(X),
            blocks=lists._extend(lists.blocks, prepared, slots),
            stored=lists.stored.with_rows(prepared),
            drift=lists.drift.with_added(len(X), residual),
        )

    def _has_other_scale(self, X: npt.NDArray[Any]) -> bool:
        """Return whether the few documents so far are stored in another scale than that of the many in X."""
        if not 0 < self.n_live < len(X) or not self.stored.has_vectors:
            return False
        metric = self.space.metric
        return not metric.is_like(Metric.of(metric.name, X[spread_evenly(len(X))]))

    def _rescale(self, X: npt.NDArray[Any]) -> Self:
        """Return the same documents at the same slots, in lists for documents like X."""
        vectors = self.space.metric.restore(self.stored.at(np.arange(len(self))))
        new = self.train(self.options, X, self.n_live + len(X), vectors, self.space.shape)
        prepared, live = new.space.metric.prepare(vectors), np.flatnonzero(self.live.rows)
        return replace(
            self,
            space=new.space,
            blocks=new._extend(new.blocks, prepared[live], live.astype(np.uint32)),
            stored=new.stored.with_rows(prepared),
            calibration=None,
            tuning=None,
            graph=None,
        )

    def _extend(
        self, blocks: _native.Blocks, prepared: Float32, slots: npt.NDArray[np.uint32]
    ) -> _native.Blocks:
        lists = self.space.assign_lists(prepared)
        vectors = np.ascontiguousarray(prepared)
        return blocks.with_documents(vectors, lists, slots, resolve_threads(), kernels.active())

    def without(self, slots: Slots) -> Self:
        """Delete the documents at these slots."""
        removed = np.zeros(len(self), np.uint8)
        removed[slots] = 1
        live = self.live.rows & (removed == 0)
        return replace(
            self,
            live=AppendOnlyArray.of(live),
            n_live=int(live.sum()),
            blocks=self.blocks.without(removed),
            drift=self.drift.with_deleted(len(slots)),
        )

    def compact(self) -> Self:
        """Return the same documents in new slots, without gaps."""
        vectors = self.vectors(np.flatnonzero(self.live.rows))
        slots = np.arange(len(vectors), dtype=np.uint32)
        compacted = replace(
            self,
            live=AppendOnlyArray.of(np.ones(len(vectors), bool)),
            blocks=self._extend(_native.Blocks(self.space.native), vectors, slots),
            stored=VectorStore.empty(self.stored.store, vectors.shape[1]).with_rows(vectors),
            graph=None,
        )
        return compacted.calibrate() if compacted._lacks_graph else compacted

    def detach(self) -> Self:
        """Return a copy whose later additions do not affect these lists."""
        return replace(self, live=self.live.detach(), stored=self.stored.detach())

    # Measuring -------------------------------------------------------------------------------------

    def measure_if_due(self, added: npt.NDArray[Any] | None = None) -> Self:
        """Measure again, and split and merge lists, if the documents have changed.

        Otherwise, extend the graph if there are many later documents, or replace a few lists. ``added``
        (n, d) are the vectors of the last addition, if there was one.
        """
        if self._must_train:
            return self._train_again()
        if not self.is_due:
            return self if added is None else self._rebalance(len(added))
        if self._may_extend_graph():
            assert self.graph is not None
            return replace(self, graph=self.graph.extend(self))
        balanced = self if self.calibration is None else self._rebalance(self.n_live)  # new lists stay
        return balanced._train_again() if balanced._has_misfit() else balanced.calibrate(added)

    def _rebalance(self, n: int) -> Self:
        """Split and merge lists, at most about as many as ``n`` new documents may need."""
        if not self._can_rebalance:
            return self
        n_most = _LEAST_NEW + round(_NEW * n * self._n_wanted / self.n_live)
        return rebalance(self, self._n_wanted, n_most)

    @property
    def _can_rebalance(self) -> bool:
        is_enough = self.n_live > max(FEW, LEAST_MEAN * self._n_wanted)
        return is_enough and self.stored.has_vectors

    @property
    def _n_wanted(self) -> int:
        return n_lists_for(self.options, self.n_live)

    @property
    def is_due(self) -> bool:
        """Whether the documents have changed so much that :meth:`measure_if_due` has something to do."""
        return self._must_measure or (self.needs_calibration and self._has_short_graph)

    @property
    def _must_measure(self) -> bool:
        """Whether the documents have changed so much that searches must be measured again."""
        if not self.needs_calibration:
            return False
        if self.calibration is None or self.drift.is_due or self._lacks_graph:
            return True
        if self.tuning is None and self.n_live > FEW:  # calibrated while the documents were few
            return True
        return self._can_rebalance and is_unbalanced(self, self._n_wanted)

    def _may_extend_graph(self) -> bool:
        """Return whether the last measurement holds for a graph that is extended: new documents are alike."""
        if self._must_measure or self.drift.is_worse or self.graph is None:
            return False
        return self.graph.suits(self)

    @property
    def _has_short_graph(self) -> bool:
        """Whether there is a graph that lacks many documents."""
        graph = self.graph
        return graph is not None and graph.has_outgrown(len(self), self.n_live)

    @property
    def wants_graph(self) -> bool:
        """Whether a graph serves the options better than lists: if the documents were measured so."""
        return self.tuning is not None and self.tuning.dimension <= self.options.most_dimensions

    @property
    def _lacks_graph(self) -> bool:
        """Whether a graph is wanted that is not there: files may be without one."""
        return self.wants_graph and self.graph is None and self.n_live > FEW

    @property
    def is_overdue(self) -> bool:
        """Whether so much has changed that the last measurement is worthless."""
        return self.is_due and (self.calibration is None or self.drift.is_overdue)

    @property
    def n_measured(self) -> int:
        """Documents at the last measurement; 0 if there was none."""
        return 0 if self.calibration is None else self.calibration.n_docs

    def measured_rows(self) -> list[Measured]:
        """Return the recalls that were measured for the recall of the index, by k."""
        rows = {row.k: row for row in ([] if self.tuning is None else self.tuning.rows())}
        for k in [] if self.queries is not None else list(rows):
            effort = self.choose_graph_effort(NearestParams(k))
            if effort is not None and self.graph is not None:
                rows[k] = self.graph.find_measured(k, effort)
        return list(rows.values())

    def warn_if_uncertain(self, stacklevel: int) -> None:
        """Warn if searches were tuned with few queries of the user; this method is at the first level."""
        row = next((row for row in self.measured_rows() if row.k == _TYPICAL_K), None)
        if self.queries is None or row is None or self.queries.n_given >= _MANY_QUERIES:
            return
        warnings.warn(
            f"{self.queries.n_given} queries leave the recall uncertain: {_TYPICAL_K} results have "
            f"{row.recall:.3f} ± {1.96 * row.error:.3f} (95 % interval), measured with {row.n_queries} that "
            f"tuned nothing: give {_MANY_QUERIES} or more",
            RecallWarning,
            stacklevel=stacklevel,
        )

    @property
    def needs_calibration(self) -> bool:
        """Whether a search may visit blocks: without stored vectors, every search does."""
        return self.n_live > (FEW if self.stored.has_vectors else 0)

    def with_writes(self, n_added: int, n_deleted: int) -> Self:
        """Count these as the writes since the last measurement."""
        before = Drift(self.drift.n_docs, self.drift.residual)
        return replace(self, drift=before.with_added(n_added, before.residual).with_deleted(n_deleted))

    def with_measurements(self, before: Self, measured: Self) -> Self | None:
        """Take over lists and measurements of ``measured``, which was made from the earlier state ``before``.

        If only its graph or its queries changed, takes over these. Returns None if this state was measured
        itself since.
        """
        if self.calibration is not before.calibration or self.queries is not before.queries:
            return None
        if measured.calibration is before.calibration:
            if self.graph is not before.graph:
                return None
            return replace(
                self,
                tuning=measured.tuning,
                graph=measured.graph,
                queries=measured.queries,
                watch=measured.watch,
            )
        blocks = self.blocks
        added = np.arange(len(before), len(self))
        if measured.blocks is not before.blocks or self.space is not before.space:  # the lists are others
            added = added[self.live.rows[added]]
            blocks = measured._extend(measured.blocks, self.stored.at(added), added.astype(np.uint32))
            blocks = blocks.without((~self.live.rows).view(np.uint8))
        n_deleted = before.n_live + len(self) - len(before) - self.n_live
        return replace(
            self,
            space=measured.space,
            blocks=blocks,
            calibration=measured.calibration,
            tuning=measured.tuning,
            drift=measured.drift,
            graph=measured.graph,
            queries=measured.queries,
            watch=measured.watch,
        ).with_writes(len(self) - len(before), n_deleted)

    def calibrate(self, added: npt.NDArray[Any] | None = None) -> Self:
        """Calibrate codes and measure the recall of searches."""
        documents = self._choose_typical(added)
        queries = self._choose_queries(documents)
        residual = mean_residual(self, documents, np.arange(len(documents)))
        space = self.space.with_mean_square(residual)
        known = replace(self, space=space, calibration=calibrate(space, self.blocks, queries, self.n_live))
        known = replace(known, drift=Drift(self.n_live, residual), was_measured=True)
        if self.n_live <= FEW:
            calibration = known._find_limits(queries)
            return replace(known, calibration=calibration, tuning=None, graph=None, watch=NO_WATCH)
        measured = measure(replace(known, was_measured=self.was_measured), self.options.recall)
        watch = self.watch.renew(measured.tuning.low_score)
        known = replace(known, calibration=measured.calibration, tuning=measured.tuning, watch=watch)
        known = replace(known, graph=known._build_graph(measured))
        return known if self.queries is None else known._verify_graph(measured.reporting)

    def calibrate_with(self, queries: OwnQueries | None) -> Self:
        """Calibrate and measure searches with these queries, then and later; None: held-out documents."""
        # Until searches are measured with these queries, they compare all vectors.
        changed = replace(self, queries=queries, tuning=None, watch=NO_WATCH)
        return changed.calibrate() if self.needs_calibration else changed

    def _build_graph(self, measured: Measurements) -> Graph | None:
        """Return a measured graph if one is wanted: the present one, extended, if it suits."""
        if not self.wants_graph:
            return None
        graph = self.graph
        graph = Graph.build(self) if graph is None or not graph.suits(self) else graph.extend(self)
        return graph.measure(self, measured.known, measured.groups)

    def _verify_graph(self, reporting: KnownNeighbours) -> Self:
        """Measure the recall of searches that use the graph, with queries that did not choose the effort."""
        if self.graph is None or self.tuning is None:
            return self
        rows = {row.k: row for row in self.tuning.rows()}
        for k in list(rows):
            effort = self.choose_graph_effort(NearestParams(k))
            if effort is not None:
                rows[k] = self.graph.verify(self, reporting, k, effort)
        return replace(self, tuning=replace(self.tuning, measured=np.array(list(rows.values()))))

    def _find_limits(self, queries: Float32) -> Calibration:
        """Return the calibration with first limits from searches, which also find the queries themselves."""
        assert self.calibration is not None
        k = min(_DEEP, self.n_live)
        effort = Effort(self.space.n_lists, ALL_LISTS, 3.0, 1.0)
        found = self.stored.search(self.blocks, self.settings(k, effort), queries, k)
        return with_limits(self.calibration, self.space, queries, found.scores[:, 1:])

    def _choose_queries(self, documents: Float32) -> Float32:
        """Return prepared queries to calibrate codes with: those of the user, or prepared documents."""
        if self.queries is None or self.n_live <= FEW:
            return self.space.metric.as_queries(documents)
        some = self.queries.choosing
        return self.space.metric.prepare_queries(some[spread_evenly(len(some))]).vectors

    def _choose_typical(self, added: npt.NDArray[Any] | None) -> Float32:
        """Return documents to calibrate with; if none are stored, from those that were just added."""
        n = len(spread_evenly(self.n_live))
        if not self.stored.has_vectors and added is not None and len(added) >= n:
            return self.space.metric.prepare(added[spread_evenly(len(added))])
        return self.vectors(np.flatnonzero(self.live.rows)[spread_evenly(self.n_live)])

    @property
    def _must_train(self) -> bool:
        """Whether the lists were trained on so few documents that splitting them would not do."""
        return self.space.n_docs <= FEW < self.n_live and self.stored.has_vectors

    def _has_misfit(self) -> bool:
        """Return whether the reduction of wide vectors loses too much: splitting lists leaves it alone."""
        reduction = self.space.reduction
        if reduction is None or self.n_live <= FEW:
            return False
        vectors = self._choose_typical(None)
        residuals = vectors - self.space.centroids[self.space.assign_lists(vectors)]
        reduced = residuals @ reduction.T
        return float(np.einsum("ij,ij->", reduced, reduced)) < _LEAST_ENERGY * float(
            np.einsum("ij,ij->", residuals, residuals)
        )

    def _train_again(self) -> Self:
        """Return the same documents in lists that are trained on them."""
        rng = np.random.default_rng(self.options.random_state)
        live = np.flatnonzero(self.live.rows)
        known = drop_held_out(live)
        chosen = np.sort(rng.permutation(known)[: training_size(self.options, self.n_live)])
        n_lists = n_lists_for(self.options, self.n_live)
        sample, old = self.stored.at(chosen), self.space
        space = Space.train(old.metric, old.shape, sample, n_lists, self.n_live, rng, may_reduce=True)
        empty = replace(self, space=space, blocks=_native.Blocks(space.native), calibration=None, tuning=None)
        blocks = empty.blocks
        for start in range(0, len(live), ROWS_AT_ONCE):
            slots = live[start : start + ROWS_AT_ONCE]
            blocks = empty._extend(blocks, self.stored.at(slots), slots.astype(np.uint32))
        return replace(empty, blocks=blocks).calibrate()

    # Files -----------------------------------------------------------------------------------------

    def to_arrays(self) -> Arrays:
        """Return trained state, blocks and vectors, with zeros in place of deleted documents."""
        blocks: Arrays = dict(zip(_BLOCK_ARRAYS, self.blocks.to_arrays(), strict=True))
        if self.n_live < len(self):
            memory, table, live = blocks["blocks"], blocks["block_table"], blocks["block_live"]
            erase_deleted(self.space, self.blocks.n_stored, memory, table, live)
        blocks["block_columns"] = np.array(self.blocks.n_stored, np.int64)
        vectors = zero_deleted(self.stored.rows.rows, self.live.rows)
        return self.trained_state() | blocks | {"vectors": vectors} | self._graph_arrays()

    def _graph_arrays(self) -> Arrays:
        """Return the arrays of the graph; none if it has deleted documents, which must not be written."""
        if self.graph is None or not self.live.rows[self.graph.slots].all():
            return {}
        return self.graph.to_arrays()

    @classmethod
    def from_arrays(cls, options: NearestOptions, n: int, arrays: Arrays) -> Self:
        """Return lists with n documents, without ``removed`` ones, from the arrays of :meth:`to_arrays`."""
        empty = cls.from_trained_state(options, arrays)
        memory, table, groups, words = (
            require_array(arrays, name, *like) for name, like in _BLOCK_ARRAYS.items()
        )
        n_stored = empty.space.padded_columns  # of older versions
        if "block_columns" in arrays:
            n_stored = int(require_array(arrays, "block_columns", np.int64, (), low=1))
        blocks = _native.Blocks.from_arrays(empty.space.native, memory, table, groups, words, n_stored)
        live = AppendOnlyArray.of(np.ones(n, bool))
        full = replace(empty, live=live, n_live=n, blocks=blocks, stored=empty.stored.read_arrays(arrays, n))
        if "graph_records" in arrays:
            graph = Graph.from_arrays(arrays, full.space.n_features, n, full.space.metric.is_distance)
            full = replace(full, graph=graph)
        removed = require_array(arrays, "removed", np.int64, (None,), low=0)
        if len(removed):
            full = replace(full.without(removed), drift=empty.drift)
        if full.needs_calibration and (full.calibration is None or (full.n_live > FEW and not full.tuning)):
            if "drift" in arrays and full.calibration is None:
                raise ValueError("the calibration is missing")
            return full.calibrate()
        return full

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle, with arrays in place of the kernels' object."""
        return get_fields(self) | {"blocks": (*self.blocks.to_arrays(), self.blocks.n_stored)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, blocks=_native.Blocks.from_arrays(state["space"].native, *state["blocks"]))


def run_search(
    search: _native.PreparedSearch, X: Any, allowed: Mask | None = None
) -> tuple[Slots, Float32, int] | None:
    """Search among all or the allowed documents; None if X is not plain or has numbers that do not fit.

    Returns slots or ids and scores, (m, k), and the number of queries for which fewer than k were found.
    """
    try:
        return search.run(X) if allowed is None else search.run_among(X, allowed.view(np.uint8))
    except IndexError as error:
        raise damaged_slot() from error
