"""Requests that are too large, or of which a part never comes."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import select
import threading
import time

import httpx
import numpy as np
import pytest

from posh.serve.capacity import Limits
from tests.collection.implementations import DATA
from tests.collection.reference import ReferenceCollection
from tests.serve.conftest import SMALL, filled
from tests.serve.raw import answers, ended, head, raw, response
from tests.serve.service import MemorySource, running

ROW = DATA[:1].tolist()
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def address():
    with running(MemorySource(things=filled(), empty=ReferenceCollection()), limits=SMALL) as address:
        yield address


@pytest.fixture(scope="module")
def hasty():
    """A service that waits for less, but for more than its clock counts when this process is held up."""
    with running(MemorySource(things=filled()), limits=Limits(body_seconds=1.5)) as address:
        yield address


def test_a_body_that_announces_too_much_is_not_read(address):
    with raw(address) as connection:
        connection.send(head(b"content-length: 20001"))
        status, body = response(connection)
    assert status == 413
    assert b"expected a body of at most 20000 bytes, got more" in body


def test_a_body_that_does_not_say_its_length_is_counted(address):
    with raw(address) as connection:
        connection.send(head(b"transfer-encoding: chunked"))
        block = b"%x\r\n%s\r\n" % (7000, b" " * 7000)
        connection.send(block * 3)
        status, body = response(connection)
    assert status == 413
    assert b"expected a body of at most 20000 bytes, got more" in body


@pytest.mark.parametrize("length", [b"-1", b"1e3", b"99999999999999999999999", b"1\r\ncontent-length: 2"])
def test_a_length_that_makes_no_sense_is_refused(address, length):
    with raw(address) as connection:
        connection.send(head(b"content-length: " + length))
        assert response(connection)[0] in (400, 413)


def test_a_body_that_never_comes_is_not_waited_for(hasty):
    with raw(hasty) as connection:
        connection.send(head(b"content-length: 100") + b"{")
        status, body = response(connection)
    assert status == 408
    assert b"expected the body within 1.5 s, got a part of it" in body


def test_many_values_are_refused_before_they_are_parsed():
    limits = dataclasses.replace(SMALL, body_bytes=10_000_000, bytes_in_work=20_000_000)
    with running(MemorySource(empty=ReferenceCollection()), limits=limits) as address:
        many = b'{"ids": [' + b"1,         " * 100_000 + b"1]}"
        answer = httpx.post(f"{address}/v1/collections/empty/get", content=many, headers=JSON)
    assert answer.status_code == 413
    assert "expected a body of at most 500 values in JSON, got more: pack vectors" in answer.json()["detail"]


@pytest.mark.parametrize("value", [b"[]", b"[[]]", b"{}", b'{"a":{}}'])
def test_values_without_commas_count_too(value):
    """What is nested has few commas, but as many objects to make; these bodies took gigabytes."""
    limits = Limits(body_values=100_000)
    bodies = [b"[" * 100 + b"]" * 100] if value == b"[[]]" else [value]
    n = 1_000_000 // len(bodies[0])
    many = b'{"payloads": [{"a": [' + b",".join(bodies * n) + b"]}]}"
    with running(MemorySource(empty=ReferenceCollection()), limits=limits) as address:
        answer = httpx.post(f"{address}/v1/collections/empty/upsert", content=many, headers=JSON)
    assert answer.status_code == 413
    assert "at most 100000 values in JSON, got more" in answer.json()["detail"]


@pytest.mark.parametrize("path", ["new", "empty/metadata"])
def test_metadata_has_a_bound_of_its_own(path):
    with running(MemorySource(empty=ReferenceCollection())) as address:
        url = f"{address}/v1/collections/{path}"
        nested = b'{"metadata": {"a": [' + b"[]," * 1_000_000 + b"[]]}}"
        refused = httpx.put(url, content=nested, headers=JSON)
        assert refused.status_code == 413
        assert "expected a body of at most 65536 bytes, got more" in refused.json()["detail"]
        assert httpx.put(url, json={"metadata": {"text": "x" * 60_000}}).is_success


def test_a_fit_has_the_bound_of_metadata(address):
    body = {"method": "LSH", "params": {"n_bits": 8, "x": "x" * 70_000}}
    assert httpx.post(f"{address}/v1/collections/things/fit", json=body).status_code == 413


def test_one_payload_has_a_bound_of_its_own():
    with running(MemorySource(empty=ReferenceCollection())) as address:
        url = f"{address}/v1/collections/empty/upsert"
        body = {"ids": [1, 2], "vectors": ROW * 2, "payloads": [{}, {"text": "x" * (1 << 20)}]}
        refused = httpx.post(url, json=body)
        assert refused.status_code == 422
        assert "at most 1,048,576 bytes, got 1,048,587 for payloads[1]" in refused.json()["detail"]
        body["payloads"] = [{"text": "x" * 1_000_000}, {"text": "x" * 1_000_000}]
        assert httpx.post(url, json=body).status_code == 200


def test_others_are_answered_while_a_large_body_is_parsed():
    """A million values. Seconds are those of this process: it may be held up by others."""
    content = b'{"payloads": [{"a": [' + b"1," * 900_000 + b"1]}]}"
    with running(MemorySource(things=filled())) as address, httpx.Client(base_url=address) as client:
        sender = threading.Thread(
            target=httpx.post,
            args=(f"{address}/v1/collections/things/upsert",),
            kwargs={"content": content, "headers": JSON, "timeout": 60},
        )
        sender.start()
        slowest = 0.0
        while sender.is_alive():
            begun = time.process_time()
            assert client.get("/health").status_code == 200
            slowest = max(slowest, time.process_time() - begun)
        sender.join()
    assert slowest < 2.0


def test_all_bodies_together_are_bounded(address):
    """Two bodies of 18,000 bytes at once are more than 30,000; whichever comes last is refused."""
    body = b'{"ids": [1]}' + b" " * 17_988
    with raw(address) as one, raw(address) as other:
        for connection in (one, other):
            connection.sendall(head(b"content-length: 18000") + body[:17_000])
        [refused], _, _ = select.select([one, other], [], [], 60)
        ((top, detail),) = answers(refused, 1)
        assert top.startswith(b"HTTP/1.1 503")
        assert b"\r\nretry-after: 1\r\n" in top
        assert b"expected at most 30000 bytes of requests at once" in detail
        first = one if refused is other else other
        first.sendall(body[17_000:])
        assert response(first)[0] == 200
    assert httpx.post(f"{address}/v1/collections/things/get", content=body, headers=JSON).status_code == 200


def test_packed_vectors_may_be_large():
    vectors = np.zeros((2000, 100), "<f4")
    packed = {"shape": [2000, 100], "float32": base64.b64encode(vectors.tobytes()).decode()}
    limits = Limits(body_values=3000)
    with running(MemorySource(empty=ReferenceCollection()), limits=limits) as address:
        body = {"ids": list(range(2000)), "vectors": packed}
        answer = httpx.post(f"{address}/v1/collections/empty/upsert", json=body)
    assert answer.json() == {"upserted": 2000}


@pytest.mark.parametrize("begin", [b"GET /", b"GET / HTTP/1.1\r\nhost: ", b"GET / HTTP/1.1\r\na: b\r\n"])
def test_a_head_without_end_is_not_kept(address, begin):
    with raw(address) as connection:
        connection.sendall(begin)
        with contextlib.suppress(ConnectionError):
            for _ in range(20):
                connection.sendall(b"x" * 10_000 if b"a: b" not in begin else b"a: b\r\n" * 1500)
        assert b" 200 " not in ended(connection)[:20]
    assert httpx.get(f"{address}/health").status_code == 200


@pytest.mark.parametrize("begin", [b"", b"GET / HTTP/1.1\r\nhost: 127"])
def test_a_head_that_never_comes_is_not_waited_for(hasty, begin):
    with raw(hasty) as connection:
        connection.sendall(begin)
        assert ended(connection) == b""


def test_a_second_head_that_never_comes_is_not_waited_for_either(hasty):
    with raw(hasty) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert response(connection)[0] == 200
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: 127")
        assert ended(connection) == b""
