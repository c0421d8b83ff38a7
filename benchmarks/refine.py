"""What better scores are worth, and what they cost: overlap, asymmetric scoring, refinement by the decoder.

    python -m benchmarks.refine [--data mnist cifar10-gist] [--active 8 16 32 64] [--output FILE]

POSH, 1,024 bits, 5,000 training vectors, seed 0. MAP@1000 for overlap, asymmetric scoring and the decoder
with 2k candidates; MAP@100 for 2, 5 and 10 times k (the paper's table 2). Cost is the time of a refined
search relative to the plain one.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

import posh
from benchmarks._report import environment, seconds

N_BITS, N_TRAIN = 1024, 5000


def mean_average_precision(index: posh.Index, data: posh.datasets.Dataset, k: int, **options: float) -> float:
    ids = index.search(data.queries, k, **options).ids
    return round(100 * posh.metrics.mean_average_precision(data.base_labels[ids], data.query_labels), 2)


def measure(data: posh.datasets.Dataset, n_active: int) -> dict[str, object]:
    hasher = posh.POSH(N_BITS, n_active, random_state=0).fit(data.base[:N_TRAIN])
    plain = posh.Index(hasher).add(data.base)
    asymmetric = posh.Index(hasher, scoring="asymmetric").add(data.base)
    decoder = posh.Index(hasher, refine="decoder").add(data.base)
    queries = data.queries[:1000]
    times = np.array(
        [
            [
                seconds(lambda i=index: i.search(queries, 1000, n_threads=1))
                for index in (plain, decoder, asymmetric)
            ]
            for _ in range(3)
        ]
    ).min(axis=0)
    row: dict[str, object] = {"data": data.name, "active": n_active}
    row["map_at_1000"] = {
        "overlap": mean_average_precision(plain, data, 1000),
        "asymmetric": mean_average_precision(asymmetric, data, 1000),
        "decoder_2": mean_average_precision(decoder, data, 1000, oversample=2.0),
    }
    row["map_at_100"] = {"overlap": mean_average_precision(plain, data, 100)} | {
        f"decoder_{factor:g}": mean_average_precision(decoder, data, 100, oversample=factor)
        for factor in (2.0, 5.0, 10.0)
    }
    row["time_relative_to_overlap"] = {
        "decoder_2": round(times[1] / times[0], 3),
        "asymmetric": round(times[2] / times[0], 2),
    }
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["mnist", "cifar10-gist"])
    parser.add_argument("--active", nargs="+", type=int, default=[8, 16, 32, 64])
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    rows = []
    for name in arguments.data:
        data = posh.datasets.load(name)
        for n_active in arguments.active:
            rows.append(measure(data, n_active))
            print(json.dumps(rows[-1]), flush=True)
    if arguments.output:
        arguments.output.write_text(json.dumps({"environment": environment(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
