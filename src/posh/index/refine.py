"""Refiners: a better order for the candidates of a search (the paper's "Candidate refinement").

A refiner is trained on the first documents, makes a row of numbers for every document, and scores candidates
again. Higher is better.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from posh import kernels
from posh.codes import Codes
from posh.decode import SBIHT, LinearDecoder
from posh.hashers._tiles import Projection, for_each_tile
from posh.hashers._units import directions
from posh.hashers.base import Hasher
from posh.model_files import Arrays, expect
from posh.preprocess import Float32, Preprocess

__all__ = ["REFINERS", "CandidateDocuments", "Refiner"]

_TRAINING = 20_000  # documents that the decoder learns from: bounds the time of the first addition
_ORDINARY = 2.0**16  # scales from its inverse on have squares that suit float32
_LARGEST = float(np.finfo(np.float32).max)


class CandidateDocuments(NamedTuple):
    """Slots (m, c) of the candidates; codes and refiner rows of all documents by slot."""

    slots: npt.NDArray[np.int64]
    codes: npt.NDArray[Any]
    rows: Float32


class Refiner(ABC):
    """What an index asks of a refiner.

    Squares of very large or small vectors do not fit into float32. So distances are measured in a ``unit``, a
    power of two near the scale of the data, which makes the division by it exact; :meth:`given_back` are the
    scores in the unit of the data.
    """

    kind: ClassVar[str]
    sparse_only: ClassVar[bool] = True
    needs_training: ClassVar[bool] = False  # on the first documents
    needs_vectors: ClassVar[bool] = False  # of every document: codes are not enough

    def __init__(self, hasher: Hasher[Any]) -> None:
        self.hasher = hasher
        self.unit = _unit_for(hasher.preprocess_.scale)

    @abstractmethod
    def row_width(self) -> int:
        """Numbers in the row of a document."""

    @abstractmethod
    def rows_of(self, codes: Any, X: npt.NDArray[Any] | None) -> Float32:
        """The rows of documents, float32 (n, row_width); X is None unless ``needs_vectors``."""

    @abstractmethod
    def scores(self, X: npt.NDArray[Any], candidates: CandidateDocuments, n_threads: int) -> Float32:
        """Scores (m, c) for queries X (m, d), in squares of the unit; -inf where the slot is -1."""

    def given_back(self, slots: npt.NDArray[np.int64], scores: Float32) -> Float32:
        """Scores in the unit of the data, the nearest that float32 has; -inf where the slot is -1."""
        if self.unit == 1.0:
            return scores
        finite = np.clip(scores.astype(np.float64) * self.unit**2, -_LARGEST, _LARGEST)
        return np.where(slots < 0, -np.inf, finite).astype(np.float32)

    def measured(self, A: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Vectors in the unit."""
        return A if self.unit == 1.0 else A / self.unit

    def fit(self, codes: Any, X: npt.NDArray[Any]) -> None:  # noqa: B027  # by default nothing to train
        """Train on the first documents."""

    def trained_state(self) -> Arrays:
        """What was trained, by name."""
        return {}

    def restore(self, arrays: Arrays) -> None:  # noqa: B027
        """Take over the arrays of :meth:`trained_state`."""


