"""The number of threads, a limit for those of BLAS while ours work, and no forks during calls of BLAS."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from threadpoolctl import ThreadpoolController

from posh import _system, _validate

__all__ = ["cores", "limit_cores", "no_fork", "one_blas_thread"]

_most = sys.maxsize  # threads that this process may use
_PATIENCE = 10.0  # seconds that a fork waits at most: a call of BLAS should take much less


def cores(n_threads: int | None = None) -> int:
    """``n_threads`` if given, else the number of cores that this process may use."""
    if n_threads is not None:
        return _validate.integer("n_threads", n_threads, 1)
    if hasattr(os, "sched_getaffinity"):
        return min(_most, len(os.sched_getaffinity(0)))
    return min(_most, os.cpu_count() or 1)


def limit_cores(n_threads: int) -> None:
    """Let this process, one of several workers, use at most so many cores unless a call says otherwise."""
    global _most
    _most = _validate.integer("n_threads", n_threads, 1)


class _NoFork:
    """Makes forks wait while another thread is inside this context. Use it around short calls of BLAS.

    There are two reasons. A fork copies the locks of BLAS: if another thread holds one, the child waits for
    it for ever. And OpenBLAS ends its threads before a fork: a thread that computes with them waits in vain.
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
        """Wait until no other thread is inside, and let no thread enter."""
        self._changed.acquire()
        self._n_forking += 1
        self._changed.wait_for(lambda: set(self._inside) <= {threading.get_ident()}, _PATIENCE)

    def after_in_parent(self) -> None:
        """Let the waiting threads enter."""
        self._n_forking -= 1
        self._changed.notify_all()
        self._changed.release()

    def after_in_child(self) -> None:
        """Start again: the child has only the forking thread."""
        self._changed = threading.Condition()
        self._n_forking = 0
        self._inside = _own_entries(getattr(self, "_inside", []))


class _OneBlasThread:
    """Limits BLAS to one thread while any thread is inside this context.

    The limit holds for the whole process. So the first thread to enter sets it, and the last thread to leave
    removes it; otherwise calls that overlap could leave the limit in place. No fork happens while a thread
    holds the lock.

    In threadpoolctl 3.8, one thread has control: only it may change the number of threads of OpenBLAS.
    Changes by other threads are silently ignored as long as that thread lives. So we take control before a
    change.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside: list[int] = []
        self._controller: Any = None
        self._n_modules = 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with no_fork, self._lock:
            if not self._inside:
                self._find_libraries()
                self._limit = self._in_control(lambda: self._controller.limit(limits=1, user_api="blas"))
            self._inside.append(threading.get_ident())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with no_fork, self._lock:
            self._inside.remove(threading.get_ident())
            if not self._inside:
                self._in_control(self._limit.restore_original_limits)

    def after_in_child(self) -> None:
        """Remove the limit unless this thread is inside: the child has no other threads."""
        before, self._inside = self._inside, _own_entries(self._inside)
        if before and not self._inside:
            self._in_control(self._limit.restore_original_limits)

    def _find_libraries(self) -> None:
        """Look for libraries with threads again if modules were imported: SciPy brings a BLAS of its own."""
        if len(sys.modules) != self._n_modules:
            self._n_modules = len(sys.modules)
            self._controller = ThreadpoolController()

    def _in_control(self, change: Callable[[], Any]) -> Any:
        """Release control, call ``change``, which takes control, and release it again."""
        try:
            self._release_control()
            return change()
        finally:
            self._release_control()

    def _release_control(self) -> None:
        for library in self._controller.lib_controllers:
            if hasattr(library, "clear_controlling_thread"):
                library.clear_controlling_thread(force=True)


def _own_entries(threads: list[int]) -> list[int]:
    """The entries of the calling thread."""
    return [thread for thread in threads if thread == threading.get_ident()]


no_fork = _NoFork()
one_blas_thread = _OneBlasThread()

_system.at_fork(
    before=no_fork.before, after_in_parent=no_fork.after_in_parent, after_in_child=no_fork.after_in_child
)
_system.at_fork(after_in_child=one_blas_thread.after_in_child)
