"""Progress of long work: bars on a terminal, and the one place where work notices that it is cancelled.

A bar is shown on a terminal for work that takes more than a second. ``TQDM_DISABLE=1`` in the environment
silences bars everywhere. Work is cancelled by an event, see :func:`cancellable`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Sized
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from posh.errors import CancelledError

__all__ = ["cancellable", "checkpoint", "progress", "steps_of"]

T = TypeVar("T")


class Event(Protocol):
    """What tells that work is to stop, such as a :class:`threading.Event`."""

    def is_set(self) -> bool:
        """Whether it is."""


_stop: ContextVar[Event | None] = ContextVar("posh-stop", default=None)


@contextlib.contextmanager
def cancellable(event: Event) -> Iterator[None]:
    """Let loops of this thread raise :class:`~posh.errors.CancelledError` as soon as ``event`` is set.

    >>> import threading
    >>> stop, done = threading.Event(), []
    >>> with cancellable(stop):
    ...     for i in progress(range(10), "counting"):
    ...         done.append(i)
    ...         if i == 2:
    ...             stop.set()
    Traceback (most recent call last):
    ...
    posh.errors.CancelledError: expected to finish, but the work was cancelled: nothing was changed
    >>> done
    [0, 1, 2]
    """
    token = _stop.set(event)
    try:
        yield
    finally:
        _stop.reset(token)


def progress(steps: Iterable[T], title: str, unit: str = "epoch", total: int | None = None) -> Iterable[T]:
    """Iterate over ``steps`` with a bar that disappears when done; work can be cancelled before each step."""
    if _shown():
        if total is None and isinstance(steps, Sized):
            total = len(steps)
        return _bar(steps_of(steps), desc=title, unit=unit, total=total, leave=False, delay=1.0)
    return steps_of(steps)


def steps_of(steps: Iterable[T]) -> Iterable[T]:
    """Iterate over ``steps`` without a bar; work can be cancelled before each step."""
    event = _stop.get()
    return steps if event is None else _checked(steps, event)


def _checked(steps: Iterable[T], event: Event) -> Iterator[T]:
    checkpoint(event)
    for step in steps:
        yield step
        checkpoint(event)


def checkpoint(event: Event | None = None) -> None:
    """Raise if the work of this thread, or that of ``event``, is cancelled: for work without a loop."""
    event = event or _stop.get()
    if event is not None and event.is_set():
        raise CancelledError("expected to finish, but the work was cancelled: nothing was changed")


def _bar(steps: Iterable[T], **options: Any) -> Iterable[T]:
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[misc]
        """A bar without tqdm's monitor thread: a fork while that thread holds its lock stops the child."""

        monitor_interval = 0

    return Bar(steps, **options)


def _shown() -> bool:
    """Whether somebody looks.

    If not, tqdm is not even imported: it shares one lock between forked processes, and a killed process never
    releases it.
    """
    silenced = os.environ.get("TQDM_DISABLE", "0") not in ("", "0")
    return not silenced and sys.stderr is not None and sys.stderr.isatty()