class DecoderRefiner(Refiner):
    """Minus the squared distance to the linearly decoded candidate, without decoding it.

    ‖q − D h‖² = ‖q‖² − 2 q·D h + ‖D h‖²: the middle term is a sum over the set bits of a table that is made
    once per query, the last is the row of the document.
    """

    kind = "decoder"
    needs_training = True

    def row_width(self) -> int:
        """One number: ‖D h‖², in squares of the unit."""
        return 1

    def fit(self, codes: Codes, X: npt.NDArray[Any]) -> None:
        """Learn the decoder."""
        self.decoder = LinearDecoder().fit(codes[:_TRAINING], X[:_TRAINING])

    def rows_of(self, codes: Codes, X: npt.NDArray[Any] | None) -> Float32:
        """‖D h‖² of each document."""
        decoded = codes.to_csr() @ self.measured(self.decoder.weights_)
        return np.asarray(np.einsum("ij,ij->i", decoded, decoded)[:, None], np.float32)

    def scores(self, X: npt.NDArray[Any], candidates: CandidateDocuments, n_threads: int) -> Float32:
        """Minus squared distances, by table look-up."""
        preprocess = Preprocess(self.decoder.mean_, self.hasher.preprocess_.scale)
        scale = preprocess.scale / self.unit
        weights = np.asarray(2.0 * scale * self.measured(self.decoder.weights_), np.float32)
        out = np.empty(candidates.slots.shape, np.float32)

        def look_up(tables: Float32, rows: slice) -> None:
            slots, penalty = candidates.slots[rows], candidates.rows[:, 0]
            out[rows] = kernels.table_scores(candidates.codes, tables, slots, penalty=penalty)

        for_each_tile(X, partial(Projection, preprocess, weights), look_up, n_threads)
        centred = preprocess.centre(X, np.empty(X.shape, np.float32))
        out -= scale**2 * np.einsum("ij,ij->i", centred, centred)[:, None]
        return out

    def trained_state(self) -> Arrays:
        """Weights and mean of the decoder, and the unit of the rows."""
        return {
            "decoder_weights": self.decoder.weights_,
            "decoder_mean": self.decoder.mean_,
            "decoder_unit": np.array(self.unit),
        }

    def restore(self, arrays: Arrays) -> None:
        """Take over weights, mean and unit."""
        self.decoder = LinearDecoder()
        d = self.hasher.n_features_in_
        self.decoder.weights_ = expect(arrays, "decoder_weights", np.float32, (self.hasher.n_bits, d))
        self.decoder.mean_ = expect(arrays, "decoder_mean", np.float64, (d,))
        self.unit = 1.0  # files of older versions do not have it
        if "decoder_unit" in arrays:
            self.unit = float(expect(arrays, "decoder_unit", np.float64, ()))
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
        decoded = self.measured(decoded)[place.reshape(candidates.slots.shape)]
        return _distances(self.measured(X), decoded, candidates.slots)


class VectorRefiner(Refiner):
    """Minus the squared distance between the vectors, which are the rows."""

    kind = "euclidean"
    sparse_only = False
    needs_vectors = True

    def row_width(self) -> int:
        """The vector."""
        return self.hasher.n_features_in_

    def rows_of(self, codes: Any, X: npt.NDArray[Any] | None) -> Float32:
        """The vectors as float32."""
        try:
            with np.errstate(over="raise"):
                return np.asarray(X, np.float32)
        except FloatingPointError:
            largest = np.abs(np.asarray(X)).max()
            raise ValueError(
                f"expected vectors within float32's range (±{_LARGEST:.2g}), got {largest:.3g}: rescale them"
            ) from None

    def scores(self, X: npt.NDArray[Any], candidates: CandidateDocuments, n_threads: int) -> Float32:
        """Minus squared distances."""
        rows = self.measured(candidates.rows[np.maximum(candidates.slots, 0)])
        return _distances(np.asarray(self.measured(X), np.float32), rows, candidates.slots)


class CosineRefiner(VectorRefiner):
    """Cosine of the vectors, whose rows have unit length; 0 for a zero vector."""

    kind = "cosine"

    def __init__(self, hasher: Hasher[Any]) -> None:
        super().__init__(hasher)
        self.unit = 1.0  # a cosine has none

    def rows_of(self, codes: Any, X: npt.NDArray[Any] | None) -> Float32:
        """The vectors as float32 of unit length."""
        return directions(np.asarray(X))

    def scores(self, X: npt.NDArray[Any], candidates: CandidateDocuments, n_threads: int) -> Float32:
        """Products of unit vectors."""
        rows = candidates.rows[np.maximum(candidates.slots, 0)]
        products = np.einsum("mcd,md->mc", rows, directions(X))
        return np.where(candidates.slots < 0, np.float32(-np.inf), products)


def _unit_for(scale: float) -> float:
    """The unit for data of this scale: 1 if it is ordinary, which spares the division."""
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
