"""The contract of a structure: it holds codes by slot, and finds those that are nearest to queries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from posh.codes import Codes, PackedCodes
from posh.hashers.base import Hasher, SparseHasher
from posh.index.append_only import AppendOnlyArray
from posh.index.sliced import Mask, SlicedCodes, Slots, bitmap
from posh.model_files import Arrays
from posh.preprocess import Float32

if TYPE_CHECKING:
    from posh.index.options import IndexOptions
    from posh.index.params import SearchParams

__all__ = ["CodeIndex", "Queries", "SlotScores", "by_slot", "encode", "without_deleted"]

AnyCodes = Codes | PackedCodes


class SlotScores(NamedTuple):
    """Slots, int64 (m, k), and scores, float32 (m, k), best first; -1 and -inf where fewer were found."""

    slots: Slots
    scores: Float32

    @classmethod
    def of_counts(cls, slots: Slots, counts: npt.NDArray[np.int32]) -> SlotScores:
        """Take over what the kernels that count bits have found."""
        scores = counts.astype(np.float32)
        if slots.size and slots[:, -1].min() < 0:  # what is missing is at the end
            scores[slots < 0] = -np.inf
        return cls(slots, scores)

    @classmethod
    def none(cls, n_queries: int) -> SlotScores:
        """Nothing found, (m, 0)."""
        return cls(np.empty((n_queries, 0), np.int64), np.empty((n_queries, 0), np.float32))


class Queries(NamedTuple):
    """Vectors (m, d) to search for. Their codes and projections are computed when a structure asks."""

    vectors: npt.NDArray[Any]
    hasher: Hasher[Any]
    n_active: int | None
    n_threads: int

    def codes(self) -> Any:
        """The codes, of the hasher's kind."""
        return encode(self.hasher, self.vectors, self.n_active, self.n_threads)

    def tables(self) -> Float32:
        """The projections, float32 (m, n_bits)."""
        return np.ascontiguousarray(self.hasher.project(self.vectors))


def encode(
    hasher: Hasher[Any], X: npt.NDArray[Any], n_active: int | None, n_threads: int | None = None
) -> Any:
    """Codes of vectors (n, d); ``n_active`` is for sparse codes, by default the hasher's."""
    if isinstance(hasher, SparseHasher):
        return hasher.encode(X, n_active=n_active, n_threads=n_threads)
    return hasher.encode(X, n_threads=n_threads)


def by_slot(codes: npt.NDArray[Any]) -> tuple[AppendOnlyArray, AppendOnlyArray, int]:
    """The first fields of a :class:`CodeIndex` after ``n_bits``: codes, all of them live."""
    live = np.ones(len(codes), bool)
    return AppendOnlyArray.of(codes), AppendOnlyArray.of(live), len(codes)


def without_deleted(rows: npt.NDArray[Any], live: Mask) -> npt.NDArray[Any]:
    """Return rows (n, ...) with zeros where ``live`` (n,) is False; the same array if it is True everywhere.

    >>> without_deleted(np.array([[1, 2], [3, 4]]), np.array([True, False])).tolist()
    [[1, 2], [0, 0]]
    """
    if live.all():
        return rows
    kept = rows.copy()
    kept[~live] = 0
    return kept


