"""The process around the library: threads, forks, progress and cancellation, plugins.

``posh --help`` imports this module, so NumPy, tqdm, threadpoolctl and importlib.metadata are imported only
when they are used.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sized
from contextvars import ContextVar
from functools import cache
from types import TracebackType
from typing import Any, Protocol, TypeVar

from posh.errors import CancelledError

__all__ = [
    "cancel_on",
    "is_process_alive",
    "iterate_cancellable",
    "limit_threads",
    "load_plugins",
    "no_fork",
    "one_blas_thread",
    "raise_if_cancelled",
    "register_at_fork",
    "resolve_threads",
    "suggest_plugins",
    "track_progress",
]

T = TypeVar("T")

_thread_limit = sys.maxsize  # threads that this process may use
_FORK_TIMEOUT = 10.0  # seconds that a fork waits for calls of BLAS, which should take much less


# Processes and threads -----------------------------------------------------------------------------


def register_at_fork(**callbacks: Callable[[], Any]) -> None:
    """Call ``os.register_at_fork`` where it exists; other systems do not fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**callbacks)


def is_process_alive(pid: int) -> bool:
    """Return whether a process runs; return True where that cannot be determined."""
    if os.name == "nt":  # there, os.kill(pid, 0) would end the process
        return True
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)  # the process of another user
    except OverflowError:  # larger than any process id
        return False
    return True


def resolve_threads(n_threads: int | None = None) -> int:
    """Return ``n_threads`` if given, else the number of cores that this process may use."""
    if n_threads is not None:
        return _validate_threads(n_threads)
    if hasattr(os, "sched_getaffinity"):
        return min(_thread_limit, len(os.sched_getaffinity(0)))
    return min(_thread_limit, os.cpu_count() or 1)


def limit_threads(n_threads: int) -> None:
    """Limit the default number of threads of this process, one of several workers."""
    global _thread_limit
    _thread_limit = _validate_threads(n_threads)


def _validate_threads(n_threads: int) -> int:
    from posh._validate import validate_integer  # imports NumPy

    return validate_integer("n_threads", n_threads, 1)


class _NoFork:
    """Context that delays forks while another thread is inside. Use it around short calls of BLAS.

    There are two reasons. A fork copies the locks of BLAS: if another thread holds one, the child deadlocks
    on it. And OpenBLAS ends its threads before a fork: a thread that computes with them deadlocks.
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
        """Wait until no other thread is inside, and block threads that want to enter."""
        self._changed.acquire()
        self._n_forking += 1
        self._changed.wait_for(lambda: set(self._inside) <= {threading.get_ident()}, _FORK_TIMEOUT)

    def after_in_parent(self) -> None:
        """Let the waiting threads enter."""
        self._n_forking -= 1
        self._changed.notify_all()
        self._changed.release()

    def after_in_child(self) -> None:
        """Reset the state: the child has only the forking thread."""
        self._changed = threading.Condition()
        self._n_forking = 0
        self._inside = _select_current_thread(getattr(self, "_inside", []))


class _OneBlasThread:
    """Context that limits BLAS to one thread while any thread is inside.

    The limit holds for the whole process. So the first thread to enter sets it, and the last thread to leave
    removes it; otherwise overlapping calls could leave the limit in place. No fork happens while a thread
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
                self._limit = self._take_control(lambda: self._controller.limit(limits=1, user_api="blas"))
            self._inside.append(threading.get_ident())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with no_fork, self._lock:
            self._inside.remove(threading.get_ident())
            if not self._inside:
                self._take_control(self._limit.restore_original_limits)

    def after_in_child(self) -> None:
        """Remove the limit unless this thread is inside: the child has no other threads."""
        before, self._inside = self._inside, _select_current_thread(self._inside)
        if before and not self._inside:
            self._take_control(self._limit.restore_original_limits)

    def _find_libraries(self) -> None:
        """Search again for libraries with threads if modules were imported: SciPy brings its own BLAS."""
        from threadpoolctl import ThreadpoolController

        if len(sys.modules) != self._n_modules:
            self._n_modules = len(sys.modules)
            self._controller = ThreadpoolController()

    def _take_control(self, change: Callable[[], Any]) -> Any:
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


