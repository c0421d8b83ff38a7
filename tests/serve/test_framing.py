"""Heads, chunks and trailers: what is around a body is counted, wherever packets cut it."""

from __future__ import annotations

import socket
import time

import httpx
import pytest

from tests.serve.conftest import TOKEN
from tests.serve.raw import CHUNKED, HEALTH, answers, ended, head, is_refused, raw

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
