"""Shards as one service: the results of one index, and shards whose process was killed."""

from __future__ import annotations

import contextlib
import errno
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import posh
from posh import batch
from posh.batch import serving
from posh.batch.shard_search import search_shards
from posh.client import Client
from posh.errors import MissingShardsError
from posh.index.nearest.options import NearestParams
from posh.serve.sources import ShardSource
from tests.batch.doing import DIGITS, Here, write_npy
from tests.batch.watching import asked, children, first_problem, stopped, wait_for
from tests.serve.service import MemorySource, running

answer = serving._serve  # before a test replaces it


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("serving")
    write_npy(place / "vectors")
    index = posh.Index(metric="euclidean", recall=0.95)
    batch.build([place / "vectors"], place / "shards", index, Here())
    return place / "shards"


@pytest.fixture(scope="module")
def one(folder):
    return posh.Index.load(folder / "template" / "index").add(DIGITS.base)


@pytest.fixture(scope="module")
def collection(folder):
    opened = batch.ShardedCollection(folder, n_processes=2)
    try:
        yield opened.wait()
    finally:
        opened.close()


@pytest.fixture
def held(monkeypatch):
    """No process is started again until this is set: it is missing, however slow the test is."""
    go, context = threading.Event(), serving.get_process_context

    def waiting():
        go.wait(120)
        return context()

    monkeypatch.setattr(serving, "get_process_context", waiting)
    yield go
    go.set()


def test_results_are_those_of_one_index(collection, one):
    hits = collection.search(DIGITS.queries, k=10, exact=True)
    expected = one.search(DIGITS.queries, k=10, exact=True)
    assert hits.ids.tolist() == expected.ids.tolist()
    np.testing.assert_array_equal(hits.scores, expected.scores)
    assert (hits.kind, len(hits[0])) == ("euclidean", 10)
    assert collection.count() == len(DIGITS.base)
    assert sorted(len(names) for names in collection.processes.values()) == [2, 2]
    few = collection.search(DIGITS.queries[:1], k=5, min_score=-1e-3)
    assert few.ids.tolist() == [[None] * 5]


def test_wrong_questions_are_errors_and_the_next_search_is_answered(collection):
    with pytest.raises(ValueError, match="expected a search by vectors, got a request for writes"):
        collection.upsert([1], DIGITS.base[:1])
    with pytest.raises(ValueError, match="got a request for filters, payloads and vectors"):
        collection.search(DIGITS.queries[:1], payloads=True)
    with pytest.raises(
        ValueError, match="scoring='asymmetric' needs a collection with a hasher, got one with a metric"
    ):
        collection.search(DIGITS.queries[:1], scoring="asymmetric")
    assert collection.search(DIGITS.queries[:1], k=1).ids.shape == (1, 1)


def test_a_plain_search_over_http_has_ids_and_scores(folder):
    with running(ShardSource(folder, 2)) as address:
        query = {"vectors": DIGITS.queries[:1].tolist(), "k": 2}
        status, answer, _ = asked(address, query)
        assert (status, [list(hit) for hit in answer["results"][0]["hits"]]) == (200, [["id", "score"]] * 2)
        assert asked(address, {**query, "include": []})[1]["results"] == answer["results"]
        status, problem, _ = asked(address, {**query, "include": ["payload", "vector"]})
        assert (status, problem["detail"]) == (
            422,
            "expected a search without include, got ['payload', 'vector']: this collection has ids and "
            "scores only; leave include out, or import the vectors into a collection with 'posh import'",
        )


def test_a_killed_process_is_named_and_comes_back(collection, held):
    pid, names = next(iter(collection.processes.items()))
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(MissingShardsError, match="expected all 4 shards, but part-0000") as caught:
        [collection.search(DIGITS.queries[:1], k=3) for _ in range(1000)]
    assert caught.value.shards == names
    held.set()
    collection.wait()
    assert collection.search(DIGITS.queries[:1], k=3).ids.shape == (1, 3)
    assert pid not in collection.processes


def test_a_killed_parent_of_the_processes_changes_nothing(collection, held):
    """The processes are forked from a server; when it is killed, they are started from a new one."""
    pid = next(iter(collection.processes))
    searches = threading.Thread(target=_search_until_missing, args=(collection,), daemon=True)
    searches.start()
    os.kill(int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL)
    searches.join(30)
    assert not searches.is_alive(), "a search waits for an answer that never comes"
    deadline = time.monotonic() + 30
    while pid in collection.processes:
        assert time.monotonic() < deadline, "nobody noticed"
        time.sleep(0.01)
    held.set()
    collection.wait()
    assert collection.search(DIGITS.queries[:1], k=3).ids.shape == (1, 3)


def test_a_process_ends_in_silence_when_nobody_waits_for_its_answer(folder, monkeypatch):
    monkeypatch.setattr(serving, "limit_threads", lambda n: None)
    asking, answering = multiprocessing.Pipe()
    beats, beating = multiprocessing.Pipe(duplex=False)
    asking.send((DIGITS.queries, NearestParams(3)))
    asking.close()
    with beats, beating, answering, mock.patch("signal.signal"):
        serving._serve(answering, beating, [folder / "part-00000" / "index"], 1)
        assert beats.poll(10), "it was never ready"


