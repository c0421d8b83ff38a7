"""Connections whose clients send too much, too slowly, or do not take their answers."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import threading
import time
from contextlib import ExitStack, contextmanager
from itertools import pairwise

import httpx
import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from posh.serve.connections import Connections
from posh.serve.limits import Limits
from posh.serve.protocol import JoinedWrites
from tests.collection.implementations import DATA, SPARSE
from tests.collection.reference import ReferenceCollection
from tests.serve.conftest import filled
from tests.serve.service import MemorySource, running
from tests.serve.test_limits import Slow, ended, head, raw, response
from tests.serve.test_server import served

TOKEN = "correct horse"
HEALTH = b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n"
CHUNKED = b"transfer-encoding: chunked"


@pytest.fixture(scope="module")
def locked():
    """A service that needs a token, at its own limits."""
    with running(MemorySource(things=filled()), token=TOKEN) as address:
        yield address


def answers(connection: socket.socket, n: int) -> list[tuple[bytes, bytes]]:
    """The next n answers, each as its head and its body."""
    found, content = [], b""
    while len(found) < n:
        top, end, rest = content.partition(b"\r\n\r\n")
        length = int(top.lower().partition(b"content-length: ")[2].split()[0]) if end else 0
        if end and len(rest) >= length:
            found.append((top, rest[:length]))
            content = rest[length:]
            continue
        part = connection.recv(1 << 20)
        assert part, f"expected {n} answers, got {len(found)} and {content[:200]!r}"
        content += part
    assert content == b""
    return found


def is_refused(connection: socket.socket, part: bytes, most: int) -> bool:
    """Whether the service stops taking this part, again and again, before it took so many bytes."""
    try:
        for _ in range(most // len(part)):
            connection.sendall(part)
    except (ConnectionError, TimeoutError):  # it may close the connection, or only not read from it
        return True
    return False


# Early answers close the connection ----------------------------------------------------------------------

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


# Bytes that are no body are counted ----------------------------------------------------------------------

ENDLESS = {
    "trailers": (b"0\r\n", b"a: b\r\n" * 5000),
    "one trailer": (b"0\r\na: ", b"b" * 30_000),
    "a chunk extension": (b"1;a=", b"b" * 30_000),
    "chunk extensions": (b"", b"1;a=" + b"b" * 30_000 + b"\r\nx\r\n"),
}


@pytest.mark.parametrize(("begin", "part"), ENDLESS.values(), ids=ENDLESS)
@pytest.mark.parametrize("token", [b"wrong", TOKEN.encode()], ids=["after the 401", "with the token"])
def test_what_is_around_a_body_has_an_end(locked, begin, part, token):
    with raw(locked) as connection:
        connection.sendall(head(CHUNKED, b"authorization: Bearer " + token) + begin)
        assert is_refused(connection, part, 20_000_000)
    assert httpx.get(f"{locked}/health").status_code == 200


def test_what_is_around_a_body_is_refused_with_words(locked):
    with raw(locked) as connection:
        connection.sendall(head(CHUNKED, b"authorization: Bearer " + TOKEN.encode()))
        connection.sendall(b"1;a=" + b"b" * 70_000)
        ((top, body),) = answers(connection, 1)
        assert top.startswith(b"HTTP/1.1 431")
        assert b"expected at most 65536 bytes around the chunks of a body, got more" in body


def test_many_bytes_that_are_no_chunk_get_one_answer(locked, caplog):
    with raw(locked) as connection:
        connection.sendall(head(CHUNKED, b"authorization: Bearer " + TOKEN.encode()))
        connection.sendall(b"1\r\n" + b"xyz" * 60_000)
        ((top, body),) = answers(connection, 1)
        assert top.startswith(b"HTTP/1.1 400")
        assert b"expected HTTP/1.1" in body
        assert ended(connection) == b""
    assert caplog.records == []


def test_many_small_chunks_and_a_trailer_are_fine(locked):
    body = b'{"ids": [1]}' + b" " * 20_000
    chunks = b"".join(b"1;a\r\n%c\r\n" % byte for byte in body)
    with raw(locked) as connection:
        for _ in range(2):
            connection.sendall(head(CHUNKED, b"authorization: Bearer " + TOKEN.encode()))
            connection.sendall(chunks + b"0\r\nauthorization: none\r\n\r\n")
            ((top, found),) = answers(connection, 1)
            assert top.startswith(b"HTTP/1.1 200")
            assert b'"id":1' in found


def test_a_trailer_is_no_header(locked):
    with raw(locked) as connection:
        connection.sendall(
            head(CHUNKED) + b'c\r\n{"ids": [1]}\r\n0\r\nauthorization: Bearer ' + TOKEN.encode() + b"\r\n\r\n"
        )
        assert answers(connection, 1)[0][0].startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize("size", [65_536, 65_537, 70_000, 200_000])
@pytest.mark.parametrize("before", [b"", HEALTH + b"\r\n"], ids=["alone", "after another"])
def test_heads_are_counted_to_the_byte(locked, size, before):
    """In one packet, alone or after another request."""
    start = HEALTH + b"a: "
    request = start + b"b" * (size - len(start) - 4) + b"\r\n\r\n"
    with raw(locked) as connection:
        connection.sendall(before + request)
        if size <= 65_536:
            assert all(top.startswith(b"HTTP/1.1 200") for top, _ in answers(connection, 2 if before else 1))
        elif before:
            assert ended(connection).count(b"HTTP/1.1 200") <= 1
        else:
            assert answers(connection, 1)[0][0].startswith(b"HTTP/1.1 431")


def test_header_lines_are_counted(locked):
    with raw(locked) as connection:
        connection.sendall(HEALTH + b"a: b\r\n" * 99 + b"\r\n")
        assert answers(connection, 1)[0][0].startswith(b"HTTP/1.1 200")
        connection.sendall(HEALTH + b"a: b\r\n" * 100 + b"\r\n")
        ((top, body),) = answers(connection, 1)
        assert top.startswith(b"HTTP/1.1 400")
        assert b"expected HTTP/1.1 with at most 100 header lines" in body


def test_a_head_may_be_cut_anywhere(locked):
    body = b'{"ids": [1]}'
    token = b"authorization: Bearer " + TOKEN.encode()
    request = head(token, b"content-length: %d" % len(body)) + body
    end = request.index(b"\r\n\r\n")
    with raw(locked) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for cut in (1, end - 1, end, end + 1, end + 2, end + 3, end + 4, end + 5, len(request) - 1):
            connection.sendall(request[:cut])
            time.sleep(0.02)
            connection.sendall(request[cut:] + HEALTH + b"\r\n")
            (first, _), (second, status) = answers(connection, 2)
            assert first.startswith(b"HTTP/1.1 200")
            assert second.startswith(b"HTTP/1.1 200")
            assert b'"ok"' in status


def test_requests_that_do_not_wait_for_answers_are_answered_in_order(locked):
    body = b'{"ids": [1]}'
    post = head(b"authorization: Bearer " + TOKEN.encode(), b"content-length: %d" % len(body)) + body
    with raw(locked) as connection:
        connection.sendall((HEALTH + b"\r\n" + post) * 100)
        found = answers(connection, 200)
    assert all(top.startswith(b"HTTP/1.1 200") for top, _ in found)
    assert all(b'"ok"' in body for _, body in found[::2])
    assert all(b'"items"' in body for _, body in found[1::2])


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


# Too many connections ------------------------------------------------------------------------------------


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


# Answers that are not taken ------------------------------------------------------------------------------

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


def test_an_answer_that_is_not_taken_costs_the_connection():
    with heavy(answer_seconds=0.3) as address, ask_much(address) as connection:
        time.sleep(2)
        assert len(ended(connection)) < N_BYTES


def test_who_takes_an_answer_slowly_gets_all_of_it():
    with heavy(answer_seconds=1.0) as address, ask_much(address) as connection:
        n_bytes, start = 0, time.monotonic()
        while n_bytes < N_BYTES:
            part = connection.recv(1 << 18)
            assert part, f"the connection was closed after {n_bytes} bytes"
            n_bytes += len(part)
            if time.monotonic() < start + 3:
                time.sleep(0.01)
        assert time.monotonic() > start + 3


def test_all_answers_together_are_bounded():
    """Small ones are still answered, and those that take too long make room."""
    with heavy(answers_in_work=20_000_000, answer_seconds=2.0) as address, ask_much(address):
        url = f"{address}/v1/collections/things/get"
        refused = httpx.post(url, json=MANY)
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert "expected at most 20000000 bytes of answers at once" in refused.json()["detail"]
        assert httpx.get(f"{address}/health").status_code == 200
        for _ in range(100):
            answer = httpx.post(url, json=MANY)
            if answer.status_code == 200:
                break
            time.sleep(0.1)
        assert len(answer.content) > N_BYTES


def test_a_slow_client_makes_room_when_others_need_it():
    with heavy(answers_in_work=20_000_000, answer_seconds=0.5) as address, ask_much(address) as slow:
        n_bytes, start = 0, time.monotonic()
        while time.monotonic() < start + 1.5:
            part = slow.recv(1 << 16)
            assert part
            n_bytes += len(part)
            time.sleep(0.01)
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
