"""Sparse codes in bit-sliced segments: a search scans all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from posh import kernels
from posh.codes import Codes
from posh.hashers.base import Hasher
from posh.index.code_index import AnyCodes, CodeIndex, Queries, SlotScores, by_slot
from posh.index.sliced import Mask, SlicedCodes, Slots, plane_arrays
from posh.model_files import Arrays, expect

if TYPE_CHECKING:
    from posh.index.options import IndexOptions
    from posh.index.params import SearchParams

__all__ = ["SegmentIndex"]


@dataclass(frozen=True, eq=False)
class SegmentIndex(CodeIndex):
    """All documents, in order of addition."""

    segments: SlicedCodes

    @classmethod
    def train(cls, hasher: Hasher[Any], options: IndexOptions, X: npt.NDArray[Any], n: int) -> Self:
        """Without documents: there is nothing to train."""
        return cls.with_trained_state(hasher, options, {})

    @classmethod
    def with_trained_state(cls, hasher: Hasher[Any], options: IndexOptions, state: Arrays) -> Self:
        """Without documents."""
        codes = np.empty((0, options.document_active or 0), np.uint16)
        return cls(hasher.n_bits, *by_slot(codes), SlicedCodes(hasher.n_bits))

    @classmethod
    def from_arrays(
        cls, hasher: Hasher[Any], options: IndexOptions, codes: npt.NDArray[Any], arrays: Arrays
    ) -> Self:
        """With documents, from codes and the arrays of the segments."""
        flat = expect(arrays, "planes", np.uint64, (None,))
        segments = SlicedCodes.from_arrays(hasher.n_bits, flat, expect(arrays, "parts", np.int64, (None, 4)))
        if len(segments) != len(codes):
            raise ValueError(f"{len(segments)} documents in segments, {len(codes)} ids")
        return cls(hasher.n_bits, *by_slot(codes), segments)

    @classmethod
    def kind(cls, options: IndexOptions, scoring: str | None) -> str:
        """As the scoring says."""
        return scoring or "overlap"

    def candidates(self, queries: Queries, params: SearchParams, allowed: Mask | None) -> SlotScores:
        """The best of all documents."""
        if params.scoring == "asymmetric":
            found = kernels.table_topk(
                self.codes.rows,
                queries.tables(),
                params.k,
                passing=self._passing(allowed),
                n_threads=queries.n_threads,
            )
            return SlotScores(*found)
        n_threads = queries.n_threads
        counted = self.segments.search(queries.codes(), params.k, n_threads=n_threads, allowed=allowed)
        return SlotScores.of_counts(*counted)

    @property
    def all_segments(self) -> SlicedCodes:
        """The segments."""
        return self.segments

    @property
    def nbytes(self) -> int:
        """Memory of the segments."""
        return self.segments.nbytes

    def to_arrays(self) -> Arrays:
        """The planes."""
        return plane_arrays([self.segments])

    def with_codes(self, codes: AnyCodes | None, X: npt.NDArray[Any] | None) -> Self:
        """Add documents at the end."""
        assert isinstance(codes, Codes)
        return replace(super().with_codes(codes, X), segments=self.segments.with_codes(codes))

    def without(self, slots: Slots) -> Self:
        """Remove the documents at these slots."""
        return replace(super().without(slots), segments=self.segments.without(slots))

    def compacted(self) -> Self:
        """The same documents in new slots, without those of deleted ones."""
        compacted = super().compacted()
        codes = Codes.trusted(compacted.codes.rows, self.n_bits)
        return replace(compacted, segments=SlicedCodes(self.n_bits).with_codes(codes))
