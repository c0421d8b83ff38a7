"""The promise of recall for queries unlike the documents, with and without calibrating on such queries.

    python -m benchmarks.own_queries [--output results/own-queries.json]

Queries are words among embeddings of sentences (the data set wordnet-ood of ``posh-reproduction``), and
copies of documents with noise: ``noise 1`` adds Gaussian noise with the mean standard deviation of the
columns. Searches are calibrated with up to 1,500 queries and measured with 1,000 others, whose true
neighbours are those of ``exact=True``. Speeds are per second of one processor, in a batch, the best of two.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import posh
from posh.bench import environment
from posh.index.nearest.queries import QueryWatch

RECALLS, KS = (0.9, 0.95, 0.98), (1, 10, 100)
GIVEN, TESTED, ROUNDS = 1500, 1000, 2
ROUNDING = 1e-6  # of scores
CASES = (
    ("wordnet-ood", "cosine", None, ("words",)),
    ("mnist", "euclidean", 30_000, ("noise 1", "noise 2")),
    ("glove-100", "cosine", 200_000, ("noise 1", "noise 2")),
)
"""Data set, metric, number of documents (None: all), and kinds of queries."""

Vectors = np.ndarray[Any, np.dtype[np.float32]]


def make_queries(kind: str, data: Any, base: Vectors) -> tuple[Vectors, Vectors]:
    """Return queries to calibrate with, and others to test."""
    if kind == "words":
        return data.queries[TESTED:][:GIVEN], data.queries[:TESTED]
    rng = np.random.default_rng(0)
    chosen = base[rng.choice(len(base), GIVEN + TESTED, replace=False)]
    noise = float(kind.split()[1]) * base.std(axis=0).mean() * rng.standard_normal(chosen.shape, np.float32)
    queries = chosen + noise
    return queries[:GIVEN], queries[GIVEN:]


def measure_seconds(call: Callable[[], object]) -> float:
    """Return the seconds of processor time of a call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def measure_case(name: str, metric: str, n: int | None, kinds: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yield the measurements of a data set: one for each kind of queries, recall and k."""
    data = posh.datasets.load(name)
    base = data.base[:n]
    plain = posh.Index(metric)
    build_seconds = measure_seconds(lambda: plain.add(base))
    for kind in kinds:
        given, tested = make_queries(kind, data, base)
        own = posh.Index.from_snapshot(plain.snapshot().detach())
        calibrate_seconds = measure_seconds(lambda own=own, given=given: own.calibrate(given))
        exact = plain.search(tested, max(KS), exact=True).scores
        has_warned = warns(plain, tested)
        for recall in RECALLS:
            for k in KS:
                found, rates = measure_pair([plain, own], tested, k, recall, exact)
                yield {
                    "data": name,
                    "metric": metric,
                    "documents": len(base),
                    "queries": kind,
                    "given": len(given),
                    "warns": has_warned,
                    "build_seconds": round(build_seconds, 1),
                    "calibrate_seconds": round(calibrate_seconds, 1),
                    "recall": recall,
                    "k": k,
                    "without": found[0],
                    "with": found[1],
                    "per_second_without": round(rates[0]),
                    "per_second_with": round(rates[1]),
                }


def warns(index: posh.Index, queries: Vectors) -> bool:
    """Return whether a search in a copy of the index warns of these queries."""
    snapshot = index.snapshot().detach()
    assert snapshot.lists is not None
    assert snapshot.lists.tuning is not None
    lists = replace(snapshot.lists, watch=QueryWatch(snapshot.lists.tuning.low_score))
    copy = posh.Index.from_snapshot(replace(snapshot, lists=lists))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        copy.search(queries)
    return any(warning.category is posh.RecallWarning for warning in caught)


def measure_pair(
    indexes: list[posh.Index], queries: Vectors, k: int, recall: float, exact: Vectors
) -> tuple[list[list[float]], list[float]]:
    """Return recall and its standard error, and the queries per second, for each index, in turns."""
    last = exact[:, k - 1 : k]
    found = []
    for index in indexes:
        scores = index.search(queries, k, recall=recall, n_threads=1).scores
        shares = (scores >= last - ROUNDING * np.abs(last)).mean(axis=1)
        found.append([round(float(shares.mean()), 4), round(float(shares.std() / len(shares) ** 0.5), 4)])
    best = [float("inf")] * len(indexes)
    for _ in range(ROUNDS):
        for i, index in enumerate(indexes):
            call = measure_seconds(lambda index=index: index.search(queries, k, recall=recall, n_threads=1))
            best[i] = min(best[i], call)
    return found, [len(queries) / seconds for seconds in best]


def format_table(rows: list[dict[str, Any]]) -> list[str]:
    """Return a table: recall without and with calibrating, and queries per second at the middle recall."""
    asked = " | ".join(f"asked {recall:g}" for recall in RECALLS)
    lines = [f"| queries | k | {asked} | queries/s at {RECALLS[1]:g} |", "|" + "---|" * (3 + len(RECALLS))]
    kinds = dict.fromkeys((row["data"], row["queries"], row["k"]) for row in rows)
    for data, queries, k in kinds:
        own = [row for row in rows if (row["data"], row["queries"], row["k"]) == (data, queries, k)]
        cells = [f"{row['without'][0]:.3f} → {row['with'][0]:.3f}" for row in own]
        speeds = [
            f"{row['per_second_without']:,} → {row['per_second_with']:,}"
            for row in own
            if row["recall"] == RECALLS[1]
        ]
        lines.append(f"| {' | '.join([f'{data}, {queries}', str(k), *cells, *speeds])} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, help="JSON file to write")
    parser.add_argument("--data", nargs="+", help="only these data sets")
    args = parser.parse_args()
    warnings.simplefilter("ignore", posh.RecallWarning)
    rows = []
    for case in CASES:
        if args.data is None or case[0] in args.data:
            for row in measure_case(*case):
                rows.append(row)
                print(json.dumps(row), flush=True)
                if args.output is not None:
                    content = {"environment": environment(), "rows": rows}
                    args.output.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    print("\n".join(format_table(rows)))


if __name__ == "__main__":
    main()