def _select_current_thread(threads: list[int]) -> list[int]:
    return [thread for thread in threads if thread == threading.get_ident()]


no_fork = _NoFork()
one_blas_thread = _OneBlasThread()

register_at_fork(
    before=no_fork.before, after_in_parent=no_fork.after_in_parent, after_in_child=no_fork.after_in_child
)
register_at_fork(after_in_child=one_blas_thread.after_in_child)


# Progress and cancellation -------------------------------------------------------------------------


class Event(Protocol):
    """Flag that requests cancellation, such as a :class:`threading.Event`."""

    def is_set(self) -> bool:
        """Return whether cancellation was requested."""


_cancel_event: ContextVar[Event | None] = ContextVar("posh-cancel-event", default=None)


@contextlib.contextmanager
def cancel_on(event: Event) -> Iterator[None]:
    """Let loops of this thread raise :class:`~posh.errors.CancelledError` as soon as ``event`` is set.

    >>> import threading
    >>> stop, done = threading.Event(), []
    >>> with cancel_on(stop):
    ...     for i in track_progress(range(10), "counting"):
    ...         done.append(i)
    ...         if i == 2:
    ...             stop.set()
    Traceback (most recent call last):
    ...
    posh.errors.CancelledError: expected to finish, but the work was cancelled: nothing was changed
    >>> done
    [0, 1, 2]
    """
    token = _cancel_event.set(event)
    try:
        yield
    finally:
        _cancel_event.reset(token)


def track_progress(
    steps: Iterable[T], title: str, unit: str = "epoch", total: int | None = None
) -> Iterable[T]:
    """Iterate over ``steps`` with a progress bar; cancellation is checked between steps.

    The bar is shown on a terminal, after one second, and disappears at the end. ``TQDM_DISABLE=1`` in the
    environment hides all bars.
    """
    if _shows_bars():
        if total is None and isinstance(steps, Sized):
            total = len(steps)
        return _show_bar(
            iterate_cancellable(steps), desc=title, unit=unit, total=total, leave=False, delay=1.0
        )
    return iterate_cancellable(steps)


def iterate_cancellable(steps: Iterable[T]) -> Iterable[T]:
    """Iterate over ``steps`` without a bar; cancellation is checked between steps."""
    event = _cancel_event.get()
    return steps if event is None else _check_between(steps, event)


def raise_if_cancelled(event: Event | None = None) -> None:
    """Raise CancelledError if ``event``, by default that of :func:`cancel_on`, is set."""
    event = event or _cancel_event.get()
    if event is not None and event.is_set():
        raise CancelledError("expected to finish, but the work was cancelled: nothing was changed")


def _check_between(steps: Iterable[T], event: Event) -> Iterator[T]:
    raise_if_cancelled(event)
    for step in steps:
        yield step
        raise_if_cancelled(event)


def _show_bar(steps: Iterable[T], **options: Any) -> Iterable[T]:
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[misc]
        """A bar without tqdm's monitor thread: a fork while that thread holds its lock blocks the child."""

        monitor_interval = 0

    return Bar(steps, **options)


def _shows_bars() -> bool:
    """Return whether standard error is a terminal and bars are not disabled.

    If not, tqdm is not even imported: it shares one lock between forked processes, and a killed process never
    releases it.
    """
    is_disabled = os.environ.get("TQDM_DISABLE", "0") not in ("", "0")
    return not is_disabled and sys.stderr is not None and sys.stderr.isatty()


# Plugins -------------------------------------------------------------------------------------------


@cache
def load_plugins(group: str) -> dict[str, Any]:
    """Import the objects, by name, that installed distributions offer in a group of entry points.

    The groups are ``posh.commands`` (commands of ``posh``) and ``posh.datasets`` (data sets of
    ``posh.datasets.load``). ``posh-reproduction`` adds to both of them.
    """
    from importlib.metadata import entry_points  # slow to import, and most calls need no plugin

    return {point.name: point.load() for point in entry_points(group=group)}


def suggest_plugins(group: str) -> str:
    """Return the end of an error about an unknown name: the package that adds names, unless installed."""
    if load_plugins(group):
        return ""
    return "; posh-reproduction adds more: run make in a clone of POSH"
