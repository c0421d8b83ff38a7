"""Documents in blocks, as a search sees them: it compares codes and 8-bit numbers before vectors.

The algorithm is in ``native/blocks.h`` and ``native/block_search.h``.
"""

from __future__ import annotations

import math
from abc import ABC
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from posh import _native, kernels
from posh._threads import one_blas_thread
from posh.index.block_vectors import decoded_vectors
from posh.index.brute_force import nearest
from posh.index.calibration import Asked, Calibration
from posh.index.code_index import CodeIndex, Queries, SlotScores
from posh.index.direct import DirectSearch
from posh.index.drift import NO_DRIFT, Drift
from posh.index.metric import reals
from posh.index.reach import ALL_LISTS, Among
from posh.index.samples import sample_slots
from posh.index.sliced import Mask, Slots
from posh.index.space import Space
from posh.index.stored import Stored, strange_slot
from posh.index.tuning import Effort, Tuning, effort_of
from posh.preprocess import Float32

if TYPE_CHECKING:
    from posh._native import BlockSettings
    from posh.index.options import IndexOptions
    from posh.index.params import SearchParams

__all__ = ["FEW", "SearchableBlocks"]

FEW = 2048
"""So many documents are compared one by one: faster than blocks, and exact."""

_CAREFUL = 4.0  # slack
_REMEMBERED = 100  # parameters of searches
_ROUNDING = 1e-5  # of scores, relative to the largest
_UNKNOWN = object()


