"""All connections of a service: their number, their deadlines, and the bytes of their answers."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from itertools import islice
from typing import Protocol

from posh.serve.limits import Limits
from posh.serve.problems import ProblemError

__all__ = ["Connection", "Connections", "Stage"]

KEEP_ALIVE_SECONDS = 75.0  # longer than clients keep a connection, so that none closes in their face
LINGER_SECONDS = 2.0  # for the client to read an answer that came before the end of its request
_LONGEST_TICK = 1.0
_MOST_DROPPED = 50  # connections at a time: all that came at once would be dropped at once


class Stage:
    """What a connection waits for."""

    IDLE = "the first byte of another request"
    HEAD = "the rest of the lines before a body"
    BODY = "the rest of a body"
    WORK = "the service"
    UNSENT = "the client to take the bytes of an answer"
    END = "the client to close"


class Connection(Protocol):
    """What is known of a connection here; it is dropped when the clock of its table passes ``deadline``."""

    deadline: float

    def drop(self) -> None:
        """Close the connection at once, whatever is unsent."""


class Connections:
    """The connections of one service.

    A client that sends or takes nothing costs nothing but memory, so each stage but ``WORK`` has a deadline.
    One call of :meth:`drop_expired` checks all of them: a timer for each request would cost more.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.seconds = {
            Stage.IDLE: KEEP_ALIVE_SECONDS,
            Stage.HEAD: limits.body_seconds,
            Stage.BODY: limits.body_seconds
            + LINGER_SECONDS,  # who reads the body gives up first, and says so
            Stage.WORK: math.inf,
            Stage.UNSENT: limits.answer_seconds,
            Stage.END: LINGER_SECONDS,
        }
        self.now, self._swept = 0.0, time.monotonic()
        self._all: set[Connection] = set()
        self._silent: dict[Connection, None] = {}  # those that may be dropped, the longest silent first
        self._answers: dict[Connection, tuple[int, float]] = {}  # bytes, and since when; the oldest first
        self._in_work = 0
        self._turns: deque[asyncio.Future[None]] = deque()

    def admit(self, connection: Connection) -> bool:
        """Count a new connection; if there are too many, drop the one that was silent for longest.

        False means that all others are in work: the new one is one too many.
        """
        has_room = len(self._all) < self.limits.connections
        if not has_room and self._silent:
            longest = next(iter(self._silent))
            self.forget(longest)
            longest.drop()
            has_room = True
        self._all.add(connection)
        self._silent[connection] = None
        return has_room

    def forget(self, connection: Connection) -> None:
        """Stop counting a connection that is closed."""
        self._all.discard(connection)
        self._silent.pop(connection, None)

    def note_activity(self, connection: Connection, stage: str) -> None:
        """Move a connection to the end of those that may be dropped; one in work may not be dropped."""
        self._silent.pop(connection, None)
        if stage != Stage.WORK and connection in self._all:
            self._silent[connection] = None

    def drop_expired(self) -> None:
        """Drop the connections whose time is over. Call this several times a second."""
        before, self._swept = self._swept, time.monotonic()
        # When the service itself was held up, its clients are not to blame: the clock counts less.
        self.now += min(self._swept - before, _LONGEST_TICK)
        late = (one for one in list(self._all) if one.deadline <= self.now)
        for connection in islice(late, _MOST_DROPPED):
            connection.drop()

    async def wait_for_turn(self) -> None:
        """Wait for a turn of the event loop: of all the requests that wait here, each turn begins one.

        So many clients that ask for what everybody may ask for, or that do not wait for their answers, do not
        delay the others.
        """
        loop = asyncio.get_running_loop()
        self._turns.append(loop.create_future())
        if len(self._turns) == 1:
            loop.call_soon(self._next_turn, loop)
        await self._turns[-1]

    def _next_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        first = self._turns.popleft()
        if not first.done():  # else it was cancelled
            first.set_result(None)
        if self._turns:
            loop.call_soon(self._next_turn, loop)

    def hold(self, connection: Connection, n_bytes: int) -> None:
        """Count the bytes of an answer until :meth:`release`.

        Answers that take longer than ``answer_seconds`` in all make room for others, the oldest first.
        """
        most = self.limits.answers_in_work
        for slow in [one for one, (_, since) in self._answers.items() if self._is_old(since)]:
            if self._in_work + n_bytes <= most:
                break
            self.release(slow)
            slow.drop()
        if self._answers and self._in_work + n_bytes > most:
            raise ProblemError(
                503,
                "busy",
                f"expected at most {most} bytes of answers at once, got more: try again later",
                {"retry-after": "1"},
            )
        self._answers[connection] = n_bytes, self.now
        self._in_work += n_bytes

    def release(self, connection: Connection) -> None:
        """Forget the answer of a connection, if there is one."""
        self._in_work -= self._answers.pop(connection, (0, 0.0))[0]

    def _is_old(self, since: float) -> bool:
        return self.now - since > self.limits.answer_seconds