@dataclass(frozen=True, eq=False)
class CodeIndex(ABC):
    """Codes by slot: immutable, so that a search never sees half a change.

    ``codes`` are the rows of :class:`~posh.codes.Codes`, uint16 (n, n_active), or of
    :class:`~posh.codes.PackedCodes`, uint8 (n, n_bytes); ``live`` is the mask of those that were not deleted.
    Changes make a new object, which shares what did not change.
    """

    n_bits: int
    codes: AppendOnlyArray
    live: AppendOnlyArray
    n_live: int

    needs_training: ClassVar[bool] = False  # on vectors, before documents are added
    needs_vectors: ClassVar[bool] = False  # of every document: codes are not enough
    has_codes: ClassVar[bool] = True  # of documents by slot
    rows_at_once: ClassVar[int] = 65_536  # documents that are added at a time

    @classmethod
    @abstractmethod
    def train(cls, hasher: Hasher[Any], options: IndexOptions, X: npt.NDArray[Any], n: int) -> Self:
        """Without documents, trained on vectors (m, d) for ``n`` documents to come."""

    @classmethod
    @abstractmethod
    def with_trained_state(cls, hasher: Hasher[Any], options: IndexOptions, state: Arrays) -> Self:
        """Without documents, from the arrays of :meth:`trained_state`; KeyError or ValueError if wrong."""

    @classmethod
    @abstractmethod
    def from_arrays(
        cls, hasher: Hasher[Any], options: IndexOptions, codes: npt.NDArray[Any], arrays: Arrays
    ) -> Self:
        """With documents, none of them deleted, from the arrays of :meth:`to_arrays`; ValueError if wrong."""

    @property
    def all_segments(self) -> SlicedCodes | None:
        """The segments of all documents in the order of slots, if a scan of them is the whole search."""
        return None

    def found_directly(self, X: Any, params: SearchParams) -> SlotScores | None:
        """The nearest of vectors that need no check, if the structure finds them by a shorter way."""
        return None

    @classmethod
    def training_size(cls, options: IndexOptions, n: int) -> int:
        """How many vectors training makes use of, for ``n`` documents."""
        return 0

    @classmethod
    def n_lists_for(cls, options: IndexOptions, n: int) -> int:
        """How many lists ``n`` documents have."""
        return 1

    @classmethod
    @abstractmethod
    def kind(cls, options: IndexOptions, scoring: str | None) -> str:
        """What the scores of :meth:`candidates` are, as in :class:`~posh.index.hits.Hits`."""

    @abstractmethod
    def candidates(self, queries: Queries, params: SearchParams, allowed: Mask | None) -> SlotScores:
        """The ``params.k`` best live documents by ``params.scoring``; ``allowed`` is a mask over slots."""

    def compares_all(self, params: SearchParams) -> bool:
        """Whether such a search compares the vectors of all documents."""
        return False

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Memory beside codes and mask."""

    @property
    def vector_nbytes(self) -> int:
        """Memory of the vectors of documents, if it holds any."""
        return 0

    def trained_state(self) -> Arrays:
        """What was trained, by name."""
        return {}

    def to_arrays(self) -> Arrays:
        """What a file holds beside codes and deleted slots, with zeros in place of deleted documents."""
        return {}

    def __len__(self) -> int:
        """Slots in use, those of deleted documents included."""
        return self.codes.n

    def with_codes(self, codes: AnyCodes | None, X: npt.NDArray[Any] | None) -> Self:
        """Add documents at the end by codes, if ``has_codes``, and vectors X (n, d), if ``needs_vectors``."""
        assert codes is not None
        rows: npt.NDArray[Any] = codes.active if isinstance(codes, Codes) else codes.bits
        live = self.live.with_rows(np.ones(len(rows), bool))
        return replace(self, codes=self.codes.with_rows(rows), live=live, n_live=self.n_live + len(rows))

    def measured(self, added: npt.NDArray[Any] | None = None) -> Self:
        """With new measurements of its own documents, if it needs any; ``added`` (n, d) came last."""
        return self

    @property
    def n_measured(self) -> int:
        """Documents that it had when it last measured; 0 if it never did."""
        return 0

    @property
    def is_due(self) -> bool:
        """Whether the documents have changed so much that :meth:`measured` would measure them again."""
        return False

    @property
    def is_overdue(self) -> bool:
        """Whether so much has changed that the last measurement says nothing any more."""
        return False

    def with_measurements(self, before: Self, measured: Self) -> Self | None:
        """Take over the lists and measurements that an earlier state, with the same slots, was given.

        Returns None if this state was measured itself in the meantime.
        """
        return None

    def with_writes(self, n_added: int, n_deleted: int) -> Self:
        """Count these as the writes since the last measurement."""
        return self

    def without(self, slots: Slots) -> Self:
        """Remove the documents at these slots."""
        live = self.live.rows.copy()
        live[slots] = False
        return replace(self, live=AppendOnlyArray.of(live), n_live=int(live.sum()))

    def compacted(self) -> Self:
        """The same documents in new slots, without those of deleted ones."""
        codes, live, n_live = by_slot(self.codes.rows[self.live.rows])
        return replace(self, codes=codes, live=live, n_live=n_live)

    def detached(self) -> Self:
        """The same documents, to which one may add what this index never sees."""
        return replace(self, codes=self.codes.detached(), live=self.live.detached())

    def _passing(self, allowed: Mask | None) -> npt.NDArray[np.uint64] | None:
        """A bitmap of the slots that may be found; None for all."""
        if allowed is None and self.n_live == len(self):
            return None
        return bitmap(self.live.rows if allowed is None else self.live.rows & allowed)