def test_a_stopped_process_is_named_and_killed(collection, held, monkeypatch):
    """Also if a question is more than a pipe holds, so that it cannot be sent."""
    monkeypatch.setattr(serving, "_BEAT_TIMEOUT", 6.0)
    time.sleep(1.1)  # the keepers begin to wait with each sign of life
    pid, names = next(iter(collection.processes.items()))
    begun = time.monotonic()
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(MissingShardsError) as caught:
        collection.search(np.tile(DIGITS.queries, (40, 1)), k=3)
    assert (caught.value.shards, 1.0 < time.monotonic() - begun < 30.0) == (names, True)
    held.set()
    collection.wait()
    assert pid not in collection.processes
    assert collection.search(DIGITS.queries[:1], k=3).ids.shape == (1, 3)


def test_searches_that_take_long_are_no_reason_to_kill(folder, monkeypatch):
    """A process gives signs of life while it searches."""
    monkeypatch.setattr(serving, "_BEAT_TIMEOUT", 6.0)
    monkeypatch.setattr(serving, "_serve", _answer_slowly)
    collection = batch.ShardedCollection(folder, n_processes=1).wait()
    try:
        started = list(collection.processes)
        assert collection.search(DIGITS.queries[:1], k=3).ids.shape == (1, 3)
        assert list(collection.processes) == started
    finally:
        collection.close()


def test_clients_are_told_how_long_a_process_will_be_missing(folder, held):
    """After each one that dies young, the pause before the next one doubles."""
    held.set()
    collection = batch.ShardedCollection(folder, n_processes=1).wait()
    held.clear()
    process = collection._processes[0]
    process._pause = 3.0
    with running(MemorySource(shards=collection)) as address:
        begun = time.monotonic()
        os.kill(process.pid, signal.SIGKILL)
        status, problem, headers = asked(address, {"vectors": DIGITS.queries[:1].tolist()})
        expected = process._next_start + process._opening
        most, least = (max(1, math.ceil(expected - now)) for now in (begun, time.monotonic()))
        assert process._pause == 6.0
        assert process._pause + process._opening <= expected - begun
        held.set()
    seconds = int(headers["retry-after"])
    assert (status, problem["type"]) == (503, "urn:posh:missing-shards")
    assert problem["detail"].endswith(f"their process is being restarted, try again in {seconds} s")
    assert least <= seconds <= most


def test_a_process_that_cannot_be_started_is_tried_again(folder, monkeypatch):
    failures = [OSError(errno.EAGAIN, "Resource temporarily unavailable")]
    context = serving.get_process_context

    def failing():
        if failures:
            raise failures.pop()
        return context()

    monkeypatch.setattr(serving, "get_process_context", failing)
    collection = batch.ShardedCollection(folder, n_processes=1)
    try:
        assert collection.wait().search(DIGITS.queries[:1], k=3).ids.shape == (1, 3)
    finally:
        collection.close()
    assert failures == []


def test_the_service(folder, one, tmp_path):
    command = [sys.executable, "-c", "import sys; from posh.cli import main; sys.exit(main())"]
    arguments = ["serve", str(folder), "--port", "0", "--n-processes", "2"]
    service = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        address = service.stdout.readline().split()[-1]
        with Client(address) as client:
            remote = client.collection("shards")
            expected = one.search(DIGITS.queries, k=5, exact=True)
            assert remote.search(DIGITS.queries, k=5, exact=True).ids.tolist() == expected.ids.tolist()
            assert remote.count() == len(DIGITS.base)
            with pytest.raises(ValueError, match="got a request for writes"):
                remote.upsert([1], DIGITS.base[:1])
            with pytest.raises(ValueError, match="expected no new collections next to shards"):
                client.create("other")
            [server] = [child for child in children(service.pid) if children(child)]
            started = children(server)
            assert len(started) == 2
            with stopped(server):  # it starts no process again before we have seen that one is missing
                os.kill(started[0], signal.SIGKILL)
                problem = first_problem(address)
            assert (problem["status"], problem["type"]) == (503, "urn:posh:missing-shards")
            assert "part-0000" in problem["detail"]
            wait_for(lambda: remote.search(DIGITS.queries, k=5, exact=True))
            assert remote.search(DIGITS.queries, k=5, exact=True).ids.tolist() == expected.ids.tolist()
        service.send_signal(signal.SIGTERM)
        assert service.wait(30) == 0
    finally:
        service.kill()
        service.wait()
        service.stdout.close()
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in started):
        assert time.monotonic() < deadline, "processes outlive the service"
        time.sleep(0.05)


def _search_until_missing(collection: batch.ShardedCollection) -> None:
    with contextlib.suppress(MissingShardsError):
        while True:
            collection.search(np.tile(DIGITS.queries, (20, 1)), k=3)


def _answer_slowly(*arguments: Any) -> None:
    """What a process does whose searches take longer than it may be silent."""

    def search(*question: Any) -> posh.Hits:
        time.sleep(7.5)
        return search_shards(*question)

    with mock.patch.object(serving, "search_shards", search):
        answer(*arguments)
