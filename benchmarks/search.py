"""Exact search over codes against faiss.IndexBinaryFlat, on the same codes, one thread, in one run.

    python -m benchmarks.search [--data glove-100 cifar10-patches] [--n-active 16 32 64] [--ghz 3.2]

Both are timed several times, in turn; the best times are reported. The rival gets only part of the batch: its
time per query does not depend on the number of queries. For these codes, overlap and Hamming distance give
the same order; we check that both find the same overlaps. The roofline is that of AVX2: it assumes a - 2
full adders of 5 logic operations for 256 documents, and 3 such operations in a cycle. ``--ghz`` is the clock,
measured with a loop of dependent additions.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import faiss
import numpy as np

import posh
from posh import _native
from posh.bench import environment, seconds
from posh.index.codes.bitsliced import (
    MAX_DOCS,
    Segment,
    allocate_planes,
    make_native_segments,
    overlap_topk,
    pack,
)

N_BITS, ROUNDS = 1024, 8
BATCH, RIVAL_BATCH = 1000, 50
CASES = {  # n_active: the (k, batch size) to measure
    16: [(10, BATCH)],
    32: [(10, BATCH), (100, BATCH), (10, 1)],
    64: [(10, BATCH), (1000, BATCH), (10, 1)],
}


def segments_of(codes: posh.Codes) -> _native.Segments:
    segments = []
    for start in range(0, len(codes), MAX_DOCS):
        part = np.ascontiguousarray(codes.active[start : start + MAX_DOCS], np.uint16)
        planes = allocate_planes(codes.n_bits, MAX_DOCS)
        pack(part, planes)
        segments.append(Segment(planes, len(part), start))
    return make_native_segments(segments)


def packed(codes: posh.Codes) -> np.ndarray:
    """Rows of bits, uint8 (n, n_bits / 8), made in pieces to save memory."""
    pieces = [codes[start : start + 10_000].to_dense(np.uint8) for start in range(0, len(codes), 10_000)]
    return np.concatenate([np.packbits(piece, axis=1) for piece in pieces])


def best_of(ours: Callable[[int], object], rival: Callable[[int], object]) -> tuple[float, float]:
    """Best time of each, measured in turn; both get the number of the round as argument."""
    times = [(seconds(partial(ours, i)), seconds(partial(rival, i))) for i in range(ROUNDS)]
    return min(mine for mine, _ in times), min(its for _, its in times)


def compare(
    segments: _native.Segments, flat: Any, queries: np.ndarray, rows: np.ndarray, k: int, n_queries: int
) -> tuple[float, float]:
    """Seconds per query of ours and of the rival."""
    if n_queries > 1:
        few = min(RIVAL_BATCH, len(rows))
        mine, its = best_of(
            lambda _: overlap_topk(segments, queries, k), lambda _: flat.search(rows[:few], k)
        )
        return mine / len(queries), its / few

    def one_by_one(search: Callable[[int], object], n: int) -> Callable[[int], object]:
        return lambda i: [search((i * n + j) % len(queries)) for j in range(n)]

    mine, its = best_of(
        one_by_one(lambda q: overlap_topk(segments, queries[q : q + 1], k), 100),
        one_by_one(lambda q: flat.search(rows[q : q + 1], k), 10),
    )
    return mine / 100, its / 10


def check_scores(segments: _native.Segments, flat: Any, queries: np.ndarray, rows: np.ndarray) -> None:
    _, scores = overlap_topk(segments, queries[:20], 100)
    distances, _ = flat.search(rows[:20], 100)
    np.testing.assert_array_equal(2 * queries.shape[1] - 2 * scores, distances)


def measure(name: str, n_active: int, ghz: float) -> None:
    """Print one line of JSON for each case."""
    data = posh.datasets.load(name)
    hasher = posh.FruitFly(N_BITS, n_active, weights="orthogonal", random_state=0).fit(data.base[:5000])
    base, asked = hasher.encode(data.base), hasher.encode(data.queries[:BATCH])
    segments, flat = segments_of(base), faiss.IndexBinaryFlat(N_BITS)
    flat.add(packed(base))
    queries, rows = asked.active.astype(np.uint16), packed(asked)
    check_scores(segments, flat, queries, rows)
    for k, n_queries in CASES[n_active]:
        mine, its = compare(segments, flat, queries, rows, k, n_queries)
        ns = 1e9 * mine / -(-len(base) // 256)
        result = {
            "data": name,
            "documents": len(base),
            "n_active": n_active,
            "k": k,
            "queries": n_queries,
            "queries_per_second": round(1 / mine),
            "faiss_queries_per_second": round(1 / its, 1),
            "ratio": round(its / mine, 1),
            "ns_per_256_documents": round(ns, 1),
            "fraction_of_roofline": round((n_active - 2) * 5 / 3 / ghz / ns, 2),
        }
        print(json.dumps(result), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["glove-100"])
    parser.add_argument("--n-active", nargs="+", type=int, choices=CASES, default=list(CASES))
    parser.add_argument("--ghz", type=float, default=3.2)
    arguments = parser.parse_args()
    faiss.omp_set_num_threads(1)
    print(
        json.dumps(
            environment() | {"faiss": faiss.__version__, "search threads": "1", "ghz": str(arguments.ghz)}
        )
    )
    for name in arguments.data:
        for n_active in arguments.n_active:
            measure(name, n_active, arguments.ghz)


if __name__ == "__main__":
    main()
