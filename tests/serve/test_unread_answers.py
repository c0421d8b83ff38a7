"""Answers that clients read slowly, or not at all."""

from __future__ import annotations

import dataclasses
import os
import socket
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

import posh
from posh.serve.capacity import Limits
from tests.collection.implementations import DATA, SPARSE
from tests.collection.reference import ReferenceCollection
from tests.serve.raw import ended, head
from tests.serve.service import MemorySource, running, served

MANY = {"ids": list(range(12))}  # of 1 MB each: more than the system buffers
N_BYTES = 12_000_000


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


def post_many(address: str) -> httpx.Response:
    return httpx.post(f"{address}/v1/collections/things/get", json=MANY)


def test_a_client_that_does_not_read_loses_the_answer():
    counted = 'posh_requests_total{method="POST",route="/v1/collections/{name}/get",status="200"} 1.0'
    with heavy(answer_seconds=0.3) as address, ask_much(address) as connection:
        deadline = time.monotonic() + 30
        while counted not in httpx.get(f"{address}/metrics").text:  # when nothing more is sent
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert len(ended(connection)) < N_BYTES


def test_a_client_that_reads_slowly_gets_the_whole_answer():
    with heavy(answer_seconds=1.0) as address, ask_much(address) as connection:
        n_bytes = 0
        for _ in range(8):
            n_bytes += take(connection, 1_000_000)
            time.sleep(0.2)
        take(connection, N_BYTES - n_bytes)


def test_all_answers_together_are_bounded():
    """Small ones are still answered, and those that take too long make room."""
    with heavy(answers_in_work=20_000_000, answer_seconds=1.5) as address, ask_much(address):
        refused = post_many(address)
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert "expected at most 20000000 bytes of responses at once" in refused.json()["detail"]
        assert httpx.get(f"{address}/health").status_code == 200
        time.sleep(1.7)
        assert len(post_many(address).content) > N_BYTES


def test_a_slow_client_makes_room_when_others_need_it():
    with heavy(answers_in_work=20_000_000, answer_seconds=1.0) as address, ask_much(address) as slow:
        n_bytes = 0
        for _ in range(5):
            n_bytes += take(slow, 500_000)
            time.sleep(0.3)
        assert len(post_many(address).content) > N_BYTES
        assert n_bytes + len(ended(slow)) < N_BYTES


def test_an_answer_larger_than_all_may_be_is_sent_when_it_is_alone():
    with heavy(answers_in_work=1_000_000) as address:
        for _ in range(2):
            answer = post_many(address)
            assert (answer.status_code, len(answer.content) > N_BYTES) == (200, True)


def test_unread_answers_are_not_buffered(tmp_path):
    """The server keeps a part of 1 MB at most of an answer that nobody reads."""
    with posh.Collection(tmp_path / "things", SPARSE) as things:
        things.upsert(list(range(12)), DATA[:12], [{"text": "x" * 1_000_000}] * 12)
    with served(tmp_path, "--limit", "answer_seconds=0.5") as (process, address), ExitStack() as stack:
        post_many(address)
        before = memory(process.pid)
        for _ in range(20):
            stack.enter_context(ask_much(address))
            time.sleep(0.1)
        time.sleep(1.0)
        assert memory(process.pid) - before < 60_000_000


def memory(pid: int) -> int:
    """Resident bytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
