"""The cost of ``posh.batch`` compared with one process that has all vectors: fit, encode, build, search.

    python -m benchmarks.batch [--rows 2428372] [--shards 24] [--workers 2] [--output results/batch.json]

Real image patches (128 features) in shards of .npy files; POSH, 32 of 1,024 bits, k = 10, 50,000 queries, and
an index with a metric (Euclidean, recall 0.95). The single process has as many threads as there are workers,
reads the same shards, and writes its results to files as the workers do. Ids and scores must be equal:
otherwise this fails. The time to start the workers is reported separately. CPU seconds are those of the
workers or of the single process: a busy machine changes them less. For the metric, a single index has other
lists than the shards have: there the workers are compared with one process that searches shard after shard.
Its recall is that of 200 queries.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import posh
from posh import batch
from posh.bench import environment

N_BITS, N_ACTIVE, K, N_SAMPLE, N_TRUE = 1024, 32, 10, 20_000, 200
Row = dict[str, dict[str, float]]
STEPS = ("fit", "encode", "build", "search")


def write_shards(folder: Path, base: np.ndarray, n_shards: int) -> Path:
    folder.mkdir()
    for i, rows in enumerate(np.array_split(np.arange(len(base)), n_shards)):
        np.save(folder / f"{i:05d}.npy", base[rows[0] : rows[-1] + 1])
    return folder


def method() -> posh.Hasher:
    return posh.POSH(N_BITS, N_ACTIVE, n_epochs=10, random_state=0)


def rows_of(shards: Path) -> np.ndarray:
    return np.concatenate([np.load(path) for path in sorted(shards.iterdir())])


@dataclass(frozen=True)
class BestOf:
    """The number of times that a step is timed."""

    rounds: int

    def __call__(self, step: Callable[[], Any], before: Callable[[], Any] = lambda: None) -> dict[str, float]:
        """The least seconds, and CPU seconds, of the rounds; ``before`` is called before each of them."""
        walls, cpus = [], []
        for _ in range(self.rounds):
            before()
            wall, cpu = time.perf_counter(), time.process_time()
            outcome = step()
            walls.append(time.perf_counter() - wall)
            own = outcome.cpu_seconds if isinstance(outcome, batch.Outcome) else time.process_time() - cpu
            cpus.append(own)
        return {"seconds": round(min(walls), 3), "cpu_seconds": round(min(cpus), 3)}


# One process ---------------------------------------------------------------------------------------


def single(folder: Path, shards: Path, queries: np.ndarray, n_threads: int, best: BestOf) -> Row:
    """Seconds of each step in one process; its results are in ``folder``."""

    def fit() -> None:
        base = rows_of(shards)
        rows = np.sort(np.random.default_rng(0).choice(len(base), min(N_SAMPLE, len(base)), replace=False))
        method().fit(base[rows]).save(folder / "own-model")

    def encode() -> None:
        codes = posh.Hasher.load(folder / "model").encode(rows_of(shards), n_threads=n_threads)
        np.save(folder / "codes.npy", codes.active)

    def build() -> None:
        index = posh.CodeIndex(posh.Hasher.load(folder / "model"))
        index.add(rows_of(shards)).save(folder / "index")

    def search() -> None:
        index = posh.Index.load(folder / "index", mmap=True)
        hits = index.search(queries, K, n_threads=n_threads)
        np.savez(folder / "hits.npz", ids=hits.ids, scores=hits.scores)

    return {name: best(step) for name, step in zip(STEPS, (fit, encode, build, search), strict=True)}


# Workers -------------------------------------------------------------------------------------------


def many(folder: Path, shards: Path, queries: np.ndarray, workers: batch.Workers, best: BestOf) -> Row:
    """Seconds of each step with workers; their results are in ``folder``."""
    model, paths = folder / "model", [shards]

    def fit() -> batch.Outcome:
        return batch.fit(paths, method(), model, workers, n_sample=N_SAMPLE)

    def encode() -> batch.Outcome:
        return batch.encode(model, paths, folder / "codes", workers)

    def build() -> batch.Outcome:
        return batch.build(paths, folder / "index", posh.CodeIndex(posh.Hasher.load(model)), workers)

    def search() -> batch.Outcome:
        return batch.search(folder / "index", queries, folder / "hits", workers, k=K)

    def again(*names: str) -> Callable[[], None]:
        def remove() -> None:
            for name in names:
                shutil.rmtree(folder / name, ignore_errors=True)
                (folder / f"{name}.json").unlink(missing_ok=True)

        return remove

    return {
        "fit": best(fit, again("model")),
        "encode": best(encode, again("codes")),
        "build": best(build, again("index")),
        "search": best(search, again("hits")),
    }


def require_equal(one: Path, other: Path) -> None:
    """The codes and the results of workers are those of one process."""
    codes = np.concatenate([codes.active for _, codes in batch.read_codes(other / "codes")])
    assert np.array_equal(codes, np.load(one / "codes.npy")), "other codes"
    hits, own = batch.read_hits(other / "hits"), np.load(one / "hits.npz")
    assert np.array_equal(hits.ids, own["ids"]), "other ids"
    assert np.array_equal(hits.scores, own["scores"]), "other scores"


# A metric ------------------------------------------------------------------------------------------


def metric(
    folder: Path, shards: Path, queries: np.ndarray, workers: batch.Workers, n: int, best: BestOf
) -> dict[str, Any]:
    """An index with a metric: the workers compared with one process that searches shard after shard."""
    index = posh.Index(metric="euclidean", recall=0.95)
    n_documents = sum(shard.n_rows for shard in batch.find_shards([shards]))
    wall = time.perf_counter()
    built = batch.build([shards], folder / "metric", index, workers)
    build = {"seconds": round(time.perf_counter() - wall, 2), "cpu_seconds": round(built.cpu_seconds, 2)}
    parts = sorted((folder / "metric").glob("part-*/index"))

    def one_process() -> tuple[np.ndarray, ...]:
        opened = [posh.Index.load(part, mmap=True) for part in parts]
        found = [tuple(one.search(queries, K, n_threads=n)) for one in opened]
        merged = found[0]
        for others in found[1:]:
            merged = batch.merge_hits(merged, others, K)
        np.savez(folder / "metric-one.npz", *merged)
        return merged

    def by_workers() -> batch.Outcome:
        shutil.rmtree(folder / "metric-hits", ignore_errors=True)
        return batch.search(folder / "metric", queries, folder / "metric-hits", workers, k=K)

    times = {"one": best(one_process), "workers": best(by_workers)}
    hits, own = batch.read_hits(folder / "metric-hits"), one_process()
    assert np.array_equal(hits.ids, own[0]), "other ids"
    assert np.array_equal(hits.scores, own[1]), "other scores"
    few = queries[:N_TRUE]
    true = batch.search(folder / "metric", few, folder / "metric-true", workers, k=K, exact=True)
    exact = batch.read_hits(true.output)
    return {
        "build": build,
        "search": times,
        "overhead": overhead(times["workers"], times["one"]),
        "recall": round(float((hits.scores[:N_TRUE] >= exact.scores[:, -1:]).mean()), 4),
        "bytes_per_document": round(disk(folder / "metric") / n_documents, 1),
    }


def overhead(row: dict[str, float], one: dict[str, float]) -> dict[str, float]:
    return {name: round(row[name] / one[name] - 1, 3) for name in row}


def disk(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def arguments_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_428_372)
    parser.add_argument("--shards", type=int, default=24)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="of which the fastest counts; default: 3")
    parser.add_argument("--queries", type=int, default=50_000, help="the data has 10,000: they come again")
    parser.add_argument(
        "--folder", type=Path, help="where to write temporary files: about 8 GB; default: a temporary one"
    )
    parser.add_argument("--kinds", nargs="+", choices=("ray", "processes"), default=["ray", "processes"])
    parser.add_argument("--without-metric", action="store_true", help="whose build takes most of the time")
    parser.add_argument("--output", type=Path)
    return parser.parse_args()


def main() -> None:
    arguments = arguments_of()
    best = BestOf(arguments.rounds)
    data = posh.datasets.load("cifar10-patches")
    queries = np.resize(data.queries, (arguments.queries, data.queries.shape[1]))
    n = arguments.workers
    report: dict[str, Any] = {
        "documents": arguments.rows,
        "shards": arguments.shards,
        "workers": n,
        "rounds": best.rounds,
    }
    report |= {"queries": len(queries), "k": K, "n_bits": N_BITS, "n_active": N_ACTIVE}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        shards = write_shards(folder / "shards", data.base[: arguments.rows], arguments.shards)
        made = {"ray": lambda: batch.RayWorkers(n), "processes": lambda: batch.Processes(n)}
        kinds = {kind: made[kind]() for kind in arguments.kinds}
        first = arguments.kinds[0]
        rows: dict[str, Any] = {}
        for kind, workers in kinds.items():
            start = time.perf_counter()
            with workers:
                list(workers.results(abs, list(range(2 * n))))
                own = folder / kind
                own.mkdir()
                report[f"{kind}_start_seconds"] = round(time.perf_counter() - start, 2)
                rows[kind] = many(own, shards, queries, workers, best)
                if kind == first and not arguments.without_metric:
                    report["metric"] = metric(own, shards, queries, workers, n, best)
                    print(json.dumps(report["metric"]), flush=True)
            print(kind, json.dumps(rows[kind]), flush=True)
        one = folder / "one"
        one.mkdir()
        shutil.copy(folder / first / "model", one / "model")
        rows["one"] = single(one, shards, queries, n, best)
        for kind in kinds:
            require_equal(one, folder / kind)
        report["bytes_per_document"] = round(disk(folder / first / "index") / arguments.rows, 1)
    report["identical"] = True
    at_once = -(-arguments.shards // (2 * n))  # shards that a task searches as one
    report["search_tasks"] = -(-arguments.shards // at_once)
    report["steps"] = rows
    report["overhead"] = {
        kind: {step: overhead(rows[kind][step], rows["one"][step]) for step in STEPS} for kind in kinds
    }
    print(json.dumps(report, indent=1))
    if arguments.output:
        arguments.output.write_text(json.dumps({"environment": environment()} | report, indent=1) + "\n")


if __name__ == "__main__":
    main()
