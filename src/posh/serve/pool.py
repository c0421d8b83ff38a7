"""Threads for what may take long: each collection has a bound of its own, so that none waits for another."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from posh._progress import cancellable
from posh.serve.problems import ProblemError

__all__ = ["Lane", "busy", "new_executor", "too_long"]

P = ParamSpec("P")
T = TypeVar("T")
_THREADS = 256  # of all lanes together; one is started only when all others work


def new_executor() -> ThreadPoolExecutor:
    """The threads that all lanes share."""
    return ThreadPoolExecutor(_THREADS, "posh")


class Lane:
    """Calls of one kind for one collection: ``n`` run at once, the others wait in order.

    ``seconds`` bounds how long a call waits, and then how long it runs (None: for ever). A call that waited
    too long is not started. One that runs too long is asked to stop, see :func:`posh._progress.cancellable`;
    its thread keeps its place until it ends. If ``waits`` is set, what the call came to is waited for and
    answered nevertheless, so that nobody is told that a write failed which did not.

    The methods belong to the event loop's thread.
    """

    def __init__(
        self, executor: Executor, n: int, wait_seconds: float, seconds: float | None, *, waits: bool = False
    ) -> None:
        self._executor, self._turns = executor, asyncio.Semaphore(n)
        self._wait_seconds, self._seconds, self._waits = wait_seconds, seconds, waits
        self.n_running = 0

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
        self._turns.release()
        if not work.cancelled():
            work.exception()  # nobody may wait for it any more: that is no reason to log it


def _stoppable(stop: threading.Event, call: Callable[[], T]) -> T:
    with cancellable(stop):
        return call()


def busy(reason: str) -> ProblemError:
    """The answer to a request that may succeed later."""
    return ProblemError(503, "busy", f"{reason}: try again later", {"retry-after": "1"})


def too_long(seconds: float | None) -> ProblemError:
    """The answer to a request whose work took too long."""
    return ProblemError(
        504, "too-long", f"expected work of at most {seconds:g} s, got more: ask for less at once"
    )
