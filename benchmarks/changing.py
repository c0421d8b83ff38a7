"""The cost of keeping the promised recall while documents are added.

    python -m benchmarks.changing [--n 1000000] [--step 10000] [--data cifar10-patches]

Adds documents step by step, first to an index, then to a collection that another thread searches all the
time. Prints the share of the time that an index spends on measuring searches and on training lists again, the
longest pause of a write and of a search of the collection, and the recall in the end (200 queries, k = 10).
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import posh
from posh.bench import environment
from posh.index.nearest.lists import Lists

K, N_QUERIES = 10, 200


@contextmanager
def timed(name: str) -> Iterator[list[float]]:
    """Collect the seconds of each call of a method of the structure."""
    method, seconds = getattr(Lists, name), []

    def call(*args: object, **options: object) -> object:
        start = time.perf_counter()
        try:
            return method(*args, **options)
        finally:
            seconds.append(time.perf_counter() - start)

    setattr(Lists, name, call)
    try:
        yield seconds
    finally:
        setattr(Lists, name, method)


def add_in_steps(add: Callable[[int, np.ndarray], object], base: np.ndarray, step: int) -> np.ndarray:
    """Return the seconds of each step."""
    seconds = []
    for first in range(0, len(base), step):
        start = time.perf_counter()
        add(first, base[first : first + step])
        seconds.append(time.perf_counter() - start)
    return np.array(seconds)


def print_steps(title: str, seconds: np.ndarray, extra: str) -> None:
    print(
        f"{title}: {seconds.sum():.1f} s in {len(seconds)} steps, median {np.median(seconds):.3f} s, "
        f"longest {seconds.max():.2f} s; {extra}",
        flush=True,
    )


def found_share(search: Callable[..., posh.Hits], queries: np.ndarray) -> float:
    found, true = search(queries, k=K), search(queries, k=K, exact=True)
    return float(posh.metrics.recall(found, true).mean())


def grow_index(base: np.ndarray, queries: np.ndarray, step: int) -> None:
    index = posh.Index(metric="euclidean", recall=0.95)
    with timed("measure_if_due") as measuring, timed("_train_again") as training:
        steps = add_in_steps(lambda first, rows: index.add(rows), base, step)
    share = sum(measuring) / steps.sum()
    print_steps(
        "index",
        steps,
        f"{share:.1%} of the time for measuring ({sum(second > 0.01 for second in measuring)} times), "
        f"{sum(training):.1f} s of it for training lists again ({len(training)} times)",
    )
    print(f"index: recall {found_share(index.search, queries):.4f}; asked for 0.95", flush=True)


class Searcher(threading.Thread):
    """Searches one query after the other until it is stopped."""

    def __init__(self, collection: posh.Collection, queries: np.ndarray) -> None:
        super().__init__(daemon=True)
        self.collection, self.queries = collection, queries
        self.seconds: list[float] = []
        self.stopped = threading.Event()

    def run(self) -> None:
        """Search, and keep the time of each search."""
        while not self.stopped.is_set():
            start = time.perf_counter()
            self.collection.search(self.queries[len(self.seconds) % len(self.queries)], k=K, n_threads=1)
            self.seconds.append(time.perf_counter() - start)
            time.sleep(0.002)  # other threads want the interpreter, too


def grow_collection(base: np.ndarray, queries: np.ndarray, step: int) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        posh.Collection(Path(folder) / "items", metric="euclidean", recall=0.95) as collection,
        timed("measure_if_due") as measuring,
    ):
        collection.upsert(range(step), base[:step])
        searcher = Searcher(collection, queries)
        searcher.start()
        steps = add_in_steps(
            lambda first, rows: collection.upsert(range(step + first, step + first + len(rows)), rows),
            base[step:],
            step,
        )
        searcher.stopped.set()
        searcher.join()
        searches = np.array(searcher.seconds)
        long = sum(second > 0.01 for second in measuring)
        print_steps("collection", steps, f"{sum(measuring):.1f} s of measuring, {long} times")
        print(
            f"collection: {len(searches):,} searches, median {1000 * np.median(searches):.2f} ms, "
            f"99 % {1000 * np.quantile(searches, 0.99):.1f} ms, longest {1000 * searches.max():.0f} ms"
        )
        print(f"collection: recall {found_share(collection.search, queries):.4f}; asked for 0.95", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--step", type=int, default=10_000)
    parser.add_argument("--data", default="cifar10-patches")
    arguments = parser.parse_args()
    data = posh.datasets.load(arguments.data)
    base, queries = np.asarray(data.base[: arguments.n], np.float32), np.asarray(data.queries[:N_QUERIES])
    print(environment())
    grow_index(base, queries, arguments.step)
    grow_collection(base, queries, arguments.step)


if __name__ == "__main__":
    main()
