"""Capacity of the service: limits of requests, queues of calls, budgets of memory, costs of searches."""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, TypeVar

import orjson

from posh._runtime import cancel_on
from posh.collection.base import BaseCollection
from posh.index.codes.options import CodeParams
from posh.index.nearest.options import NearestParams
from posh.index.params import SearchParams
from posh.serve.responses import LimitError, ProblemError

__all__ = [
    "CallQueue",
    "Limits",
    "MemoryBudget",
    "MemoryShare",
    "make_busy_problem",
    "make_executor",
    "make_timeout_problem",
    "require_affordable_search",
    "require_filter_bytes",
]


@dataclass(frozen=True)
class Limits:
    """Bounds that keep one client from using the whole machine; docs/serve.md lists them.

    >>> Limits(k=100).k
    100
    """

    body_bytes: int = 48 << 20
    """Bytes of a request."""
    body_values: int = 1_000_000
    """Values in the JSON of a large request, counted by its commas and brackets; packed vectors are one."""
    metadata_bytes: int = 64 << 10
    """Bytes of a request that creates a collection, sets its metadata or fits a hasher."""
    filter_bytes: int = 64 << 10
    """Bytes of a filter as JSON; of a request that counts or browses, all bytes."""
    filter_seconds: float = 10.0
    """Time to look up a filter, or a text."""
    text_characters: int = 2_000
    """Characters of one text query."""
    payload_bytes: int = 1 << 20
    """Bytes of the payload of one item, as JSON."""
    answer_bytes: int = 32 << 20
    """Bytes of payloads, vectors and codes in a response."""
    bytes_in_work: int = 144 << 20
    """Bytes of all requests that are being received, or wait for ``work_bytes``."""
    work_bytes: int = 512 << 20
    """Memory for all requests in progress, half of it for parsed bodies and half for unfinished responses."""
    answers_in_work: int = 128 << 20
    """Bytes of all responses that are being sent, except those of at most 32 KB."""
    head_seconds: float = 4.0
    """Time in which the header lines of a request must arrive; an idle connection is closed after it."""
    body_seconds: float = 60.0
    """Time in which the body of a request must arrive."""
    answer_seconds: float = 30.0
    """Time in which a client must read the next part of a response, of 32 KB and the system's buffers."""
    head_bytes: int = 64 << 10
    """Bytes of the header lines of a request, at least 8,192."""
    connections: int = 1_000
    """Concurrent connections; further ones wait until another is closed."""
    items: int = 10_000
    """Items in one upsert, delete or get."""
    page: int = 20_000
    """Items on one page, which may be shorter to keep within ``answer_bytes``."""
    queries: int = 1_000
    """Queries in one search."""
    k: int = 1_000
    """Hits of one query."""
    hits: int = 100_000
    """Hits of one search: queries times k."""
    oversample: float = 100.0
    """Candidates per hit."""
    n_probe: int = 1_000
    """Lists that one query visits."""
    n_features: int = 8_192
    """Columns of a vector."""
    n_bits: int = 16_384
    """Bits of a code of a hasher that is fitted here."""
    work: int = 20_000_000_000
    """Operations to refine the candidates of one search; a core does about 5,000,000,000 per second."""
    fit_bytes: int = 900_000_000
    """Memory for all concurrent fits, as estimated before they begin."""
    fit_operations: int = 3_000_000_000_000
    """Operations of one fit, as estimated before it begins: about ten minutes."""
    sample: int = 20_000
    """Vectors in a sample."""
    fields: int = 1_000
    """Items whose payloads are read to list the fields."""
    map: int = 5_000
    """Items on a map; fewer if their vectors would take more than 32 MB."""
    collections: int = 1_000
    """Collections in the folder."""
    requests: int = 500
    """Concurrent requests to one collection."""
    all_requests: int = 900
    """Concurrent requests to all collections: fewer than connections, so that others are answered."""
    waiting: int = 4_096
    """Queries that wait for a collection."""
    seconds: float = 30.0
    """Time that a request may wait for its turn, and then run."""
    batch: int = 1_024
    """Queries in one batch."""


