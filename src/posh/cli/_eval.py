"""``posh eval``: what an index finds of what it should find."""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import posh
from posh import datasets, metrics
from posh.cli._command import Parser, Report, UsageError, counted, declare
from posh.cli._eval_vectors import measure_recall
from posh.cli._index import add_index, open_index, search_options
from posh.datasets import Dataset
from posh.files import read_vectors
from posh.index import files
from posh.index.brute_force import METRICS, measure_distances, measure_true_distances
from posh.metrics import Interval

__all__ = ["add"]

_AT, _NEIGHBOURS, _RECALL_QUERIES = 1000, 10, 1000
_COMPARED = 256  # documents whose codes or vectors are compared with those of the data set
_PRECISION = 0.05  # of a number that is stored in 8 bits, as a share of the largest

Values = dict[str, npt.NDArray[np.float64]]


def add(parser: Parser) -> None:
    """Declare the arguments."""
    declare(parser, "posh eval digits-index digits --at 100", _eval)
    add_index(parser, "an index that 'posh build' wrote, or a collection")
    parser.add_argument(
        "data",
        metavar="DATA",
        help="the data set whose base the index holds, or a file of queries: .npy, .parquet, .jsonl …",
    )
    parser.add_argument("--key", metavar="COLUMN", help="which array or column of the file has the queries")
    parser.add_argument(
        "--base",
        type=Path,
        metavar="FILE",
        help="the vectors of an index that keeps codes only, in its order",
    )
    parser.add_argument(
        "--at", type=counted, metavar="N", help=f"look at the first N results; default: {_AT:,}"
    )
    parser.add_argument(
        "--queries",
        type=counted,
        metavar="N",
        help=f"take the first N queries; default: all for labels, {_RECALL_QUERIES:,} for recall",
    )
    parser.add_argument(
        "--metric",
        choices=METRICS,
        help="measure recall of the true neighbours by this; default: labels, or euclidean if there are none",
    )
    parser.add_argument(
        "--neighbours", type=counted, metavar="N", help=f"how many, for recall; default: {_NEIGHBOURS}"
    )


def _eval(args: argparse.Namespace) -> Report:
    if args.data not in datasets.names() and Path(args.data).suffix:
        return _own_vectors(args)
    for option in ("base", "key"):
        if getattr(args, option) is not None:
            raise UsageError(
                f"--{option} is for files of queries, and {args.data} is a data set: leave it out"
            )
    return _of_data_set(args, datasets.load(args.data))


def _own_vectors(args: argparse.Namespace) -> Report:
    """Measure with queries of a file: against all vectors of the index, or against those of another file."""
    queries = read_vectors(args.data, args.key)
    if args.base is not None:
        return _of_data_set(args, Dataset(Path(args.data).name, read_vectors(args.base), queries))
    at = args.at or args.neighbours or _NEIGHBOURS
    queries = queries[: args.queries or _RECALL_QUERIES]
    measured = measure_recall(args, queries, args.neighbours or min(at, _NEIGHBOURS), at)
    return _report(measured.searched, Path(args.data).name, measured.values, measured.metric, measured.rate)


def _of_data_set(args: argparse.Namespace, data: Dataset) -> Report:
    index = open_index(args)
    options = search_options(args, index)
    _require_base_of(data, index, args.folder)
    metric = args.metric or ("euclidean" if data.base_labels is None else None)
    if metric is None and args.neighbours is not None:
        raise UsageError(f"--neighbours is for recall, and {data.name} has labels: add --metric")
    at = _depth(args.at, len(data.base))
    m = args.queries or (len(data.queries) if metric is None else _RECALL_QUERIES)
    queries = data.queries[:m]
    start = time.perf_counter()
    hits = index.search(queries, at, **options)
    seconds = time.perf_counter() - start
    if metric is None:
        values = _by_labels(data, hits.ids)
    else:
        values = _by_distance(data, queries, hits.ids, metric, args.neighbours or _NEIGHBOURS)
    return _report(index, data.name, values, metric, len(queries) / seconds)


def _depth(at: int | None, n: int) -> int:
    if at is not None and at > n:
        raise UsageError(f"expected --at of at most {n}, the number of documents, got {at}")
    return at or min(_AT, n)


