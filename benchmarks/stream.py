"""An index while data drifts: a new topic again and again, and the oldest documents are deleted.

    python -m benchmarks.stream [--topic 50000] [--n 1000000] [--window 300000] [--step 5000] [--name lists]
    python -m benchmarks.stream --draw docs/stream.png [--names lists before]

Image patches are divided into topics: k-means clusters, each next to the one before it. The stream adds them
in order, ``--step`` documents at a time, and keeps the last ``--window``. After each topic it compares the
index with a new one of the same documents: recall@10 (promised: 0.95) for held-out patches of the newest
topic and of older ones, queries per second of processor time (one thread, in turns, best of several), sizes
of lists, and the longest write since the last topic, in wall and processor time.

One record per topic goes to results/stream/NAME.jsonl. An interrupted run continues at the last record. To
compare with another version of the package, run this file with that version and another name.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import posh
from posh.bench import environment
from posh.index.kmeans import assign, train_lists
from posh.index.nearest.lists import Lists

RESULTS = Path("results/stream")
K, RECALL, N_CLUSTERS, N_QUERIES, ROUNDS = 10, 0.95, 400, 100, 20
BLUE, VERMILLION, GREY = "#0072B2", "#D55E00", "#8C8C8C"


def order_by_topic(n: int) -> np.ndarray:
    """Return n patches (n, 128), cluster by cluster."""
    base = posh.datasets.load("cifar10-patches").base
    rng = np.random.default_rng(0)
    X = np.asarray(base[np.sort(rng.permutation(len(base))[:n])], np.float32)
    centres = train_lists(X, N_CLUSTERS, metric="euclidean", rng=rng, n_threads=1)
    left, chain = list(range(1, N_CLUSTERS)), [0]
    while left:
        distances = ((centres[left] - centres[chain[-1]]) ** 2).sum(axis=1)
        chain.append(left.pop(int(distances.argmin())))
    place = np.argsort(chain)[assign(X, centres, "euclidean", 1)]
    return X[np.argsort(place, kind="stable")]


class Costs:
    """The processor time of methods of the structure, and the longest writes, since they were last taken."""

    methods = ("_rebalance", "calibrate", "_train_again")

    def __init__(self) -> None:
        self.seconds = {name: 0.0 for name in self.methods if hasattr(Lists, name)}
        self.longest = [0.0, 0.0]
        self.total = 0.0
        for name in self.seconds:
            setattr(Lists, name, self._timed(name, getattr(Lists, name)))

    def _timed(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            start = time.process_time()
            try:
                return method(*args, **options)
            finally:
                self.seconds[name] += time.process_time() - start

        return call

    def write(self, work: Callable[[], object]) -> None:
        """Run and time a write."""
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        own = time.perf_counter() - wall, time.process_time() - cpu
        self.longest = [max(pair) for pair in zip(self.longest, own, strict=True)]
        self.total += own[1]

    def take(self) -> dict[str, Any]:
        """Return the costs and start again."""
        record = {
            "longest_wall": round(self.longest[0], 3),
            "longest_cpu": round(self.longest[1], 3),
            "cpu": round(self.total, 2),
            **{f"cpu_{name.lstrip('_')}": round(own, 2) for name, own in self.seconds.items()},
        }
        self.longest, self.total = [0.0, 0.0], 0.0
        self.seconds = dict.fromkeys(self.seconds, 0.0)
        return record


def rates(indexes: list[posh.Index], queries: np.ndarray) -> list[float]:
    """Return queries per second of processor time."""
    best = [0.0] * len(indexes)
    for _ in range(ROUNDS):
        for i, index in enumerate(indexes):
            start = time.process_time()
            index.search(queries, K, n_threads=1)
            best[i] = max(best[i], len(queries) / (time.process_time() - start))
    return best


def sizes_of(index: posh.Index) -> np.ndarray:
    lists = index.snapshot().lists
    assert lists is not None
    list_of = np.empty(len(lists), np.int32)
    lists.blocks.lists_of_slots(list_of)
    return np.bincount(list_of[list_of >= 0], minlength=lists.space.n_lists)


def measure(
    index: posh.Index, base: np.ndarray, ids: np.ndarray, old: np.ndarray, new: np.ndarray
) -> dict[str, Any]:
    fresh = make_index().add(base, ids)
    queries = np.concatenate([old, new])
    true = index.search(queries, K, exact=True)
    recall, recall_fresh = (posh.metrics.recall(own.search(queries, K), true) for own in (index, fresh))
    sizes, rate = sizes_of(index), rates([index, fresh], queries)
    return {
        "documents": len(index),
        "recall_new": round(float(recall[len(old) :].mean()), 4),
        "recall_old": round(float(recall[: len(old)].mean()), 4) if len(old) else None,
        "recall_fresh": round(float(recall_fresh.mean()), 4),
        "queries_per_second": round(rate[0]),
        "relative_speed": round(rate[0] / rate[1], 3),
        "lists": len(sizes),
        "lists_fresh": len(sizes_of(fresh)),
        "mean": round(float(sizes.mean()), 1),
        "p99": round(float(np.quantile(sizes, 0.99)), 1),
        "largest": int(sizes.max()),
        "largest_fresh": int(sizes_of(fresh).max()),
    }


def make_index() -> posh.Index:
    return posh.Index("euclidean", recall=RECALL, optimize="build")  # lists without a graph


def run(args: argparse.Namespace) -> None:
    output, saved = RESULTS / f"{args.name}.jsonl", Path(args.scratch) / args.name
    output.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in output.read_text().splitlines()] if output.exists() else []
    X = order_by_topic(args.n)
    rng, n_topics = np.random.default_rng(1), args.n // args.topic
    is_query = np.zeros(len(X), bool)
    for topic in range(n_topics):
        is_query[topic * args.topic + rng.choice(args.topic, N_QUERIES, replace=False)] = True
    first_of = np.arange(args.n) // args.topic
    queries, topics, base, own = X[is_query], first_of[is_query], X[~is_query], first_of[~is_query]
    index = posh.Index.load(saved) if rows else make_index()
    costs, at = Costs(), rows[-1]["added"] if rows else 0
    first = at - len(index)
    for topic in range(int(own[at]) if at < len(own) else n_topics, n_topics):
        end = int(np.searchsorted(own, topic, "right"))
        while at < end:
            stop = min(at + args.step, end)
            costs.write(lambda at=at, stop=stop: index.add(base[at:stop], np.arange(at, stop)))
            at = stop
            if len(index) > args.window:
                n = len(index) - args.window
                costs.write(lambda first=first, n=n: index.delete(np.arange(first, first + n)))
                first += n
        is_old = (topics >= own[first]) & (topics < topic)
        kept = np.arange(first, at)
        record = {"topic": topic, "added": at} | costs.take()
        record |= measure(index, base[first:at], kept, queries[is_old], queries[topics == topic])
        index.save(saved)
        with output.open("a") as file:
            file.write(json.dumps(record | {"environment": environment(), "options": vars(args)}) + "\n")
        print(record, flush=True)
    shutil.rmtree(saved, ignore_errors=True)


def draw(path: str, names: list[str]) -> None:
    runs = {
        name: [json.loads(line) for line in (RESULTS / f"{name}.jsonl").read_text().splitlines()]
        for name in names
    }
    figure = Figure(figsize=(9, 7), layout="constrained")
    ((recall, speed), (size, pause)) = figure.subplots(2, 2, sharex=True)
    labels = dict.fromkeys(names, "lists that follow the data") | {"before": "lists trained again"}
    for (name, rows), colour in zip(runs.items(), (BLUE, VERMILLION), strict=False):
        x = [row["added"] / 1000 for row in rows]
        ratio = {key: [row[key] / row["mean"] for row in rows] for key in ("largest", "p99")}
        for axes, values, style, label in (
            (recall, [row["recall_new"] for row in rows], "o-", f"{labels[name]}: newest topic"),
            (recall, [row["recall_old"] for row in rows], "s--", f"{labels[name]}: older topics"),
            (speed, [row["relative_speed"] for row in rows], "o-", labels[name]),
            (size, ratio["largest"], "o-", f"{labels[name]}: largest"),
            (size, ratio["p99"], "s--", f"{labels[name]}: 99 % are smaller"),
            (pause, [row["longest_cpu"] for row in rows], "o-", labels[name]),
        ):
            axes.plot(x, values, style, ms=3, color=colour, label=label)
    for axes, title in (
        (recall, "recall@10, promised: 0.95"),
        (speed, "queries per second, relative to a new index"),
        (size, "documents of a list, relative to the mean"),
        (pause, "longest write, seconds of processor time"),
    ):
        axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    recall.set_ylim(0.9, 1.0)
    size.legend(frameon=False, fontsize=8, loc="upper right")
    recall.axhline(RECALL, color=GREY, lw=0.8)
    speed.axhline(1.0, color=GREY, lw=0.8)
    for axes in (speed, size, pause):
        axes.set_ylim(0, 1.25 * axes.get_ylim()[1])  # space for the legend
    for axes in (size, pause):
        axes.set_xlabel("documents added so far, thousands")
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--topic", type=int, default=50_000)
    parser.add_argument("--window", type=int, default=300_000)
    parser.add_argument("--step", type=int, default=5_000)
    parser.add_argument("--name", default="lists")
    parser.add_argument(
        "--scratch", default="build/stream", help="folder for the index of an interrupted run"
    )
    parser.add_argument("--draw", metavar="FILE", help="only draw the records of results/stream")
    parser.add_argument("--names", nargs="+", default=["lists", "before"], help="records to draw")
    args = parser.parse_args()
    if args.draw:
        draw(args.draw, args.names)
    else:
        run(args)


if __name__ == "__main__":
    main()