@dataclass(frozen=True, eq=False)
class SearchableBlocks(CodeIndex, ABC):
    """Documents in lists of blocks. Its codes are in the blocks: ``codes`` has no columns."""

    space: Space
    blocks: _native.Blocks
    stored: Stored
    calibration: Calibration | None
    tuning: Tuning | None
    options: IndexOptions
    drift: Drift = NO_DRIFT
    was_measured: bool = False

    def candidates(self, queries: Queries, params: SearchParams, allowed: Mask | None) -> SlotScores:
        """Find the nearest documents, with the scores of the metric."""
        if allowed is not None:
            return self._among(queries, params, allowed)
        effort = self.effort_for(params)
        if effort is None:
            return self._by_comparing_all(queries, params, None)
        return self._in_blocks(queries, params, self.settings(params.k, effort))

    def found_directly(self, X: Any, params: SearchParams) -> SlotScores | None:
        """Find the nearest documents of an array of floats, see :mod:`posh.index.direct`."""
        searches = self._direct_searches
        direct = searches.get(params, _UNKNOWN)
        if direct is _UNKNOWN:
            if len(searches) > _REMEMBERED:
                searches.clear()
            direct = searches[params] = DirectSearch.of(self, params.completed_by_metric(self.options))
        return None if direct is None else direct(X)

    @cached_property
    def _direct_searches(self) -> dict[SearchParams, Any]:
        return {}

    def effort_for(
        self, params: SearchParams, n_allowed: int | None = None, rank: float | None = None
    ) -> Effort | None:
        """Return the effort of a search; None if it compares all vectors.

        With a filter, ``n_allowed`` documents pass. ``rank`` is that of the k-th of them among all documents,
        by default as if they were a random sample.
        """
        if params.exact and not self.stored.has_vectors:
            raise ValueError(
                "expected an index that stores vectors for exact=True, got store='int8': "
                "build it with store='float32'"
            )
        n = self.n_live if n_allowed is None else n_allowed
        if self.stored.has_vectors and (params.exact or n <= max(FEW, params.k)):
            return None
        effort = effort_of(params, self.options)
        if effort is not None:
            if n_allowed is not None:  # as many documents to choose from as without a filter
                n_probe = math.ceil(effort.n_probe * self.n_live / max(1, n_allowed))
                effort = effort._replace(n_probe=min(n_probe, self.space.n_lists))
            return effort
        if self.tuning is not None:
            assert params.recall is not None
            among = Among.ALL if n_allowed is None else Among.RANDOM if rank is None else Among.REGION
            rank = params.k * self.tuning.n_docs / max(1, n) if rank is None else rank
            recall = self.drift.with_margin(params.recall)
            effort = self.tuning.effort(self.space, recall, params.k, rank, among)
        if effort is None and not self.stored.has_vectors:  # everything that is possible without vectors
            return Effort(self.space.n_lists, ALL_LISTS, _CAREFUL, 8.0)
        return effort

    def compares_all(self, params: SearchParams) -> bool:
        """Whether a search compares all vectors."""
        return self.effort_for(params) is None

    def _among(self, queries: Queries, params: SearchParams, allowed: Mask) -> SlotScores:
        """Find the nearest of the documents that pass a filter.

        How many lists that takes depends on the rank of the k-th of them among all documents. The first
        round takes them for a random sample. If the filter depends on the vectors, or if the k-th score that
        was found is lower than that of a random sample, a second round visits the lists for the rank of that
        score, as if the documents that pass were a region.
        """
        n_allowed = int(np.count_nonzero(allowed & self.live.rows))
        effort = self.effort_for(params, n_allowed)
        if effort is None:
            return self._by_comparing_all(queries, params, allowed)
        found = self._in_blocks(queries, params, self.settings(params.k, effort), allowed)
        if effort.n_probe or self.tuning is None:
            return found
        assumed = params.k * self.tuning.n_docs / max(1, n_allowed)
        ranks = np.maximum(self._ranks(queries.vectors, found.scores[:, -1]), assumed)
        known = self.tuning.reach.ranks
        rows = np.searchsorted(known, ranks)
        is_done = rows == np.searchsorted(known, assumed)
        if self._depends_on_vectors(allowed):
            is_done[:] = False
        for row in np.unique(rows[~is_done]).tolist():
            some = np.flatnonzero((rows == row) & ~is_done)
            again = queries._replace(vectors=queries.vectors[some])
            rank = known[row] if row < len(known) else np.inf
            found.slots[some], found.scores[some] = self._in_region(again, params, allowed, n_allowed, rank)
        return found

    def _in_region(
        self, queries: Queries, params: SearchParams, allowed: Mask, n_allowed: int, rank: float
    ) -> SlotScores:
        effort = self.effort_for(params, n_allowed, rank)
        if effort is None:
            return self._by_comparing_all(queries, params, allowed)
        # Codes were measured without a filter, and far documents may differ.
        effort = effort._replace(slack=max(effort.slack, 3.0), oversample=max(effort.oversample, 3.0))
        return self._in_blocks(queries, params, self.settings(params.k, effort), allowed)

    def _depends_on_vectors(self, allowed: Mask) -> bool:
        """Whether the documents that pass are spread over lists otherwise than a random sample would be."""
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
        slots = sample_slots(len(self), self.n_features)
        slots = slots[self.live.rows[slots]]
        lists = np.empty(len(self), np.int32)
        self.blocks.lists_of_slots(lists)
        return slots, lists[slots]

    def _ranks(self, vectors: npt.NDArray[Any], scores: Float32) -> npt.NDArray[np.float64]:
        """Estimate the ranks of these scores (m,) among all documents, by a sample of them."""
        sample, metric = self._sample, self.space.metric
        queries = metric.queries(vectors)
        with one_blas_thread:
            own = queries.vectors @ sample.T
        if metric.is_distance:
            squares = np.einsum("ij,ij->i", queries.vectors, queries.vectors)[:, None]
            own = 2 * own - np.einsum("ij,ij->i", sample, sample) - squares
        own = metric.scores(queries, own)
        # The k-th itself may be in the sample: rounding, which differs between batches, must not decide.
        rounding = _ROUNDING * np.abs(own).max(axis=1, initial=0.0, keepdims=True)
        counts = np.count_nonzero(own >= scores[:, None] - rounding, axis=1)
        return np.asarray(counts * (self.n_live / max(1, len(sample))))

    @cached_property
    def _sample(self) -> Float32:
        """Vectors (s, d) of a random sample of the documents."""
        return self.vectors(self._sampled[0])

    def _by_comparing_all(self, queries: Queries, params: SearchParams, allowed: Mask | None) -> SlotScores:
        metric = self.space.metric
        prepared = metric.queries(queries.vectors)
        wanted = np.flatnonzero(self.live.rows if allowed is None else allowed & self.live.rows)
        rows = self.stored.rows.rows
        found = nearest(rows, wanted, prepared.vectors, params.k, is_distance=metric.is_distance)
        return SlotScores(found.slots, metric.scores(prepared, found.scores))

    def _in_blocks(
        self, queries: Queries, params: SearchParams, settings: BlockSettings, allowed: Mask | None = None
    ) -> SlotScores:
        vectors, k = queries.vectors, params.k
        found = SlotScores(np.empty((len(vectors), k), np.int64), np.empty((len(vectors), k), np.float32))
        if not self.nearest(settings, reals(vectors), allowed, *found, params.threads):
            raise self.space.metric.too_large(vectors)
        return found

    def nearest(
        self,
        settings: BlockSettings,
        queries: npt.NDArray[Any],
        allowed: Mask | None,
        slots: Slots,
        scores: Float32,
        n_threads: int,
    ) -> bool:
        """Write the nearest documents of queries (m, d) to slots and scores (m, k).

        Returns False, with nothing of use written, if queries have numbers that are too large or not finite.
        """
        try:
            return self.blocks.nearest(
                settings,
                self.space.metric.native,
                queries,
                self.stored.native,
                None if allowed is None else allowed.view(np.uint8),
                slots,
                scores,
                n_threads,
                kernels.active(),
            )
        except IndexError as error:
            raise strange_slot() from error

    def settings(self, k: int, effort: Effort, n_more: int = 0) -> BlockSettings:
        """Return the settings for the k nearest, and ``n_more``."""
        assert self.calibration is not None
        n_keep = math.ceil(min(k * effort.oversample, self.n_live)) + n_more
        bound = effort.reach.lift / max(1, self.n_live)
        asked = Asked(k, effort.n_probe, effort.reach.power, bound, effort.slack, n_keep)
        return self.calibration.settings(self.space, asked)

    @property
    def n_features(self) -> int:
        """Columns of vectors."""
        return self.space.n_features

    def vectors(self, slots: Slots) -> Float32:
        """Stored vectors by slot; if none are stored, as far as 8 bits tell them."""
        if self.stored.has_vectors:
            return self.stored.some(slots)
        return decoded_vectors(self.space, self.blocks, len(self))[slots]

    @classmethod
    def kind(cls, options: IndexOptions, scoring: str | None) -> str:
        """The metric."""
        assert options.metric is not None
        return options.metric

    @property
    def nbytes(self) -> int:
        """Memory of the blocks."""
        return self.blocks.nbytes

    @property
    def vector_nbytes(self) -> int:
        """Memory of the stored vectors."""
        return self.stored.rows.buffer.nbytes
