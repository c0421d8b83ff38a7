"""Answers that are made once for each state of a collection, whoever asks for them."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable

from posh.serve.capacity import CallQueue

__all__ = ["AnswerCache", "Remembered"]

_SHARE = 0.05  # of the time may go into making an answer again while writes go on


class AnswerCache:
    """Keeps the answers that were asked for last, ``most`` of them.

    >>> cache = AnswerCache(1)
    >>> cache.keep("one", b"1")
    >>> cache.keep("two", b"2")
    >>> cache.get("one"), cache.get("two")
    (None, b'2')
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._answers: OrderedDict[object, bytes] = OrderedDict()

    def get(self, key: object) -> bytes | None:
        """The answer, if it is still there."""
        if key not in self._answers:
            return None
        self._answers.move_to_end(key)
        return self._answers[key]

    def keep(self, key: object, answer: bytes) -> None:
        """Keep an answer, and forget the one that was not asked for longest if there are too many."""
        self._answers[key] = answer
        self._answers.move_to_end(key)
        if len(self._answers) > self._most:
            self._answers.popitem(last=False)

    def forget(self, key: object) -> None:
        """Forget an answer, if it is there."""
        self._answers.pop(key, None)


class Remembered:
    """One answer about a collection. ``version`` tells whether the collection has changed since.

    The work goes on if the client that asked first hangs up. While writes change the collection all the time,
    an older answer is given until twenty times the duration of its making has passed.

    The methods belong to the event loop's thread.
    """

    def __init__(self, cache: AnswerCache, queue: CallQueue, version: Callable[[], int]) -> None:
        self._cache, self._queue, self._version_now = cache, queue, version
        self._version, self._stays_until = -1, 0.0
        self._making: asyncio.Task[bytes] | None = None

    async def get(self, make: Callable[[], bytes]) -> bytes:
        """The answer; ``make`` makes it in a thread, if need be."""
        known = self._cache.get(self)
        fresh = self._version == self._version_now() or time.monotonic() < self._stays_until
        if known is not None and fresh:
            return known
        if self._making is None:
            self._making = asyncio.create_task(self._make(make))
            self._making.add_done_callback(self._made)
        return await asyncio.shield(self._making)

    def forget(self) -> None:
        """Give the memory back."""
        self._cache.forget(self)

    async def _make(self, make: Callable[[], bytes]) -> bytes:
        version, start = self._version_now(), time.monotonic()
        answer = await self._queue.run(make)
        now = time.monotonic()
        self._version, self._stays_until = version, now + (now - start) / _SHARE
        self._cache.keep(self, answer)
        return answer

    def _made(self, making: asyncio.Task[bytes]) -> None:
        self._making = None
        if not making.cancelled():
            making.exception()  # those who wait get it; if nobody does, that is no reason to log it
