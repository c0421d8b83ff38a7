"""Refiners: a better order for the candidates of a search (the paper's "Candidate refinement").

A refiner is trained on documents, makes a row of numbers for every document, and scores candidates again.
Higher is better.
"""

from __future__ import annotations

import copy
import math
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from posh import kernels
from posh._model_files import Arrays, require_array
from posh.codes import Codes
from posh.decode import SBIHT, LinearDecoder, PairSums
from posh.hashers._linalg import Projection, for_each_tile
from posh.hashers.base import Hasher
from posh.preprocess import Float32, Float64, Preprocess, normalize_rows

__all__ = ["REFINERS", "CandidateDocuments", "DecoderTraining", "Refiner"]

_ORDINARY = 2.0**16  # scales from its inverse on have squares that suit float32
_LARGEST = float(np.finfo(np.float32).max)
ENOUGH = 20_000  # documents that a decoder learns from: bounds the time and the memory of learning
_AT_ONCE = 256  # pairs that are summed together: an addition of one document does not copy the sums
_FEW = 2  # documents per bit: with fewer, a decoder mostly lowers MAP@50 (measured: docs/search.md)


class CandidateDocuments(NamedTuple):
    """Slots (m, c) of the candidates; codes and refiner rows of all documents by slot."""

    slots: npt.NDArray[np.int64]
    codes: npt.NDArray[Any]
    rows: Float32


