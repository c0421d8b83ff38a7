"""Clients that hang up, collections that are dropped while they are used, services that stop."""

from __future__ import annotations

import json
import socket
import threading
import time

import httpx
import numpy as np
import pytest

from posh.errors import StorageError
from posh.serve.capacity import Limits
from posh.serve.middleware import Metrics
from posh.serve.registry import Registry
from posh.serve.server import Server, bind
from tests.collection.implementations import DATA, SPARSE
from tests.collection.reference import ReferenceCollection
from tests.serve.service import MemorySource, running


class Held(ReferenceCollection):
    """Searches when it is told to, and remembers what for."""

    def __init__(self) -> None:
        super().__init__(SPARSE)
        self.upsert(list(range(100)), DATA[:100])
        self.go, self.entered = threading.Event(), threading.Event()
        self.searched: list[np.ndarray] = []

    def _search(self, vectors, *more):
        self.searched.append(vectors)
        self.entered.set()
        assert self.go.wait(30)
        return super()._search(vectors, *more)


@pytest.fixture
def held():
    collection = Held()
    yield collection
    collection.go.set()


def send(address: str, vector: np.ndarray) -> socket.socket:
    host, port = address.removeprefix("http://").split(":")
    body = json.dumps({"vectors": [vector.tolist()], "k": 1, "include": []}).encode()
    connection = socket.create_connection((host, int(port)), timeout=30)
    head = (
        "POST /v1/collections/held/search HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    )
    connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    return connection


def waiting(address: str) -> None:
    """Return when all that was sent before has arrived."""
    for _ in range(3):
        assert httpx.get(f"{address}/health").status_code == 200


def test_a_client_that_hangs_up_is_not_searched_for(held):
    with running(MemorySource(held=held), limits=Limits(batch=1)) as address:
        with send(address, DATA[100]) as first:
            assert held.entered.wait(30)
            stays = send(address, DATA[102])
            waiting(address)
            gone = send(address, DATA[101])  # more than one batch waits, so that this client is watched
            waiting(address)
            gone.close()
            waiting(address)
            held.go.set()
            assert first.recv(100).startswith(b"HTTP/1.1 200")
            assert stays.recv(100).startswith(b"HTTP/1.1 200")
            stays.close()
        waiting(address)
    np.testing.assert_array_equal(np.concatenate(held.searched), DATA[[100, 102]])


def test_a_dropped_collection_is_closed_when_nobody_uses_it(held):
    with running(MemorySource(held=held)) as address, send(address, DATA[100]) as first:
        assert held.entered.wait(30)
        answers = []
        url = f"{address}/v1/collections/held"
        dropping = threading.Thread(target=lambda: answers.append(httpx.delete(url, timeout=30).status_code))
        dropping.start()
        for _ in range(3000):
            if httpx.get(url).status_code == 404:
                break
            time.sleep(0.01)
        assert httpx.post(f"{url}/search", json={"vectors": DATA[:1].tolist()}).status_code == 404
        assert httpx.put(url, json={}).status_code == 409
        assert not answers
        held.go.set()
        assert first.recv(100).startswith(b"HTTP/1.1 200")
        dropping.join()
        assert answers == [204]
        assert httpx.put(url, json={}).status_code == 201
    with pytest.raises(ValueError, match="expected an open collection"):
        held.count()


def test_a_search_under_way_is_answered_before_the_service_stops(held):
    connections = []
    with running(MemorySource(held=held)) as address:
        connections += [send(address, DATA[100]), send(address, DATA[101])]
        assert held.entered.wait(30)
        waiting(address)
        threading.Timer(0.3, held.go.set).start()
    for connection in connections:
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
        connection.close()
    with pytest.raises(ValueError, match="expected an open collection"):
        held.count()


class SlowToWrite(ReferenceCollection):
    """Writes when it is told to."""

    def __init__(self, hasher) -> None:
        super().__init__(hasher)
        self.go, self.entered = threading.Event(), threading.Semaphore(0)

    def _upsert(self, ids, vectors, payloads):
        self.entered.release()
        assert self.go.wait(30)
        super()._upsert(ids, vectors, payloads)


def test_slow_writes_do_not_hold_up_reads_and_searches():
    slow = SlowToWrite(SPARSE)
    slow.go.set()
    slow.upsert([1, 2], DATA[:2])
    slow.go.clear()
    with running(MemorySource(slow=slow)) as address:
        url = f"{address}/v1/collections/slow"
        writers = [
            threading.Thread(
                target=httpx.post,
                args=(f"{url}/upsert",),
                kwargs={"json": {"ids": [i], "vectors": DATA[:1].tolist()}, "timeout": 30},
            )
            for i in range(10)
        ]
        for writer in writers:
            writer.start()
        for _ in range(3):  # one was before the service, two are at once
            assert slow.entered.acquire(timeout=30)
        assert httpx.post(f"{url}/get", json={"ids": [1]}).json()["items"][0]["id"] == 1
        assert httpx.post(f"{url}/search", json={"ids": [1]}).status_code == 200
        slow.go.set()
        for writer in writers:
            writer.join()
        assert httpx.post(f"{url}/count", json={}).json() == {"count": 10}


class SlowSource(MemorySource):
    """Opens the collections one after the other, each when it is told to, or fails."""

    opens_in_background = True

    def __init__(self, **collections) -> None:
        super().__init__(**collections)
        self.go = threading.Semaphore(0)
        self.problem: Exception | None = None

    def open(self, name):
        assert self.go.acquire(timeout=30)
        if self.problem is not None:
            raise self.problem
        return super().open(name)


def test_a_service_answers_before_its_collections_are_open():
    source = SlowSource(a=ReferenceCollection(SPARSE), b=ReferenceCollection(SPARSE))
    source.collections["b"].upsert([1], DATA[:1])
    with running(source, limits=Limits(seconds=0.2)) as address:
        health = httpx.get(f"{address}/health").json()
        assert (health["collections"], health["opening"]) == (2, 2)
        source.go.release()
        body = {"vectors": DATA[:1].tolist(), "include": []}
        found = httpx.post(f"{address}/v1/collections/a/search", json=body)
        assert (found.status_code, found.json()["results"]) == (200, [{"hits": []}])
        assert httpx.get(f"{address}/health").json()["opening"] == 1
        for path in ("/b/count", "/c/count"):
            answer = httpx.post(f"{address}/v1/collections{path}", json={})
            assert answer.status_code == (503 if path.startswith("/b") else 404)
        assert httpx.get(f"{address}/v1/collections").status_code == 503
        assert httpx.put(f"{address}/v1/collections/b", json={}).status_code == 409
        source.go.release()
        while (answer := httpx.post(f"{address}/v1/collections/b/count", json={})).status_code == 503:
            pass
        assert answer.json() == {"count": 1}
        assert len(httpx.get(f"{address}/v1/collections").json()["collections"]) == 2


def test_a_collection_that_cannot_be_opened_stops_the_service():
    source = SlowSource(a=ReferenceCollection(SPARSE))
    source.problem = StorageError("expected a disk")
    registry = Registry(source, Limits(), Metrics())
    server = Server(registry, bind("127.0.0.1", 0))
    source.go.release()
    with pytest.raises(StorageError, match="expected a disk"):
        server.run()
    registry.close()
