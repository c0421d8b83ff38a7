"""Refiners: a better order for the candidates of a search (the paper's "Candidate refinement").

A refiner learns from the first documents, keeps a few numbers of every document, and scores candidates again.
Higher is better.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from posh import kernels
from posh.codes import Codes
from posh.decode import SBIHT, LinearDecoder
from posh.hashers._tiles import Projection, for_each_tile
from posh.hashers._units import unit_rows
from posh.hashers.base import Hasher
from posh.preprocess import Float32, Preprocess
from posh.store import Arrays, expect

__all__ = ["REFINERS", "Candidates", "Refiner"]

_TRAINING = 20_000  # documents that the decoder learns from: bounds the time of the first addition


class Candidates:
    """Slots (m, c) of the candidates, and what the index has of all documents by slot."""

    def __init__(self, slots: npt.NDArray[np.int64], active: npt.NDArray[np.uint16], kept: Float32) -> None:
        self.slots, self.active, self.kept = slots, active, kept


class Refiner(ABC):
    """What an index asks of a refiner."""

    kind: ClassVar[str]
    sparse_only: ClassVar[bool] = True
    learns: ClassVar[bool] = False  # from the first documents
    keeps_vectors: ClassVar[bool] = False  # and so cannot do with codes

    def __init__(self, hasher: Hasher[Any]) -> None:
        self.hasher = hasher

    @abstractmethod
    def n_kept(self) -> int:
        """Numbers kept of each document."""

    @abstractmethod
    def keep(self, codes: Any, X: npt.NDArray[Any] | None) -> Float32:
        """What is kept of documents, float32 (n, n_kept); without vectors unless it keeps those."""

    @abstractmethod
    def scores(self, X: npt.NDArray[Any], candidates: Candidates, n_threads: int) -> Float32:
        """Scores (m, c) for queries X (m, d); -inf where the slot is -1."""

    def fit(self, codes: Any, X: npt.NDArray[Any]) -> None:  # noqa: B027  # nothing to learn is the default
        """Learn from the first documents."""

    def state(self) -> Arrays:
        """Arrays of what was learned."""
        return {}

    def restore(self, arrays: Arrays) -> None:  # noqa: B027
        """Take over the arrays of :meth:`state`."""


class DecoderRefiner(Refiner):
    """Minus the squared distance to the linearly decoded candidate, without decoding it.

    ‖q − D h‖² = ‖q‖² − 2 q·D h + ‖D h‖²: the middle term is a sum over the set bits of a table that is made
    once per query, the last is kept for each document.
    """

    kind = "decoder"
    learns = True

    def n_kept(self) -> int:
        """One number: ‖D h‖²."""
        return 1

    def fit(self, codes: Codes, X: npt.NDArray[Any]) -> None:
        """Learn the decoder."""
        self.decoder = LinearDecoder().fit(codes[:_TRAINING], X[:_TRAINING])

    def keep(self, codes: Codes, X: npt.NDArray[Any] | None) -> Float32:
        """‖D h‖² of each document."""
        decoded = codes.to_csr() @ self.decoder.weights_
        return np.asarray(np.einsum("ij,ij->i", decoded, decoded)[:, None], np.float32)

    def scores(self, X: npt.NDArray[Any], candidates: Candidates, n_threads: int) -> Float32:
        """Minus squared distances, by table look-up."""
        preprocess = Preprocess(self.decoder.mean_, self.hasher.preprocess_.scale)
        weights = 2.0 * preprocess.scale * self.decoder.weights_
        out = np.empty(candidates.slots.shape, np.float32)

        def look_up(tables: Float32, rows: slice) -> None:
            slots, penalty = candidates.slots[rows], candidates.kept[:, 0]
            out[rows] = kernels.table_scores(candidates.active, tables, slots, penalty=penalty)

        for_each_tile(X, partial(Projection, preprocess, weights), look_up, n_threads)
        centred = preprocess.centre(X, np.empty(X.shape, np.float32))
        out -= preprocess.scale**2 * np.einsum("ij,ij->i", centred, centred)[:, None]
        return out

    def state(self) -> Arrays:
        """Weights and mean of the decoder."""
        return {"decoder_weights": self.decoder.weights_, "decoder_mean": self.decoder.mean_}

    def restore(self, arrays: Arrays) -> None:
        """Take over weights and mean."""
        self.decoder = LinearDecoder()
        d = self.hasher.n_features_in_
        self.decoder.weights_ = expect(arrays, "decoder_weights", np.float32, (self.hasher.n_bits, d))
        self.decoder.mean_ = expect(arrays, "decoder_mean", np.float64, (d,))


class SBIHTRefiner(DecoderRefiner):
    """Minus the squared distance to the candidate decoded by SBIHT: slow, and seldom better."""

    kind = "sbiht"

    def scores(self, X: npt.NDArray[Any], candidates: Candidates, n_threads: int) -> Float32:
        """Decode every candidate once, then compare."""
        wanted, place = np.unique(candidates.slots, return_inverse=True)
        codes = Codes(candidates.active[np.maximum(wanted, 0)], self.hasher.n_bits)
        decoded = SBIHT(self.hasher, self.decoder).decode(codes)
        return _distances(X, decoded[place.reshape(candidates.slots.shape)], candidates.slots)


class VectorRefiner(Refiner):
    """Minus the squared distance between the vectors themselves, which are kept."""

    kind = "euclidean"
    sparse_only = False
    keeps_vectors = True

    def n_kept(self) -> int:
        """The vector."""
        return self.hasher.n_features_in_

    def keep(self, codes: Any, X: npt.NDArray[Any] | None) -> Float32:
        """The vectors as float32."""
        return np.asarray(X, np.float32)

    def scores(self, X: npt.NDArray[Any], candidates: Candidates, n_threads: int) -> Float32:
        """Minus squared distances."""
        kept = candidates.kept[np.maximum(candidates.slots, 0)]
        return _distances(np.asarray(X, np.float32), kept, candidates.slots)


class CosineRefiner(VectorRefiner):
    """Cosine of the vectors, which are kept with unit length."""

    kind = "cosine"

    def keep(self, codes: Any, X: npt.NDArray[Any] | None) -> Float32:
        """The vectors as float32 of unit length."""
        return unit_rows(np.asarray(X, np.float32))

    def scores(self, X: npt.NDArray[Any], candidates: Candidates, n_threads: int) -> Float32:
        """Products of unit vectors."""
        kept = candidates.kept[np.maximum(candidates.slots, 0)]
        products = np.einsum("mcd,md->mc", kept, unit_rows(np.asarray(X, np.float32)))
        return np.where(candidates.slots < 0, np.float32(-np.inf), products)


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
