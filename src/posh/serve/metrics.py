"""Metrics of the service, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

__all__ = ["CONTENT_TYPE", "CollectionState", "Metrics"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_QUERIES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_INDEXING = ("idle", "running", "failed")
_GAUGES = {
    "items": "Items of a collection.",
    "memory_bytes": "Bytes of memory that the index of a collection takes.",
    "disk_bytes": "Bytes of the files of a collection.",
    "recall": "Measured share of the 10 nearest items that searches find; 1 if all are compared.",
    "recall_asked": "Recall that the index of a collection is built for.",
    "last_backup_timestamp_seconds": "Time of the last backup that is in the folder of backups.",
    "waiting_queries": "Queries that wait for a batch.",
}


class CollectionState(NamedTuple):
    """The state of a collection; values that are unknown are None.

    ``calls`` are the numbers of running calls by kind, ``indexing`` is the state of the last fit.
    """

    name: str
    items: int
    memory_bytes: int | None
    disk_bytes: int | None
    recall: float | None
    recall_asked: float | None
    last_backup_timestamp_seconds: float | None
    waiting_queries: int
    calls: dict[str, int]
    indexing: str


class Metrics:
    """Counters and gauges of one service.

    >>> metrics = Metrics()
    >>> metrics.observe("/health", "GET", 200, 0.002)
    >>> b'posh_requests_total{method="GET",route="/health",status="200"} 1.0' in metrics.dump()
    True
    """

    def __init__(self) -> None:
        own = self._registry = CollectorRegistry()
        ProcessCollector(registry=own)
        by_route = ["route", "method"]
        self._requests = Counter("posh_requests", "Requests answered.", [*by_route, "status"], registry=own)
        self._seconds = Histogram(
            "posh_request_seconds", "Time to answer.", by_route, buckets=_SECONDS, registry=own
        )
        self._refusals = Counter(
            "posh_refusals", "Requests refused because of a limit.", ["limit"], registry=own
        )
        self._in_work = Gauge("posh_requests_in_work", "Requests to collections in progress.", registry=own)
        self._bytes = Gauge(
            "posh_work_bytes",
            "Bytes that requests in progress hold.",
            ["budget"],
            registry=own,
        )
        self.batch_size = Histogram(
            "posh_search_batch_queries", "Queries in a batch.", ["collection"], buckets=_QUERIES, registry=own
        )
        self._gauges = {
            name: Gauge(f"posh_collection_{name}", text, ["collection"], registry=own)
            for name, text in _GAUGES.items()
        }
        self._calls = Gauge(
            "posh_collection_calls", "Running calls of a collection.", ["collection", "kind"], registry=own
        )
        self._indexing = Gauge(
            "posh_collection_indexing",
            "1 for the state of the last fit of a collection.",
            ["collection", "state"],
            registry=own,
        )

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one response."""
        count, time = self._by_labels(route, method, status)
        count.inc()
        time.observe(seconds)

    @lru_cache(1024)  # noqa: B019  # the lookup takes longer than counting, and a service is not collected
    def _by_labels(self, route: str, method: str, status: int) -> tuple[Counter, Histogram]:
        return self._requests.labels(route, method, status), self._seconds.labels(route, method)

    def expect_refusals(self, limits: Iterable[str]) -> None:
        """Add counters of refusals, so that rates see the first one."""
        for limit in limits:
            self._refusals.labels(limit)

    def count_refusal(self, limit: str) -> None:
        """Count a request that was refused because of a limit."""
        self._refusals.labels(limit).inc()

    def watch_requests(self, count: Callable[[], int]) -> None:
        """Set the function that returns the number of requests in progress."""
        self._in_work.set_function(count)

    def watch_bytes(self, budget: str, count: Callable[[], int]) -> None:
        """Set the function that returns the bytes that are taken of a budget."""
        self._bytes.labels(budget).set_function(count)

    def remove(self, collection: str) -> None:
        """Remove the counters of a collection that was dropped."""
        self.batch_size.remove(collection)

    def dump(self, collections: Iterable[CollectionState] = ()) -> bytes:
        """Return all metrics in the text format, with the present state of collections."""
        for gauge in (*self._gauges.values(), self._calls, self._indexing):
            gauge.clear()
        for state in collections:
            for name, gauge in self._gauges.items():
                value = getattr(state, name)
                if value is not None:
                    gauge.labels(state.name).set(value)
            for kind, count in state.calls.items():
                self._calls.labels(state.name, kind).set(count)
            for name in _INDEXING:
                self._indexing.labels(state.name, name).set(state.indexing == name)
        return generate_latest(self._registry)
