"""Layouts of codes by slot: each finds the codes that are nearest to those of queries.

:class:`Structure` is the contract. The structures here scan everything; those of
:mod:`posh.index.codes.lists` do not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from posh import kernels
from posh._model_files import Arrays, require_array
from posh.codes import Codes, PackedCodes
from posh.hashers.base import Hasher, SparseHasher
from posh.index.arrays import AppendOnlyArray, Mask, Slots, pack_mask
from posh.index.codes.bitsliced import SlicedCodes, join_planes
from posh.index.codes.options import CodeOptions, CodeParams
from posh.index.hits import SlotScores
from posh.preprocess import Float32

__all__ = ["AnyCodes", "PackedStructure", "Queries", "SegmentStructure", "Structure", "encode"]

AnyCodes = Codes | PackedCodes


class Queries(NamedTuple):
    """Vectors (m, d) to search for. Their codes and projections are computed when a structure needs them."""

    vectors: npt.NDArray[Any]
    hasher: Hasher[Any]
    n_active: int | None
    n_threads: int

    def encode(self) -> Any:
        """Return the codes, of the hasher's kind."""
        return encode(self.hasher, self.vectors, self.n_active, self.n_threads)

    def project(self) -> Float32:
        """Return the projections, float32 (m, n_bits)."""
        return np.ascontiguousarray(self.hasher.project(self.vectors))


def encode(
    hasher: Hasher[Any], X: npt.NDArray[Any], n_active: int | None, n_threads: int | None = None
) -> Any:
    """Return codes of valid vectors (n, d); ``n_active`` is for sparse codes, by default the hasher's."""
    return hasher._encode(X, n_active if isinstance(hasher, SparseHasher) else None, n_threads)


@dataclass(frozen=True, eq=False)
class Structure(ABC):
    """Codes by slot, immutable: changes return a new object that shares the rest.

    ``codes`` are the rows of :class:`~posh.codes.Codes`, uint16 (n, n_active), or of
    :class:`~posh.codes.PackedCodes`, uint8 (n, n_bytes); ``live`` is the mask of those that were not deleted.
    """

    n_bits: int
    codes: AppendOnlyArray
    live: AppendOnlyArray
    n_live: int

    needs_training: ClassVar[bool] = False  # on vectors, before documents are added
    needs_vectors: ClassVar[bool] = False  # of every document: codes are not enough

    @classmethod
    @abstractmethod
    def train(cls, hasher: Hasher[Any], options: CodeOptions, X: npt.NDArray[Any], n: int) -> Self:
        """Return a structure without documents, trained on vectors (m, d) for ``n`` documents to come."""

    @classmethod
    @abstractmethod
    def with_trained_state(cls, hasher: Hasher[Any], options: CodeOptions, state: Arrays) -> Self:
        """Return a structure without documents from the arrays of :meth:`trained_state`."""

    @classmethod
    @abstractmethod
    def from_arrays(
        cls, hasher: Hasher[Any], options: CodeOptions, codes: npt.NDArray[Any], arrays: Arrays
    ) -> Self:
        """Return a structure with documents from codes and the arrays of :meth:`to_arrays`."""

    @classmethod
    def training_size(cls, options: CodeOptions, n: int) -> int:
        """Return the number of vectors that training uses, for ``n`` documents."""
        return 0

    @classmethod
    @abstractmethod
    def kind(cls, scoring: str) -> str:
        """Return the kind of score of :meth:`search`, as in :class:`~posh.index.hits.Hits`."""

    @abstractmethod
    def search(self, queries: Queries, params: CodeParams, allowed: Mask | None) -> SlotScores:
        """Return the ``params.k`` best live documents; ``allowed`` is a mask over slots."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Memory in addition to codes and mask."""

    @property
    def segments(self) -> SlicedCodes | None:
        """The segments of all documents in the order of slots, if a search scans all of them."""
        return None

    def trained_state(self) -> Arrays:
        """Return the arrays that training computed, by name."""
        return {}

    def to_arrays(self) -> Arrays:
        """Return the arrays of a file in addition to codes, with zeros in place of deleted documents."""
        return {}

    def __len__(self) -> int:
        """Return the slots in use, those of deleted documents included."""
        return self.codes.n

    def with_codes(self, codes: AnyCodes, X: npt.NDArray[Any] | None) -> Self:
        """Add documents at the end by codes, and vectors X (n, d) if ``needs_vectors``."""
        rows: npt.NDArray[Any] = codes.active if isinstance(codes, Codes) else codes.bits
        live = self.live.with_rows(np.ones(len(rows), bool))
        return replace(self, codes=self.codes.with_rows(rows), live=live, n_live=self.n_live + len(rows))

    def without(self, slots: Slots) -> Self:
        """Delete the documents at these slots."""
        live = self.live.rows.copy()
        live[slots] = False
        return replace(self, live=AppendOnlyArray.of(live), n_live=int(live.sum()))

    def compact(self) -> Self:
        """Return the same documents in new slots, without gaps."""
        codes, live, n_live = start_slots(self.codes.rows[self.live.rows])
        return replace(self, codes=codes, live=live, n_live=n_live)

    def detach(self) -> Self:
        """Return a copy whose later additions do not affect this structure."""
        return replace(self, codes=self.codes.detach(), live=self.live.detach())

    def _pack_allowed(self, allowed: Mask | None) -> npt.NDArray[np.uint64] | None:
        """Return a bitmap of the slots that may be found; None for all."""
        if allowed is None and self.n_live == len(self):
            return None
        return pack_mask(self.live.rows if allowed is None else self.live.rows & allowed)