P = ParamSpec("P")
T = TypeVar("T")
_THREADS = 256  # of all queues together; a thread is started only when all others are busy
_ROUNDS = 50  # iterations of SBIHT for each candidate
_GATHERED = 10  # operations that take as long as gathering one number of a candidate
_SMALL = 4 << 20  # bytes: requests for at most this much memory do not wait behind larger ones


def make_executor() -> ThreadPoolExecutor:
    """Return the pool of threads that all queues share."""
    return ThreadPoolExecutor(_THREADS, "posh")


class CallQueue:
    """Calls of one kind for one collection: ``n`` run concurrently, the others wait in order.

    Parameters
    ----------
    executor : the threads.
    n : the number of concurrent calls.
    wait_seconds : the bound of the time in the queue; a call that waits longer is not started.
    seconds : the bound of the time of the call itself; None for no bound. A call that runs longer is
        cancelled, see :func:`posh._runtime.cancel_on`, and occupies its place until it returns.
    waits : whether the caller of a cancelled call still waits for its result: a write that succeeded must not
        be reported as failed.

    Call the methods on the event loop's thread.

    """

    def __init__(
        self, executor: Executor, n: int, wait_seconds: float, seconds: float | None, *, waits: bool = False
    ) -> None:
        self._executor, self._turns = executor, asyncio.Semaphore(n)
        self._wait_seconds, self._seconds, self._waits = wait_seconds, seconds, waits
        self.n_running = self.n_finished = 0

    async def run(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Run a call in a thread and return its result."""
        await self._wait_for_turn()
        stop = threading.Event()
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._executor, _run_cancellable, stop, partial(call, *args, **options))
        self.n_running += 1
        work.add_done_callback(self._finish)
        try:
            await asyncio.wait({work}, timeout=self._seconds)
            if not work.done():
                stop.set()
                if not self._waits:
                    raise make_timeout_problem(self._seconds)
            return await work
        finally:
            del work  # an error refers to this frame: a cycle would keep it until garbage is collected

    async def _wait_for_turn(self) -> None:
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._turns.acquire()
        except TimeoutError:
            raise make_busy_problem(
                f"expected a turn within {self._wait_seconds:g} s, got none", "seconds"
            ) from None

    def _finish(self, work: asyncio.Future[Any]) -> None:
        self.n_running -= 1
        self.n_finished += 1
        self._turns.release()
        if not work.cancelled():
            work.exception()  # retrieve it: asyncio logs errors that no caller waits for


def _run_cancellable(stop: threading.Event, call: Callable[[], T]) -> T:
    with cancel_on(stop):
        return call()


def make_busy_problem(reason: str, limit: str | None = None) -> ProblemError:
    """Return the response to a request that may succeed later; ``limit`` is the limit it exceeds now."""
    return ProblemError(503, "busy", f"{reason}: try again later", {"retry-after": "1"}, limit=limit)


def make_timeout_problem(seconds: float | None) -> ProblemError:
    """Return the response to a request that timed out."""
    return ProblemError(
        504,
        "too-long",
        f"expected work of at most {seconds:g} s, got more: ask for less at once",
        limit="seconds",
    )


class MemoryBudget:
    """A number of bytes for all requests, granted in the order of asking.

    Requests for up to 4 MB may exceed the budget by a quarter, so that large ones do not delay them.
    """

    def __init__(self, n_bytes: int, seconds: float) -> None:
        self.most, self.seconds = n_bytes, seconds
        self.taken = 0
        self._lock = threading.Lock()
        self._waiting: deque[tuple[int, Future[None]]] = deque()

    def ask(self, n_bytes: int) -> Future[None] | None:
        """Take bytes and return None, or return a turn to wait for."""
        with self._lock:
            if self._has(n_bytes) and (n_bytes <= _SMALL or not self._waiting):
                self.taken += n_bytes
                return None
            turn: Future[None] = Future()
            self._waiting.append((n_bytes, turn))
            return turn

    def release(self, n_bytes: int) -> None:
        """Release bytes and hand them to waiting requests."""
        with self._lock:
            self.taken -= n_bytes
            while self._waiting and (self._waiting[0][1].cancelled() or self._has(self._waiting[0][0])):
                wanted, turn = self._waiting.popleft()
                if turn.set_running_or_notify_cancel():  # else it timed out
                    self.taken += wanted
                    turn.set_result(None)

    def require(self, turn: Future[None]) -> None:
        """Raise a problem, and cancel the turn, if it has not come."""
        if turn.cancel():  # not possible once the bytes are taken
            self.release(0)
            raise make_busy_problem(
                f"expected room for this request in {self.most:,} bytes of memory within "
                f"{self.seconds:g} s, got none",
                "work_bytes",
            )

    def _has(self, n_bytes: int) -> bool:
        most = self.most + (self.most // 4 if n_bytes <= _SMALL else 0)
        return self.taken + n_bytes <= most


class MemoryShare:
    """The bytes that one request holds of a budget, until :meth:`close`; asking for more may time out.

    >>> share = MemoryShare(MemoryBudget(100, 1.0))
    >>> share.add(80)
    >>> share.close()
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget, self._n, self._is_closed = budget, 0, False
        self._lock = threading.Lock()

    async def wait_for(self, n_bytes: int) -> None:
        """Take more bytes, waiting on the event loop."""
        turn = self._budget.ask(min(n_bytes, self._budget.most))
        if turn is not None:
            await asyncio.wait({asyncio.wrap_future(turn)}, timeout=self._budget.seconds)
        self._count(turn, n_bytes)

    def add(self, n_bytes: int) -> None:
        """Take more bytes, waiting in this thread."""
        turn = self._budget.ask(min(n_bytes, self._budget.most))
        if turn is not None:
            wait({turn}, self._budget.seconds)
        self._count(turn, n_bytes)

    def close(self) -> None:
        """Release all bytes."""
        with self._lock:
            n_bytes, self._n, self._is_closed = self._n, 0, True
        self._budget.release(n_bytes)

    def _count(self, turn: Future[None] | None, n_bytes: int) -> None:
        if turn is not None:
            self._budget.require(turn)
        with self._lock:
            self._n += min(n_bytes, self._budget.most)
            is_late = self._is_closed  # the request was answered concurrently
        if is_late:
            self.close()
            raise make_busy_problem("expected a request that is not answered yet, got another")


def require_filter_bytes(filter_: Mapping[str, Any], limits: Limits) -> bytes:
    """Return a filter as JSON, equal for equal filters; raise a LimitError if it is too large."""
    key, most = orjson.dumps(filter_, option=orjson.OPT_SORT_KEYS), limits.filter_bytes
    if len(key) > most:
        raise LimitError(
            "filter_bytes", f"expected a filter of at most {most:,} bytes, got {len(key):,}: use ranges"
        )
    return key


def require_affordable_search(
    collection: BaseCollection,
    options: Mapping[str, Any],
    n_queries: int,
    params: SearchParams,
    limits: Limits,
) -> None:
    """Raise a LimitError if comparing vectors, or refining candidates, would take too long."""
    refine = options.get("refine")
    compares_all = isinstance(params, NearestParams) and collection.compares_all(params)
    if refine is None and not compares_all:
        return
    count, d = collection.count(), collection.n_features or 1
    if compares_all and n_queries * count * d > limits.work:
        raise LimitError(
            "work",
            f"expected a search of at most {limits.work:,} operations, got {n_queries} queries that are "
            f"compared with all {count:,} vectors, about {n_queries * count * d:,}: ask for fewer at once, "
            "or for a lower recall",
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
        raise LimitError(
            "work",
            f"expected a search of at most {limits.work:,} operations, got {n_queries} queries with "
            f"{n_candidates} candidates each, about {work:,}: lower k or oversample, or ask for less at once",
        )
