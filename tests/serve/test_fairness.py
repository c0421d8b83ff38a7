"""What one collection does never holds up another, nor what concerns all of them."""

from __future__ import annotations

import dataclasses
import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from posh._runtime import track_progress
from posh.serve.capacity import Limits
from tests.collection.implementations import DATA, SPARSE
from tests.collection.reference import ReferenceCollection
from tests.serve.conftest import filled
from tests.serve.service import MemorySource, running

ROW = DATA[:1].tolist()


class Stuck(ReferenceCollection):
    """Counts, searches, writes, reindexes and compacts when it is told to; and says how many do at once."""

    def __init__(self) -> None:
        super().__init__(SPARSE)
        self.super_upsert([1, 2], DATA[:2])
        self.go, self.entered = threading.Event(), threading.Semaphore(0)
        self.most, self._now, self._lock = 0, 0, threading.Lock()

    def super_upsert(self, ids, vectors):
        super()._upsert(ids, vectors, [{} for _ in ids])

    def _held(self) -> None:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        self.entered.release()
        assert self.go.wait(60)
        with self._lock:
            self._now -= 1

    def _count(self, tree):
        if tree is not None:
            self._held()
        return super()._count(tree)

    def _search(self, *query):
        self._held()
        return super()._search(*query)

    def _upsert(self, ids, vectors, payloads):
        if hasattr(self, "go"):
            self._held()
        super()._upsert(ids, vectors, payloads)

    def compact(self):
        self._held()
        return super().compact()


@pytest.fixture
def stuck():
    collection = Stuck()
    yield collection
    collection.go.set()


ASKED = {
    "count": {"filter": {"a": 1}},
    "search": {"vectors": ROW},
    "upsert": {"ids": [1], "vectors": ROW},
    "compact": None,
}


@pytest.mark.parametrize("operation", list(ASKED))
def test_work_of_one_collection_does_not_hold_up_the_others(stuck, operation):
    with (
        running(MemorySource(stuck=stuck, other=filled(50))) as address,
        httpx.Client(base_url=address, timeout=20) as client,
        ThreadPoolExecutor(20) as threads,
    ):

        def ask() -> int:
            url = f"{address}/v1/collections/stuck/{operation}"
            return httpx.post(url, json=ASKED[operation], timeout=60).status_code

        asked = [threads.submit(ask) for _ in range(20)]
        assert stuck.entered.acquire(timeout=30)
        url = "/v1/collections/other"
        try:
            assert client.post(f"{url}/get", json={"ids": [1]}).status_code == 200
            assert client.post(f"{url}/count", json={"filter": {"label": 1}}).json() == {"count": 17}
            assert client.post(f"{url}/search", json={"vectors": ROW}).status_code == 200
            assert client.post(f"{url}/upsert", json={"ids": [1], "vectors": ROW}).status_code == 200
            assert client.post(f"{url}/compact").status_code == 204
            assert client.put("/v1/collections/new", json={}).status_code == 201
            assert client.delete("/v1/collections/new").status_code == 204
            for path in ("/health", "/metrics", "/v1/collections", "/v1/collections/stuck"):
                assert client.get(path).status_code == 200
        finally:
            stuck.go.set()
        assert {one.result() for one in asked} <= {200, 204}
        assert stuck.most <= 2


def test_all_requests_together_are_bounded(stuck):
    limits = Limits(requests=4, all_requests=2)
    with (
        running(MemorySource(stuck=stuck, other=filled(50)), limits=limits) as address,
        ThreadPoolExecutor(2) as threads,
    ):
        url = f"{address}/v1/collections"
        asked = [
            threads.submit(httpx.post, f"{url}/stuck/count", json=ASKED["count"], timeout=60)
            for _ in range(2)
        ]
        for _ in asked:
            assert stuck.entered.acquire(timeout=30)
        refused = httpx.post(f"{url}/other/count", json={})
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert "expected at most 2 requests to collections at once" in refused.json()["detail"]
        assert httpx.get(f"{address}/health").status_code == 200
        stuck.go.set()
        assert [one.result().status_code for one in asked] == [200, 200]
        assert httpx.post(f"{url}/other/count", json={}).status_code == 200


