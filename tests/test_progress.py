"""Progress bars."""

from __future__ import annotations

import subprocess
import sys

import pytest

from posh import _progress
from posh._progress import progress

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
    assert isinstance(bar, _progress.tqdm) is shown
    assert shown or bar is steps  # tqdm stays out of it, and so do its locks
