"""Measure what recall costs on one's own vectors: ``posh.tune``, and the command of this name."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from posh import _validate
from posh._runtime import track_progress
from posh.collection.base import BaseCollection
from posh.collection.embedded import Collection
from posh.index.choices import METRICS, STORES
from posh.index.hits import Hits
from posh.index.nearest.index import Index

__all__ = ["N_QUERIES", "K", "Problem", "Setting", "Split", "TuningResult"]
__all__ += ["choose_setting", "compute_scores", "compute_shares", "find_best", "hold_out", "logger"]
__all__ += ["measure_settings", "read_problem", "select_front", "split_vectors", "tune"]

logger = logging.getLogger(__name__)

Float32 = npt.NDArray[np.float32]

N_QUERIES = 1000  # held out, and searched in one batch
K = 10
_N_SINGLE = 200  # queries that are searched one by one
_RECALLS = (0.7, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995)  # requested in addition to the user's
_FAST_ENOUGH = 0.85  # of the highest speed: settings above it are chosen by memory
_EQUAL_SPEED = 0.95  # the precision of measured times
_EQUAL_RECALL = 0.002  # smaller differences do not count
_ROUNDING = 1e-9  # of a mean of shares


def tune(
    data: npt.ArrayLike | BaseCollection | str | os.PathLike[str],
    *,
    metric: str | None = None,
    recall: float | None = None,
) -> TuningResult:
    """Measure recall, speed and memory of settings of :class:`posh.Index`, and choose one.

    Parameters
    ----------
    data : array of shape (n, d), or a collection, or its folder
        The vectors. A tenth of them, up to 1,000, are held out as queries.
    metric, recall : str, float
        By default those of the collection, or ``"cosine"`` and 0.95.

    Builds an index for each ``store``, and logs each measurement to the logger ``posh.tuning``.

    >>> import posh
    >>> result = posh.tune(posh.datasets.load("digits").base, metric="euclidean")
    >>> result.chosen.recall, result.n_documents, result.n_queries
    (1.0, 1438, 159)

    """
    problem = read_problem(data, metric, recall)
    return problem.choose(list(measure_settings(problem.data, problem.metric, problem.recall)))


@dataclass(frozen=True)
class Problem:
    """The vectors to tune with, the metric, the recall to reach, and whether they are a collection's."""

    data: Split
    metric: str
    recall: float
    is_collection: bool = False

    def choose(self, settings: list[Setting]) -> TuningResult:
        """Choose one of the measured settings."""
        return TuningResult(self, settings, choose_setting(settings, self.recall), find_best(settings))


def read_problem(
    source: npt.ArrayLike | BaseCollection | str | os.PathLike[str], metric: str | None, recall: float | None
) -> Problem:
    """Return the problem of :func:`tune`."""
    if isinstance(source, str | os.PathLike):
        with Collection(source, read_only=True) as collection:
            return read_problem(collection, metric, recall)
    options: Mapping[str, Any] = {}
    if isinstance(source, BaseCollection):
        X, options = source.sample(max(1, len(source))), source.index_options
    else:
        X = np.asarray(_validate.validate_vectors(source), np.float32)
    metric = metric or options.get("metric") or next(iter(METRICS))
    recall = recall or options.get("recall") or 0.95
    _validate.validate_choice("metric", metric, METRICS)
    _validate.validate_real("recall", recall, 0.0, 1.0, open_low=True)
    return Problem(split_vectors(X), metric, recall, isinstance(source, BaseCollection))


