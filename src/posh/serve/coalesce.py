"""Batches of concurrent searches, so that many clients get the speed of batch searches.

A search of an idle collection runs immediately. The next batch has the searches that arrived while the last
batch ran. No search is delayed to fill a batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from posh.collection.base import Include
from posh.collection.filters import Filter
from posh.index.hits import Hits
from posh.index.params import SearchParams
from posh.preprocess import Float32
from posh.serve.capacity import Limits, make_busy_problem, make_timeout_problem
from posh.serve.responses import ProblemError

__all__ = ["Coalescer", "LargeResultError", "SharedOptions"]

Search = Callable[[Float32, SearchParams, Filter | None, Include], Hits]
_TICK = 0.05  # seconds between two checks for expired searches, at least
_RESULT_BYTES = 1 << 20  # payloads and vectors of one request that a batch may read


@dataclass(frozen=True)
class SharedOptions:
    """The options that the searches of one group of a batch share.

    ``key`` identifies the filter: as parsed filters, ``1`` and ``True`` are equal.
    """

    params: SearchParams
    where: Filter | None = field(compare=False)
    key: Hashable
    include: Include


class LargeResultError(Exception):
    """A search found too many bytes of payloads and vectors for a batch: run it alone."""


class _Allowance:
    """Raises LargeResultError when more than ``n_bytes`` are charged."""

    def __init__(self, n_bytes: int) -> None:
        self._n_bytes = n_bytes

    def charge(self, n_bytes: int) -> None:
        self._n_bytes -= n_bytes
        if self._n_bytes < 0:
            raise LargeResultError


@dataclass(frozen=True, eq=False, slots=True)
class _Waiting:
    vectors: Float32
    options: SharedOptions
    result: asyncio.Future[Hits]
    deadline: float  # of the event loop's clock
    disconnect: asyncio.Task[None] | None  # ends when the client disconnects


class Coalescer:
    """Runs the searches of one collection, one batch after the other, in a thread of ``executor``.

    ``search`` is the collection's ``_search``; ``observe`` is called with the size of every batch. Call the
    methods on the event loop's thread.
    """

    def __init__(
        self, search: Search, executor: Executor, limits: Limits, observe: Callable[[int], None]
    ) -> None:
        self._collection_search, self._executor = search, executor
        self._limits, self._observe = limits, observe
        self._queue: deque[_Waiting] = deque()
        self._n_waiting = 0
        self._unanswered: dict[_Waiting, None] = {}  # in the order of their deadlines
        self._has_timer = False  # a timer is set for the first of them
        self.is_busy = False

    async def search(
        self,
        vectors: Float32,
        options: SharedOptions,
        wait_for_disconnect: Callable[[], Coroutine[Any, Any, None]],
    ) -> Hits:
        """Search for valid vectors (m, d).

        Only searches that wait for more than one batch watch for the disconnection of their clients, and are
        dropped then: watching takes a considerable part of the time of a request.
        """
        if self._n_waiting + len(vectors) > self._limits.waiting:
            raise make_busy_problem(
                f"expected at most {self._limits.waiting} waiting queries, got more", "waiting"
            )
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._limits.seconds
        is_late = self._n_waiting + len(vectors) > self._limits.batch
        disconnect = loop.create_task(wait_for_disconnect()) if is_late else None
        waiting = _Waiting(vectors, options, loop.create_future(), deadline, disconnect)
        self._queue.append(waiting)
        self._unanswered[waiting] = None
        self._n_waiting += len(vectors)
        if not self.is_busy:
            self.is_busy = True
            loop.call_soon(self._start_batch, loop)  # after the other requests of this turn of the event loop
        if not self._has_timer:
            self._expire(loop)
        try:
            return await waiting.result
        finally:
            del self._unanswered[waiting], waiting  # an error refers to this frame: no cycle
            if disconnect is not None:
                disconnect.cancel()

    @property
    def n_waiting(self) -> int:
        """The number of queries that wait for a batch."""
        return self._n_waiting

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        """Time out overdue searches, and set a timer for the next: one for each search would cost more."""
        now = loop.time()
        for one in self._unanswered:
            if one.deadline > now:
                break
            if not one.result.done():
                one.result.set_exception(
                    make_timeout_problem(self._limits.seconds)
                )  # if queued, it never runs
        self._has_timer = bool(self._unanswered)
        if self._has_timer:
            loop.call_at(max(next(iter(self._unanswered)).deadline, now + _TICK), self._expire, loop)

    def _start_batch(self, loop: asyncio.AbstractEventLoop) -> None:
        batch = self._take_batch()
        self.is_busy = bool(batch)
        if batch:
            self._observe(sum(len(one.vectors) for one in batch))
            work = loop.run_in_executor(self._executor, self._search, batch)
            work.add_done_callback(lambda done: self._finish_batch(loop, batch, done))

    def _take_batch(self) -> list[_Waiting]:
        """Remove the next batch from the queue, without searches that timed out or whose client is gone."""
        batch: list[_Waiting] = []
        room = self._limits.batch
        while self._queue and (not batch or len(self._queue[0].vectors) <= room):
            one = self._queue.popleft()
            self._n_waiting -= len(one.vectors)
            if not one.result.done() and one.disconnect is not None and one.disconnect.done():
                one.result.set_exception(ProblemError(499, "gone", "the client disconnected"))
            if one.result.done():
                continue
            batch.append(one)
            room -= len(one.vectors)
        return batch

    def _finish_batch(
        self,
        loop: asyncio.AbstractEventLoop,
        batch: list[_Waiting],
        work: asyncio.Future[list[Hits | BaseException]],
    ) -> None:
        self._start_batch(loop)  # first, so that the kernel works while responses are written
        failed = work.exception()
        outcomes = [failed] * len(batch) if failed is not None else work.result()
        for one, outcome in zip(batch, outcomes, strict=True):
            if one.result.done():
                continue
            if isinstance(outcome, BaseException):
                one.result.set_exception(outcome)
            else:
                one.result.set_result(outcome)

    def _search(self, batch: list[_Waiting]) -> list[Hits | BaseException]:
        """Search once per group of equal options, in a thread; return results in the order of the batch."""
        groups: dict[SharedOptions, list[int]] = {}
        for i, one in enumerate(batch):
            groups.setdefault(one.options, []).append(i)
        outcomes: dict[int, Hits | BaseException] = {}
        for options, members in groups.items():
            parts = [batch[i].vectors for i in members]
            outcomes.update(zip(members, self._search_group(options, parts), strict=True))
        return [outcomes[i] for i in range(len(batch))]

    def _search_group(self, options: SharedOptions, parts: list[Float32]) -> list[Hits | BaseException]:
        include = options.include
        if include.has_fields:
            include = include._replace(charge=_Allowance(_RESULT_BYTES * len(parts)).charge)
        vectors = np.concatenate(parts) if len(parts) > 1 else parts[0]
        try:
            hits = self._collection_search(vectors, options.params, options.where, include)
        except Exception as error:
            if len(parts) == 1:
                return [error]
            return [self._search_group(options, [part])[0] for part in parts]  # only the faulty one fails
        return [hits] if len(parts) == 1 else list(_split_hits(hits, parts))


def _split_hits(hits: Hits, parts: list[Float32]) -> Iterator[Hits]:
    """Yield the hits of each request of a batch."""
    end = 0
    for part in parts:
        rows = slice(end, end + len(part))
        end = rows.stop
        payloads = None if hits.payloads is None else hits.payloads[rows]
        vectors = None if hits.vectors is None else hits.vectors[rows]
        yield Hits(hits.ids[rows], hits.scores[rows], hits.kind, payloads, vectors)
