"""Connections: limits in bytes, in time and in number, wherever packets are cut."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import ExitStack

import httpx
import pytest

from posh.serve.capacity import Limits
from tests.collection.reference import ReferenceCollection
from tests.serve.conftest import TOKEN
from tests.serve.raw import CHUNKED, HEALTH, answers, ended, head, is_refused, raw, response
from tests.serve.service import MemorySource, Slow, running, served

GET_ONE = b'{"ids": [1]}'
WITH_TOKEN = b"authorization: Bearer " + TOKEN.encode()

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
        assert body.endswith(b"}")
        assert ended(connection) == b""


def test_a_client_that_is_still_sending_reads_the_refusal(locked):
    with raw(locked) as connection:
        connection.sendall(head(b"content-length: 900000"))
        time.sleep(0.2)
        for _ in range(9):
            connection.sendall(b"x" * 100_000)
            time.sleep(0.01)
        ((top, _),) = answers(connection, 1)
        assert top.startswith(b"HTTP/1.1 401")


def test_a_refused_client_cannot_send_without_end(locked):
    with raw(locked) as connection:
        connection.sendall(head(b"content-length: 60000000"))
        assert is_refused(connection, b"x" * 100_000, 60_000_000)


def test_a_complete_request_keeps_the_connection(locked):
    with raw(locked) as connection:
        for _ in range(3):
            connection.sendall(head(b"content-length: %d" % len(GET_ONE)) + GET_ONE)
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


def test_a_body_that_no_operation_reads_is_not_waited_for():
    slow = SlowToCompact()
    slow.go.set()
    with running(MemorySource(slow=slow)) as address, raw(address) as connection:
        start = b"POST /v1/collections/slow/compact HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        connection.sendall(start + b"content-length: 9\r\n\r\nx")
        assert ended(connection).startswith(b"HTTP/1.1 204")


def test_requests_that_wait_for_the_answers_to_others_are_bounded():
    slow = Slow()
    with running(MemorySource(slow=slow)) as address:
        with raw(address) as connection:
            start = b"POST /v1/collections/slow/count HTTP/1.1\r\nhost: 127.0.0.1\r\n"
            connection.sendall(start + b"content-type: application/json\r\ncontent-length: 2\r\n\r\n{}")
            assert slow.entered.acquire(timeout=30)
            assert is_refused(connection, (HEALTH + b"\r\n") * 100, 50_000_000)
        slow.go.set()


SILENT = {
    "nothing": b"",
    "a part of a head": b"GET / HTTP/1.1\r\nhost: 127",
    "nothing after an answer": HEALTH + b"\r\n",
    "a part of a head after an answer": HEALTH + b"\r\nGET /",
}


@pytest.mark.parametrize("begin", SILENT.values(), ids=SILENT)
def test_a_silent_connection_is_closed(begin):
    with running(MemorySource(), limits=Limits(head_seconds=0.3)) as address, raw(address) as connection:
        connection.sendall(begin)
        assert ended(connection).count(b"HTTP/1.1 200") == begin.startswith(HEALTH)


def test_connections_above_the_limit_wait():
    limits = Limits(connections=2, head_seconds=60.0)
    with running(MemorySource(), limits=limits) as address, ExitStack() as stack:
        silent = [stack.enter_context(raw(address)) for _ in range(2)]
        waiting = stack.enter_context(raw(address))
        waiting.sendall(HEALTH + b"\r\n")
        waiting.settimeout(0.3)
        with pytest.raises(TimeoutError):
            waiting.recv(1)
        silent[0].close()
        waiting.settimeout(20)
        assert response(waiting)[0] == 200


def test_a_service_with_a_low_limit_of_open_files_raises_it(tmp_path):
    with served(tmp_path, open_files=128) as (_, address), ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(raw(address))
        assert httpx.get(f"{address}/health").status_code == 200


ENDLESS = {
    "trailers": (b"0\r\n", b"a: b\r\n" * 5000),
    "one trailer": (b"0\r\na: ", b"b" * 30_000),
    "a chunk extension": (b"1;a=", b"b" * 30_000),
    "chunk extensions": (b"", b"1;a=" + b"b" * 30_000 + b"\r\nx\r\n"),
}


@pytest.mark.parametrize(("begin", "part"), ENDLESS.values(), ids=ENDLESS)
@pytest.mark.parametrize("token", [b"wrong", TOKEN.encode()], ids=["after the 401", "with the token"])
def test_the_framing_of_a_body_is_bounded(locked, begin, part, token):
    with raw(locked) as connection:
        connection.sendall(head(CHUNKED, b"authorization: Bearer " + token) + begin)
        assert is_refused(connection, part, 20_000_000)
    assert httpx.get(f"{locked}/health").status_code == 200


def test_many_small_chunks_and_a_trailer_are_accepted(locked):
    body = GET_ONE + b" " * 2000
    chunks = b"".join(b"1;a\r\n%c\r\n" % byte for byte in body)
    with raw(locked) as connection:
        for _ in range(2):
            connection.sendall(head(CHUNKED, WITH_TOKEN) + chunks + b"0\r\nauthorization: none\r\n\r\n")
            ((top, content),) = answers(connection, 1)
            assert top.startswith(b"HTTP/1.1 200")
            assert b'"id":1' in content


def test_a_trailer_is_not_a_header(locked):
    with raw(locked) as connection:
        trailer = b"authorization: Bearer " + TOKEN.encode()
        connection.sendall(head(CHUNKED) + b"c\r\n" + GET_ONE + b"\r\n0\r\n" + trailer + b"\r\n\r\n")
        assert answers(connection, 1)[0][0].startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize(("n_bytes", "status"), [(50_000, b"200"), (200_000, b"431")])
def test_a_head_is_bounded(locked, n_bytes, status):
    with raw(locked) as connection:
        connection.sendall(HEALTH + b"a: " + b"b" * n_bytes + b"\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 " + status


@pytest.mark.parametrize(("n_lines", "status"), [(99, b"200"), (100, b"431")])
def test_header_lines_are_counted(locked, n_lines, status):
    with raw(locked) as connection:
        connection.sendall(HEALTH + b"a: b\r\n" * n_lines + b"\r\n")
        assert connection.recv(12) == b"HTTP/1.1 " + status


def test_a_request_may_be_cut_anywhere(locked):
    request = head(WITH_TOKEN, b"content-length: %d" % len(GET_ONE)) + GET_ONE
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


def test_pipelined_requests_are_answered_in_order(locked):
    post = head(WITH_TOKEN, b"content-length: %d" % len(GET_ONE)) + GET_ONE
    with raw(locked) as connection:
        connection.sendall((HEALTH + b"\r\n" + post) * 100)
        pairs = answers(connection, 200)
    assert all(top.startswith(b"HTTP/1.1 200") for top, _ in pairs)
    assert all(b'"ok"' in body for _, body in pairs[::2])
    assert all(b'"items"' in body for _, body in pairs[1::2])
