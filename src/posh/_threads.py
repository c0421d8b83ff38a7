"""How many threads there are, and keeping those of BLAS out of the way of ours."""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import Any

from threadpoolctl import ThreadpoolController

from posh import _validate

__all__ = ["cores", "one_blas_thread"]


def cores(n_threads: int | None = None) -> int:
    """``n_threads`` if given, else the number of cores that this process may use."""
    if n_threads is not None:
        return _validate.integer("n_threads", n_threads, 1)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _OneBlasThread:
    """Holds BLAS to one thread while any thread is inside.

    The limit is the whole process's: the first to enter sets it and the last to leave takes it back, or
    else calls that overlap would leave it behind.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._controller: Any = None
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._controller = self._controller or ThreadpoolController()
                self._limit = self._controller.limit(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limit.restore_original_limits()


one_blas_thread = _OneBlasThread()
