"""The shortest way of a search: an array of floats, compared by a metric without a filter.

For one query, checks and choices in Python take longer than the kernels need for a few lists. So the choices
are made once for parameters that come again, and the kernels find wrong numbers. What is not of this kind
takes the way of all searches, which words the errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from posh.index.code_index import SlotScores

if TYPE_CHECKING:
    from posh._native import BlockSettings
    from posh.index.block_search import SearchableBlocks
    from posh.index.params import SearchParams

__all__ = ["DirectSearch"]


@dataclass(frozen=True, slots=True, eq=False)
class DirectSearch:
    """A search with all that does not depend on its queries."""

    blocks: SearchableBlocks
    settings: BlockSettings
    k: int
    n_features: int
    n_threads: int

    @classmethod
    def of(cls, blocks: SearchableBlocks, params: SearchParams) -> DirectSearch | None:
        """A search with completed parameters; None if it compares all vectors, or has too few documents."""
        effort = blocks.effort_for(params)
        if effort is None or params.k > blocks.n_live:
            return None
        settings = blocks.settings(params.k, effort)
        return cls(blocks, settings, params.k, blocks.n_features, params.threads)

    def __call__(self, X: Any) -> SlotScores | None:
        """The nearest of one vector (d,) or of many (m, d); None if the vectors have to be checked first."""
        if type(X) is not np.ndarray or X.dtype.char not in "fd" or not X.dtype.isnative:
            return None
        queries = X[None] if X.ndim == 1 else X
        if queries.ndim != 2 or queries.shape[1] != self.n_features or not queries.flags.c_contiguous:
            return None
        shape = (len(queries), self.k)
        slots, scores = np.empty(shape, np.int64), np.empty(shape, np.float32)
        fits = self.blocks.nearest(self.settings, queries, None, slots, scores, self.n_threads)
        return SlotScores(slots, scores) if fits else None
