"""Exact search over codes against faiss and kANNolo, on the same codes, one thread, in one run.

    python -m benchmarks.search [--data glove-100 cifar10-patches] [--n-active 16 32 64] [--ghz 3.2]

The rivals are faiss.IndexBinaryFlat and the exact index of a sparse engine, kannolo.SparseFlatIndex; of
Seismic, an exact search took longer. All are timed several times, in turn; the best times are reported. The
rivals get only part of the batch: their time per query does not depend on the number of queries. For these
codes, overlap and Hamming distance give the same order; we check that all find the same overlaps. The
roofline is that of AVX2: it assumes a - 2 full adders of 5 logic operations for 256 documents, and 3 such
operations in a cycle. ``--ghz`` is the clock, measured with a loop of dependent additions.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any, TypeAlias

import faiss
import kannolo
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


Rival: TypeAlias = Callable[[int, int, int], Any]
"""From i, j and k to distances or scores, and ids, of the k nearest of the queries i..j-1."""


def search_faiss(base: posh.Codes, asked: posh.Codes) -> Rival:
    flat, rows = faiss.IndexBinaryFlat(N_BITS), packed(asked)
    flat.add(packed(base))
    return lambda i, j, k: flat.search(rows[i:j], k)


def search_kannolo(base: posh.Codes, asked: posh.Codes) -> Rival:
    flat = kannolo.SparseFlatIndex.build_from_arrays(*sparse(base))
    return lambda i, j, k: flat.batch_search(*sparse(asked[i:j]), k, num_threads=1)


def sparse(codes: posh.Codes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Set bits, their values and the offsets of the rows."""
    bits = np.sort(codes.active, axis=1).astype(np.int32)
    return bits.ravel(), np.ones(bits.size, np.float32), np.arange(len(bits) + 1) * bits.shape[1]


def best_of(searches: list[Callable[[int], object]]) -> list[float]:
    """Best time of each, measured in turn; all get the number of the round as argument."""
    times = [[seconds(partial(search, i)) for search in searches] for i in range(ROUNDS)]
    return [min(column) for column in zip(*times, strict=True)]


def compare(
    segments: _native.Segments, rivals: list[Rival], queries: np.ndarray, k: int, n_queries: int
) -> list[float]:
    """Seconds per query of ours and of the rivals."""
    if n_queries > 1:
        few = min(RIVAL_BATCH, len(queries))
        parts = [partial(lambda rival, _: rival(0, few, k), rival) for rival in rivals]
        mine, *theirs = best_of([lambda _: overlap_topk(segments, queries, k), *parts])
        return [mine / len(queries), *(its / few for its in theirs)]

    def one_by_one(search: Callable[[int], object], n: int) -> Callable[[int], object]:
        return lambda i: [search((i * n + j) % len(queries)) for j in range(n)]

    ones = [one_by_one(partial(lambda rival, q: rival(q, q + 1, k), rival), 10) for rival in rivals]
    mine, *theirs = best_of([one_by_one(lambda q: overlap_topk(segments, queries[q : q + 1], k), 100), *ones])
    return [mine / 100, *(its / 10 for its in theirs)]


def check_scores(segments: _native.Segments, rivals: list[Rival], queries: np.ndarray) -> None:
    _, scores = overlap_topk(segments, queries[:20], 100)
    distances, overlaps = (rival(0, 20, 100)[0] for rival in rivals)
    np.testing.assert_array_equal(2 * queries.shape[1] - 2 * scores, distances)
    np.testing.assert_array_equal(scores.ravel(), np.ravel(overlaps))


def measure(name: str, n_active: int, ghz: float) -> None:
    """Print one line of JSON for each case."""
    data = posh.datasets.load(name)
    hasher = posh.FruitFly(N_BITS, n_active, weights="orthogonal", random_state=0).fit(data.base[:5000])
    base, asked = hasher.encode(data.base), hasher.encode(data.queries[:BATCH])
    segments, rivals = segments_of(base), [search_faiss(base, asked), search_kannolo(base, asked)]
    queries = asked.active.astype(np.uint16)
    check_scores(segments, rivals, queries)
    for k, n_queries in CASES[n_active]:
        mine, of_faiss, of_kannolo = compare(segments, rivals, queries, k, n_queries)
        ns = 1e9 * mine / -(-len(base) // 256)
        result = {
            "data": name,
            "documents": len(base),
            "n_active": n_active,
            "k": k,
            "queries": n_queries,
            "queries_per_second": round(1 / mine),
            "faiss_queries_per_second": round(1 / of_faiss, 1),
            "ratio": round(of_faiss / mine, 1),
            "kannolo_queries_per_second": round(1 / of_kannolo, 1),
            "kannolo_ratio": round(of_kannolo / mine, 1),
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
            environment()
            | {"faiss": faiss.__version__, "kannolo": version("kannolo")}
            | {"search threads": "1", "ghz": str(arguments.ghz)}
        )
    )
    for name in arguments.data:
        for n_active in arguments.n_active:
            measure(name, n_active, arguments.ghz)


if __name__ == "__main__":
    main()
