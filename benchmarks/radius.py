"""Range search: recall and queries per second next to ``range_search`` of faiss, and DBSCAN on its graph.

    python -m benchmarks.radius [--data glove-100 cifar10-patches] [--output results/radius.json]

The radii are those with 1, 10, 100 and 1,000 results per query on average. Other queries choose the number
of lists that faiss's IndexIVFFlat visits: the smallest with which queries find 0.95 of their results on
average. Queries are searched in one batch on one thread; the time is CPU time, of the best of interleaved
rounds. A query without results counts for the speed only.

``--situations`` measures the recall after additions and deletions and with filters instead, and ``--dbscan``
compares scikit-learn's DBSCAN on its own neighbours with that on the graph of ``RadiusNeighborsTransformer``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

import posh
from posh.bench import environment

RADII, RECALL, ROUNDS = (1, 10, 100, 1000), 0.95, 3
N_QUERIES, N_SAMPLE = 500, 20_000  # queries of each half; documents that tell the largest radius
N_PROBES = (1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 91, 128, 181, 256, 512, 1024)
METRICS = {"glove-100": "cosine", "cifar10-patches": "euclidean"}
Row = dict[str, Any]


def load(name: str, n_queries: int, n_rows: int | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Base, of which n_rows are chosen at random, and two sets of queries."""
    data = posh.datasets.load(name)
    base, queries = np.asarray(data.base, np.float32), np.asarray(data.queries, np.float32)
    if n_rows is not None and n_rows < len(base):
        base = base[np.sort(np.random.default_rng(3).choice(len(base), n_rows, replace=False))]
    chosen = np.random.default_rng(0).permutation(len(queries))[: 2 * n_queries]
    half = len(chosen) // 2
    return base, queries[chosen[:half]], queries[chosen[half:]]


def find_bounds(index: posh.Index, queries: np.ndarray, n: int) -> list[float]:
    """Scores that the given numbers of documents per query reach."""
    sample = np.sort(np.random.default_rng(1).choice(n, min(n, N_SAMPLE), replace=False))
    nearest = index.search(queries, max(2, round(4 * RADII[-1] * len(sample) / n)), filter=sample, exact=True)
    ranked = np.sort(nearest.scores.ravel())[::-1]
    place = min(len(ranked) - 1, int(1.3 * RADII[-1] * len(sample) / n * len(queries)))
    scores = np.sort(index.search_radius(queries, min_score=float(ranked[place]), exact=True).scores)[::-1]
    return [float(scores[min(len(scores) - 1, k * len(queries) - 1)]) for k in RADII]


def shares(found: Iterable[np.ndarray], true: posh.RadiusHits, bound: float) -> tuple[float, float]:
    """The mean share of results that queries find, and the share of all results."""
    parts, n_found, n_true = [], 0, 0
    for i, ids in enumerate(found):
        rows = slice(true.offsets[i], true.offsets[i + 1])
        expected = true.ids[rows][true.scores[rows] >= np.float32(bound)]
        if len(expected):
            common = int(np.isin(expected, ids).sum())
            parts.append(common / len(expected))
            n_found, n_true = n_found + common, n_true + len(expected)
    return float(np.mean(parts)), n_found / max(1, n_true)


def rows_of(hits: posh.RadiusHits) -> list[np.ndarray]:
    return np.split(hits.ids, hits.offsets[1:-1])


def time_each(calls: list[Callable[[], Any]]) -> list[float]:
    """CPU seconds of each call: the best of interleaved rounds."""
    best = [np.inf] * len(calls)
    for _ in range(ROUNDS):
        for i, call in enumerate(calls):
            start = time.process_time()
            call()
            best[i] = min(best[i], time.process_time() - start)
    return best


class Faiss:
    """IndexIVFFlat with scores as ours."""

    def __init__(self, base: np.ndarray, metric: str) -> None:
        import faiss

        faiss.omp_set_num_threads(1)
        self.is_distance = metric == "euclidean"
        self.base = base if self.is_distance else base / np.linalg.norm(base, axis=1, keepdims=True)
        d, n_lists = base.shape[1], 2 ** round(np.log2(2 * np.sqrt(len(base))))
        quantizer = faiss.IndexFlatL2(d) if self.is_distance else faiss.IndexFlatIP(d)
        kind = faiss.METRIC_L2 if self.is_distance else faiss.METRIC_INNER_PRODUCT
        self.index = faiss.IndexIVFFlat(quantizer, d, n_lists, kind)
        self.index.cp.niter = 10
        self.index.train(self.base)
        self.index.add(self.base)

    def prepare(self, queries: np.ndarray) -> np.ndarray:
        """Queries as they are compared with the base."""
        return queries if self.is_distance else queries / np.linalg.norm(queries, axis=1, keepdims=True)

    def search(self, prepared: np.ndarray, bound: float) -> list[np.ndarray]:
        """The rows within the radius of each query."""
        offsets, _, ids = self.index.range_search(prepared, -bound if self.is_distance else bound)
        return np.split(ids, offsets[1:-1].astype(np.int64))

    def tune(self, prepared: np.ndarray, bound: float, true: posh.RadiusHits) -> int:
        """Set and return the smallest number of lists that reaches the recall."""
        for n_probe in N_PROBES:
            self.index.nprobe = min(n_probe, self.index.nlist)
            if shares(self.search(prepared, bound), true, bound)[0] >= RECALL:
                break
        return int(self.index.nprobe)


