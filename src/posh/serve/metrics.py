"""What is counted, for Prometheus."""

from __future__ import annotations

from functools import lru_cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_QUERIES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """Counters of one service.

    >>> metrics = Metrics()
    >>> metrics.observe("/health", "GET", 200, 0.002)
    >>> b'posh_requests_total{method="GET",route="/health",status="200"} 1.0' in metrics.text()
    True
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "posh_requests", "Requests answered.", ["route", "method", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "posh_request_seconds",
            "Time to answer.",
            ["route", "method"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.batch_size = Histogram(
            "posh_search_batch_queries",
            "Queries searched in one go.",
            ["collection"],
            buckets=_QUERIES,
            registry=self._registry,
        )
        self._items = Gauge(
            "posh_collection_items", "Items of a collection.", ["collection"], registry=self._registry
        )

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one answer."""
        count, time = self._by_labels(route, method, status)
        count.inc()
        time.observe(seconds)

    @lru_cache(1024)  # noqa: B019  # finding them takes longer than counting, and a service lasts
    def _by_labels(self, route: str, method: str, status: int) -> tuple[Counter, Histogram]:
        return self._requests.labels(route, method, status), self._seconds.labels(route, method)

    def forget(self, collection: str) -> None:
        """Leave out a collection that was dropped."""
        self.batch_size.remove(collection)

    def text(self, counts: dict[str, int] | None = None) -> bytes:
        """All of it in the text format; ``counts`` are the items of each collection."""
        self._items.clear()
        for name, count in (counts or {}).items():
            self._items.labels(name).set(count)
        return generate_latest(self._registry)
