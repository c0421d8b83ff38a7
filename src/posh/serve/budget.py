"""Memory for the requests in work, of all collections together: who would exceed it waits."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import Future, wait

from posh.serve.pool import busy

__all__ = ["Budget", "Share"]

_SMALL = 4 << 20  # bytes: such requests do not wait behind large ones


class Budget:
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


class Share:
    """What one request has of a budget, until :meth:`close`; who waits too long for more is told so.

    >>> share = Share(Budget(100, 1.0))
    >>> share.add(80)
    >>> share.close()
    """

    def __init__(self, budget: Budget) -> None:
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
