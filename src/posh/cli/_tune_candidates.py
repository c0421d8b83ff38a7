"""Candidates that ``posh tune`` compares: settings of an index with a metric, or hashers by labels."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import posh
from posh import metrics
from posh._runtime import track_progress
from posh.index.choices import STORES

__all__ = ["N_BITS", "K", "LabelResult", "LabelSplit", "Setting", "Split"]
__all__ += ["choose_setting", "compute_scores", "compute_shares", "find_best", "measure_hashers"]
__all__ += ["measure_settings", "select_front", "split_labelled", "split_vectors"]

_N_QUERIES = 1000  # held out, and searched in one batch

Float32 = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


def _hold_out(n: int, n_queries: int) -> npt.NDArray[np.bool_]:
    """Return a mask (n,) of ``n_queries`` random rows, drawn with a fixed seed."""
    mask = np.zeros(n, bool)
    mask[np.random.default_rng(0).permutation(n)[:n_queries]] = True
    return mask


# Settings of posh.Index ---------------------------------------------------------------------------------

K = 10
_N_SINGLE = 200  # queries that are searched one by one
_RECALLS = (0.7, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995)  # requested in addition to the user's
_FAST_ENOUGH = 0.85  # of the highest speed: settings above it are chosen by memory
_EQUAL_SPEED = 0.95  # the precision of measured times
_EQUAL_RECALL = 0.002  # smaller differences do not count
_ROUNDING = 1e-9  # of a mean of shares


@dataclass(frozen=True)
class Split:
    """Vectors to index, and others to use as queries."""

    base: Float32
    queries: Float32


@dataclass(frozen=True)
class Setting:
    """A requested recall and measurements; ``asked`` is None if all vectors are compared."""

    store: str
    asked: float | None
    recall: float
    per_second: float  # queries in a batch, on all cores
    alone_per_second: float  # queries one by one, on one core
    bytes_per_vector: float
    is_default: bool = False  # the setting of Index.build for the recall that the user requests

    def beats(self, other: Setting) -> bool:
        """Return whether the other setting is not better in any measurement."""
        is_smaller = self.bytes_per_vector < other.bytes_per_vector
        is_faster = self.per_second > other.per_second
        return (
            self.recall >= other.recall - _EQUAL_RECALL
            and self.per_second >= _EQUAL_SPEED * other.per_second
            and (is_smaller or (is_faster and self.bytes_per_vector == other.bytes_per_vector))
        )


def split_vectors(X: Float32, n_queries: int = _N_QUERIES) -> Split:
    """Hold out queries, at most a tenth of the vectors (n, d), drawn with a fixed seed."""
    if len(X) < 2:
        raise ValueError(f"expected at least 2 vectors to tune with, got {len(X)}")
    is_query = _hold_out(len(X), max(1, min(n_queries, len(X) // 10)))
    return Split(X[~is_query], X[is_query])


def measure_settings(data: Split, metric: str, recall: float) -> Iterator[Setting]:
    """Build an index for each store, and measure it at several recalls on the held-out queries."""
    true: Float32 | None = None
    for store in STORES:
        index = posh.Index.build(data.base, metric=metric, recall=recall, store=store)
        if true is None:  # from the first store, which is exact
            nearest = index.search(data.queries, min(K, len(data.base)), exact=True)
            true = compute_scores(index, data, nearest.ids)
        exact = [] if store == "int8" else [None]
        requests = [*sorted({recall, *_RECALLS}), *exact]
        for asked in track_progress(requests, f"measuring {store}", "setting"):
            yield _measure_setting(index, data, asked, true)


def _measure_setting(index: posh.Index, data: Split, asked: float | None, true: Float32) -> Setting:
    k = true.shape[1]

    def search(queries: Float32, n_threads: int | None = None) -> posh.Hits:
        return index.search(queries, k, n_threads=n_threads, recall=asked, exact=asked is None)

    scores = compute_scores(index, data, search(data.queries).ids)
    singles = data.queries[:_N_SINGLE, None]
    return Setting(
        store=index.options.store,
        asked=asked,
        recall=float(compute_shares(true, scores).mean()),
        per_second=len(data.queries) / _time_best_of_three(lambda: search(data.queries)),
        alone_per_second=len(singles) / _time_best_of_three(lambda: [search(query, 1) for query in singles]),
        bytes_per_vector=index.memory_usage()["total"] / len(index),
        is_default=asked == index.options.recall,
    )


def select_front(settings: list[Setting], marked: Setting) -> list[Setting]:
    """Return the settings that no other one beats, the defaults and the marked one, by recall."""
    front = [
        setting
        for setting in settings
        if setting.is_default or setting is marked or not any(other.beats(setting) for other in settings)
    ]
    return sorted(front, key=lambda setting: (setting.recall, -setting.per_second))


def choose_setting(settings: list[Setting], recall: float) -> Setting | None:
    """Return a setting that reached the recall, preferably a default; None if no setting reached it.

    Among those that are about as fast as the fastest, the one with the least memory is chosen.
    """
    able = [setting for setting in settings if setting.recall >= recall - _ROUNDING]
    able = [setting for setting in able if setting.is_default] or able
    fastest = max((setting.per_second for setting in able), default=0.0)
    fast = [setting for setting in able if setting.per_second >= _FAST_ENOUGH * fastest]
    return min(fast, key=lambda setting: (setting.bytes_per_vector, -setting.per_second), default=None)


def find_best(settings: list[Setting]) -> Setting:
    """Return the setting with the highest recall; of equal ones the fastest."""
    return max(settings, key=lambda setting: (setting.recall, setting.per_second))


def compute_scores(index: posh.Index, data: Split, ids: npt.NDArray[np.int64]) -> Float32:
    """Return the scores (m, k) of documents by the metric, from the original vectors, best first.

    A missing document, with the id -1, has the score -inf.
    """
    queries, rows = data.queries.astype(np.float64), data.base[ids].astype(np.float64)
    if index.options.metric == "euclidean":
        scores = -((queries[:, None] - rows) ** 2).sum(axis=2)
    else:
        scores = np.einsum("md,mkd->mk", queries, rows)
    if index.options.metric == "cosine":
        lengths = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(rows, axis=2)
        scores = scores / np.where(lengths > 0, lengths, 1.0)
    return -np.sort(-np.where(ids < 0, -np.inf, scores), axis=1).astype(np.float32)


def compute_shares(true: Float32, scores: Float32) -> npt.NDArray[np.float64]:
    """Return the share of the k nearest that each query found, from the scores (m, k) of both, best first.

    A document counts if its score is as good as that of the k-th nearest, up to rounding, so that documents
    with equal scores can replace each other.

    >>> import numpy as np
    >>> compute_shares(np.float32([[0.9, 0.8]]), np.float32([[0.9, 0.7]]))
    array([0.5])
    """
    rounding = 4e-6 * np.abs(true).max(axis=1, keepdims=True).astype(np.float64)
    return np.asarray((scores >= true[:, -1:] - rounding).mean(axis=1))


def _time_best_of_three(call: Callable[[], object]) -> float:
    def time_once() -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    return min(time_once() for _ in range(3))


# Hashers by labels --------------------------------------------------------------------------------------

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
    is_query = _hold_out(len(X), min(_N_QUERIES, len(X) // 10))
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
