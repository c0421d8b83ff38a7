"""Progress bars, cancellation, processes, plugins."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib import metadata

import pytest
from tqdm import tqdm

from posh import _runtime, datasets
from posh._runtime import track_progress
from posh.cli import main
from posh.errors import CancelledError

ALONE = """
import sys, threading
from posh._runtime import track_progress
sys.stderr.isatty = lambda: True
assert list(track_progress(range(3), "counting")) == [0, 1, 2]
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
    bar = track_progress(steps, "counting")
    assert list(bar) == [0, 1, 2]
    assert isinstance(bar, tqdm) is shown
    assert shown or bar is steps  # tqdm stays out of it, and so do its locks


def test_a_bar_knows_how_many_steps_there_are_when_they_can_be_cancelled(monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    with _runtime.cancel_on(threading.Event()):
        assert track_progress(range(3), "counting").total == 3


def test_cancelled_work_stops_at_the_next_step():
    """Nested loops, too; a loop after it goes on."""
    stop, seen = threading.Event(), []

    def work() -> None:
        for i in track_progress(range(3), "outer"):
            for j in _runtime.iterate_cancellable(range(3)):
                seen.append((i, j))
                if (i, j) == (1, 1):
                    stop.set()

    with _runtime.cancel_on(stop), pytest.raises(CancelledError, match="the work was cancelled"):
        work()
    assert seen[-1] == (1, 1)
    assert list(track_progress(range(3), "afterwards")) == [0, 1, 2]


def test_work_that_is_cancelled_before_it_begins_does_not():
    stop = threading.Event()
    stop.set()
    with _runtime.cancel_on(stop), pytest.raises(CancelledError):
        list(track_progress(iter(lambda: pytest.fail("it began"), None), "counting"))


def test_processes_that_run_and_that_do_not():
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    assert _runtime.is_process_alive(os.getpid())
    assert not _runtime.is_process_alive(ended.pid)
    assert not _runtime.is_process_alive(10**30)


GET_IT = "posh-reproduction adds more: run make in a clone of POSH"


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The core without other distributions."""
    monkeypatch.setattr(metadata, "entry_points", lambda group: ())
    _runtime.load_plugins.cache_clear()
    yield
    _runtime.load_plugins.cache_clear()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("command", ["reproduce", "demo", "bench"])
def test_a_missing_command_says_in_one_line_how_to_get_it(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"posh: error: unknown command '{command}'; choose from import, query")
    assert GET_IT in line


@pytest.mark.usefixtures("alone")
def test_a_missing_data_set_says_how_to_get_it() -> None:
    assert datasets.names() == ("digits", "mnist", "glove-100")
    with pytest.raises(ValueError, match=f"unknown data set 'cifar10-gist'; choose from digits.*{GET_IT}"):
        datasets.load("cifar10-gist")


def test_with_the_other_package_an_unknown_name_is_just_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nope"]) == 2
    error = capsys.readouterr().err
    assert "unknown command 'nope'; choose from import, query" in error
    assert "reproduce" in error
    assert "pip install" not in error
    with pytest.raises(ValueError, match=r"choose from digits, .* places205$"):
        datasets.load("nope")


def test_names_of_the_core_do_not_search_for_others() -> None:
    code = """
import sys
from importlib import metadata
metadata.entry_points = None  # a search would fail
from posh import datasets
from posh.cli import main
datasets.load("digits")
sys.exit(main(["data", "fetch", "digits"]))
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    shown = capsys.readouterr().out
    for name in ("data", "serve", "bench", "demo", "reproduce"):
        assert f"\n  {name} " in shown