def compare(name: str, n_queries: int, n_rows: int | None) -> Iterable[Row]:
    """Measure both libraries at each radius."""
    base, tuning, queries = load(name, n_queries, n_rows)
    index = posh.Index.build(base, metric=METRICS[name], recall=RECALL, optimize="build")
    bounds = find_bounds(index, queries, len(base))
    rival = Faiss(base, METRICS[name])
    lowest = min(bounds)
    truths = [index.search_radius(some, min_score=lowest, exact=True) for some in (tuning, queries)]
    prepared = [rival.prepare(some) for some in (tuning, queries)]
    for k, bound in zip(RADII, bounds, strict=True):
        n_probe = rival.tune(prepared[0], bound, truths[0])
        ours = index.search_radius(queries, min_score=bound, n_threads=1)
        theirs = rival.search(prepared[1], bound)
        seconds = time_each(
            [
                lambda bound=bound: index.search_radius(queries, min_score=bound, n_threads=1),
                lambda bound=bound: rival.search(prepared[1], bound),
            ]
        )
        row: Row = {"data": name, "n": len(base), "results": k, "bound": bound}
        row["mean_results"] = float((truths[1].scores >= np.float32(bound)).sum() / len(queries))
        for label, found, cpu in (("posh", rows_of(ours), seconds[0]), ("faiss", theirs, seconds[1])):
            mean, total = shares(found, truths[1], bound)
            row[label] = {
                "recall": round(mean, 4),
                "share_of_all": round(total, 4),
                "queries_per_second": round(len(queries) / cpu),
            }
        row["faiss"]["n_probe"] = n_probe
        yield row


def measure_situations(name: str, n_queries: int, n_rows: int | None) -> Iterable[Row]:
    """Recall after changes, and with filters: random ones, of near clusters and of far ones."""
    base, _, queries = load(name, n_queries, n_rows)
    rng = np.random.default_rng(2)
    n = len(base)
    side = base @ rng.standard_normal(base.shape[1]).astype(np.float32)
    order = np.argsort(side)
    index = posh.Index.build(base[: n // 2], metric=METRICS[name], recall=RECALL, optimize="build")
    bounds = find_bounds(index, queries[:100], n // 2)

    def measure(situation: str, filter_: np.ndarray | None = None) -> Iterable[Row]:
        true = index.search_radius(queries, min_score=min(bounds), filter=filter_, exact=True)
        for k, bound in zip(RADII, bounds, strict=True):
            found = index.search_radius(queries, min_score=bound, filter=filter_)
            mean, total = shares(rows_of(found), true, bound)
            n_true = float((true.scores >= np.float32(bound)).sum() / len(queries))
            values = {"mean_results": n_true, "recall": round(mean, 4), "share_of_all": round(total, 4)}
            yield {"data": name, "situation": situation, "results": k} | values

    yield from measure("half of the documents")
    index.add(base[n // 2 :])
    yield from measure("twice as many added")
    for share in (0.5, 0.1, 0.02):
        yield from measure(f"random filter, {share:g} pass", rng.random(n) < share)
    yield from measure("a fifth passes, chosen by vectors", np.isin(np.arange(n), order[: n // 5]))
    gone = rng.permutation(n)[: 6 * n // 10]
    index.delete(gone)
    yield from measure("six tenths deleted")


def compare_dbscan(name: str, n: int = 100_000, min_samples: int = 5) -> Row:
    """Labels and times of DBSCAN with a radius that has ten other vectors on average."""
    from sklearn.cluster import DBSCAN
    from sklearn.metrics import adjusted_rand_score

    from posh.integrations.sklearn import RadiusNeighborsTransformer

    X = load(name, 1, n)[0]
    some = np.random.default_rng(4).choice(n, 1000, replace=False)
    index = posh.Index.build(X, metric="euclidean", optimize="build")
    scores = np.sort(index.search(X[some], 200).scores[:, 1:].ravel())[::-1]
    eps = float(np.sqrt(-scores[10 * len(some)]))
    start = time.process_time()
    graph = RadiusNeighborsTransformer(radius=eps, metric="euclidean").fit_transform(X)
    ours = DBSCAN(eps=eps, min_samples=min_samples, metric="precomputed").fit_predict(graph)
    middle = time.process_time()
    theirs = DBSCAN(eps=eps, min_samples=min_samples, algorithm="brute", n_jobs=1).fit_predict(X)
    end = time.process_time()
    return {
        "data": name,
        "n": n,
        "eps": eps,
        "neighbours": graph.nnz / n - 1,
        "clusters": [int(labels.max()) + 1 for labels in (ours, theirs)],
        "noise": [float((labels < 0).mean()) for labels in (ours, theirs)],
        "same_noise": float(((ours < 0) == (theirs < 0)).mean()),
        "adjusted_rand": float(adjusted_rand_score(theirs, ours)),
        "cpu_seconds": [round(middle - start, 1), round(end - middle, 1)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", choices=METRICS, default=list(METRICS))
    parser.add_argument("--queries", type=int, default=N_QUERIES, help="of each half")
    parser.add_argument("--rows", type=int, help="documents, by default all")
    parser.add_argument("--situations", action="store_true")
    parser.add_argument("--dbscan", action="store_true")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    rows: list[Row] = []
    for name in args.data:
        if args.dbscan:
            found: Iterable[Row] = [compare_dbscan(name)]
        else:
            found = (measure_situations if args.situations else compare)(name, args.queries, args.rows)
        for row in found:
            print(json.dumps(row), flush=True)
            rows.append(row)
    if args.output:
        args.output.write_text(json.dumps({"environment": environment(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
