"""Forks while other threads search, encode, add and remove: no child hangs, all give the right answers."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import posh
from posh._runtime import one_blas_thread
from tests.conftest import clusters

FORKS = 200 if os.environ.get("POSH_ADVERSARY") == "1" else 20
PATIENCE = 60.0  # seconds: a child takes a fraction of one, also on a busy machine
pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]

DATA = clusters(1200, 24).astype(np.float32)
QUERIES = DATA[::100]
STAY = np.arange(800)  # ids that no thread removes
HASHER = posh.POSH(128, 8, n_epochs=1, random_state=0).fit(DATA)
OPTIONS = {
    "exact": {},
    "asymmetric": {"scoring": "asymmetric"},
    "decoder": {"refine": "decoder"},
    "ivf": {"structure": "ivf", "n_lists": 8, "n_probe": 8, "refine": "vectors"},
}


def in_child(check: Callable[[], None]) -> str:
    """Fork, let the child check, and return what went wrong there: nothing, if all is well."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        report = "the child ended early"
        try:
            faulthandler.register(signal.SIGUSR1, file=writing)
            check()
            report = ""
        except BaseException:
            report = traceback.format_exc()
        finally:
            os.write(writing, report.encode()[-4000:])
            os._exit(0)
    os.close(writing)
    try:
        return _report(child, reading)
    finally:
        os.close(reading)


def _report(child: int, reading: int) -> str:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.read(reading, 8000).decode() or (f"exit status {status}" if status else "")
        time.sleep(0.002)
    os.kill(child, signal.SIGUSR1)  # the child writes where it is
    time.sleep(1.0)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return f"the child was still at work after {PATIENCE} seconds: {os.read(reading, 8000).decode()}"


class Load:
    """Threads that use the same indexes and hashers all the time."""

    def __init__(self, *works: Callable[[], object]) -> None:
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._repeat, args=(work,)) for work in works]
        self.errors: list[BaseException] = []

    def _repeat(self, work: Callable[[], object]) -> None:
        try:
            while not self._stop.is_set():
                work()
        except BaseException as error:
            self.errors.append(error)

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def blas_threads() -> list[int]:
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def equal(found: posh.Hits, expected: posh.Hits) -> None:
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.scores, expected.scores)


def test_children_of_a_busy_process_search_encode_add_and_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posh.index.codes.refine.ENOUGH", len(STAY))  # additions must not change the decoder
    limits = blas_threads()
    indexes = {name: posh.CodeIndex(HASHER, **options).add(DATA[STAY]) for name, options in OPTIONS.items()}
    expected = {name: index.search(QUERIES, 10, filter=STAY) for name, index in indexes.items()}
    codes = HASHER.encode(DATA)

    def search() -> None:
        for name, index in indexes.items():
            equal(index.search(QUERIES, 10, filter=STAY, n_threads=2), expected[name])
            index.search(QUERIES[0], n_threads=2)

    def change() -> None:
        for index in indexes.values():
            ids = np.arange(5000, 5100)
            index.add(DATA[800:900], ids=ids).delete(ids)
            index.compact()

    def encode() -> None:
        assert HASHER.encode(DATA, n_threads=2) == codes

    def check(name: str) -> None:
        assert blas_threads() == limits
        search()
        encode()
        index = indexes[name].add(DATA[1000:1100], ids=np.arange(6000, 6100)).delete([0, 6001])
        index.save(tmp_path / f"{os.getpid()}")
        found = posh.CodeIndex.load(tmp_path / f"{os.getpid()}").search(QUERIES, 50)
        equal(found, index.search(QUERIES, 50))
        assert blas_threads() == limits

    with Load(search, search, change, encode, encode) as load:
        for fork in range(FORKS):
            name = list(OPTIONS)[fork % len(OPTIONS)]
            assert in_child(partial(check, name)) == "", f"fork {fork}"
            time.sleep(0.003 * (fork % 5))
    assert not load.errors, load.errors[0]
    assert blas_threads() == limits


@contextmanager
def held_by_another_thread() -> Iterator[None]:
    """BLAS is held to one thread, at least by a thread that is not this one."""
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with one_blas_thread:
            entered.set()
            leave.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait()
    try:
        yield
    finally:
        leave.set()
        thread.join()


def test_the_last_to_leave_takes_the_limit_of_blas_back() -> None:
    limits = blas_threads()
    with ExitStack() as other:
        with one_blas_thread:
            other.enter_context(held_by_another_thread())
        assert set(blas_threads()) == {1}  # this thread has set it, the other one takes it back
    assert blas_threads() == limits


def test_a_fork_while_blas_is_held_to_one_thread() -> None:
    limits = blas_threads()

    def free() -> None:
        assert blas_threads() == limits
        with one_blas_thread:
            assert set(blas_threads()) == {1}
        assert blas_threads() == limits

    with held_by_another_thread():
        assert in_child(free) == ""
        assert set(blas_threads()) == {1}
        with one_blas_thread:  # who forks inside is inside in the child, too
            assert in_child(lambda: one_blas_thread.__exit__(None, None, None) or free()) == ""
    assert blas_threads() == limits
