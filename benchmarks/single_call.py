"""Time of a single search from Python, for lists and for a graph.

    .venv/bin/python benchmarks/single_call.py

Prints microseconds of CPU per search of one vector, and the part of them that is not the kernel: the time of
one query, minus the time of each further copy of it in the same call. The lists share some work among the
queries of a call, so their part is an upper bound.
"""

from __future__ import annotations

import platform
import time
import timeit

import numpy as np

import posh
from posh import kernels

N, MORE = 5000, 9


def microseconds(statement: str, n: int = 3000, **names: object) -> float:
    """Return the CPU time of a statement, the best of several rounds."""
    timer = timeit.Timer(statement, timer=time.process_time, globals=names)
    return min(timer.repeat(9, n)) / n * 1e6


def measure(index: posh.Index, queries: np.ndarray, n_probe: int | None) -> str:
    """Return the times of searches of one query."""
    snapshot = index.snapshot()
    params = snapshot.make_params(10, n_probe=n_probe)
    names = {"index": index, "snapshot": snapshot, "params": params, "query": queries[:1]}
    search = "index.search(query, 10)" if n_probe is None else f"index.search(query, 10, n_probe={n_probe})"
    one = microseconds(search, **names)
    copies = np.repeat(queries[:1], MORE, axis=0)
    kernel = (microseconds(search, 1000, index=index, query=copies) - one) / (MORE - 1)
    slots = microseconds("snapshot.search_slots(query, params)", **names)
    return f"search {one:5.2f}, outside of the kernel {one - kernel:5.2f}; search_slots {slots - kernel:5.2f}"


def main() -> None:
    print(f"{platform.processor() or platform.machine()}, kernel {kernels.active()}, µs")
    rng = np.random.default_rng(0)
    for d in (128, 784):
        basis = rng.standard_normal((16, d))  # few dimensions, so that a graph visits few documents
        factors = rng.standard_normal((N + 1, 16))
        documents = (factors @ basis).astype(np.float32)
        for optimize, n_probe in (("throughput", 1), ("latency", None)):
            for ids in (None, np.arange(N) + 7):
                for metric in ("euclidean", "cosine"):
                    index = posh.Index.build(documents[:N], ids, metric=metric, optimize=optimize)
                    times = measure(index, documents[N:], n_probe)
                    kind = "slots" if ids is None else "ids"
                    print(f"{d:3} columns, {metric:9}, {optimize:10}, {kind:5}: {times}")


if __name__ == "__main__":
    main()
