"""Accuracy and cost of better scores: overlap, asymmetric scoring, refinement by the decoder.

    python -m benchmarks.refine [--accuracy mnist cifar10-gist] [--cost mnist glove-100] [--output FILE]

Accuracy: POSH, 1,024 bits, 5,000 training vectors, seed 0; MAP@1000 for overlap, asymmetric scoring and the
decoder with 2k candidates; MAP@100 for 2, 5 and 10 times k (the paper's table 2). Cost: the time to reorder
2k candidates, and the time of the search that finds them, with 32 set bits, one thread, batches of 1,000.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import posh
from posh import kernels
from posh.bench import environment, seconds
from posh.index.codes.refine import CandidateDocuments

N_BITS, N_TRAIN, N_QUERIES, ROUNDS = 1024, 5000, 1000, 4


def mean_average_precision(
    index: posh.CodeIndex, data: posh.datasets.Dataset, k: int, **options: float
) -> float:
    ids = index.search(data.queries, k, **options).ids
    return round(100 * posh.metrics.mean_average_precision(data.base_labels[ids], data.query_labels), 2)


def cost(hasher: posh.Hasher, base: np.ndarray, queries: np.ndarray) -> dict[str, dict[str, float]]:
    """Microseconds per query, on one thread, to find 2k candidates and to reorder them."""
    decoder = posh.CodeIndex(hasher, refine="decoder").add(base)
    plain = posh.CodeIndex(hasher).add(base)
    found = {}
    for k in (100, 1000):
        candidates = plain.search(queries, 2 * k).ids
        times = np.array(
            [
                [
                    seconds(lambda k=k: plain.search(queries, 2 * k, n_threads=1)),
                    seconds(lambda k=k, c=candidates: reorder(decoder, queries, c, k)),
                ]
                for _ in range(ROUNDS)
            ]
        )
        search, refine = 1e6 * times.min(axis=0) / len(queries)
        found[f"k={k}"] = {
            "search": round(search, 1),
            "refine": round(refine, 1),
            "fraction": round(refine / search, 3),
        }
    return found


def reorder(index: posh.CodeIndex, queries: np.ndarray, slots: np.ndarray, k: int) -> None:
    """Reorder candidates: the second stage of a refined search, without the first."""
    snapshot = index.snapshot()
    rows = snapshot.structure.codes.rows, snapshot.refiner_rows.rows
    scores = snapshot.refiner.scores(queries, CandidateDocuments(slots, *rows), 1)
    kernels.best_candidates(slots, scores, k)


def accuracy(hasher: posh.Hasher, data: posh.datasets.Dataset) -> dict[str, dict[str, float]]:
    plain = posh.CodeIndex(hasher).add(data.base)
    asymmetric = posh.CodeIndex(hasher, scoring="asymmetric").add(data.base)
    decoder = posh.CodeIndex(hasher, refine="decoder").add(data.base)
    return {
        "map_at_1000": {
            "overlap": mean_average_precision(plain, data, 1000),
            "asymmetric": mean_average_precision(asymmetric, data, 1000),
            "decoder_2": mean_average_precision(decoder, data, 1000, oversample=2.0),
        },
        "map_at_100": {"overlap": mean_average_precision(plain, data, 100)}
        | {
            f"decoder_{factor:g}": mean_average_precision(decoder, data, 100, oversample=factor)
            for factor in (2.0, 5.0, 10.0)
        },
    }


def accuracy_rows(names: list[str]) -> Iterator[dict[str, object]]:
    for name in names:
        data = posh.datasets.load(name)
        for n_active in (8, 16, 32, 64):
            hasher = posh.POSH(N_BITS, n_active, random_state=0).fit(data.base[:N_TRAIN])
            yield {"data": name, "active": n_active} | accuracy(hasher, data)


def cost_rows(names: list[str]) -> Iterator[dict[str, object]]:
    for name in names:
        data = posh.datasets.load(name)
        hasher = posh.FruitFly(N_BITS, 32, weights="orthogonal", random_state=0).fit(data.base[:N_TRAIN])
        row = {"data": name, "documents": len(data.base), "features": data.base.shape[1], "active": 32}
        yield row | cost(hasher, data.base, data.queries[:N_QUERIES])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--accuracy", nargs="*", default=["mnist", "cifar10-gist"], help="data sets")
    parser.add_argument("--cost", nargs="*", default=["mnist", "glove-100", "cifar10-patches"])
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    measured = {"accuracy": accuracy_rows(arguments.accuracy), "cost": cost_rows(arguments.cost)}
    result: dict[str, object] = {"environment": environment()}
    for name, rows in measured.items():
        result[name] = []
        for row in rows:
            result[name].append(row)
            print(json.dumps(row), flush=True)
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
