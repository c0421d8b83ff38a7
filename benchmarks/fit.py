"""POSH's fit against the algorithm of the paper's listing, and against exact steps, in one run.

The first rival is Algorithm 1 as the paper lists it: NumPy in float64, an SVD of M after every mini-batch.
The listing does not run as printed: we corrected its slips, but not its arithmetic. Each starts from its own
random matrix, as it would for a user. Accuracy is MAP@1000 on MNIST.

The second rival, for the sizes of today's embeddings, solves every Procrustes problem by an
eigendecomposition in float64 and has one mini-batch after the other, with a lag of 0.05. Both start from the
same random matrix. The vectors are synthetic: clusters of unit vectors, the deviation of column i falls as
1/√i. Accuracy is the recall of the 10 true neighbours among the 10 vectors that share most bits.

    python -m benchmarks.fit [--only mnist|384|1536] [--epochs 50] [--active 64] [--output results/fit.json]

Our time is the mean of two fits, one before and one after the rival. With 50 epochs the rivals take a quarter
of an hour and five minutes. ``--only`` keeps the other results of the file.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from tqdm import tqdm

import posh
from posh import kernels
from posh.bench import environment
from posh.codes import Codes
from posh.hashers._linalg import draw_orthogonal, solve_procrustes
from posh.index.codes.bitsliced import SlicedCodes

N_TRAIN, N_BITS, BATCH = 5000, 1024, 100
SIZES = {"384": (20_000, 384, 1024), "1536": (5000, 1536, 2048)}  # vectors, features, bits
N_ACTIVE, LAG, N_QUERIES = 32, 0.05, 1000


def listing_fit(X: np.ndarray, n_active: int, n_epochs: int, seed: int) -> np.ndarray:
    """Learn W (d, D) as the paper's ``learn_POSH`` does."""
    rng = np.random.RandomState(seed)
    U, _, Vt = np.linalg.svd(rng.randn(X.shape[1], N_BITS), full_matrices=False)
    W = U.dot(Vt)
    M = W.copy()
    for _ in tqdm(range(n_epochs), desc="listing", disable=None):
        for start in range(0, len(X), BATCH):
            Y = X[start : start + BATCH]
            scores = Y.dot(W)
            H = np.zeros_like(scores)
            winners = np.argpartition(-scores, n_active - 1, axis=1)[:, :n_active]
            H[np.arange(len(Y))[:, None], winners] = 1
            M += Y.T.dot(H)
            U, _, Vt = np.linalg.svd(M, full_matrices=False)
            W = U.dot(Vt)
    return W


def with_weights(hasher: posh.POSH, W: np.ndarray) -> posh.POSH:
    """The same hasher with other weights, so that the same code measures both."""
    other = posh.POSH(**hasher.get_params())
    other.__dict__.update(hasher.__dict__, weights_=np.ascontiguousarray(W.T, np.float32))
    return other


def search(hasher: posh.POSH, base: np.ndarray, queries: np.ndarray, k: int) -> np.ndarray:
    """Return the rows (m, k) of the base whose codes share the most bits with those of queries (m, d)."""
    documents = SlicedCodes(hasher.n_bits).with_codes(hasher.encode(base))
    return documents.search(hasher.encode(queries), k, n_threads=1)[0]


def mean_average_precision(hasher: posh.POSH, data: posh.datasets.Dataset) -> float:
    ids = search(hasher, data.base, data.queries, 1000)
    return 100 * posh.metrics.mean_average_precision(data.base_labels[ids], data.query_labels)


def exact_fit(Z: np.ndarray, W: np.ndarray, n_epochs: int) -> tuple[np.ndarray, float]:
    """Learn W (D, d) with exact Procrustes steps; return it and the objective of the last epoch."""
    M, seen, seen_then, gain = np.zeros_like(W), 0, 0, 0.0
    for _ in tqdm(range(n_epochs), desc="exact", disable=None):
        gain = 0.0
        for start in range(0, len(Z), BATCH):
            batch = Z[start : start + BATCH]
            scores = batch @ W.T
            codes = Codes.wrap(kernels.winners(scores, N_ACTIVE), len(W))
            M += codes.to_csr().T @ batch
            gain += float(np.take_along_axis(scores, codes.active.astype(np.int64), axis=1).sum())
            seen += len(batch)
            if seen >= (1 + LAG) * seen_then:
                W, seen_then = solve_procrustes(M, W), seen
    return solve_procrustes(M, W), N_ACTIVE - (2 * gain - float(np.vdot(Z, Z))) / len(Z)