def start_slots(codes: npt.NDArray[Any]) -> tuple[AppendOnlyArray, AppendOnlyArray, int]:
    """Return the first fields of a :class:`Structure` after ``n_bits``: codes, all of them live."""
    live = np.ones(len(codes), bool)
    return AppendOnlyArray.of(codes), AppendOnlyArray.of(live), len(codes)


@dataclass(frozen=True, eq=False)
class PackedStructure(Structure):
    """Dense codes, eight bits to a byte: a search compares every one of them."""

    @classmethod
    def train(cls, hasher: Hasher[Any], options: CodeOptions, X: npt.NDArray[Any], n: int) -> Self:
        """Return a structure without documents: there is nothing to train."""
        return cls.with_trained_state(hasher, options, {})

    @classmethod
    def with_trained_state(cls, hasher: Hasher[Any], options: CodeOptions, state: Arrays) -> Self:
        """Return a structure without documents."""
        return cls.from_arrays(hasher, options, np.empty((0, -(-hasher.n_bits // 8)), np.uint8), {})

    @classmethod
    def from_arrays(
        cls, hasher: Hasher[Any], options: CodeOptions, codes: npt.NDArray[Any], arrays: Arrays
    ) -> Self:
        """Return a structure with these codes."""
        return cls(hasher.n_bits, *start_slots(codes))

    @classmethod
    def kind(cls, scoring: str) -> str:
        """Return ``"equal-bits"``."""
        return "equal-bits"

    def search(self, queries: Queries, params: CodeParams, allowed: Mask | None) -> SlotScores:
        """Return the documents with the most equal bits."""
        found = kernels.hamming_topk(
            self.codes.rows,
            queries.encode().bits,
            self.n_bits,
            params.k,
            passing=self._pack_allowed(allowed),
            n_threads=queries.n_threads,
        )
        return SlotScores.from_counts(*found)

    @property
    def nbytes(self) -> int:
        """Nothing in addition to codes and mask."""
        return 0


@dataclass(frozen=True, eq=False)
class SegmentStructure(Structure):
    """Sparse codes in bit-sliced segments, in order of addition: a search scans all of them."""

    sliced: SlicedCodes

    @classmethod
    def train(cls, hasher: Hasher[Any], options: CodeOptions, X: npt.NDArray[Any], n: int) -> Self:
        """Return a structure without documents: there is nothing to train."""
        return cls.with_trained_state(hasher, options, {})

    @classmethod
    def with_trained_state(cls, hasher: Hasher[Any], options: CodeOptions, state: Arrays) -> Self:
        """Return a structure without documents."""
        codes = np.empty((0, options.document_active or 0), np.uint16)
        return cls(hasher.n_bits, *start_slots(codes), SlicedCodes(hasher.n_bits))

    @classmethod
    def from_arrays(
        cls, hasher: Hasher[Any], options: CodeOptions, codes: npt.NDArray[Any], arrays: Arrays
    ) -> Self:
        """Return a structure with documents, from codes and the arrays of the segments."""
        flat = require_array(arrays, "planes", np.uint64, (None,))
        parts = require_array(arrays, "parts", np.int64, (None, 4))
        sliced = SlicedCodes.from_arrays(hasher.n_bits, flat, parts)
        if len(sliced) != len(codes):
            raise ValueError(f"{len(sliced)} documents in segments, {len(codes)} ids")
        return cls(hasher.n_bits, *start_slots(codes), sliced)

    @classmethod
    def kind(cls, scoring: str) -> str:
        """Return the scoring."""
        return scoring

    def search(self, queries: Queries, params: CodeParams, allowed: Mask | None) -> SlotScores:
        """Return the best of all documents."""
        if params.scoring == "asymmetric":
            found = kernels.table_topk(
                self.codes.rows,
                queries.project(),
                params.k,
                passing=self._pack_allowed(allowed),
                n_threads=queries.n_threads,
            )
            return SlotScores(*found)
        n_threads = queries.n_threads
        counted = self.sliced.search(queries.encode(), params.k, n_threads=n_threads, allowed=allowed)
        return SlotScores.from_counts(*counted)

    @property
    def segments(self) -> SlicedCodes:
        """The segments."""
        return self.sliced

    @property
    def nbytes(self) -> int:
        """Memory of the segments."""
        return self.sliced.nbytes

    def to_arrays(self) -> Arrays:
        """Return the planes."""
        return join_planes([self.sliced])

    def with_codes(self, codes: AnyCodes, X: npt.NDArray[Any] | None) -> Self:
        """Add documents at the end."""
        assert isinstance(codes, Codes)
        return replace(super().with_codes(codes, X), sliced=self.sliced.with_codes(codes))

    def without(self, slots: Slots) -> Self:
        """Delete the documents at these slots."""
        return replace(super().without(slots), sliced=self.sliced.without(slots))

    def compact(self) -> Self:
        """Return the same documents in new slots, without gaps."""
        compacted = super().compact()
        codes = Codes.wrap(compacted.codes.rows, self.n_bits)
        return replace(compacted, sliced=SlicedCodes(self.n_bits).with_codes(codes))
