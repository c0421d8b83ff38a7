"""What ``posh tune --labels`` measures: which hasher and how many set bits find items of the same label."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import posh
from posh import metrics

__all__ = ["N_BITS", "LabelResult", "LabelSplit", "measured_hashers", "split"]

N_BITS = 1024
_AT = 1000
_QUERIES, _TRAINING = 1000, 5000
_ACTIVE = (8, 16, 32, 64)
_HASHERS = (posh.POSH, posh.SphericalHash, posh.FruitFly)
_EXACT = ("cosine", "euclidean")

Float32 = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LabelSplit:
    """Vectors to search among and others to search for, each with its label."""

    base: Float32
    base_labels: Labels
    queries: Float32
    query_labels: Labels


@dataclass(frozen=True)
class LabelResult:
    """How well one kind of code, or float vectors, finds items of the same label."""

    name: str
    hasher: str | None  # None: float vectors
    n_bits: int | None
    n_active: int | None
    map: float
    error: float  # its standard error over queries
    bytes_per_vector: float
    fit_seconds: float | None

    def python(self) -> str:
        """The line that makes such codes."""
        shape = f"n_bits={self.n_bits}, n_active={self.n_active}"
        return f"index = posh.CodeIndex(posh.{self.hasher}({shape}).fit(X)).add(X)"


def split(X: Float32, labels: Labels) -> LabelSplit:
    """Hold out queries, at most a tenth of the vectors (n, d), drawn with a fixed seed."""
    if len(X) < 20:
        raise ValueError(f"expected at least 20 vectors with labels, got {len(X)}")
    held_out = np.zeros(len(X), bool)
    held_out[np.random.default_rng(0).permutation(len(X))[: min(_QUERIES, len(X) // 10)]] = True
    return LabelSplit(X[~held_out], labels[~held_out], X[held_out], labels[held_out])


def measured_hashers(data: LabelSplit, n_bits: int) -> Iterator[LabelResult]:
    """Measure float vectors, then hashers with more and more set bits."""
    for metric in _EXACT:
        yield _exact(data, metric)
    rng = np.random.default_rng(0)
    sample = data.base[np.sort(rng.permutation(len(data.base))[:_TRAINING])]
    for n_active in (n for n in _ACTIVE if n < n_bits):
        for hasher in _HASHERS:
            yield _coded(data, sample, hasher(n_bits, n_active, random_state=0))


def _exact(data: LabelSplit, metric: str) -> LabelResult:
    index = posh.Index(metric).add(data.base)
    ids = index.search(data.queries, min(_AT, len(data.base)), exact=True).ids
    n_bytes = 4.0 * data.base.shape[1]
    return LabelResult(f"float vectors, {metric}", None, None, None, *_precision(data, ids), n_bytes, None)


def _coded(data: LabelSplit, sample: Float32, hasher: posh.SparseHasher) -> LabelResult:
    start = time.perf_counter()
    hasher.fit(sample)
    seconds = time.perf_counter() - start
    index = posh.CodeIndex(hasher).add(data.base)
    ids = index.search(data.queries, min(_AT, len(data.base))).ids
    name = type(hasher).__name__
    return LabelResult(
        f"{name}, {hasher.n_active} of {hasher.n_bits} bits",
        name,
        hasher.n_bits,
        hasher.n_active,
        *_precision(data, ids),
        index.memory_usage()["total"] / len(index),
        seconds,
    )


def _precision(data: LabelSplit, ids: npt.NDArray[np.int64]) -> tuple[float, float]:
    """MAP and its standard error."""
    values = metrics.average_precision(data.base_labels[ids], data.query_labels)
    return float(values.mean()), float(values.std() / math.sqrt(len(values)))
