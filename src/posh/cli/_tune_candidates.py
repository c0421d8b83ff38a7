"""Candidates that ``posh tune`` compares by labels: hashers, and float vectors."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import posh
from posh import metrics
from posh.tuning import N_QUERIES, hold_out

__all__ = ["N_BITS", "LabelResult", "LabelSplit", "measure_hashers", "split_labelled"]

Float32 = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]
N_BITS = 1024
_MAP_DEPTH = 1000
_N_TRAINING = 5000
_N_ACTIVE = (8, 16, 32, 64)
_HASHERS = (posh.POSH, posh.SphericalHash, posh.FruitFly)
_METRICS = ("cosine", "euclidean")


@dataclass(frozen=True)
class LabelSplit:
    """Vectors to index and others to use as queries, each with its label."""

    base: Float32
    base_labels: Labels
    queries: Float32
    query_labels: Labels


@dataclass(frozen=True)
class LabelResult:
    """Mean average precision by label of the codes of a hasher, or of float vectors."""

    name: str
    hasher: str | None  # None: float vectors
    n_bits: int | None
    n_active: int | None
    map: float
    error: float  # standard error of the mean over queries
    bytes_per_vector: float
    fit_seconds: float | None

    def format_python(self) -> str:
        """Return the line of Python that builds an index of these codes."""
        shape = f"n_bits={self.n_bits}, n_active={self.n_active}"
        return f"index = posh.CodeIndex(posh.{self.hasher}({shape}).fit(X)).add(X)"


def split_labelled(X: Float32, labels: Labels) -> LabelSplit:
    """Hold out queries, at most a tenth of the vectors (n, d), drawn with a fixed seed."""
    if len(X) < 20:
        raise ValueError(f"expected at least 20 vectors with labels, got {len(X)}")
    is_query = hold_out(len(X), min(N_QUERIES, len(X) // 10))
    return LabelSplit(X[~is_query], labels[~is_query], X[is_query], labels[is_query])


def measure_hashers(data: LabelSplit, n_bits: int) -> Iterator[LabelResult]:
    """Measure float vectors, then hashers with an increasing number of set bits."""
    for metric in _METRICS:
        yield _measure_exact(data, metric)
    rng = np.random.default_rng(0)
    sample = data.base[np.sort(rng.permutation(len(data.base))[:_N_TRAINING])]
    for n_active in (n for n in _N_ACTIVE if n < n_bits):
        for hasher in _HASHERS:
            yield _measure_codes(data, sample, hasher(n_bits, n_active, random_state=0))


def _measure_exact(data: LabelSplit, metric: str) -> LabelResult:
    index = posh.Index(metric).add(data.base)
    ids = index.search(data.queries, min(_MAP_DEPTH, len(data.base)), exact=True).ids
    n_bytes = 4.0 * data.base.shape[1]
    mean, error = _compute_map(data, ids)
    return LabelResult(f"float vectors, {metric}", None, None, None, mean, error, n_bytes, None)


def _measure_codes(data: LabelSplit, sample: Float32, hasher: posh.SparseHasher) -> LabelResult:
    start = time.perf_counter()
    hasher.fit(sample)
    seconds = time.perf_counter() - start
    index = posh.CodeIndex(hasher).add(data.base)
    ids = index.search(data.queries, min(_MAP_DEPTH, len(data.base))).ids
    name = type(hasher).__name__
    return LabelResult(
        f"{name}, {hasher.n_active} of {hasher.n_bits} bits",
        name,
        hasher.n_bits,
        hasher.n_active,
        *_compute_map(data, ids),
        index.memory_usage()["total"] / len(index),
        seconds,
    )


def _compute_map(data: LabelSplit, ids: npt.NDArray[np.int64]) -> tuple[float, float]:
    """Return the mean average precision and its standard error."""
    values = metrics.average_precision(data.base_labels[ids], data.query_labels)
    return float(values.mean()), float(values.std() / math.sqrt(len(values)))
