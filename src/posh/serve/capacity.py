"""What requests wait for: threads, of which each collection has its own number, and memory."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any, ParamSpec, TypeVar

from posh._runtime import cancel_on
from posh.serve.problems import ProblemError

__all__ = ["CallQueue", "MemoryBudget", "MemoryShare", "busy", "new_executor", "too_long"]

P = ParamSpec("P")
T = TypeVar("T")
_THREADS = 256  # of all queues together; one is started only when all others work
_SMALL = 4 << 20  # bytes: requests for so little memory do not wait behind larger ones


def new_executor() -> ThreadPoolExecutor:
    """The threads that all queues share."""
    return ThreadPoolExecutor(_THREADS, "posh")


class CallQueue:
    """Calls of one kind for one collection: ``n`` run at once, the others wait in order.

    ``seconds`` bounds how long a call waits, and then how long it runs (None: for ever). A call that waited
    too long is not started. One that runs too long is asked to stop, see :func:`posh._runtime.cancel_on`;
    its thread keeps its place until it ends. If ``waits`` is set, the caller still waits for the end of such
    a call and gets its result: a write that succeeded must not be reported as failed.

    The methods belong to the event loop's thread.
    """

    def __init__(
        self, executor: Executor, n: int, wait_seconds: float, seconds: float | None, *, waits: bool = False
    ) -> None:
        self._executor, self._turns = executor, asyncio.Semaphore(n)
        self._wait_seconds, self._seconds, self._waits = wait_seconds, seconds, waits
        self.n_running = self.n_ended = 0

    async def run(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Call something in a thread, and wait for it."""
        await self._turn()
        stop = threading.Event()
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._executor, _stoppable, stop, partial(call, *args, **options))
        self.n_running += 1
        work.add_done_callback(self._ended)
        try:
            await asyncio.wait({work}, timeout=self._seconds)
            if not work.done():
                stop.set()
                if not self._waits:
                    raise too_long(self._seconds)
            return await work
        finally:
            del work  # an error knows this frame: what it holds would stay until garbage is collected

    async def _turn(self) -> None:
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._turns.acquire()
        except TimeoutError:
            raise busy(f"expected a turn within {self._wait_seconds:g} s, got none") from None

    def _ended(self, work: asyncio.Future[Any]) -> None:
        self.n_running -= 1
        self.n_ended += 1
        self._turns.release()
        if not work.cancelled():
            work.exception()  # nobody may wait for it any more: that is no reason to log it


def _stoppable(stop: threading.Event, call: Callable[[], T]) -> T:
    with cancel_on(stop):
        return call()


def busy(reason: str) -> ProblemError:
    """The answer to a request that may succeed later."""
    return ProblemError(503, "busy", f"{reason}: try again later", {"retry-after": "1"})


def too_long(seconds: float | None) -> ProblemError:
    """The answer to a request whose work took too long."""
    return ProblemError(
        504, "too-long", f"expected work of at most {seconds:g} s, got more: ask for less at once"
    )


class MemoryBudget:
    """So many bytes for all requests, in the order of asking.

    Requests for up to 4 MB may take a quarter more than all of it: large ones cannot hold them up.
    """

    def __init__(self, n_bytes: int, seconds: float) -> None:
        self.most, self.seconds = n_bytes, seconds
        self.taken = 0
        self._lock = threading.Lock()
        self._waiting: deque[tuple[int, Future[None]]] = deque()

    def ask(self, n_bytes: int) -> Future[None] | None:
        """Take bytes, or get a turn to wait for."""
        with self._lock:
            if self._has(n_bytes) and (n_bytes <= _SMALL or not self._waiting):
                self.taken += n_bytes
                return None
            turn: Future[None] = Future()
            self._waiting.append((n_bytes, turn))
            return turn

    def give(self, n_bytes: int) -> None:
        """Give bytes back, and let those have them who wait."""
        with self._lock:
            self.taken -= n_bytes
            while self._waiting and (self._waiting[0][1].cancelled() or self._has(self._waiting[0][0])):
                wanted, turn = self._waiting.popleft()
                if turn.set_running_or_notify_cancel():  # else it has waited too long
                    self.taken += wanted
                    turn.set_result(None)

    def require(self, turn: Future[None]) -> None:
        """Raise if a turn has not come, and do without it."""
        if turn.cancel():  # not possible once the bytes are taken
            self.give(0)
            raise busy(
                f"expected room for this request in {self.most:,} bytes of memory within "
                f"{self.seconds:g} s, got none"
            )

    def _has(self, n_bytes: int) -> bool:
        most = self.most + (self.most // 4 if n_bytes <= _SMALL else 0)
        return self.taken + n_bytes <= most


class MemoryShare:
    """What one request has of a budget, until :meth:`close`; who waits too long for more is told so.

    >>> share = MemoryShare(MemoryBudget(100, 1.0))
    >>> share.add(80)
    >>> share.close()
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget, self._n, self._closed = budget, 0, False
        self._lock = threading.Lock()

    async def wait_for(self, n_bytes: int) -> None:
        """Take more, on the event loop."""
        turn = self._budget.ask(min(n_bytes, self._budget.most))
        if turn is not None:
            await asyncio.wait({asyncio.wrap_future(turn)}, timeout=self._budget.seconds)
        self._count(turn, n_bytes)

    def add(self, n_bytes: int) -> None:
        """Take more, in a thread that may wait."""
        turn = self._budget.ask(min(n_bytes, self._budget.most))
        if turn is not None:
            wait({turn}, self._budget.seconds)
        self._count(turn, n_bytes)

    def close(self) -> None:
        """Give all of it back."""
        with self._lock:
            n_bytes, self._n, self._closed = self._n, 0, True
        self._budget.give(n_bytes)

    def _count(self, turn: Future[None] | None, n_bytes: int) -> None:
        if turn is not None:
            self._budget.require(turn)
        with self._lock:
            self._n += min(n_bytes, self._budget.most)
            late = self._closed  # the request was answered meanwhile
        if late:
            self.close()
            raise busy("expected a request that is not answered yet, got another")
