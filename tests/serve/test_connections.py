"""Connections that get their answer early, that are too many, or that wait for their turn."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import ExitStack
from itertools import pairwise

import httpx
import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from posh.serve.connections import Connections
from posh.serve.limits import Limits
from tests.collection.reference import ReferenceCollection
from tests.serve.conftest import TOKEN
from tests.serve.raw import CHUNKED, HEALTH, answers, ended, head, is_refused, raw, response
from tests.serve.service import MemorySource, Slow, running, served

UNFINISHED = {
    "one chunk after the 401": head(CHUNKED) + b"1\r\nx\r\n",
    "a byte of a hundred after the 401": head(b"content-length: 100") + b"x",
    "nothing after the 401": head(b"content-length: 100"),
    "a byte of a hundred for health": HEALTH + b"content-length: 100\r\n\r\nx",
    "a body that waits to be asked for": head(b"content-length: 100", b"expect: 100-continue"),
}


@pytest.mark.parametrize("request_", UNFINISHED.values(), ids=UNFINISHED)
def test_an_answer_before_the_end_of_its_request_closes_the_connection(locked, request_):
    with raw(locked) as connection:
        connection.sendall(request_)
        ((top, body),) = answers(connection, 1)
        assert top.startswith((b"HTTP/1.1 401", b"HTTP/1.1 200"))
        assert b"\r\nconnection: close" in top
        assert body.endswith(b"}")
        assert ended(connection) == b""


def test_an_answer_is_not_lost_when_the_client_is_still_sending(locked):
    with raw(locked) as connection:
        connection.sendall(head(b"content-length: 900000"))
        time.sleep(0.2)
        for _ in range(9):
            connection.sendall(b"x" * 100_000)
            time.sleep(0.01)
        ((top, _),) = answers(connection, 1)
        assert top.startswith(b"HTTP/1.1 401")
        assert connection.recv(1) == b""  # the end, and no reset


def test_after_an_early_answer_a_client_cannot_send_for_ever(locked):
    with raw(locked) as connection:
        connection.sendall(head(b"content-length: 60000000"))
        assert is_refused(connection, b"x" * 100_000, 60_000_000)


def test_nobody_parses_the_body_of_a_request_that_is_refused(locked, monkeypatch):
    """Many short chunks take a millisecond, and strangers may send many of them."""
    parsed = []
    monkeypatch.setattr(HttpToolsProtocol, "on_body", lambda self, body: parsed.append(body))
    with raw(locked) as connection:
        connection.sendall(head(CHUNKED) + b"1\r\nx\r\n" * 2000)
        ((top, _),) = answers(connection, 1)
        assert top.startswith(b"HTTP/1.1 401")
        assert b"\r\ncache-control: no-store" in top
        assert ended(connection) == b""
    assert parsed == []
    counted = httpx.get(f"{locked}/metrics", headers={"authorization": f"Bearer {TOKEN}"}).text
    assert 'posh_requests_total{method="POST",route="other",status="401"}' in counted


ODD = {
    "an upgrade with a body": [b"connection: upgrade", b"upgrade: x", b"content-length: 5"],
    "another transfer coding": [b"transfer-encoding: gzip"],
}


@pytest.mark.parametrize("headers", ODD.values(), ids=ODD)
def test_a_refused_request_gets_one_answer(locked, caplog, headers):
    with raw(locked) as connection:
        connection.sendall(head(*headers) + b"abc")
        ((top, _),) = answers(connection, 1)
        assert top.startswith(b"HTTP/1.1 401")
        assert ended(connection) == b""
    assert caplog.records == []


def test_a_complete_request_keeps_the_connection(locked):
    body = b'{"ids": [1]}'
    with raw(locked) as connection:
        for _ in range(3):
            connection.sendall(head(b"content-length: %d" % len(body)) + body)
            ((top, _),) = answers(connection, 1)
            assert top.startswith(b"HTTP/1.1 401")
            assert b"connection: close" not in top


class SlowToCompact(ReferenceCollection):
    """Compacts when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def compact(self):
        self.go.wait(30)
        return self