@pytest.mark.parametrize("operation", ["count", "search"])
def test_who_waits_or_works_too_long_is_told_so(stuck, operation):
    """Of three reads, two run and one waits; of two searches, one runs and one waits."""
    n = 3 if operation == "count" else 2
    with (
        running(MemorySource(stuck=stuck), limits=Limits(seconds=0.5)) as address,
        ThreadPoolExecutor(n) as threads,
    ):
        url = f"{address}/v1/collections/stuck/{operation}"
        asked = [threads.submit(httpx.post, url, json=ASKED[operation], timeout=60) for _ in range(n)]
        answers = [one.result() for one in asked]
        kinds = sorted(one.json()["type"].removeprefix("urn:posh:") for one in answers)
        assert kinds == (["busy", "too-long", "too-long"] if operation == "count" else ["too-long"] * 2)
        assert {one.status_code for one in answers} <= {503, 504}
        stuck.go.set()
        for _ in range(300):
            if httpx.post(url, json=ASKED[operation]).status_code == 200:
                break
            time.sleep(0.01)
        else:
            raise AssertionError("the places of what took too long are not free again")
    assert stuck.most <= n


def test_a_write_that_takes_too_long_is_answered_with_what_it_came_to(stuck):
    with running(MemorySource(stuck=stuck), limits=Limits(seconds=0.3)) as address:
        threading.Timer(1.0, stuck.go.set).start()
        url = f"{address}/v1/collections/stuck"
        assert httpx.post(f"{url}/upsert", json=ASKED["upsert"], timeout=60).status_code == 200


class Endless(ReferenceCollection):
    """Counts and writes for ever, step by step."""

    ended = 0

    def _count(self, tree):
        self._loop()

    def _upsert(self, ids, vectors, payloads):
        self._loop()

    def _loop(self) -> None:
        try:
            for _ in track_progress(iter(int, 1), "for ever"):
                time.sleep(0.01)
        finally:
            self.ended += 1


def test_work_that_takes_too_long_is_cancelled():
    endless = Endless(SPARSE)
    with running(MemorySource(endless=endless), limits=Limits(seconds=0.3)) as address:
        url = f"{address}/v1/collections/endless"
        for n in range(5):
            assert httpx.post(f"{url}/count", json={}).status_code == 504
            for _ in range(3000):  # else the next one may have to wait for its turn
                if endless.ended > n:
                    break
                time.sleep(0.01)
        answer = httpx.post(f"{url}/upsert", json=ASKED["upsert"])
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:posh:cancelled")
    assert endless.ended == 6


def test_a_collection_is_not_dropped_under_work_that_nobody_waits_for(stuck):
    with running(MemorySource(stuck=stuck), limits=Limits(seconds=0.3)) as address:
        url = f"{address}/v1/collections/stuck"
        assert httpx.post(f"{url}/count", json=ASKED["count"]).status_code == 504
        dropped = threading.Thread(target=httpx.delete, args=(url,), kwargs={"timeout": 60})
        dropped.start()
        time.sleep(0.2)
        assert not stuck._closed
        stuck.go.set()
        dropped.join()
        assert stuck._closed


def test_limits_leave_room_for_health():
    limits = Limits()
    assert limits.requests < limits.all_requests < limits.connections
    assert dataclasses.asdict(limits)["seconds"] == 30.0


class Large:
    """Stands for a large answer."""


class Failing(ReferenceCollection):
    """Fails with something large at hand."""

    def __init__(self) -> None:
        super().__init__(SPARSE)
        self.held: list[weakref.ref] = []

    def _fail(self, *_):
        large = Large()
        self.held.append(weakref.ref(large))
        raise ValueError("no")

    _count = _fail


def test_what_failed_is_forgotten_at_once():
    """An answer that gets too large is 64 MB by then: it must not wait for the collection of garbage."""
    failing = Failing()
    gc.disable()
    try:
        with running(MemorySource(failing=failing)) as address:
            url = f"{address}/v1/collections/failing/count"
            assert httpx.post(url, json=ASKED["count"]).status_code == 422
            for _ in range(3000):
                if not any(one() for one in failing.held):
                    break
                time.sleep(0.01)
            assert [one() for one in failing.held] == [None]
    finally:
        gc.enable()
