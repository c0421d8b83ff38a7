"""Searches in batches."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from posh.collection.base import Include
from posh.collection.filters import parse
from posh.index.codes.options import CodeParams
from posh.index.hits import Hits
from posh.index.nearest.options import NearestParams
from posh.serve.capacity import Limits
from posh.serve.coalesce import Coalescer, LargeResultError, SharedOptions
from posh.serve.responses import ProblemError


class Kernel:
    """Answers a query with its own first number as the id; can be held up, and refuses 13."""

    def __init__(self) -> None:
        self.calls: list[tuple] = []  # first numbers, parameters and filter of each call
        self.open = threading.Event()
        self.open.set()

    def __call__(self, vectors, params, where, include) -> Hits:
        self.calls.append((vectors[:, 0].tolist(), params, where))
        self.open.wait(30)
        if 13 in vectors[:, 0]:
            raise ValueError("thirteen")
        ids = np.empty((len(vectors), params.k), object)
        ids[:] = vectors[:, :1].astype(int)
        payloads = None
        if include.payloads:  # an item has as many bytes as its id says
            include.charge(int(vectors[:, 0].sum()))
            payloads = [[{"number": number}] for number in vectors[:, 0].tolist()]
        return Hits(ids, np.repeat(vectors[:, :1], params.k, axis=1), "overlap", payloads)


def options(filter_=None, kind=NearestParams, payloads=False, **params) -> SharedOptions:
    where = None if filter_ is None else parse(filter_)
    return SharedOptions(kind(**{"k": 1, **params}), where, str(filter_), Include(payloads))


async def stays() -> None:
    """Wait as long as a client that does not hang up."""
    await asyncio.Event().wait()


async def hangs_up() -> None:
    """Return when the client hangs up: at once."""


def rows(*numbers) -> np.ndarray:
    return np.array(numbers, np.float32)[:, None]


def run(scenario, limits: Limits | None = None):
    """Run a scenario with a coalescer over a kernel; what the scenario returns, the kernel, the batches."""
    kernel, sizes = Kernel(), []

    async def main():
        with ThreadPoolExecutor(1) as executor:
            return await scenario(Coalescer(kernel, executor, limits or Limits(), sizes.append), kernel)

    return asyncio.run(main()), kernel, sizes


async def begun(coalescer, kernel, *searches):
    """Hold up the kernel with one search, so that the others wait; all of them as tasks."""
    kernel.open.clear()
    tasks = [asyncio.ensure_future(coalescer.search(rows(0), options(), stays))]
    while not kernel.calls:
        await asyncio.sleep(0.001)
    tasks += [asyncio.ensure_future(search) for search in searches]
    await asyncio.sleep(0.01)
    return tasks


def test_an_idle_collection_searches_at_once():
    async def scenario(coalescer, kernel):
        return await coalescer.search(rows(3, 4), options(k=2), stays)

    found, kernel, sizes = run(scenario)
    assert found.ids.tolist() == [[3, 3], [4, 4]]
    assert kernel.calls == [([3, 4], NearestParams(2), None)]
    assert sizes == [2]


def test_those_that_come_meanwhile_are_one_batch_by_options():
    async def scenario(coalescer, kernel):
        tasks = await begun(
            coalescer,
            kernel,
            coalescer.search(rows(1, 2), options(), stays),
            coalescer.search(rows(3), options(k=2), stays),
            coalescer.search(rows(4), options(), stays),
            coalescer.search(rows(5), options(filter_={"a": 1}), stays),
            coalescer.search(rows(6), options(kind=CodeParams, scoring="asymmetric"), stays),
            coalescer.search(rows(7), options(filter_={"a": 1}), stays),
        )
        kernel.open.set()
        return await asyncio.gather(*tasks)

    found, kernel, sizes = run(scenario)
    assert [one.ids.tolist() for one in found] == [
        [[0]],
        [[1], [2]],
        [[3, 3]],
        [[4]],
        [[5]],
        [[6]],
        [[7]],
    ]
    assert [call[0] for call in kernel.calls] == [[0], [1, 2, 4], [3], [5, 7], [6]]
    assert kernel.calls[3][2] == parse({"a": 1})
    assert kernel.calls[4][1:] == (CodeParams(1, scoring="asymmetric"), None)
    assert sizes == [1, 7]


def test_searches_with_different_recall_are_not_joined():
    async def scenario(coalescer, kernel):
        asked = [{"recall": 0.9}, {"recall": 0.99}, {"exact": True}, {"slack": 0.0}, {}, {"recall": 0.9}]
        searches = (coalescer.search(rows(i), options(**one), stays) for i, one in enumerate(asked, 1))
        tasks = await begun(coalescer, kernel, *searches)
        kernel.open.set()
        await asyncio.gather(*tasks)

    _, kernel, sizes = run(scenario)
    assert sizes == [1, 6]
    assert kernel.calls[1:] == [
        ([1.0, 6.0], NearestParams(1, recall=0.9), None),
        ([2.0], NearestParams(1, recall=0.99), None),
        ([3.0], NearestParams(1, exact=True), None),
        ([4.0], NearestParams(1, slack=0.0), None),
        ([5.0], NearestParams(1), None),
    ]


def test_payloads_come_with_the_search_unless_they_are_large():
    async def scenario(coalescer, kernel):
        searches = [coalescer.search(rows(i), options(payloads=True), stays) for i in (3, 2**22, 5)]
        tasks = await begun(coalescer, kernel, *searches)
        kernel.open.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    (_, before, large, after), kernel, _ = run(scenario)
    assert (before.payloads, after.payloads) == ([[{"number": 3.0}]], [[{"number": 5.0}]])
    assert isinstance(large, LargeResultError)
    assert [call[0] for call in kernel.calls] == [[0], [3, 2**22, 5], [3], [2**22], [5]]


def test_a_failing_search_is_the_only_one_that_fails():
    async def scenario(coalescer, kernel):
        tasks = await begun(
            coalescer, kernel, *[coalescer.search(rows(i), options(), stays) for i in (12, 13, 14)]
        )
        kernel.open.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    (_, before, failed, after), _, _ = run(scenario)
    assert (before.ids.tolist(), after.ids.tolist()) == ([[12]], [[14]])
    assert str(failed) == "thirteen"


def test_a_batch_has_its_bound():
    async def scenario(coalescer, kernel):
        tasks = await begun(
            coalescer, kernel, *[coalescer.search(rows(i, i), options(), stays) for i in range(4)]
        )
        kernel.open.set()
        return await asyncio.gather(*tasks)

    _, _, sizes = run(scenario, Limits(batch=5))
    assert sizes == [1, 4, 4]


def test_a_client_that_hung_up_is_not_searched_for():
    async def scenario(coalescer, kernel):
        tasks = await begun(
            coalescer,
            kernel,
            coalescer.search(rows(1), options(), hangs_up),  # in the next batch: not watched
            coalescer.search(rows(2), options(), hangs_up),
            coalescer.search(rows(3), options(), stays),
            coalescer.search(rows(4), options(), stays),
        )
        tasks[4].cancel()
        await asyncio.sleep(0)
        kernel.open.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    (_, _, gone, found, cancelled), kernel, _ = run(scenario, Limits(batch=1))
    assert isinstance(gone, ProblemError)
    assert gone.kind == "gone"
    assert found.ids.tolist() == [[3]]
    assert isinstance(cancelled, asyncio.CancelledError)
    assert [call[0] for call in kernel.calls] == [[0], [1], [3]]


def test_the_queue_is_bounded_and_empties():
    async def scenario(coalescer, kernel):
        tasks = await begun(
            coalescer,
            kernel,
            coalescer.search(rows(1, 2), options(), stays),
            coalescer.search(rows(3, 4), options(), hangs_up),
        )
        with pytest.raises(ProblemError, match="expected at most 4 waiting queries, got more") as refused:
            await coalescer.search(rows(5), options(), stays)
        assert refused.value.status == 503
        assert refused.value.headers["retry-after"] == "1"
        kernel.open.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        return await coalescer.search(rows(6, 7, 8, 9), options(), stays)

    found, _, _ = run(scenario, Limits(waiting=4))
    assert found.ids.tolist() == [[6], [7], [8], [9]]
