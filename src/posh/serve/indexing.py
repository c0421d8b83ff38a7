"""Fitting and reindexing: one at a time for each collection."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

from posh._runtime import cancel_on
from posh.errors import FormatError
from posh.hashers.base import Hasher
from posh.serve.limits import Limits
from posh.serve.problems import ProblemError, problem_of

__all__ = ["Indexer", "read_hasher", "within_limits"]

_POLL = 0.01
_log = logging.getLogger("posh.serve")


def read_hasher(content: bytes, limits: Limits) -> Hasher[Any]:
    """The fitted hasher of a model file."""
    try:
        return within_limits(Hasher.from_bytes(content, "the hasher"), limits)
    except FormatError as error:
        raise ProblemError(422, "not-a-hasher", str(error)) from None


def within_limits(hasher: Hasher[Any], limits: Limits) -> Hasher[Any]:
    """The hasher, if it is not larger than this service allows."""
    if isinstance(hasher.n_bits, int) and hasher.n_bits > limits.n_bits:
        raise ValueError(f"expected n_bits of at most {limits.n_bits} in this service, got {hasher.n_bits}")
    columns = getattr(hasher, "n_features_in_", 0)
    if columns > limits.n_features:
        raise ValueError(
            f"expected a hasher of at most {limits.n_features} columns in this service, got {columns}"
        )
    return hasher


class Indexer:
    """Fits or reindexes one collection, one call at a time, and keeps the state of the last call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._stop = threading.Event()  # of what runs now or ran last
        self.message: str | None = None

    @property
    def is_running(self) -> bool:
        """Whether somebody indexes."""
        return self._lock.locked()

    @property
    def state(self) -> str:
        """``"idle"``, ``"running"`` or ``"failed"``."""
        if self.is_running:
            return "running"
        return "idle" if self.message is None else "failed"

    def run(self, call: Callable[[], object]) -> None:
        """Index in this thread, or say that somebody else does."""
        self._begin()
        try:
            with cancel_on(self._stop):
                call()
        finally:
            self._lock.release()

    def fit(self, call: Callable[[], object], afterwards: Callable[[], None]) -> None:
        """Index in the background; what goes wrong is told by :attr:`message`."""
        self._begin()
        work = (call, afterwards)
        threading.Thread(target=self._work, args=work, name="posh-fit", daemon=True).start()

    def cancel(self) -> None:
        """Ask what runs to stop; the collection then stays as it is."""
        self._stop.set()

    async def ended(self, seconds: float) -> None:
        """Wait until nothing runs, but not for ever."""
        for _ in range(int(seconds / _POLL)):
            if not self.is_running:
                return
            await asyncio.sleep(_POLL)

    def wait(self, seconds: float) -> None:
        """Wait in a thread until nothing runs, but not for ever; nothing can begin afterwards."""
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

    def _work(self, call: Callable[[], object], afterwards: Callable[[], None]) -> None:
        try:
            with cancel_on(self._stop):
                call()
        except Exception as error:
            self.message = problem_of(error).detail
            _log.warning("fitting %s failed: %s", self._name, self.message)
        finally:
            afterwards()
            self._lock.release()
