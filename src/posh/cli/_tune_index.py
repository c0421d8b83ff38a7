"""``posh tune --index``: measure an existing index or collection.

The measure is the recall of the true nearest neighbours, or the precision by labels of a data set.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import posh
from posh import datasets, metrics
from posh.cli._collection import is_collection, open_searchable
from posh.cli._command import Report, UsageError
from posh.cli._index import collect_search_options
from posh.datasets import Dataset
from posh.files import read_vectors
from posh.index import files
from posh.index.brute_force import METRICS, measure_distances, measure_true_distances
from posh.index.open import load_index
from posh.metrics import Interval

__all__ = ["measure_existing"]

_K, _N_NEIGHBORS, _N_QUERIES = 1000, 10, 1000
_COMPARED = 256  # documents whose codes or vectors are compared with those of the data set
_PRECISION = 0.05  # of a number that is stored in 8 bits, as a share of the largest

Float32 = npt.NDArray[np.float32]
Values = dict[str, npt.NDArray[np.float64]]  # one value per query, by the name of the measure


def measure_existing(args: argparse.Namespace) -> Report:
    """Measure ``args.index`` with the queries of a data set whose base it holds, or of a file."""
    is_file = args.data not in datasets.names() and bool(Path(args.data).suffix)
    if not is_file:
        for option in ("base", "key"):
            if getattr(args, option) is not None:
                raise UsageError(
                    f"--{option} is for files of queries, and {args.data} is a data set: leave it out"
                )
        return _measure_with_base(args, datasets.load(args.data))
    queries, name = read_vectors(args.data, args.key), Path(args.data).name
    if args.base is not None:
        return _measure_with_base(args, Dataset(name, read_vectors(args.base), queries))
    queries = queries[: args.n_queries or _N_QUERIES]
    k = args.k or args.n_neighbors or _N_NEIGHBORS
    n_neighbors = args.n_neighbors or min(k, _N_NEIGHBORS)
    _require_neighbors(n_neighbors, k)
    if is_collection(args.index):
        with open_searchable(args.index, args) as collection:
            outcome = _measure_collection(args, collection, queries, n_neighbors, k)
    else:
        outcome = _measure_index(args, queries, n_neighbors, k)
    return _report(outcome, name)


class _Outcome(NamedTuple):
    searched: str
    values: Values
    metric: str | None  # None: labels
    queries_per_second: float


# With the vectors of the index or collection itself -----------------------------------------------------


def _measure_index(args: argparse.Namespace, queries: Float32, n_neighbors: int, k: int) -> _Outcome:
    index = load_index(args.index, mmap=args.mmap)
    if isinstance(index, posh.CodeIndex):
        raise UsageError(
            f"{args.index}: expected an index with a metric, got one that keeps codes only: "
            "give the file of its vectors with --base"
        )
    metric = _require_metric(args, index.options.metric)
    _require_documents(k, len(index))
    options = collect_search_options(args, index)
    hits, rate = _time_search(lambda: index.search(queries, k, **options))
    true = index.search(queries, n_neighbors, exact=True)
    return _Outcome(repr(index), _measure_recall(-hits.scores, -true.scores), metric, rate)


def _measure_collection(
    args: argparse.Namespace, collection: posh.BaseCollection, queries: Float32, n_neighbors: int, k: int
) -> _Outcome:
    own_metric = collection.index_options.get("metric")
    metric = _require_metric(args, own_metric)
    _require_documents(k, len(collection))
    options = {
        name: getattr(args, name) for name in ("oversample", "n_probe", "n_threads", "exact", "recall")
    }
    hits, rate = _time_search(lambda: collection.search(queries, k, **options))
    if own_metric is not None:
        true = collection.search(queries, n_neighbors, exact=True)
        return _Outcome(repr(collection), _measure_recall(-hits.scores, -true.scores), metric, rate)
    items = list(collection.items())
    base = np.stack([item.vector for item in items])
    rows: dict[Any, int] = {item.id: row for row, item in enumerate(items)} | {None: -1}
    slots = np.array([[rows[item_id] for item_id in ids] for ids in hits.ids.tolist()], np.int64)
    distances = measure_distances(base, queries, slots, metric)
    true_distances = measure_true_distances(base, queries, n_neighbors, metric)
    return _Outcome(repr(collection), _measure_recall(distances, true_distances), metric, rate)


def _require_metric(args: argparse.Namespace, own_metric: str | None) -> str:
    """Return the metric to measure by; raise a UsageError if ``--metric`` is another or not available."""
    if own_metric is None:
        return _require_distance(args.metric) or next(iter(METRICS))
    if args.metric not in (None, own_metric):
        raise UsageError(
            f"{args.index}: expected --metric {own_metric}, by which it searches, got {args.metric}"
        )
    return own_metric


def _require_distance(metric: str | None) -> str | None:
    if metric is not None and metric not in METRICS:
        raise UsageError(
            f"expected --metric of one of {', '.join(METRICS)} to compare with the base vectors, got {metric}"
        )
    return metric


def _require_documents(k: int, n: int) -> None:
    if k > n:
        raise UsageError(f"expected -k and --n-neighbors of at most {n}, the number of vectors, got {k}")


def _require_neighbors(n_neighbors: int, k: int) -> None:
    if n_neighbors > k:
        raise UsageError(
            f"expected --n-neighbors of at most {k}, the number of results (-k), got {n_neighbors}"
        )


def _time_search(search: Callable[[], Any]) -> tuple[Any, float]:
    """Return the hits and the number of queries per second."""
    start = time.perf_counter()
    hits = search()
    return hits, len(hits.ids) / (time.perf_counter() - start)


def _measure_recall(distances: npt.NDArray[Any], true_distances: npt.NDArray[Any]) -> Values:
    """Return the recall of each query from the distances (m, k) of hits and (m, n) of the true nearest."""
    n, k = true_distances.shape[1], distances.shape[1]
    return {
        f"recall {n}@{depth}": metrics.recall_by_distance(distances, true_distances, depth)
        for depth in sorted({n, k})
    }


# With the base of a data set ----------------------------------------------------------------------------


def _measure_with_base(args: argparse.Namespace, data: Dataset) -> Report:
    index = load_index(args.index, mmap=args.mmap)
    options = collect_search_options(args, index)
    _require_base(data, index, args.index)
    metric = _require_distance(args.metric) or ("euclidean" if data.base_labels is None else None)
    if metric is None and args.n_neighbors is not None:
        raise UsageError(f"--n-neighbors is for recall, and {data.name} has labels: add --metric")
    n = len(data.base)
    if args.k is not None and args.k > n:
        raise UsageError(f"expected -k of at most {n}, the number of documents, got {args.k}")
    k, n_neighbors = args.k or min(_K, n), args.n_neighbors or _N_NEIGHBORS
    queries = data.queries[: args.n_queries or (len(data.queries) if metric is None else _N_QUERIES)]
    if metric is not None:
        _require_neighbors(n_neighbors, k)
    hits, rate = _time_search(lambda: index.search(queries, k, **options))
    if metric is None:
        values = _measure_precision(data, hits.ids)
    else:
        distances = measure_distances(data.base, queries, hits.ids, metric)
        values = _measure_recall(distances, measure_true_distances(data.base, queries, n_neighbors, metric))
    return _report(_Outcome(repr(index), values, metric, rate), data.name)


def _require_base(data: Dataset, index: posh.Index | posh.CodeIndex, folder: Path) -> None:
    """Raise a UsageError unless the index holds the base of ``data`` with default ids."""
    expected = f"{folder}: expected an index of all {len(data.base):,} base vectors of {data.name}"
    remedy = f"build it with 'posh build {data.name}'"
    n_features = index.snapshot().n_features
    if data.base.shape[1] != n_features:
        raise UsageError(f"{expected}, {data.base.shape[1]} wide, got one for width {n_features}: {remedy}")
    if not np.array_equal(index.ids, np.arange(len(data.base))):
        raise UsageError(
            f"{expected} with the ids 0, 1, …, got {len(index):,} documents or other ids: {remedy}"
        )
    rows = np.unique(np.linspace(0, len(data.base) - 1, _COMPARED).astype(np.int64))
    if isinstance(index, posh.Index):
        if not _has_vectors(index, data.base, rows):
            raise UsageError(f"{expected}, got documents with other vectors: {remedy} --metric METRIC")
        return
    saved = files.read_index(folder, mmap=True, verify=False)
    slots = np.setdiff1d(np.arange(len(saved.arrays["ids"])), saved.arrays["removed"])[rows]
    if not np.array_equal(saved.arrays["codes"][slots], _encode(index, data.base[rows])):
        raise UsageError(f"{expected}, got documents with other codes: {remedy} --model MODEL")


def _has_vectors(index: posh.Index, base: Float32, rows: npt.NDArray[np.int64]) -> bool:
    """Return whether the index stores these rows of the base, up to the precision of its store."""
    lists = index.snapshot().lists
    assert lists is not None
    stored = lists.vectors(np.flatnonzero(lists.live.rows)[rows])
    expected = lists.space.metric.prepare(base[rows])
    return bool(np.abs(stored - expected).max() <= _PRECISION * np.abs(expected).max())


def _encode(index: posh.CodeIndex, X: Float32) -> npt.NDArray[Any]:
    if isinstance(index.hasher, posh.SparseHasher):
        return index.hasher.encode(X, n_active=index.options.document_active).active
    return np.asarray(index.hasher.encode(X).bits)


def _measure_precision(data: Dataset, ids: npt.NDArray[np.int64]) -> Values:
    assert data.base_labels is not None
    assert data.query_labels is not None
    labels, k = data.query_labels[: len(ids)], ids.shape[1]
    missing = labels.min() - 1  # a label of no query, for missing hits
    hit_labels = np.where(ids < 0, missing, data.base_labels[np.maximum(ids, 0)])
    return {
        f"MAP@{k}": metrics.average_precision(hit_labels, labels),
        f"precision@{k}": metrics.precision(hit_labels, labels),
    }


# Report -------------------------------------------------------------------------------------------------


def _report(outcome: _Outcome, name: str) -> Report:
    results = {key: metrics.interval(each) for key, each in outcome.values.items()}
    n_queries = len(next(iter(outcome.values.values())))
    by = outcome.metric or "label"
    values = {
        "index": outcome.searched,
        "data": name,
        "n_queries": n_queries,
        "by": by,
        "results": {key: _convert_interval(each) for key, each in results.items()},
        "queries_per_second": outcome.queries_per_second,
    }
    lines = [
        outcome.searched,
        f"{name}, {n_queries:,} queries, by {by}, percent with 95 % intervals over queries:",
    ]
    lines += [f"  {key:<16} {_format_interval(each)}" for key, each in results.items()]
    lines.append(f"{outcome.queries_per_second:,.0f} queries per second")
    return Report(values, "\n".join(lines))


def _convert_interval(interval: Interval) -> dict[str, float | None]:
    """Return the values for JSON: None instead of NaN, the limits of a single query."""
    return {key: None if math.isnan(value) else value for key, value in interval._asdict().items()}


def _format_interval(interval: Interval) -> str:
    mean, low, high = (100 * value for value in interval)
    return f"{mean:6.2f}" + ("" if math.isnan(low) else f" [{low:.2f}, {high:.2f}]")
