"""A collection on Milvus compared with the embedded one: equal scores, and their cost.

    python -m benchmarks.milvus [--uri FILE.db|http://127.0.0.1:19530] [--n 100000] [--queries 1000]

Needs the extra ``milvus``. Exits with 1 if a score differs.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import posh
from posh.engines.milvus import Milvus, MilvusCollection

SEARCHES = {
    "overlap": {},
    "overlap, one query at a time": {},
    "overlap, filter {'n': {'lt': 10}}": {"filter": {"n": {"lt": 10}}},
    "overlap, filter {'not': {'n': 3}}": {"filter": {"not": {"n": 3}}},
    "asymmetric": {"scoring": "asymmetric"},
}


def vectors(name: str, n: int, n_queries: int) -> tuple[np.ndarray, np.ndarray]:
    """The base and the queries of a data set, distinct."""
    data = posh.datasets.load(name)
    if len(data.base) < n or len(data.queries) < n_queries:
        sizes = f"{len(data.base):,} vectors and {len(data.queries):,} queries"
        raise SystemExit(
            f"expected at least {n:,} vectors and {n_queries:,} queries, got {sizes}: ask for fewer"
        )
    return np.asarray(data.base[:n], np.float32), np.asarray(data.queries[:n_queries], np.float32)


def timed(call: Callable[[], object]) -> tuple[object, float]:
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def search(collection: posh.BaseCollection, title: str, queries: np.ndarray, k: int) -> posh.Hits:
    if "one query" not in title:
        return collection.search(queries, k, **SEARCHES[title])
    hits = [collection.search(query, k) for query in queries]
    kind = hits[0].kind
    return posh.Hits(np.concatenate([h.ids for h in hits]), np.concatenate([h.scores for h in hits]), kind)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--uri", help="default: a new file")
    parser.add_argument("--data", default="glove-100")
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--few", type=int, default=100, help="queries of all searches but the first")
    parser.add_argument("-k", type=int, default=10)
    arguments = parser.parse_args()
    base, queries = vectors(arguments.data, arguments.n, arguments.queries)
    hasher = posh.POSH(1024, 32, n_epochs=2, random_state=0).fit(base[:5000])
    payloads = [{"n": i % 100} for i in range(len(base))]
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("pymilvus", "milvus-lite")]
    print(f"{len(base):,} vectors of {base.shape[1]}, 32 of 1024 bits; {', '.join(versions)}")
    n_wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        milvus = Milvus(arguments.uri or Path(folder) / "bench.db", timeout=600)
        both = {
            "embedded": posh.create(Path(folder) / "embedded", hasher),
            "Milvus": MilvusCollection.create(milvus, f"bench_{time.time_ns()}", hasher),
        }
        for name, collection in both.items():
            _, seconds = timed(lambda one=collection: one.upsert(range(len(base)), base, payloads))
            print(
                f"{name}: written in {seconds:.1f} s, {len(base) / seconds:,.0f} items a second", flush=True
            )
        for title in SEARCHES:
            some = queries if title == "overlap" else queries[: arguments.few]
            (expected, ours), (found, theirs) = (
                timed(lambda one=one, some=some, title=title: search(one, title, some, arguments.k))
                for one in both.values()
            )
            wrong = ~np.isclose(found.scores, expected.scores, rtol=1e-5)
            n_wrong += int(wrong.sum())
            ids = float((found.ids == expected.ids).mean())
            print(
                f"{title}: {len(some):,} queries, k={arguments.k}: {wrong.sum()} scores differ, "
                f"{ids:.2%} of ids equal; embedded {1e3 * ours / len(some):.2f} ms a query, "
                f"Milvus {1e3 * theirs / len(some):.2f} ms",
                flush=True,
            )
        for collection in both.values():
            collection.close()
    raise SystemExit(1 if n_wrong else 0)


if __name__ == "__main__":
    main()
