"""Threads for what may take long, with a bound on how much may wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from posh.serve.problems import ProblemError

__all__ = ["Pool"]

P = ParamSpec("P")
T = TypeVar("T")


class Pool:
    """``n_threads`` threads; at most ``most`` calls run or wait at once. For the event loop's thread."""

    def __init__(self, n_threads: int, name: str, most: int) -> None:
        self._executor = ThreadPoolExecutor(n_threads, name)
        self._most, self._n_calls = most, 0

    async def run(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Call something in a thread, and wait for it."""
        if self._n_calls >= self._most:
            raise ProblemError(
                503,
                "busy",
                f"expected at most {self._most} requests at once, got more: try again later",
                {"retry-after": "1"},
            )
        self._n_calls += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._executor, lambda: call(*args, **options))
        finally:
            self._n_calls -= 1

    def close(self) -> None:
        """Finish what runs."""
        self._executor.shutdown()
