"""Progress bars."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from tqdm import tqdm

from posh import _progress
from posh._progress import progress
from posh.errors import CancelledError

ALONE = """
import sys, threading
from posh._progress import progress
sys.stderr.isatty = lambda: True
assert list(progress(range(3), "counting")) == [0, 1, 2]
assert threading.active_count() == 1
"""


def test_no_thread_is_left_that_a_fork_could_meet_with_its_lock_held():
    subprocess.run([sys.executable, "-c", ALONE], check=True)


@pytest.mark.parametrize(
    ("terminal", "environment", "shown"),
    [(True, None, True), (False, None, False), (True, "1", False), (True, "0", True)],
)
def test_bars_are_for_terminals(monkeypatch, terminal, environment, shown):
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal, raising=False)
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    if environment is not None:
        monkeypatch.setenv("TQDM_DISABLE", environment)
    steps = range(3)
    bar = progress(steps, "counting")
    assert list(bar) == [0, 1, 2]
    assert isinstance(bar, tqdm) is shown
    assert shown or bar is steps  # tqdm stays out of it, and so do its locks


def test_a_bar_knows_how_many_steps_there_are_when_they_can_be_cancelled(monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    with _progress.cancellable(threading.Event()):
        assert progress(range(3), "counting").total == 3


def test_cancelled_work_stops_at_the_next_step():
    """Nested loops, too; a loop after it goes on."""
    stop, seen = threading.Event(), []

    def work() -> None:
        for i in progress(range(3), "outer"):
            for j in _progress.steps_of(range(3)):
                seen.append((i, j))
                if (i, j) == (1, 1):
                    stop.set()

    with _progress.cancellable(stop), pytest.raises(CancelledError, match="the work was cancelled"):
        work()
    assert seen[-1] == (1, 1)
    assert list(progress(range(3), "afterwards")) == [0, 1, 2]


def test_work_that_is_cancelled_before_it_begins_does_not():
    stop = threading.Event()
    stop.set()
    with _progress.cancellable(stop), pytest.raises(CancelledError):
        list(progress(iter(lambda: pytest.fail("it began"), None), "counting"))
