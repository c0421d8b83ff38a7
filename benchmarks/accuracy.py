"""MAP@1000 of every method and code size, beside the paper's tables.

    python -m benchmarks.accuracy [--data mnist mnist-gist cifar10-gist] [--report docs/accuracy.md]

One trial: the protocol of the paper's appendix with 5,000 training vectors (the first of the permuted base)
and seed 0. Results are appended to results/accuracy.jsonl as they come; what is there with the same
parameters is not computed again, so a run that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import posh
from benchmarks._report import environment
from posh.index.exact import search

RESULTS = Path("results/accuracy.jsonl")
PAPER = json.loads((Path(__file__).parent / "paper_tables.json").read_text())["map_at_1000_per_bits"]
PAPER_NAMES = {"mnist": "MNIST", "mnist-gist": "MNIST-GIST", "cifar10-gist": "CIFAR10-GIST"}
SIZES = (8, 16, 32, 64, 128)
SPARSE = {
    "FruitFly": posh.FruitFly,
    "BOSL": posh.BOSL,
    "BioHash": posh.BioHash,
    "SphericalHash": posh.SphericalHash,
    "POSH": posh.POSH,
}
DENSE = {"LSH": posh.LSH, "ITQ": posh.ITQ, "KNNH": posh.KNNH}
N_BITS, N_TRAIN, AT, SEED = 1024, 5000, 1000, 0


def hasher_for(method: str, size: int) -> posh.Hasher:
    if method in DENSE:
        return DENSE[method](size, random_state=SEED)
    return SPARSE[method](N_BITS, size, random_state=SEED)


def shown_params(hasher: posh.Hasher) -> dict[str, object]:
    return {name: value for name, value in hasher.get_params().items() if value is not None}


def read_results() -> dict[tuple[str, str, int], dict]:
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    rows = [json.loads(line) for line in lines]
    return {(row["data"], row["method"], row["size"]): row for row in rows}


def measure(data: posh.datasets.Dataset, method: str, size: int) -> dict:
    hasher = hasher_for(method, size)
    start = time.perf_counter()
    hasher.fit(data.base[:N_TRAIN])
    fit_seconds = time.perf_counter() - start
    ids, _ = search(hasher.encode(data.base), hasher.encode(data.queries), AT)
    values = 100 * posh.metrics.average_precision(data.base_labels[ids], data.query_labels)
    mean, low, high = posh.metrics.interval(values)
    precision = float(100 * posh.metrics.precision(data.base_labels[ids], data.query_labels).mean())
    return {
        "map": mean,
        "map_low": low,
        "map_high": high,
        "precision": precision,
        "fit_seconds": fit_seconds,
        "params": shown_params(hasher),
    }


def run(names: list[str]) -> None:
    done = read_results()
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=True
    )
    RESULTS.parent.mkdir(exist_ok=True)
    for name in names:
        data = posh.datasets.load(name)
        for method, size in ((m, s) for m in [*DENSE, *SPARSE] for s in SIZES):
            params = shown_params(hasher_for(method, size))
            if done.get((name, method, size), {}).get("params") == params:
                continue
            row = {"data": name, "method": method, "size": size, **measure(data, method, size)}
            row |= {"commit": commit.stdout.strip(), "environment": environment()}
            with RESULTS.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{name:13} {method:14} {size:4} {row['map']:6.2f}", flush=True)


def report(names: list[str]) -> Iterator[str]:
    rows = read_results()
    yield "# Accuracy, one trial, beside the paper"
    yield ""
    yield (
        "MAP@1000 in percent, ours / the paper's (difference). One trial with seed 0; the 95 % interval over "
        "queries stands below each table. Made by `python -m benchmarks.accuracy`; raw results are in "
        "`results/accuracy.jsonl`."
    )
    for name in names:
        yield from table(name, rows)


def table(name: str, rows: dict) -> Iterator[str]:
    yield f"\n## {PAPER_NAMES[name]}\n"
    yield "| method | " + " | ".join(f"{size}" for size in SIZES) + " |"
    yield "|---" * (len(SIZES) + 1) + "|"
    differences, halves = [], []
    for method in [*DENSE, *SPARSE]:
        cells = []
        for size in SIZES:
            row, paper = rows[name, method, size], PAPER[PAPER_NAMES[name]][method][str(size)]["mean"]
            differences.append(row["map"] - paper)
            halves.append((row["map_high"] - row["map_low"]) / 2)
            cells.append(f"{row['map']:.1f} / {paper:.1f} ({differences[-1]:+.1f})")
        yield f"| {method} | " + " | ".join(cells) + " |"
    within = sum(abs(d) <= 2 for d in differences)
    yield (
        f"\n{within} of {len(differences)} cells are within 2 points of the paper's; the mean difference is "
        f"{np.mean(differences):+.2f}, the largest {max(differences, key=abs):+.2f}. The 95 % interval of a "
        f"cell over queries is ±{np.median(halves):.1f} (median)."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=list(PAPER_NAMES), choices=list(PAPER_NAMES))
    parser.add_argument("--report", type=Path)
    arguments = parser.parse_args()
    run(arguments.data)
    text = "\n".join(report(arguments.data))
    if arguments.report:
        arguments.report.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