class Refiner(ABC):
    """The contract of a refiner.

    Squares of very large or small vectors do not fit into float32. So distances are measured in a ``unit``, a
    power of two near the scale of the data, which makes the division by it exact;
    :meth:`restore_scores` returns scores in the unit of the data.
    """

    kind: ClassVar[str]
    sparse_only: ClassVar[bool] = True
    needs_training: ClassVar[bool] = False  # on documents
    needs_vectors: ClassVar[bool] = False  # of every document: codes are not enough

    def __init__(self, hasher: Hasher[Any]) -> None:
        self.hasher = hasher
        self.unit = _unit_for(hasher.preprocess_.scale)

    @abstractmethod
    def row_width(self) -> int:
        """Return the numbers in the row of a document."""

    @abstractmethod
    def make_rows(self, codes: Any, X: npt.NDArray[Any] | None) -> Float32:
        """Return the rows of documents, float32 (n, row_width); X is None unless ``needs_vectors``."""

    @abstractmethod
    def scores(self, X: npt.NDArray[Any], candidates: CandidateDocuments, n_threads: int) -> Float32:
        """Return scores (m, c) for queries X (m, d), in squares of the unit; -inf where the slot is -1."""

    def restore_scores(self, slots: npt.NDArray[np.int64], scores: Float32) -> Float32:
        """Return scores in the unit of the data, rounded to float32; -inf where the slot is -1."""
        if self.unit == 1.0:
            return scores
        finite = np.clip(scores.astype(np.float64) * self.unit**2, -_LARGEST, _LARGEST)
        return np.where(slots < 0, -np.inf, finite).astype(np.float32)

    def in_unit(self, A: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return vectors in the unit."""
        return A if self.unit == 1.0 else A / self.unit

    def fit(self, codes: Any, X: npt.NDArray[Any]) -> None:  # noqa: B027  # by default nothing to train
        """Train on a sample of documents, once: documents that are added change nothing."""

    @property
    def n_to_learn_from(self) -> int:
        """Documents that it still learns from when they are added: none after :meth:`fit`."""
        return 0

    def with_pairs(self, codes: Any, X: npt.NDArray[Any]) -> tuple[Self, bool]:
        """Return a refiner that has seen more documents, and whether the rows of earlier ones change."""
        return self, False

    def warn_if_few(self) -> None:  # noqa: B027
        """Warn the caller of a search if there were too few documents to learn from."""

    def trained_state(self) -> Arrays:
        """Return the arrays that training computed, by name."""
        return {}

    def to_arrays(self) -> Arrays:
        """Return the trained state and the data for further learning, for the file of its index."""
        return self.trained_state()

    def restore(self, arrays: Arrays) -> None:  # noqa: B027
        """Adopt the arrays of :meth:`to_arrays`, or of :meth:`trained_state` to stop learning."""


def choose_learning_size(n: int) -> int:
    """Return how many of the first n documents a decoder learns from: n rounded down to three binary digits.

    So it learns four times while the documents double, from at least four fifths of them, and the result does
    not depend on the parts in which they were added.

    >>> [choose_learning_size(n) for n in (7, 9, 1000, 10_000, 30_000)]
    [7, 8, 896, 8192, 20000]
    """
    if n >= ENOUGH:
        return ENOUGH
    digits = max(0, n.bit_length() - 3)
    return n >> digits << digits


@dataclass(frozen=True, eq=False)
class DecoderTraining:
    """Sums over the first documents; ``waiting`` are the last pairs of codes and vectors, not summed yet.

    Deleted documents stay in the sums. At ``ENOUGH`` documents, learning ends.
    """

    sums: PairSums
    waiting: tuple[tuple[Codes, npt.NDArray[Any]], ...] = ()

    @property
    def n(self) -> int:
        """Documents so far."""
        return self.sums.n + sum(len(codes) for codes, _ in self.waiting)

    def with_pairs(self, codes: Codes, X: npt.NDArray[Any]) -> DecoderTraining:
        """Add documents by codes and vectors (n, d)."""
        if not len(X):
            return self
        grown = DecoderTraining(self.sums, (*self.waiting, (codes, np.array(X))))
        return grown if grown.n - self.sums.n < _AT_ONCE else grown.sum_up()

    def sum_up(self) -> DecoderTraining:
        """Return the same documents with none waiting."""
        if not self.waiting:
            return self
        codes, vectors = zip(*self.waiting, strict=True)
        active = np.concatenate([some.active for some in codes])
        sums = self.sums.with_pairs(Codes.wrap(active, codes[0].n_bits), np.concatenate(vectors))
        return DecoderTraining(sums)

    def to_arrays(self) -> Arrays:
        """Return the sums by name; counts below ``ENOUGH`` fit into 16 bits."""
        sums = self.sum_up().sums
        return {
            "decoder_seen": np.array(sums.n, np.int64),
            "decoder_square": np.array(sums.square),
            "decoder_total": sums.total,
            "decoder_gram": sums.gram.astype(np.uint16),
            "decoder_cross": sums.cross,
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays, n_bits: int, n_features: int) -> DecoderTraining:
        """Adopt the arrays of :meth:`to_arrays`; raise ValueError or KeyError if they are wrong."""
        n = int(require_array(arrays, "decoder_seen", np.int64, (), low=1))
        gram = require_array(arrays, "decoder_gram", np.uint16, (n_bits, n_bits))
        if n >= ENOUGH or gram.max() > n:
            raise ValueError(f"expected counts of fewer than {ENOUGH:,} documents, found {gram.max()} of {n}")
        sums = PairSums(
            n,
            float(require_array(arrays, "decoder_square", np.float64, (), low=0)),
            require_array(arrays, "decoder_total", np.float64, (n_features,)),
            gram.astype(np.float64),
            require_array(arrays, "decoder_cross", np.float64, (n_bits, n_features)),
        )
        return cls(sums)


class DecoderRefiner(Refiner):
    """Minus the squared distance to the linearly decoded candidate, without decoding it.

    ‖q − D h‖² = ‖q‖² − 2 q·D h + ‖D h‖²: the middle term is a sum over the set bits of a table that is made
    once per query, the last is the row of the document.
    """

    kind = "decoder"
    needs_training = True
    decoder: LinearDecoder
    n_learned: int | None = None  # documents that the decoder learned from, unless an old file left it out
    training: DecoderTraining | None  # None if learning has ended

    def __init__(self, hasher: Hasher[Any]) -> None:
        super().__init__(hasher)
        self.training = DecoderTraining(PairSums.zero(hasher.n_bits, hasher.n_features_in_))

    def row_width(self) -> int:
        """Return 1: a row is ‖D h‖², in squares of the unit."""
        return 1

    def fit(self, codes: Codes, X: npt.NDArray[Any]) -> None:
        """Learn the decoder once."""
        sums = PairSums.zero(self.hasher.n_bits, self.hasher.n_features_in_)
        self._learn(sums.with_pairs(codes[:ENOUGH], X[:ENOUGH]))
        self.training = None

    @property
    def n_to_learn_from(self) -> int:
        """Documents until the decoder has enough."""
        return 0 if self.training is None else ENOUGH - self.training.n

    def with_pairs(self, codes: Codes, X: npt.NDArray[Any]) -> tuple[Self, bool]:
        """Return a refiner that has seen these documents, and whether it has learned another decoder."""
        assert self.training is not None
        grown, training = copy.copy(self), self.training
        n_first = max(0, choose_learning_size(training.n + len(X)) - training.n)
        if n_first:
            training = training.with_pairs(codes[:n_first], X[:n_first]).sum_up()
            grown._learn(training.sums)
        training = training.with_pairs(codes[n_first:], X[n_first:])
        grown.training = None if training.n == ENOUGH else training
        return grown, n_first > 0

    def warn_if_few(self) -> None:
        """Warn if the decoder learned from fewer than two documents per bit."""
        enough = _FEW * self.hasher.n_bits
        if self.n_learned is not None and self.n_learned < enough:
            message = (
                f"expected refine={self.kind!r} to learn from {enough:,} documents or more ({_FEW} per bit), "
                f"got {self.n_learned:,}: results may be worse than with refine=None; add documents, or use "
                "refine='vectors' or a hasher with fewer bits"
            )
            warnings.warn(message, stacklevel=4)  # the caller of CodeIndex.search

    def _learn(self, sums: PairSums) -> None:
        self._take(*sums.solve(ridge=None)[:2])
        self.n_learned = sums.n

    def _take(self, weights: Float32, mean: Float64) -> None:
        self.decoder = LinearDecoder()
        self.decoder.weights_, self.decoder.mean_ = weights, mean

    def make_rows(self, codes: Codes, X: npt.NDArray[Any] | None) -> Float32:
        """Return ‖D h‖² of each document."""
        decoded = codes.to_csr() @ self.in_unit(self.decoder.weights_)
        return np.asarray(np.einsum("ij,ij->i", decoded, decoded)[:, None], np.float32)

    def scores(self, X: npt.NDArray[Any], candidates: CandidateDocuments, n_threads: int) -> Float32:
        """Return minus squared distances, by table look-up."""
        preprocess = Preprocess(self.decoder.mean_, self.hasher.preprocess_.scale)
        scale = preprocess.scale / self.unit
        weights = np.asarray(2.0 * scale * self.in_unit(self.decoder.weights_), np.float32)
        out = np.empty(candidates.slots.shape, np.float32)

        def look_up(tables: Float32, rows: slice) -> None:
            slots, penalty = candidates.slots[rows], candidates.rows[:, 0]
            out[rows] = kernels.table_scores(candidates.codes, tables, slots, penalty=penalty)

        for_each_tile(X, partial(Projection, preprocess, weights), look_up, n_threads)
        centred = preprocess.centre(X, np.empty(X.shape, np.float32))
        out -= scale**2 * np.einsum("ij,ij->i", centred, centred)[:, None]
        return out

    def trained_state(self) -> Arrays:
        """Return weights and mean of the decoder, the documents it learned from, and the unit of the rows."""
        state: Arrays = {"decoder_weights": self.decoder.weights_, "decoder_mean": self.decoder.mean_}
        learned = {} if self.n_learned is None else {"decoder_learned": np.array(self.n_learned, np.int64)}
        return state | {"decoder_unit": np.array(self.unit)} | learned

    def to_arrays(self) -> Arrays:
        """Return the trained state, and the sums for further learning."""
        return self.trained_state() | ({} if self.training is None else self.training.to_arrays())

    def restore(self, arrays: Arrays) -> None:
        """Adopt the arrays; those of older versions have no sums, and the oldest no unit."""
        D, d = self.hasher.n_bits, self.hasher.n_features_in_
        weights = require_array(arrays, "decoder_weights", np.float32, (D, d))
        self._take(weights, require_array(arrays, "decoder_mean", np.float64, (d,)))
        self.training = self.n_learned = None
        if "decoder_learned" in arrays:
            self.n_learned = int(require_array(arrays, "decoder_learned", np.int64, (), low=1))
        if "decoder_seen" in arrays:
            self.training = DecoderTraining.from_arrays(arrays, D, d)
        self.unit = 1.0
        if "decoder_unit" in arrays:
            self.unit = float(require_array(arrays, "decoder_unit", np.float64, ()))
        if not 0.0 < self.unit < np.inf:
            raise ValueError(f"expected a positive unit, found {self.unit}")


class SBIHTRefiner(DecoderRefiner):
    """Minus the squared distance to the candidate decoded by SBIHT: slow, and seldom better."""

    kind = "sbiht"

    def scores(self, X: npt.NDArray[Any], candidates: CandidateDocuments, n_threads: int) -> Float32:
        """Decode every candidate once, then compare."""
        wanted, place = np.unique(candidates.slots, return_inverse=True)
        codes = Codes(candidates.codes[np.maximum(wanted, 0)], self.hasher.n_bits)
        decoded = SBIHT(self.hasher, self.decoder).decode(codes)
        decoded = self.in_unit(decoded)[place.reshape(candidates.slots.shape)]
        return _distances(self.in_unit(X), decoded, candidates.slots)


class VectorRefiner(Refiner):
    """Minus the squared distance between the vectors, which are the rows."""

    kind = "euclidean"
    sparse_only = False
    needs_vectors = True

    def row_width(self) -> int:
        """Return the width of a vector."""
        return self.hasher.n_features_in_

    def make_rows(self, codes: Any, X: npt.NDArray[Any] | None) -> Float32:
        """Return the vectors as float32."""
        try:
            with np.errstate(over="raise"):
                return np.asarray(X, np.float32)
        except FloatingPointError:
            largest = np.abs(np.asarray(X)).max()
            raise ValueError(
                f"expected vectors within float32's range (±{_LARGEST:.2g}), got {largest:.3g}: rescale them"
            ) from None

    def scores(self, X: npt.NDArray[Any], candidates: CandidateDocuments, n_threads: int) -> Float32:
        """Return minus squared distances."""
        rows = self.in_unit(candidates.rows[np.maximum(candidates.slots, 0)])
        return _distances(np.asarray(self.in_unit(X), np.float32), rows, candidates.slots)


class CosineRefiner(VectorRefiner):
    """Cosine of the vectors, whose rows have unit length; 0 for a zero vector."""

    kind = "cosine"

    def __init__(self, hasher: Hasher[Any]) -> None:
        super().__init__(hasher)
        self.unit = 1.0  # a cosine has none

    def make_rows(self, codes: Any, X: npt.NDArray[Any] | None) -> Float32:
        """Return the vectors as float32 of unit length."""
        return normalize_rows(np.asarray(X))

    def scores(self, X: npt.NDArray[Any], candidates: CandidateDocuments, n_threads: int) -> Float32:
        """Return products of unit vectors."""
        rows = candidates.rows[np.maximum(candidates.slots, 0)]
        products = np.einsum("mcd,md->mc", rows, normalize_rows(X))
        return np.where(candidates.slots < 0, np.float32(-np.inf), products)


def _unit_for(scale: float) -> float:
    """Return the unit for data of this scale: 1 if it is ordinary, which avoids a division."""
    return 1.0 if 1.0 / _ORDINARY <= scale <= _ORDINARY else 2.0 ** round(math.log2(scale))


def _distances(X: npt.NDArray[Any], candidates: Float32, slots: npt.NDArray[np.int64]) -> Float32:
    difference = candidates - X[:, None, :]
    squared = np.einsum("mcd,mcd->mc", difference, difference)
    return np.where(slots < 0, np.float32(-np.inf), -squared).astype(np.float32)


REFINERS: dict[str, type[Refiner]] = {
    "decoder": DecoderRefiner,
    "sbiht": SBIHTRefiner,
    "vectors": VectorRefiner,
    "cosine": CosineRefiner,
}
