"""How many threads there are; those of BLAS are kept out of the way of ours, and forks out of BLAS's."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from threadpoolctl import ThreadpoolController

from posh import _validate

__all__ = ["cores", "no_fork", "one_blas_thread"]

_PATIENCE = 10.0  # seconds that a fork waits: much longer than a call of BLAS should take


def cores(n_threads: int | None = None) -> int:
    """``n_threads`` if given, else the number of cores that this process may use."""
    if n_threads is not None:
        return _validate.integer("n_threads", n_threads, 1)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _NoFork:
    """Forks wait while any other thread is inside. For short calls of BLAS.

    A fork copies the locks of BLAS as they are: a child would wait for ever for one that another thread held.
    And OpenBLAS ends its threads before a fork, for which whoever computes with them waits in vain.
    """

    def __init__(self) -> None:
        self.after_in_child()

    def __enter__(self) -> None:
        me = threading.get_ident()
        with self._changed:
            while self._n_forking and me not in self._inside:
                self._changed.wait()
            self._inside.append(me)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._inside.remove(threading.get_ident())
            if self._n_forking:
                self._changed.notify_all()

    def before(self) -> None:
        """Wait until nobody else is inside, and let nobody in."""
        self._changed.acquire()
        self._n_forking += 1
        self._changed.wait_for(lambda: set(self._inside) <= {threading.get_ident()}, _PATIENCE)

    def after_in_parent(self) -> None:
        """Let those in who wait."""
        self._n_forking -= 1
        self._changed.notify_all()
        self._changed.release()

    def after_in_child(self) -> None:
        """Begin anew: of all threads there is only this one."""
        self._changed = threading.Condition()
        self._n_forking = 0
        self._inside = own_entries(getattr(self, "_inside", []))


class _OneBlasThread:
    """Holds BLAS to one thread while any thread is inside.

    The limit is the whole process's: the first to enter sets it and the last to leave takes it back, or
    else calls that overlap would leave it behind. No fork happens while somebody holds the lock.

    threadpoolctl 3.8 lets only one thread change the number of threads of OpenBLAS, and silently ignores the
    others as long as that one lives: so whoever enters first or leaves last takes that right.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside: list[int] = []
        self._controller: Any = None
        self._limit: Any = None

    def __enter__(self) -> None:
        with no_fork, self._lock:
            if not self._inside:
                self._controller = self._controller or ThreadpoolController()
                self._limit = self._changed(lambda: self._controller.limit(limits=1, user_api="blas"))
            self._inside.append(threading.get_ident())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with no_fork, self._lock:
            self._inside.remove(threading.get_ident())
            if not self._inside:
                self._changed(self._limit.restore_original_limits)

    def after_in_child(self) -> None:
        """Take the limit back unless this thread is inside: the others are not in the child."""
        before, self._inside = self._inside, own_entries(self._inside)
        if before and not self._inside:
            self._changed(self._limit.restore_original_limits)

    def _changed(self, change: Callable[[], Any]) -> Any:
        """Call ``change`` with the right to change the number of threads, and give it back."""
        try:
            self._free()
            return change()
        finally:
            self._free()

    def _free(self) -> None:
        for library in self._controller.lib_controllers:
            if hasattr(library, "clear_controlling_thread"):
                library.clear_controlling_thread(force=True)


def own_entries(threads: list[int]) -> list[int]:
    """The entries of the calling thread."""
    return [thread for thread in threads if thread == threading.get_ident()]


no_fork = _NoFork()
one_blas_thread = _OneBlasThread()

os.register_at_fork(
    before=no_fork.before, after_in_parent=no_fork.after_in_parent, after_in_child=no_fork.after_in_child
)
os.register_at_fork(after_in_child=one_blas_thread.after_in_child)
