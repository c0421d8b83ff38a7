"""The growth of cost and recall with the number of documents: exhaustive search and coarse lists.

    python -m benchmarks.growth [--sizes 10000 100000 1000000 2428372] [--output results/growth.json]

The paper's setting: α = 64 of 1,024 bits, k = 1000, n/1000 lists, 20 probes, two threads, on real image
patches (128 features), all 10,000 queries in one batch. The time includes encoding the queries. Recall is the
fraction of the 100 true nearest neighbours (Euclidean) among the 1000 results, for 200 queries.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

import posh
from posh.bench import environment, seconds

N_BITS, N_ACTIVE, K, N_TRUE, N_FEW, ROUNDS = 1024, 64, 1000, 100, 200, 4


def true_distances(base: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Squared distances of the nearest neighbours, (m, N_TRUE), block by block."""
    best = np.full((len(queries), N_TRUE), np.inf, np.float32)
    for start in range(0, len(base), 100_000):
        found = distances(base[start : start + 100_000], queries)
        best = np.partition(np.hstack([best, found]), N_TRUE - 1, axis=1)[:, :N_TRUE]
    return best


def distances(base: np.ndarray, queries: np.ndarray) -> np.ndarray:
    squares = np.einsum("ij,ij->i", base, base) - 2.0 * (queries @ base.T)
    return np.asarray(squares + np.einsum("ij,ij->i", queries, queries)[:, None], np.float32)


def recall(base: np.ndarray, queries: np.ndarray, ids: np.ndarray, true: np.ndarray) -> float:
    found = np.stack(
        [distances(base[np.maximum(row, 0)], q[None])[0] for row, q in zip(ids, queries, strict=True)]
    )
    found[ids < 0] = np.inf
    return float(posh.metrics.recall_by_distance(found, true, tolerance=1e-4).mean())


def measure(hasher: posh.Hasher, base: np.ndarray, queries: np.ndarray, structure: str) -> dict[str, object]:
    index = posh.CodeIndex(hasher, structure=structure)
    build = seconds(lambda: index.add(base))
    best = min(seconds(lambda: index.search(queries, K, n_threads=2)) for _ in range(ROUNDS))
    few = queries[:N_FEW]
    ids = index.search(few, K).ids
    return {
        "documents": len(base),
        "structure": structure,
        "build_seconds": round(build, 1),
        "queries_per_second": round(len(queries) / best),
        "recall": round(recall(base, few, ids, true_distances(base, few)), 4),
        "bytes_per_document": round(index.memory_usage()["total"] / len(base)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", type=int, default=[10_000, 100_000, 1_000_000, 2_428_372])
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    data = posh.datasets.load("cifar10-patches")
    hasher = posh.POSH(N_BITS, N_ACTIVE, random_state=0).fit(data.base[:5000])
    rows = []
    for n in arguments.sizes:
        for structure in ("exact", "ivf"):
            rows.append(measure(hasher, data.base[:n], data.queries, structure))
            print(json.dumps(rows[-1]), flush=True)
    if arguments.output:
        arguments.output.write_text(json.dumps({"environment": environment(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
