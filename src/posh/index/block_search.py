"""Documents in blocks, as a search sees them: it compares codes and 8-bit numbers before vectors.

The algorithm is in ``native/blocks.h`` and ``native/block_search.h``.
"""

from __future__ import annotations

import math
from abc import ABC
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from posh import _native, kernels
from posh.index.block_vectors import decoded_vectors
from posh.index.brute_force import nearest
from posh.index.calibration import Asked, Calibration
from posh.index.code_index import CodeIndex, Queries, SlotScores
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
        metric, vectors, k = self.space.metric, queries.vectors, params.k
        found = SlotScores(np.empty((len(vectors), k), np.int64), np.empty((len(vectors), k), np.float32))
        try:
            fits = self.blocks.nearest(
                self._settings(len(vectors), k, effort, n_allowed if allowed is not None else None),
                metric.native,
                reals(vectors),
                self.stored.native,
                None if allowed is None else allowed.view(np.uint8),
                *found,
                params.threads,
                kernels.active(),
            )
        except IndexError as error:
            raise strange_slot() from error
        if not fits:
            raise metric.too_large(vectors)
        return found

    def _settings(
        self, n_queries: int, k: int, effort: Effort, n_allowed: int | None = None, n_more: int = 0
    ) -> BlockSettings:
        """For the k nearest of ``n_allowed`` documents, and ``n_more``."""
        assert self.calibration is not None
        n_lists, n_probe = self.space.n_lists, effort.n_probe
        if n_allowed is not None:  # as many documents to choose from as without a filter
            n_probe = math.ceil(n_probe * self.n_live / max(1, n_allowed))
        n_probe = min(n_probe, n_lists)
        by_list = n_queries * n_probe >= _MIN_SHARED * n_lists
        n_keep = math.ceil(min(k * effort.oversample, self.n_live)) + n_more
        return self.calibration.settings(self.space, Asked(k, n_probe, effort.slack, n_keep, by_list))

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