def test_a_body_that_nobody_reads_is_not_waited_for():
    slow = SlowToCompact()
    with running(MemorySource(slow=slow), limits=Limits(body_seconds=0.2)) as address:
        with raw(address) as connection:
            start = b"POST /v1/collections/slow/compact HTTP/1.1\r\nhost: 127.0.0.1\r\n"
            connection.sendall(start + b"content-length: 9\r\n\r\nx")
            assert ended(connection) == b""
        slow.go.set()


def test_requests_that_wait_for_answers_to_others_are_bounded():
    slow = Slow()
    with running(MemorySource(slow=slow)) as address:
        with raw(address) as connection:
            start = b"POST /v1/collections/slow/count HTTP/1.1\r\nhost: 127.0.0.1\r\n"
            connection.sendall(start + b"content-type: application/json\r\ncontent-length: 2\r\n\r\n{}")
            assert slow.entered.acquire(timeout=30)
            assert is_refused(connection, (HEALTH + b"\r\n") * 100, 50_000_000)
        slow.go.set()


def test_each_turn_of_the_loop_begins_one_of_the_requests_that_wait():
    async def run() -> tuple[list[int], list[int]]:
        table, begun, counts = Connections(Limits()), [], []

        async def ask(number: int) -> None:
            await table.wait_for_turn()
            begun.append(number)

        asks = [asyncio.ensure_future(ask(i)) for i in range(50)]
        asks[7].cancel()
        while not all(one.done() for one in asks):
            await asyncio.sleep(0)
            counts.append(len(begun))
        return begun, counts

    begun, counts = asyncio.run(run())
    assert begun == [i for i in range(50) if i != 7]
    assert all(after - before <= 1 for before, after in pairwise([0, *counts]))


class Late:
    """A connection whose time is over."""

    deadline = 0.0

    def __init__(self, table: Connections) -> None:
        self.drop = lambda: table.forget(self)
        table.admit(self)


def test_connections_whose_time_is_over_are_not_all_dropped_in_one_turn():
    table = Connections(Limits())
    for _ in range(200):
        Late(table)
    left = []
    while table._all:
        table.drop_expired()
        left.append(len(table._all))
    assert left == [150, 100, 50, 0]


def test_a_new_connection_replaces_that_which_was_silent_for_longest():
    limits = Limits(connections=4)
    with running(MemorySource(), limits=limits) as address, ExitStack() as stack:
        kept = stack.enter_context(raw(address))
        silent = []
        for begin in (b"", b"GET /", HEALTH + b"content-length: 9\r\n\r\n"):
            silent.append(stack.enter_context(raw(address)))
            silent[-1].sendall(begin)
            time.sleep(0.05)
        kept.sendall(HEALTH + b"\r\n")
        assert len(answers(kept, 1)) == 1
        assert httpx.get(f"{address}/health").status_code == 200
        assert ended(silent[0]) == b""
        kept.sendall(HEALTH + b"\r\n")
        assert len(answers(kept, 1)) == 1


def test_requests_in_work_are_not_closed_for_others():
    slow = Slow()
    with running(MemorySource(slow=slow), limits=Limits(connections=2)) as address, ExitStack() as stack:
        start = b"POST /v1/collections/slow/count HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        busy = [stack.enter_context(raw(address)) for _ in range(2)]  # as many reads as run at once
        for connection in busy:
            connection.sendall(start + b"content-type: application/json\r\ncontent-length: 2\r\n\r\n{}")
            assert slow.entered.acquire(timeout=30)
        refused = httpx.get(f"{address}/health")
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert "expected at most 2 connections in work" in refused.json()["detail"]
        slow.go.set()
        assert [response(connection)[0] for connection in busy] == [200] * 2
        assert httpx.get(f"{address}/health").status_code == 200


def test_a_service_with_a_low_limit_of_open_files_raises_it(tmp_path):
    with served(tmp_path, open_files=128) as (_, address), ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(raw(address))
        assert httpx.get(f"{address}/health").status_code == 200
