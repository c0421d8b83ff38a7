"""The first documents of an index, which its decoder learns from, again each time that they have grown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from posh.codes import Codes
from posh.decode import PairSums
from posh.model_files import Arrays, expect

__all__ = ["ENOUGH", "DecoderTraining", "learning_size"]

ENOUGH = 20_000  # documents that a decoder learns from: bounds the time and the memory of learning
_AT_ONCE = 256  # pairs that are summed together: an addition of one document does not copy the sums


def learning_size(n: int) -> int:
    """Return how many of the first n documents a decoder learns from: n rounded down to three binary digits.

    So it learns four times while the documents double, from at least four fifths of them, and the result does
    not depend on the parts in which they were added.

    >>> [learning_size(n) for n in (7, 9, 1000, 10_000, 30_000)]
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
        return grown if grown.n - self.sums.n < _AT_ONCE else grown.summed()

    def summed(self) -> DecoderTraining:
        """Return the same documents with none waiting."""
        if not self.waiting:
            return self
        codes, vectors = zip(*self.waiting, strict=True)
        active = np.concatenate([some.active for some in codes])
        sums = self.sums.with_pairs(Codes.trusted(active, codes[0].n_bits), np.concatenate(vectors))
        return DecoderTraining(sums)

    def to_arrays(self) -> Arrays:
        """Return the sums by name; counts below ``ENOUGH`` fit into 16 bits."""
        sums = self.summed().sums
        return {
            "decoder_seen": np.array(sums.n, np.int64),
            "decoder_square": np.array(sums.square),
            "decoder_total": sums.total,
            "decoder_gram": sums.gram.astype(np.uint16),
            "decoder_cross": sums.cross,
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays, n_bits: int, n_features: int) -> DecoderTraining:
        """Take over the arrays of :meth:`to_arrays`; raise ValueError or KeyError if they are wrong."""
        n = int(expect(arrays, "decoder_seen", np.int64, (), low=1))
        gram = expect(arrays, "decoder_gram", np.uint16, (n_bits, n_bits))
        if n >= ENOUGH or gram.max() > n:
            raise ValueError(f"expected counts of fewer than {ENOUGH:,} documents, found {gram.max()} of {n}")
        sums = PairSums(
            n,
            float(expect(arrays, "decoder_square", np.float64, (), low=0)),
            expect(arrays, "decoder_total", np.float64, (n_features,)),
            gram.astype(np.float64),
            expect(arrays, "decoder_cross", np.float64, (n_bits, n_features)),
        )
        return cls(sums)
