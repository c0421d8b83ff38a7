"""POSH's fit against the algorithm of the paper's listing, in one run.

The rival is Algorithm 1 as the paper lists it: NumPy in float64, an SVD of M after every mini-batch. The
listing does not run as printed: we corrected its slips, but not its arithmetic. Each starts from its own
random matrix, as it would for a user. Accuracy is MAP@1000 on MNIST.

    python -m benchmarks.fit [--epochs 50] [--active 64] [--output results/fit.json]

Our time is the mean of two fits, one before and one after the rival. With 50 epochs the rival takes a quarter
of an hour.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from tqdm import tqdm

import posh
from posh.bench import environment
from posh.index.exact import search

N_TRAIN, N_BITS, BATCH = 5000, 1024, 100


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


def mean_average_precision(hasher: posh.POSH, data: posh.datasets.Dataset) -> float:
    ids, _ = search(hasher.encode(data.base), hasher.encode(data.queries), 1000)
    return 100 * posh.metrics.mean_average_precision(data.base_labels[ids], data.query_labels)


def measure(n_active: int, n_epochs: int) -> dict[str, object]:
    data = posh.datasets.load("mnist")
    X = data.base[:N_TRAIN]
    hasher = posh.POSH(N_BITS, n_active, n_epochs=n_epochs, random_state=0)

    def ours() -> float:
        start = time.perf_counter()
        hasher.fit(X)
        return time.perf_counter() - start

    before = ours()
    start = time.perf_counter()
    W = listing_fit(X.astype(np.float64) - X.mean(axis=0), n_active, n_epochs, seed=0)
    theirs = time.perf_counter() - start
    own = (before + ours()) / 2
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--active", type=int, default=64)
    parser.add_argument("--output", type=Path, help="also write the result as JSON")
    arguments = parser.parse_args()
    result = measure(arguments.active, arguments.epochs)
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    print(f"MNIST {N_TRAIN} x 784, D = {N_BITS}, alpha = {arguments.active}, {arguments.epochs} epochs")
    print(f"listing  {result['listing_seconds']:8.1f} s   MAP@1000 {result['listing_map']:.2f}")
    print(f"posh     {result['posh_seconds']:8.1f} s   MAP@1000 {result['posh_map']:.2f}")
    print(f"ratio    {result['ratio']:8.1f} x")
    print(result["environment"])


if __name__ == "__main__":
    main()