@dataclass(frozen=True)
class TuningResult:
    """The measured settings, and the chosen one: None if no setting reached the recall; then see ``best``.

    ``print`` shows those that no other one beats, and the Python for the chosen one.
    """

    problem: Problem
    settings: list[Setting]
    chosen: Setting | None
    best: Setting

    @property
    def n_documents(self) -> int:
        """The number of indexed vectors."""
        return len(self.problem.data.base)

    @property
    def n_queries(self) -> int:
        """The number of held-out vectors."""
        return len(self.problem.data.queries)

    @property
    def marked(self) -> Setting:
        """The chosen setting, or the one with the highest recall."""
        return self.best if self.chosen is None else self.chosen

    @property
    def front(self) -> list[Setting]:
        """The settings that no other one beats, by recall."""
        return select_front(self.settings, self.marked)

    def format_index(self) -> list[str]:
        """Return lines of Python that build an index and search with the chosen setting."""
        return [f"index = posh.Index.build(X, {self._options()})", *self._format_search("index")]

    def format_collection(self) -> list[str]:
        """Return lines of Python for the collection that was measured, or for a new one."""
        if self.problem.is_collection:
            line = f"collection.reindex({self._options()})"
        else:
            line = f"collection = posh.create(FOLDER, {self._options()})"
        return [line, *self._format_search("collection")]

    def _options(self) -> str:
        setting, problem = self.marked, self.problem
        is_default = setting.store == "float32" and not self.problem.is_collection
        store = "" if is_default else f", store={setting.store!r}"
        return f"metric={problem.metric!r}, recall={problem.recall:g}{store}"

    def _format_search(self, name: str) -> list[str]:
        if self.marked.is_default:
            return []
        effort = "exact=True" if self.marked.asked is None else f"recall={self.marked.asked:g}"
        return [f"hits = {name}.search(Q, k={K}, {effort})"]

    def __str__(self) -> str:
        return "\n".join([*self._format_front(), "", *self._format_advice()])

    def _format_front(self) -> list[str]:
        mark = "best seen" if self.chosen is None else "chosen"
        title = f"{'recall@10':>9}  {'queries/s':>10}  {'one by one':>10}  {'bytes':>7}  {'store':<8} search"
        return [title] + [
            setting.format() + (f"  <- {mark}" if setting is self.marked else "") for setting in self.front
        ]

    def _format_advice(self) -> list[str]:
        """Return the code for the chosen setting, or for the best one with a way to a higher recall."""
        recall, setting = self.problem.recall, self.marked
        title = f"for a recall of {recall:g}, {setting.recall:.4f} measured:"
        if self.chosen is None:
            title = f"no setting reached a recall of {recall:g}; best seen, {setting.recall:.4f} measured:"
        lines = [title, *(f"  {line}" for line in self.format_index())]
        lines += ["or, for a collection:", *(f"  {line}" for line in self.format_collection())]
        if setting.store == "int8":
            lines.append("  (it keeps 8 bits of each number: search(exact=True) needs store='float32')")
        if self.chosen is None:
            lines += [
                "for a higher recall, compare all vectors:",
                f"  hits = index.search(Q, k={K}, exact=True)",
            ]
        return lines


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

    def format(self) -> str:
        """Return a row of the table."""
        effort = "compares all vectors" if self.asked is None else f"recall={self.asked:g}"
        return (
            f"{self.recall:>9.4f}  {self.per_second:>10,.0f}  {self.alone_per_second:>10,.0f}  "
            f"{self.bytes_per_vector:>7,.0f}  {self.store:<8} {effort}"
        )

    def beats(self, other: Setting) -> bool:
        """Return whether the other setting is not better in any measurement."""
        is_smaller = self.bytes_per_vector < other.bytes_per_vector
        is_faster = self.per_second > other.per_second
        return (
            self.recall >= other.recall - _EQUAL_RECALL
            and self.per_second >= _EQUAL_SPEED * other.per_second
            and (is_smaller or (is_faster and self.bytes_per_vector == other.bytes_per_vector))
        )


def hold_out(n: int, n_queries: int) -> npt.NDArray[np.bool_]:
    """Return a mask (n,) of ``n_queries`` random rows, drawn with a fixed seed."""
    mask = np.zeros(n, bool)
    mask[np.random.default_rng(0).permutation(n)[:n_queries]] = True
    return mask


def split_vectors(X: Float32, n_queries: int = N_QUERIES) -> Split:
    """Hold out queries, at most a tenth of the vectors (n, d), drawn with a fixed seed."""
    if len(X) < 2:
        raise ValueError(f"expected at least 2 vectors to tune with, got {len(X)}")
    is_query = hold_out(len(X), max(1, min(n_queries, len(X) // 10)))
    return Split(X[~is_query], X[is_query])


def measure_settings(data: Split, metric: str, recall: float) -> Iterator[Setting]:
    """Build an index for each store, and measure it at several recalls on the held-out queries."""
    true: Float32 | None = None
    for number, store in enumerate(STORES, 1):
        logger.info("building index %d of %d, store=%r", number, len(STORES), store)
        index = Index.build(data.base, metric=metric, recall=recall, store=store)
        if true is None:  # from the first store, which is exact
            nearest = index.search(data.queries, min(K, len(data.base)), exact=True)
            true = compute_scores(index, data, nearest.ids)
        exact = [] if store == "int8" else [None]
        requests = [*sorted({recall, *_RECALLS}), *exact]
        for asked in track_progress(requests, f"measuring {store}", "setting"):
            setting = _measure_setting(index, data, asked, true)
            logger.info("%s", setting.format())
            yield setting


def _measure_setting(index: Index, data: Split, asked: float | None, true: Float32) -> Setting:
    k = true.shape[1]

    def search(queries: Float32, n_threads: int | None = None) -> Hits:
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


def compute_scores(index: Index, data: Split, ids: npt.NDArray[np.int64]) -> Float32:
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
