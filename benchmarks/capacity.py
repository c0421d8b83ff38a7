"""A model of the memory, time and network that n vectors take, from measured inputs, and its accuracy.

    python -m benchmarks.capacity --measure     # writes results/capacity.json, about half an hour
    python -m benchmarks.capacity               # prints the tables of docs/scaling.md from results/*.json

Measured, on image patches of 128 features, in CPU seconds of one thread, which other programs on the machine
change little: the cost of a query in an index of n documents (batches, k = 10), of adding a document, and of
merging each list of results, and the bytes of a document in memory. The model adds these up over shards.
It is compared with runs that were not used to make it: 24 shards on two workers (``benchmarks.batch``), and
100 shards in one process.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import posh
from posh import batch
from posh.bench import environment

RESULTS = Path(__file__).parent.parent / "results"
N_BITS, N_ACTIVE, K, N_QUERIES, N_SIMULATED = 1024, 32, 10, 2000, 100
SIZES = (12_500, 50_000, 200_000, 800_000)
KINDS = {"codes": "overlap, all documents", "metric": "Euclidean, recall 0.95"}
TOTALS = (10**7, 10**9, 10**11)
SHARD = {"codes": 800_000, "metric": 800_000}  # documents: within the measured range
CORES, MEMORY = 32, 256e9  # of a machine, for the table
RATE = 1000  # queries per second that the table is for
HIT = 12  # bytes of an id and a score


# Measuring -----------------------------------------------------------------------------------------


def cpu(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def empty(kind: str, hasher: posh.Hasher) -> posh.Index:
    return posh.CodeIndex(hasher) if kind == "codes" else posh.Index(metric="euclidean", recall=0.95)


def measure_index(kind: str, hasher: posh.Hasher, base: np.ndarray, queries: np.ndarray) -> dict[str, Any]:
    index = empty(kind, hasher)
    build = cpu(lambda: index.add(base))
    best = min(cpu(lambda: index.search(queries, K, n_threads=1)) for _ in range(5))
    return {
        "kind": kind,
        "documents": len(base),
        "microseconds_per_query": round(1e6 * best / len(queries), 2),
        "microseconds_per_added": round(1e6 * build / len(base), 2),
        "bytes_per_document": round(index.memory_usage()["total"] / len(base), 1),
    }


def measure_merge(queries: np.ndarray) -> float:
    """Microseconds of adding one list of results of one query."""
    rng = np.random.default_rng(0)
    shape = len(queries), K
    ids = [rng.permutation(10**6)[: shape[0] * K].reshape(shape) + i * 10**6 for i in range(20)]
    lists = [(some, -np.sort(rng.random(shape, np.float32))) for some in ids]

    def work() -> None:
        best = lists[0]
        for other in lists[1:]:
            best = batch.merge_hits(best, other, K)

    return 1e6 * min(cpu(work) for _ in range(5)) / len(queries) / (len(lists) - 1)


def simulate(hasher: posh.Hasher, base: np.ndarray, queries: np.ndarray) -> dict[str, Any]:
    """One process that searches many shards, one after the other, and merges."""
    shards = np.array_split(np.arange(len(base)), N_SIMULATED)
    indexes = [posh.CodeIndex(hasher).add(base[ids[0] : ids[-1] + 1], ids) for ids in shards]

    def work() -> None:
        found = [tuple(index.search(queries, K, n_threads=1)) for index in indexes]
        best = found[0]
        for other in found[1:]:
            best = batch.merge_hits(best, other, K)

    used = min(cpu(work) for _ in range(3))
    return {
        "shards": N_SIMULATED,
        "documents": len(base),
        "queries": len(queries),
        "cpu_seconds": round(used, 3),
    }


def measure(output: Path, sizes: list[int]) -> None:
    data = posh.datasets.load("cifar10-patches")
    queries = np.array(data.queries[:N_QUERIES])
    hasher = posh.POSH(N_BITS, N_ACTIVE, n_epochs=10, random_state=0).fit(data.base[:20_000])
    rows = []
    for kind in KINDS:
        for n in sizes:
            rows.append(measure_index(kind, hasher, np.array(data.base[:n]), queries))
            print(json.dumps(rows[-1]), flush=True)
    found = {
        "environment": environment(),
        "n_features": data.base.shape[1],
        "rows": rows,
        "microseconds_per_merged_list": round(measure_merge(queries), 3),
        "simulated": simulate(hasher, data.base, queries),
    }
    output.write_text(json.dumps(found, indent=1) + "\n")


# The model -----------------------------------------------------------------------------------------


class Costs(NamedTuple):
    """The costs of one kind of index: microseconds of a query in a shard of n documents, and the rest."""

    query: Callable[[float], float]
    formula: str
    added: float
    n_bytes: float
    merged: float

    def search(self, n_queries: float, n_shards: float, shard: float) -> float:
        """CPU seconds of a search."""
        return 1e-6 * n_queries * n_shards * (self.query(shard) + self.merged)


def costs(measured: dict[str, Any], kind: str) -> Costs:
    rows = [row for row in measured["rows"] if row["kind"] == kind]
    n, t = (np.array([row[key] for row in rows], float) for key in ("documents", "microseconds_per_query"))
    if kind == "codes":  # every document is looked at
        # Relative errors count: small shards matter as much as large ones.
        (intercept, slope), *_ = np.linalg.lstsq(np.column_stack([1 / t, n / t]), np.ones(len(t)), rcond=None)
        query, formula = lambda m: intercept + slope * m, f"{intercept:.1f} + {1e6 * slope:.1f} n / 10⁶"
    else:
        power, factor = np.polyfit(np.log(n), np.log(t), 1)
        query, formula = lambda m: float(np.exp(factor) * m**power), f"{np.exp(factor):.2f} n^{power:.2f}"
    last = rows[-1]
    return Costs(
        query, formula, last["microseconds_per_added"], last["bytes_per_document"],
        measured["microseconds_per_merged_list"],
    )  # fmt: skip


def inputs_table(measured: dict[str, Any]) -> list[str]:
    lines = [
        "| index | documents | µs per query | µs per document added | bytes per document |",
        "|---|---|---|---|---|",
    ]
    for row in measured["rows"]:
        lines.append(
            f"| {KINDS[row['kind']]} | {row['documents']:,} | {row['microseconds_per_query']:.1f} "
            f"| {row['microseconds_per_added']:.1f} | {row['bytes_per_document']:.0f} |"
        )
    formulas = "; ".join(f"{name}: {costs(measured, kind).formula}" for kind, name in KINDS.items())
    return [
        *lines,
        "",
        f"µs per query in a shard of n documents: {formulas}. Merging takes "
        f"{measured['microseconds_per_merged_list']:.2f} µs for each query and shard.",
    ]


def capacity_table(measured: dict[str, Any]) -> list[str]:
    lines = [
        f"| vectors | index | shards | memory | machines | build, core hours | CPU per query "
        f"| cores for {RATE:,} queries/s | network per query |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for total in TOTALS:
        for kind, name in KINDS.items():
            one, shard = costs(measured, kind), SHARD[kind]
            n_shards = -(-total // shard)
            cpu_seconds = one.search(1, n_shards, min(total, shard))
            machines = max(1, int(np.ceil(max(total * one.n_bytes / MEMORY, RATE * cpu_seconds / CORES))))
            lines.append(
                f"| {total:,} | {name} | {n_shards:,} | {size(total * one.n_bytes)} | {machines:,} "
                f"| {1e-6 * total * one.added / 3600:,.2f} | {duration(cpu_seconds)} "
                f"| {int(np.ceil(RATE * cpu_seconds)):,} | {size(machines * K * HIT)} |"
            )
    return lines


def checks_table(measured: dict[str, Any], run: dict[str, Any]) -> list[str]:
    lines = ["| run | index | predicted CPU | measured CPU | measured / predicted |", "|---|---|---|---|---|"]
    done, n, n_queries = measured["simulated"], run["documents"], run["queries"]
    where = f"{run['shards']} shards, {run['workers']} workers of Ray"
    used = run["steps"]["ray"]["search"]["cpu_seconds"]
    rows = [
        (
            "codes",
            done["shards"],
            done["documents"],
            done["queries"],
            done["cpu_seconds"],
            "100 shards, one process",
        ),
        (
            "codes",
            run["search_tasks"],
            n,
            n_queries,
            used,
            f"{where}, {run['search_tasks']} tasks",
        ),
    ]
    if "metric" in run:
        used = run["metric"]["search"]["workers"]["cpu_seconds"]
        rows += [("metric", run["shards"], n, n_queries, used, where)]
    for kind, n_parts, n, n_queries, used, where in rows:
        expected = costs(measured, kind).search(n_queries, n_parts, n / n_parts)
        lines.append(
            f"| {n:,} vectors, {n_queries:,} queries, {where} | {KINDS[kind]} "
            f"| {expected:.2f} s | {used:.2f} s | {used / expected:.2f} |"
        )
    return lines


def size(n_bytes: float) -> str:
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= factor:
            return f"{n_bytes / factor:,.1f} {unit}"
    return f"{n_bytes:.0f} bytes"


def duration(seconds: float) -> str:
    return f"{seconds:,.1f} s" if seconds >= 1 else f"{1e3 * seconds:,.1f} ms"


def tables(results: Path = RESULTS) -> str:
    """The tables of docs/scaling.md."""
    measured, run = (json.loads((results / name).read_text()) for name in ("capacity.json", "batch.json"))
    parts = [inputs_table(measured), capacity_table(measured), checks_table(measured, run)]
    return "\n\n".join("\n".join(lines) for lines in parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--output", type=Path, default=RESULTS / "capacity.json")
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.output, arguments.sizes)
    else:
        print(tables())


if __name__ == "__main__":
    main()
