"""Dense codes, scanned as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from posh import kernels
from posh.hashers.base import Hasher
from posh.index.code_index import CodeIndex, Queries, SlotScores, by_slot
from posh.index.sliced import Mask
from posh.model_files import Arrays

if TYPE_CHECKING:
    from posh.index.options import IndexOptions
    from posh.index.params import SearchParams

__all__ = ["PackedIndex"]


@dataclass(frozen=True, eq=False)
class PackedIndex(CodeIndex):
    """All documents, eight bits to a byte: a search compares every one of them."""

    @classmethod
    def train(cls, hasher: Hasher[Any], options: IndexOptions, X: npt.NDArray[Any], n: int) -> Self:
        """Without documents: there is nothing to train."""
        return cls.with_trained_state(hasher, options, {})

    @classmethod
    def with_trained_state(cls, hasher: Hasher[Any], options: IndexOptions, state: Arrays) -> Self:
        """Without documents."""
        return cls.from_arrays(hasher, options, np.empty((0, -(-hasher.n_bits // 8)), np.uint8), {})

    @classmethod
    def from_arrays(
        cls, hasher: Hasher[Any], options: IndexOptions, codes: npt.NDArray[Any], arrays: Arrays
    ) -> Self:
        """With these codes."""
        return cls(hasher.n_bits, *by_slot(codes))

    @classmethod
    def kind(cls, options: IndexOptions, scoring: str | None) -> str:
        """Equal bits."""
        return "equal-bits"

    def candidates(self, queries: Queries, params: SearchParams, allowed: Mask | None) -> SlotScores:
        """The documents with the most equal bits."""
        found = kernels.hamming_topk(
            self.codes.rows,
            queries.codes().bits,
            self.n_bits,
            params.k,
            passing=self._passing(allowed),
            n_threads=queries.n_threads,
        )
        return SlotScores.of_counts(*found)

    @property
    def nbytes(self) -> int:
        """Nothing beside the codes."""
        return 0