def _require_base_of(data: Dataset, index: posh.Index | posh.CodeIndex, folder: Path) -> None:
    """Refuse an index of anything but the base of ``data`` with default ids."""
    what = f"{folder}: expected an index of all {len(data.base):,} base vectors of {data.name}"
    remedy = f"build it with 'posh build MODEL {data.name}'"
    n_features = index.snapshot().n_features
    if data.base.shape[1] != n_features:
        raise UsageError(f"{what}, {data.base.shape[1]} wide, got one for width {n_features}: {remedy}")
    if not np.array_equal(index.ids, np.arange(len(data.base))):
        raise UsageError(f"{what} with the ids 0, 1, …, got {len(index):,} documents or other ids: {remedy}")
    rows = np.unique(np.linspace(0, len(data.base) - 1, _COMPARED).astype(np.int64))
    if isinstance(index, posh.Index):
        if not _are_vectors_of(index, data.base, rows):
            raise UsageError(f"{what}, got documents with other vectors: {remedy} --metric")
        return
    opened = files.read_index(folder, mmap=True, verify=False)
    slots = np.setdiff1d(np.arange(len(opened.arrays["ids"])), opened.arrays["removed"])[rows]
    if not np.array_equal(opened.arrays["codes"][slots], _codes(index, data.base[rows])):
        raise UsageError(f"{what}, got documents with other codes: {remedy}")


def _are_vectors_of(index: posh.Index, base: npt.NDArray[np.float32], rows: npt.NDArray[np.int64]) -> bool:
    """Whether these rows are the vectors of an index with a metric, as precisely as they are stored."""
    lists = index.snapshot().lists
    assert lists is not None
    stored = lists.vectors(np.flatnonzero(lists.live.rows)[rows])
    wanted = lists.space.metric.prepare(base[rows])
    return bool(np.abs(stored - wanted).max() <= _PRECISION * np.abs(wanted).max())


def _codes(index: posh.CodeIndex, X: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
    if isinstance(index.hasher, posh.SparseHasher):
        return index.hasher.encode(X, n_active=index.options.document_active).active
    return np.asarray(index.hasher.encode(X).bits)


def _by_labels(data: Dataset, ids: npt.NDArray[np.int64]) -> Values:
    assert data.base_labels is not None
    assert data.query_labels is not None
    wanted, at = data.query_labels[: len(ids)], ids.shape[1]
    nothing = wanted.min() - 1  # a label that no query has, for the places where nothing was found
    found = np.where(ids < 0, nothing, data.base_labels[np.maximum(ids, 0)])
    return {
        f"MAP@{at}": metrics.average_precision(found, wanted),
        f"precision@{at}": metrics.precision(found, wanted),
    }


def _by_distance(
    data: Dataset, queries: npt.NDArray[np.float32], ids: npt.NDArray[np.int64], metric: str, k: int
) -> Values:
    at = ids.shape[1]
    if k > at:
        raise UsageError(f"expected --neighbours of at most {at}, the number of results (--at), got {k}")
    found = measure_distances(data.base, queries, ids, metric)
    true = measure_true_distances(data.base, queries, k, metric)
    return {f"recall {k}@{n}": metrics.recall_by_distance(found, true, n) for n in sorted({k, at})}


def _report(index: object, name: str, values: Values, metric: str | None, rate: float) -> Report:
    results = {key: metrics.interval(each) for key, each in values.items()}
    m = len(next(iter(values.values())))
    by = "label" if metric is None else metric
    report = {
        "index": repr(index),
        "data": name,
        "n_queries": m,
        "by": by,
        "results": {key: _plain(each) for key, each in results.items()},
        "queries_per_second": rate,
    }
    lines = [f"{index}", f"{name}, {m:,} queries, by {by}, percent with 95 % intervals over queries:"]
    lines += [f"  {key:<16} {_percent(each)}" for key, each in results.items()]
    lines.append(f"{rate:,.0f} queries per second")
    return Report(report, "\n".join(lines))


def _plain(result: Interval) -> dict[str, float | None]:
    """Without NaN, the limits of a single value, which JSON does not have."""
    return {key: None if math.isnan(value) else value for key, value in result._asdict().items()}


def _percent(result: Interval) -> str:
    mean, low, high = (100 * value for value in result)
    return f"{mean:6.2f}" + ("" if math.isnan(low) else f" [{low:.2f}, {high:.2f}]")
