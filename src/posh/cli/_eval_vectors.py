"""Recall without labels: what a search finds of the nearest vectors that comparing all of them finds."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import posh
from posh import metrics
from posh.cli._collection import open_searchable
from posh.cli._command import UsageError
from posh.cli._index import open_index, search_options
from posh.collection.opening import DATABASE
from posh.index.brute_force import METRICS, measure_distances, measure_true_distances

__all__ = ["Measured", "measure_recall"]

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]


class Measured(NamedTuple):
    """What was searched, the recall of each query by name, the metric, and queries per second."""

    searched: str
    values: dict[str, Float64]
    metric: str
    rate: float


def measure_recall(args: argparse.Namespace, queries: Float32, k: int, at: int) -> Measured:
    """Measure how many of the k true neighbours of queries (m, d) are among the first ``at`` results."""
    if k > at:
        raise UsageError(f"expected --neighbours of at most {at}, the number of results (--at), got {k}")
    if (Path(args.folder) / DATABASE).exists():
        with open_searchable(args.folder, args) as collection:
            return _of_collection(args, collection, queries, k, at)
    index = open_index(args)
    if isinstance(index, posh.CodeIndex):
        raise UsageError(
            f"{args.folder}: expected an index with a metric, got one that keeps codes only: "
            "give the file of its vectors with --base"
        )
    metric = _metric(args, index.options.metric)
    found, rate = _timed(
        lambda: index.search(queries, _at_most(at, len(index)), **search_options(args, index))
    )
    true = index.search(queries, _at_most(k, len(index)), exact=True)
    return Measured(repr(index), _recall(-found.scores, -true.scores), metric, rate)


def _of_collection(
    args: argparse.Namespace, collection: posh.BaseCollection, queries: Float32, k: int, at: int
) -> Measured:
    n, made = len(collection), collection.index_options.get("metric")
    metric = _metric(args, made)
    options = {
        "oversample": args.oversample,
        "n_probe": args.probes,
        "n_threads": args.threads,
        "exact": args.exact,
        "recall": args.recall,
    }
    found, rate = _timed(lambda: collection.search(queries, _at_most(at, n), **options))
    if made is not None:
        true = collection.search(queries, _at_most(k, n), exact=True)
        return Measured(repr(collection), _recall(-found.scores, -true.scores), metric, rate)
    items = list(collection.items())
    base = np.stack([item.vector for item in items])
    rows: dict[Any, int] = {item.id: row for row, item in enumerate(items)} | {None: -1}
    ids = np.array([[rows[item_id] for item_id in own] for own in found.ids.tolist()], np.int64)
    near = measure_true_distances(base, queries, _at_most(k, n), metric)
    return Measured(
        repr(collection), _recall(measure_distances(base, queries, ids, metric), near), metric, rate
    )


def _metric(args: argparse.Namespace, made: str | None) -> str:
    if made is None:
        return args.metric or next(iter(METRICS))
    if args.metric not in (None, made):
        raise UsageError(f"{args.folder}: expected --metric {made}, by which it searches, got {args.metric}")
    return made


def _at_most(wanted: int, n: int) -> int:
    if wanted > n:
        raise UsageError(
            f"expected --at and --neighbours of at most {n}, the number of vectors, got {wanted}"
        )
    return wanted


def _timed(search: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    found = search()
    return found, len(found.ids) / (time.perf_counter() - start)


def _recall(found: npt.NDArray[Any], true: npt.NDArray[Any]) -> dict[str, Float64]:
    k, at = true.shape[1], found.shape[1]
    return {f"recall {k}@{n}": metrics.recall_by_distance(found, true, n) for n in sorted({k, at})}
