"""What fits and searches cost, estimated before they begin, and refused if this service has not as much."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from posh.collection.base import SAMPLE, BaseCollection
from posh.hashers.base import FitCost, Hasher, SparseHasher
from posh.index.codes.bitsliced import MAX_DOCS, stride_words
from posh.index.codes.options import CodeParams
from posh.index.nearest.index import estimate_memory
from posh.index.nearest.lists import n_lists_for, training_size
from posh.index.nearest.options import NearestOptions, NearestParams
from posh.index.params import SearchParams
from posh.serve.capacity import busy
from posh.serve.limits import Limits

__all__ = ["FitMemory", "fit_bytes", "index_bytes", "require_affordable_search", "require_filter_bytes"]

_ROUNDS = 50  # of SBIHT for each candidate
_MEASURED = 2000  # documents that are compared with all others to measure recall, with what that needs
_GATHERED = 10  # operations that take as long as gathering one number of a candidate


class FitMemory:
    """Memory for all fits at once."""

    def __init__(self, n_bytes: int) -> None:
        self._most, self._taken, self._lock = n_bytes, 0, threading.Lock()

    def take(self, n_bytes: int) -> Callable[[], None]:
        """Take memory, or raise if others have it; call what is returned to give it back."""
        with self._lock:
            if self._taken + n_bytes > self._most:
                raise busy(
                    f"expected at most {self._most:,} bytes for all fits at once, got {self._taken:,} in use "
                    f"and {n_bytes:,} more"
                )
            self._taken += n_bytes

        def give() -> None:
            with self._lock:
                self._taken -= n_bytes

        return give


def fit_bytes(
    hasher: Hasher[Any], collection: BaseCollection, options: Mapping[str, Any], limits: Limits
) -> int:
    """Memory for fitting a hasher on a collection and indexing by it; a ValueError if it is too much."""
    n, d = min(collection.count(), SAMPLE), collection.n_features or 0
    if n == 0:
        return 0
    cost = hasher.estimate_fit(n, d)
    _require(FitCost(cost.bytes + 4 * n * d, cost.operations), "a fit", limits)
    return max(cost.bytes + 4 * n * d, index_bytes(hasher, collection, options, limits))


def index_bytes(
    hasher: Hasher[Any] | None, collection: BaseCollection, options: Mapping[str, Any], limits: Limits
) -> int:
    """Memory for indexing a collection by a hasher, by default its own; a ValueError if it is too much."""
    n, d, metric = collection.count(), collection.n_features or 1, options.get("metric")
    hasher = hasher or (collection.hasher if metric is None else None)
    cost = _metric_cost(n, d, options) if hasher is None else _index_cost(hasher, n, d, options)
    _require(cost, "an index", limits)
    return cost.bytes


def _require(cost: FitCost, what: str, limits: Limits) -> None:
    if cost.bytes > limits.fit_bytes:
        raise ValueError(
            f"expected {what} of at most {limits.fit_bytes:,} bytes, got one of about {cost.bytes:,}: "
            "choose fewer bits or lists, or another method, or set the service's limit fit_bytes"
        )
    if cost.operations > limits.fit_operations:
        raise ValueError(
            f"expected {what} of at most {limits.fit_operations:,} operations, got one of about "
            f"{cost.operations:,}: choose fewer epochs, bits or lists, or another method, or set the "
            "service's limit fit_operations"
        )


def _index_cost(hasher: Hasher[Any], n: int, d: int, options: Mapping[str, Any]) -> FitCost:
    """What indexing n vectors of d columns costs."""
    n_bits, refine = hasher.n_bits, options.get("refine")
    kept = 4 * d if refine in ("vectors", "cosine") else 4
    if not isinstance(hasher, SparseHasher):
        return FitCost(n * (n_bits // 8 + 10 + kept), n * n_bits * d)
    n_active = options.get("document_active") or hasher.n_active
    n_bytes, operations = n * (2 * n_active + 9 + kept), n * n_bits * d
    if options.get("structure") == "ivf":
        n_lists = max(1, min(options.get("n_lists") or n // 1000, 65_536, n))
        n_sample = min(n, max(SAMPLE, 50 * n_lists))
        n_bytes += n_lists * (8 * n_bits * stride_words(-(-n // n_lists)) + 4 * d) + 16 * n_sample * d
        operations += (10 * n_sample + n) * n_lists * d
    else:
        whole, rest = divmod(n, MAX_DOCS)
        words = whole * stride_words(MAX_DOCS) + (stride_words(rest) if rest else 0)
        n_bytes += 8 * n_bits * words
    if refine in ("decoder", "sbiht"):
        n_bytes += 40 * n_bits**2 + 24 * n_bits * d
        operations += n_bits**3 + n_bits**2 * d
    return FitCost(n_bytes, operations)


def _metric_cost(n: int, d: int, options: Mapping[str, Any]) -> FitCost:
    """Estimate the cost of indexing n vectors of d columns by a metric."""
    names = NearestOptions.names()
    own = NearestOptions(**{name: value for name, value in options.items() if name in names})
    n_lists, n_sample = n_lists_for(own, n), min(n, training_size(own, n))
    training = (10 * n_sample + n) * n_lists // 4  # of 8-bit numbers, four at once
    n_bytes = estimate_memory(own, n, d) + 8 * n_lists * d + 12 * n_sample * d
    return FitCost(n_bytes, (training + _MEASURED * n) * d)


def require_filter_bytes(filter_: Mapping[str, Any], limits: Limits) -> bytes:
    """Return a filter as JSON, the same for equal filters; raise a ValueError if it is too large."""
    key, most = orjson.dumps(filter_, option=orjson.OPT_SORT_KEYS), limits.filter_bytes
    if len(key) > most:
        raise ValueError(f"expected a filter of at most {most:,} bytes, got {len(key):,}: use ranges")
    return key


def require_affordable_search(
    collection: BaseCollection,
    options: Mapping[str, Any],
    n_queries: int,
    params: SearchParams,
    limits: Limits,
) -> None:
    """Raise a ValueError if comparing vectors, or refining candidates, would take too long."""
    refine = options.get("refine")
    compares_all = isinstance(params, NearestParams) and collection.compares_all(params)
    if refine is None and not compares_all:
        return
    count, d = collection.count(), collection.n_features or 1
    if compares_all and n_queries * count * d > limits.work:
        raise ValueError(
            f"expected a search of at most {limits.work:,} operations, got {n_queries} queries that are "
            f"compared with all {count:,} vectors, about {n_queries * count * d:,}: ask for fewer at once, "
            "or for a lower recall"
        )
    if refine is None or not isinstance(params, CodeParams):
        return
    wanted = params.oversample or options.get("oversample") or 1.0
    n_candidates = min(math.ceil(params.k * wanted), count)
    n_bits = 1 if collection.hasher is None else collection.hasher.n_bits
    if refine == "sbiht":
        work = min(n_queries * n_candidates, count) * _ROUNDS * n_bits * d
    else:
        work = n_queries * n_candidates * (d if refine != "decoder" else 1) * _GATHERED
    if work > limits.work:
        raise ValueError(
            f"expected a search of at most {limits.work:,} operations, got {n_queries} queries with "
            f"{n_candidates} candidates each, about {work:,}: lower k or oversample, or ask for less at once"
        )
