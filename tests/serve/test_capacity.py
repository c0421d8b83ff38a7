"""Memory for the requests in work."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from posh.serve.capacity import Limits, MemoryBudget, MemoryShare
from posh.serve.responses import ProblemError
from tests.collection.implementations import DATA
from tests.collection.reference import ReferenceCollection
from tests.serve.service import MemorySource, running

MB = 1 << 20


def test_who_exceeds_it_waits_until_others_give_back():
    budget, order = MemoryBudget(100 * MB, 30.0), []
    first = MemoryShare(budget)
    first.add(80 * MB)

    def wait() -> None:
        share = MemoryShare(budget)
        share.add(50 * MB)
        order.append("taken")
        share.close()

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.05)
    order.append("given")
    first.close()
    thread.join()
    assert order == ["given", "taken"]
    assert budget.taken == 0


def test_the_event_loop_goes_on_while_a_request_waits():
    budget = MemoryBudget(100 * MB, 30.0)

    async def scenario() -> bool:
        first, second = MemoryShare(budget), MemoryShare(budget)
        await first.wait_for(80 * MB)
        waits = asyncio.ensure_future(second.wait_for(50 * MB))
        await asyncio.sleep(0.05)
        waited = not waits.done()
        first.close()
        await waits
        second.close()
        return waited

    assert asyncio.run(scenario())
    assert budget.taken == 0


def test_who_waits_too_long_is_told_so_and_holds_up_nobody():
    budget = MemoryBudget(100 * MB, 0.05)
    first = MemoryShare(budget)
    first.add(80 * MB)
    with pytest.raises(ProblemError, match=r"expected room for this request in 104,857,600 bytes") as caught:
        MemoryShare(budget).add(50 * MB)
    assert (caught.value.status, caught.value.headers["retry-after"]) == (503, "1")
    MemoryShare(budget).add(20 * MB)
    assert budget.taken == 100 * MB


def test_small_requests_do_not_wait_behind_large_ones():
    budget = MemoryBudget(100 * MB, 0.05)
    MemoryShare(budget).add(98 * MB)
    for _ in range(6):
        MemoryShare(budget).add(4 * MB)
    with pytest.raises(ProblemError):  # but they are bounded, too
        MemoryShare(budget).add(4 * MB)


def test_a_request_that_alone_exceeds_it_gets_all_of_it():
    budget = MemoryBudget(100 * MB, 0.05)
    share = MemoryShare(budget)
    share.add(500 * MB)
    assert budget.taken == 100 * MB
    share.close()
    assert budget.taken == 0


def test_what_comes_after_the_answer_is_given_back():
    """A thread may go on after its request was answered with 504."""
    budget = MemoryBudget(100 * MB, 0.05)
    share = MemoryShare(budget)
    share.close()
    with pytest.raises(ProblemError):
        share.add(50 * MB)
    assert budget.taken == 0


# In the service -------------------------------------------------------------------------------------------


class Held(ReferenceCollection):
    """Writes, and reads on after the first block of items, when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.upsert(range(100), np.resize(DATA, (100, 8)), [{"text": "x" * 60_000}] * 100)
        self.go, self.entered, self.n_read = threading.Event(), threading.Event(), 0

    def _get(self, ids):
        self.n_read += 1
        if self.n_read > 1:
            self._hold()
        return super()._get(ids)

    def _upsert(self, ids, vectors, payloads):
        if hasattr(self, "go"):
            self._hold()
        super()._upsert(ids, vectors, payloads)

    def _hold(self) -> None:
        self.entered.set()
        assert self.go.wait(30)


LARGE = {"text": "x" * 900_000}
REQUESTS = {
    "upsert": {"ids": list(range(6)), "vectors": DATA[:6].tolist(), "payloads": [LARGE] * 6},
    "get": {"ids": list(range(100))},
}


@pytest.mark.parametrize("operation", list(REQUESTS))
def test_large_requests_of_all_collections_wait_for_each_other(operation):
    """What the first one holds is more than half of the memory; small requests are answered meanwhile."""
    held, other = Held(), Held()
    other.go.set()
    limits = Limits(answer_bytes=12_000_000, work_bytes=60_000_000)
    with (
        running(MemorySource(held=held, other=other), limits=limits) as address,
        ThreadPoolExecutor(2) as threads,
    ):

        def ask(name: str) -> int:
            url = f"{address}/v1/collections/{name}/{operation}"
            return httpx.post(url, json=REQUESTS[operation], timeout=60).status_code

        first = threads.submit(ask, "held")
        assert held.entered.wait(30)
        second = threads.submit(ask, "other")
        small = httpx.post(f"{address}/v1/collections/other/get", json={"ids": [1]})
        time.sleep(0.3)
        assert (small.status_code, second.done()) == (200, False)
        held.go.set()
        assert (first.result(), second.result()) == (200, 200)
