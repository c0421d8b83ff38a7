"""The speed of encoding relative to the bare matrix product that it contains, and the memory it needs.

    python -m benchmarks.encode [--rows 1000000] [--output results/encode.json]

``encode`` is compared with a bare float32 product in tiles of 256 rows, and with one product of all rows at
once, each on one thread. Memory is the peak allocation of ``encode``, without the codes. ``Hadamard`` is
compared with ``FruitFly``, whose orthogonal weights need a matrix product.
"""

from __future__ import annotations

import argparse
import json
import tracemalloc
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

import posh
from posh.bench import environment, seconds

N_BITS, N_ACTIVE, ROUNDS = 1024, 32, 15


def peak_memory(hasher: posh.Hasher, X: np.ndarray) -> float:
    """Megabytes that encoding on two threads needs beyond its input and its output."""
    tracemalloc.start()
    codes = hasher.encode(X, n_threads=2)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (peak - codes.active.nbytes) / 2**20


def latency(hasher: posh.Hasher, d: int) -> float:
    """Microseconds of encoding one vector."""
    vector = np.random.default_rng(2).standard_normal((1, d), np.float32)
    return 1e6 * min(seconds(lambda: hasher.encode(vector)) for _ in range(500))


def rate_of_product(hasher: posh.Hasher, n_rows: int, d: int) -> dict[str, float]:
    """Best times of encode with one and two threads and of the bare products, interleaved."""
    X = np.random.default_rng(1).standard_normal((n_rows, d), np.float32)
    weights, out = hasher.weights_, np.empty((n_rows, N_BITS), np.float32)

    def product() -> None:
        for start in range(0, n_rows, 256):
            rows = X[start : start + 256]
            np.matmul(rows, weights.T, out=out[: len(rows)])

    times: dict[str, list[float]] = {"product": [], "whole": [], "one": [], "two": []}
    with threadpool_limits(1, "blas"):
        for _ in range(ROUNDS):
            times["product"].append(seconds(product))
            times["whole"].append(seconds(lambda: np.matmul(X, weights.T, out=out)))
            times["one"].append(seconds(lambda: hasher.encode(X, n_threads=1)))
            times["two"].append(seconds(lambda: hasher.encode(X, n_threads=2)))
    best = {name: min(values) for name, values in times.items()}
    return {
        "vectors_per_second": n_rows / best["one"],
        "fraction_of_product": best["product"] / best["one"],
        "fraction_of_whole_product": best["whole"] / best["one"],
        "two_threads": best["one"] / best["two"],
        "one_vector_microseconds": latency(hasher, d),
    }


def fast_transform(n_rows: int, d: int) -> dict[str, float]:
    """Microseconds per vector of Hadamard and of FruitFly on one thread, best of interleaved rounds."""
    X = np.random.default_rng(1).standard_normal((n_rows, d), np.float32)
    hashers = {
        "hadamard": posh.Hadamard(256, 128, random_state=0),
        "fruitfly": posh.FruitFly(256, 128, weights="orthogonal", random_state=0),
    }
    times: dict[str, list[float]] = {name: [] for name in hashers}
    for hasher in hashers.values():
        hasher.fit(X[:2000])
    for _ in range(ROUNDS):
        for name, hasher in hashers.items():
            times[name].append(seconds(lambda own=hasher: own.encode(X, n_threads=1)))
    return {f"{name}_microseconds": 1e6 * min(values) / n_rows for name, values in times.items()}


def measure(n_rows: int) -> dict[str, object]:
    rng = np.random.default_rng(0)
    result: dict[str, object] = {"environment": environment()}
    for d in (128, 784):
        hasher = posh.FruitFly(N_BITS, N_ACTIVE, weights="orthogonal", random_state=0)
        hasher.fit(rng.standard_normal((2000, d), np.float32))
        result[f"d={d}"] = rate_of_product(hasher, 40_000, d)
        if d == 128:
            X = rng.standard_normal((n_rows, d), np.float32)
            result["peak_megabytes"] = peak_memory(hasher, X)
    result["256 bits, d=100"] = fast_transform(40_000, 100)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--output", type=Path, help="also write the result as JSON")
    arguments = parser.parse_args()
    text = json.dumps(measure(arguments.rows), indent=1)
    if arguments.output:
        arguments.output.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
