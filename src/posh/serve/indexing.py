"""Fitting and reindexing: the estimated cost, memory for all fits, and one call at a time per collection."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from posh._runtime import cancel_on
from posh.collection.base import SAMPLE, BaseCollection
from posh.errors import FormatError
from posh.hashers.base import FitCost, Hasher, SparseHasher
from posh.index.codes import index as code_index
from posh.index.codes.lists import ListStructure, n_lists_for
from posh.index.codes.options import CodeOptions
from posh.index.nearest import index as nearest_index
from posh.index.nearest import lists as nearest_lists
from posh.index.nearest.options import NearestOptions
from posh.serve.capacity import Limits, make_busy_problem
from posh.serve.logs import log_event
from posh.serve.responses import LimitError, ProblemError, make_problem

__all__ = [
    "FitMemory",
    "Indexer",
    "estimate_fit_bytes",
    "estimate_index_bytes",
    "read_hasher",
    "require_limits",
]

_POLL = 0.01
_SEQ = 8  # bytes of the number by which an index knows an item
_MEASURED = 2000  # documents that are compared with all others to measure recall, including overhead
_IN_GRAPH = 20_000  # products of 8-bit numbers that a node takes: its candidates, and the choice among them


def read_hasher(content: bytes, limits: Limits) -> Hasher[Any]:
    """Return the fitted hasher of a model file."""
    try:
        hasher = Hasher.from_bytes(content, "the hasher")
    except FormatError as error:
        raise ProblemError(422, "not-a-hasher", str(error)) from None
    require_limits(hasher, limits)
    return hasher


def require_limits(hasher: Hasher[Any], limits: Limits) -> None:
    """Raise a LimitError if a hasher is larger than this service allows."""
    if isinstance(hasher.n_bits, int) and hasher.n_bits > limits.n_bits:
        raise LimitError(
            "n_bits", f"expected n_bits of at most {limits.n_bits} in this service, got {hasher.n_bits}"
        )
    columns = getattr(hasher, "n_features_in_", 0)
    if columns > limits.n_features:
        raise LimitError(
            "n_features",
            f"expected a hasher of at most {limits.n_features} columns in this service, got {columns}",
        )


# Cost ----------------------------------------------------------------------------------------------


class FitMemory:
    """Memory for all concurrent fits."""

    def __init__(self, n_bytes: int) -> None:
        self._most, self.taken, self._lock = n_bytes, 0, threading.Lock()

    def take(self, n_bytes: int) -> None:
        """Take bytes until :meth:`release`; raise a problem if other fits have them."""
        with self._lock:
            if self.taken + n_bytes > self._most:
                raise make_busy_problem(
                    f"expected at most {self._most:,} bytes for all fits at once, got {self.taken:,} in use "
                    f"and {n_bytes:,} more",
                    "fit_bytes",
                )
            self.taken += n_bytes

    def release(self, n_bytes: int) -> None:
        """Release bytes."""
        with self._lock:
            self.taken -= n_bytes

    @contextmanager
    def hold(self, n_bytes: int) -> Iterator[None]:
        """Take bytes for the duration of a block."""
        self.take(n_bytes)
        try:
            yield
        finally:
            self.release(n_bytes)


def estimate_fit_bytes(
    hasher: Hasher[Any], collection: BaseCollection, options: Mapping[str, Any], limits: Limits
) -> int:
    """Return the memory for fitting a hasher on a collection and indexing by it; raise if it is too much."""
    n, d = min(collection.count(), SAMPLE), collection.n_features or 0
    if n == 0:
        return 0
    cost = hasher.estimate_fit(n, d)
    cost = FitCost(cost.bytes + 4 * n * d, cost.operations)
    _require_affordable(cost, "a fit", limits)
    return max(cost.bytes, estimate_index_bytes(hasher, collection, options, limits))


def estimate_index_bytes(
    hasher: Hasher[Any] | None, collection: BaseCollection, options: Mapping[str, Any], limits: Limits
) -> int:
    """Return the memory for indexing by a hasher, by default the collection's; raise if it is too much."""
    n, d, metric = collection.count(), collection.n_features or 1, options.get("metric")
    hasher = hasher or (collection.hasher if metric is None else None)
    cost = _estimate_nearest(n, d, options) if hasher is None else _estimate_codes(hasher, n, d, options)
    _require_affordable(cost, "an index", limits)
    return cost.bytes


