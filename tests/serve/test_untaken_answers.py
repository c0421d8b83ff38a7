"""Answers that clients take slowly, or not at all."""

from __future__ import annotations

import dataclasses
import socket
import threading
import time
from contextlib import contextmanager

import httpx
import pytest

from posh.serve import connections
from posh.serve.limits import Limits
from posh.serve.protocol import JoinedWrites
from tests.collection.implementations import DATA, SPARSE
from tests.collection.reference import ReferenceCollection
from tests.serve.raw import ended, head
from tests.serve.service import MemorySource, running

MANY = {"ids": list(range(12))}  # of 1 MB each: more than the system buffers
N_BYTES = 12_000_000


class Clock:
    """The time of connections: it passes when a test says so, whatever holds up threads meanwhile."""

    def __init__(self) -> None:
        self._now, self._seen = 0.0, threading.Event()
        self._others = {one.ident for one in threading.enumerate()} - {threading.get_ident()}

    def monotonic(self) -> float:
        if threading.get_ident() in self._others:  # a service that runs already
            return time.monotonic()
        self._seen.set()
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass, and wait until the service has looked at its connections."""
        for now in (self._now + seconds, self._now + seconds):  # the first look may be one that began before
            self._seen.clear()
            self._now = now
            assert self._seen.wait(30)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(connections, "time", clock)
    return clock


@contextmanager
def heavy(**limits):
    things = ReferenceCollection(SPARSE).upsert(list(range(12)), DATA[:12], [{"text": "x" * 1_000_000}] * 12)
    with running(MemorySource(things=things), limits=dataclasses.replace(Limits(), **limits)) as address:
        yield address


def ask_much(address: str) -> socket.socket:
    """Ask for a large answer, over a connection that buffers little."""
    host, port = address.removeprefix("http://").split(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    connection.settimeout(20)
    connection.connect((host, int(port)))
    body = b'{"ids": [0,1,2,3,4,5,6,7,8,9,10,11]}'
    connection.sendall(head(b"content-length: %d" % len(body)) + body)
    assert connection.recv(12) == b"HTTP/1.1 200"
    return connection


def take(connection: socket.socket, n_bytes: int) -> int:
    """Take so many bytes or a few more; how many they are."""
    taken = 0
    while taken < n_bytes:
        part = connection.recv(1 << 16)
        assert part, f"the connection was closed after {taken} bytes"
        taken += len(part)
    return taken


def test_an_answer_that_is_not_taken_costs_the_connection():
    counted = 'posh_requests_total{method="POST",route="/v1/collections/{name}/get",status="200"} 1.0'
    with heavy(answer_seconds=0.3) as address, ask_much(address) as connection:
        deadline = time.monotonic() + 30
        while counted not in httpx.get(f"{address}/metrics").text:  # when nothing more is sent
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert len(ended(connection)) < N_BYTES


def test_who_takes_an_answer_slowly_gets_all_of_it(clock):
    with heavy(answer_seconds=1.0) as address, ask_much(address) as connection:
        n_bytes = 0
        for _ in range(10):  # of them, the system buffers about one
            n_bytes += take(connection, 1_000_000)
            clock.advance(0.3)
        take(connection, N_BYTES - n_bytes)


def test_all_answers_together_are_bounded(clock):
    """Small ones are still answered, and those that take too long make room."""
    with heavy(answers_in_work=20_000_000, answer_seconds=2.0) as address, ask_much(address):
        url = f"{address}/v1/collections/things/get"
        refused = httpx.post(url, json=MANY)
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert "expected at most 20000000 bytes of answers at once" in refused.json()["detail"]
        assert httpx.get(f"{address}/health").status_code == 200
        for _ in range(3):
            clock.advance(0.9)
        assert len(httpx.post(url, json=MANY).content) > N_BYTES


def test_a_slow_client_makes_room_when_others_need_it(clock):
    with heavy(answers_in_work=20_000_000, answer_seconds=0.5) as address, ask_much(address) as slow:
        n_bytes = 0
        for _ in range(5):
            n_bytes += take(slow, 1_000_000)
            clock.advance(0.2)
        assert len(httpx.post(f"{address}/v1/collections/things/get", json=MANY).content) > N_BYTES
        assert n_bytes + len(ended(slow)) < N_BYTES


def test_an_answer_larger_than_all_may_be_is_sent_when_it_is_alone():
    with heavy(answers_in_work=1_000_000) as address:
        for _ in range(2):
            answer = httpx.post(f"{address}/v1/collections/things/get", json=MANY)
            assert (answer.status_code, len(answer.content) > N_BYTES) == (200, True)


class CountingTransport:
    """Notes what is written, and when the end is sent."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def write(self, data: bytes) -> None:
        self.calls.append(data)

    def write_eof(self) -> None:
        self.calls.append("eof")

    def close(self) -> None:
        self.calls.append("close")

    def is_closing(self) -> bool:
        return False


def test_a_head_and_its_body_are_written_in_one_call():
    transport = CountingTransport()
    joined = JoinedWrites(transport)
    joined.keep()
    joined.write(b"head")
    joined.write(b"body")
    joined.send()
    joined.write(b"more")
    assert transport.calls == [b"headbody", b"more"]
    assert joined.is_closing() is False


@pytest.mark.parametrize("end", ["close", "write_eof"])
def test_what_is_kept_is_written_before_the_end(end):
    transport = CountingTransport()
    joined = JoinedWrites(transport)
    joined.keep()
    joined.write(b"head")
    getattr(joined, end)()
    assert transport.calls == [b"head", end.removeprefix("write_")]
