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
from posh.index.block_vectors import decoded_vectors
from posh.index.brute_force import nearest
from posh.index.calibration import Asked, Calibration
from posh.index.code_index import CodeIndex, Queries, SlotScores
from posh.index.direct import DirectSearch
from posh.index.metric import reals
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

_MIN_SHARED = 4  # queries that share a list, on average, from which on lists are visited in order
_CAREFUL = 4.0  # slack
_REMEMBERED = 100  # parameters of searches
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

    def candidates(self, queries: Queries, params: SearchParams, allowed: Mask | None) -> SlotScores:
        """The nearest documents, with the scores of the metric."""
        n_allowed = self.n_live if allowed is None else int(np.count_nonzero(allowed & self.live.rows))
        effort = self.effort_for(params, n_allowed)
        if effort is None:
            return self._by_comparing_all(queries, params, allowed)
        return self._in_blocks(queries, params, effort, allowed, n_allowed)

    def found_directly(self, X: Any, params: SearchParams) -> SlotScores | None:
        """The nearest documents of an array of floats, see :mod:`posh.index.direct`."""
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

    def effort_for(self, params: SearchParams, n_allowed: int | None = None) -> Effort | None:
        """What a search does among so many documents (default: all); None if it compares all vectors."""
        if params.exact and not self.stored.has_vectors:
            raise ValueError(
                "expected an index that stores vectors for exact=True, got store='int8': "
                "build it with store='float32'"
            )
        few = max(FEW, params.k)
        n_documents = self.n_live if n_allowed is None else n_allowed
        if self.stored.has_vectors and (params.exact or n_documents <= few):
            return None
        effort = effort_of(params, self.options, self.tuning, self.space.centroids.shape[1])
        if effort is None and not self.stored.has_vectors:  # everything that is possible without vectors
            return Effort(self.space.n_lists, _CAREFUL, 8.0)
        return effort

    def compares_all(self, params: SearchParams) -> bool:
        """Whether a search compares all vectors."""
        return self.effort_for(params) is None

    def _by_comparing_all(self, queries: Queries, params: SearchParams, allowed: Mask | None) -> SlotScores:
        metric = self.space.metric
        prepared = metric.queries(queries.vectors)
        wanted = np.flatnonzero(self.live.rows if allowed is None else allowed & self.live.rows)
        rows = self.stored.rows.rows
        found = nearest(rows, wanted, prepared.vectors, params.k, is_distance=metric.is_distance)
        return SlotScores(found.slots, metric.scores(prepared, found.scores))

    def _in_blocks(
        self, queries: Queries, params: SearchParams, effort: Effort, allowed: Mask | None, n_allowed: int
    ) -> SlotScores:
        vectors, k = queries.vectors, params.k
        found = SlotScores(np.empty((len(vectors), k), np.int64), np.empty((len(vectors), k), np.float32))
        settings = self.settings(len(vectors), k, effort, n_allowed if allowed is not None else None)
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

    def settings(
        self, n_queries: int, k: int, effort: Effort, n_allowed: int | None = None, n_more: int = 0
    ) -> BlockSettings:
        """For the k nearest of ``n_allowed`` documents, and ``n_more``."""
        assert self.calibration is not None
        n_probe = effort.n_probe
        if n_allowed is not None:  # as many documents to choose from as without a filter
            n_probe = math.ceil(n_probe * self.n_live / max(1, n_allowed))
        effort = effort._replace(n_probe=min(n_probe, self.space.n_lists))
        by_list = n_queries >= self.n_shared(effort)
        n_keep = math.ceil(min(k * effort.oversample, self.n_live)) + n_more
        return self.calibration.settings(self.space, Asked(k, effort.n_probe, effort.slack, n_keep, by_list))

    def n_shared(self, effort: Effort) -> int:
        """Queries from which on lists are visited in order, all queries at once."""
        return -(-_MIN_SHARED * self.space.n_lists // min(effort.n_probe, self.space.n_lists))

    @property
    def n_features(self) -> int:
        """Columns of vectors."""
        return int(self.space.centroids.shape[1])

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