def _require_affordable(cost: FitCost, purpose: str, limits: Limits) -> None:
    if cost.bytes > limits.fit_bytes:
        raise LimitError(
            "fit_bytes",
            f"expected {purpose} of at most {limits.fit_bytes:,} bytes, got one of about {cost.bytes:,}: "
            "choose fewer bits or lists, or another method, or set the service's limit fit_bytes",
        )
    if cost.operations > limits.fit_operations:
        raise LimitError(
            "fit_operations",
            f"expected {purpose} of at most {limits.fit_operations:,} operations, got one of about "
            f"{cost.operations:,}: choose fewer epochs, bits or lists, or another method, or set the "
            "service's limit fit_operations",
        )


def _estimate_codes(hasher: Hasher[Any], n: int, d: int, options: Mapping[str, Any]) -> FitCost:
    """Estimate the cost of indexing n vectors of d columns by codes: the index, and its training."""
    own = CodeOptions(**_select_options(options, CodeOptions.names()))
    n_bits = hasher.n_bits
    n_bytes, operations = code_index.estimate_memory(hasher, own, n, d) + _SEQ * n, n * n_bits * d
    if isinstance(hasher, SparseHasher) and own.structure == "ivf":
        n_sample = min(n, max(SAMPLE, ListStructure.training_size(own, n)))
        n_bytes += 16 * n_sample * d
        operations += (10 * n_sample + n) * n_lists_for(own, n) * d
    if own.refine in ("decoder", "sbiht"):
        n_bytes += 40 * n_bits**2 + 24 * n_bits * d
        operations += n_bits**3 + n_bits**2 * d
    return FitCost(n_bytes, operations)


def _estimate_nearest(n: int, d: int, options: Mapping[str, Any]) -> FitCost:
    """Estimate the cost of indexing n vectors of d columns by a metric: the index, and its training."""
    own = NearestOptions(**_select_options(options, NearestOptions.names()))
    n_lists, n_sample = nearest_lists.n_lists_for(own, n), min(n, nearest_lists.training_size(own, n))
    training = (10 * n_sample + n) * n_lists // 4  # of 8-bit numbers, four at once
    n_bytes = nearest_index.estimate_memory(own, n, d) + _SEQ * n + 8 * n_lists * d + 12 * n_sample * d
    in_graph = _IN_GRAPH * n if own.most_dimensions > 0 else 0
    return FitCost(n_bytes, (training + _MEASURED * n + in_graph) * d)


def _select_options(options: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: options[name] for name in names if options.get(name) is not None}


# Running -------------------------------------------------------------------------------------------


class Indexer:
    """Fits or reindexes one collection, one call at a time, and keeps the state of the last call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._stop = threading.Event()  # of the current or last call
        self.message: str | None = None

    @property
    def is_running(self) -> bool:
        """Whether the collection is being indexed."""
        return self._lock.locked()

    @property
    def state(self) -> str:
        """``"idle"``, ``"running"`` or ``"failed"``."""
        if self.is_running:
            return "running"
        return "idle" if self.message is None else "failed"

    def run(self, call: Callable[[], object]) -> None:
        """Index in this thread; raise a problem if the collection is being indexed already."""
        self._begin()
        try:
            with cancel_on(self._stop):
                call()
        finally:
            self._lock.release()

    def fit(self, call: Callable[[], object], afterwards: Callable[[], None]) -> None:
        """Index in the background; an error becomes :attr:`message`."""
        self._begin()
        work = (call, afterwards)
        threading.Thread(target=self._fit, args=work, name="posh-fit", daemon=True).start()

    def cancel(self) -> None:
        """Ask the current call to stop; the collection then stays unchanged."""
        self._stop.set()

    async def wait_until_idle(self, seconds: float) -> None:
        """Wait on the event loop until nothing runs, up to a time."""
        for _ in range(int(seconds / _POLL)):
            if not self.is_running:
                return
            await asyncio.sleep(_POLL)

    def shut_down(self, seconds: float) -> None:
        """Wait in a thread until nothing runs, up to a time; no call can begin afterwards."""
        self._lock.acquire(timeout=max(0.0, seconds))

    def _begin(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise ProblemError(
                409,
                "indexing",
                f"expected {self._name!r} not to be indexed at present, but it is: try again when it is done",
                {"retry-after": "1"},
            )
        self._stop = threading.Event()
        self.message = None

    def _fit(self, call: Callable[[], object], afterwards: Callable[[], None]) -> None:
        start = time.perf_counter()
        log_event(logging.INFO, "fit started", collection=self._name)
        try:
            with cancel_on(self._stop):
                call()
            seconds = time.perf_counter() - start
            log_event(logging.INFO, "fit finished", collection=self._name, seconds=seconds)
        except Exception as error:
            self.message = make_problem(error).detail
            log_event(logging.WARNING, "fit failed", collection=self._name, reason=self.message)
        finally:
            afterwards()
            self._lock.release()