def embeddings(n: int, d: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((300, d), np.float32)
    X = centres[rng.integers(len(centres), size=n)] + rng.standard_normal((n, d), np.float32)
    X *= np.arange(1, d + 1, dtype=np.float32) ** np.float32(-0.5)
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def neighbour_recall(hasher: posh.POSH, base: np.ndarray, queries: np.ndarray) -> float:
    true = np.argpartition(-(queries @ base.T), 10, axis=1)[:, :10]  # of unit length: the nearest
    found = search(hasher, base, queries, 10)
    return float(posh.metrics.recall(found, true).mean())


def measure_size(n: int, d: int, n_bits: int, n_epochs: int) -> dict[str, object]:
    vectors = embeddings(n + N_QUERIES, d)
    base, queries = vectors[:n], vectors[n:]
    hasher = posh.POSH(n_bits, N_ACTIVE, n_epochs=n_epochs, random_state=0)
    before = seconds_to_fit(hasher, base)
    start = time.perf_counter()
    Z, rng = hasher.preprocess_(base), hasher._make_rng()
    W, objective = exact_fit(Z, draw_orthogonal(n_bits, d, rng), n_epochs)
    theirs = time.perf_counter() - start
    own = (before + seconds_to_fit(hasher, base)) / 2
    return {
        "vectors": n,
        "features": d,
        "bits": n_bits,
        "epochs": n_epochs,
        "exact_seconds": theirs,
        "posh_seconds": own,
        "ratio": theirs / own,
        "exact_objective": objective,
        "posh_objective": hasher.objective_[-1],
        "exact_recall": neighbour_recall(with_weights(hasher, W.T), base, queries),
        "posh_recall": neighbour_recall(hasher, base, queries),
        "environment": environment(),
    }


def seconds_to_fit(hasher: posh.POSH, X: np.ndarray) -> float:
    start = time.perf_counter()
    hasher.fit(X)
    return time.perf_counter() - start


def measure(n_active: int, n_epochs: int) -> dict[str, object]:
    data = posh.datasets.load("mnist")
    X = data.base[:N_TRAIN]
    hasher = posh.POSH(N_BITS, n_active, n_epochs=n_epochs, random_state=0)
    before = seconds_to_fit(hasher, X)
    start = time.perf_counter()
    W = listing_fit(X.astype(np.float64) - X.mean(axis=0), n_active, n_epochs, seed=0)
    theirs = time.perf_counter() - start
    own = (before + seconds_to_fit(hasher, X)) / 2
    return {
        "epochs": n_epochs,
        "active": n_active,
        "listing_seconds": theirs,
        "posh_seconds": own,
        "ratio": theirs / own,
        "listing_map": mean_average_precision(with_weights(hasher, W), data),
        "posh_map": mean_average_precision(hasher, data),
        "environment": environment(),
    }


def show_mnist(result: dict[str, object]) -> None:
    print(f"MNIST {N_TRAIN} x 784, D = {N_BITS}, alpha = {result['active']}, {result['epochs']} epochs")
    print(f"listing  {result['listing_seconds']:8.1f} s   MAP@1000 {result['listing_map']:.2f}")
    print(f"posh     {result['posh_seconds']:8.1f} s   MAP@1000 {result['posh_map']:.2f}")
    print(f"ratio    {result['ratio']:8.1f} x")


def show_size(result: dict[str, object]) -> None:
    print(f"{result['vectors']} x {result['features']}, D = {result['bits']}, alpha = {N_ACTIVE}")
    for name in ("exact", "posh"):
        found = f"objective {result[f'{name}_objective']:.2f}   recall {result[f'{name}_recall']:.3f}"
        print(f"{name:8} {result[f'{name}_seconds']:8.1f} s   {found}")
    print(f"ratio    {result['ratio']:8.1f} x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("mnist", *SIZES))
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--active", type=int, default=64, help="set bits on MNIST")
    parser.add_argument("--output", type=Path, help="also write the results as JSON")
    arguments = parser.parse_args()
    results: dict[str, dict[str, object]] = {}
    if arguments.output and arguments.output.exists():
        results = json.loads(arguments.output.read_text())
    for name in ("mnist", *SIZES):
        if arguments.only not in (None, name):
            continue
        if name == "mnist":
            results[name] = measure(arguments.active, arguments.epochs)
            show_mnist(results[name])
        else:
            results[name] = measure_size(*SIZES[name], arguments.epochs)
            show_size(results[name])
    if arguments.output:
        arguments.output.write_text(json.dumps(results, indent=1) + "\n")
    print(environment())


if __name__ == "__main__":
    main()
