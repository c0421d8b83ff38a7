"""Searches in batches."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from posh.index.hits import Hits
from posh.index.params import SearchParams
from posh.serve.coalesce import Coalescer, SharedOptions
from posh.serve.limits import Limits
from posh.serve.problems import ProblemError


class Kernel:
    """Answers a query with its own first number as the id; can be held up, and refuses 13."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[float], dict]] = []
        self.open = threading.Event()
        self.open.set()

    def __call__(self, vectors, k, **options) -> Hits:
        self.calls.append((vectors[:, 0].tolist(), {"k": k, **options}))
        self.open.wait(30)
        if 13 in vectors[:, 0]:
            raise ValueError("thirteen")
        ids = np.empty((len(vectors), k), object)
        ids[:] = vectors[:, :1].astype(int)
        return Hits(ids, np.repeat(vectors[:, :1], k, axis=1), "overlap")


def options(filter_=None, **params) -> SharedOptions:
    return SharedOptions(SearchParams(**{"k": 1, **params}), filter_, str(filter_))


def alive() -> bool:
    return True


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
    tasks = [asyncio.ensure_future(coalescer.search(rows(0), options(), alive))]
    while not kernel.calls:
        await asyncio.sleep(0.001)
    tasks += [asyncio.ensure_future(search) for search in searches]
    await asyncio.sleep(0.01)
    return tasks


def test_an_idle_collection_searches_at_once():
    async def scenario(coalescer, kernel):
        return await coalescer.search(rows(3, 4), options(k=2), alive)

    found, kernel, sizes = run(scenario)
    assert found.ids.tolist() == [[3, 3], [4, 4]]
    assert kernel.calls == [([3, 4], {"k": 2, "filter": None})]
    assert sizes == [2]


@pytest.mark.parametrize(("n_requests", "n_expected"), [(1, 2), (2, 1)])
def test_requests_that_share_the_machine_do_not_wake_the_threads_of_blas(n_requests, n_expected):
    def n_threads(vectors, k, **options) -> Hits:
        inside.extend(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
        return Hits(np.zeros((len(vectors), 1), object), np.zeros((len(vectors), 1)), "overlap")

    async def main():
        with ThreadPoolExecutor(1) as executor:
            coalescer = Coalescer(n_threads, executor, Limits(), lambda size: None)
            await asyncio.gather(*(coalescer.search(rows(3), options(), alive) for _ in range(n_requests)))

    inside: list[int] = []
    with threadpool_limits(2, "blas"):  # also on a machine with one core
        asyncio.run(main())
    assert inside
    assert set(inside) == {n_expected}


def test_those_that_come_meanwhile_are_one_batch_by_options():
    async def scenario(coalescer, kernel):
        tasks = await begun(
            coalescer,
            kernel,
            coalescer.search(rows(1, 2), options(), alive),
            coalescer.search(rows(3), options(k=2), alive),
            coalescer.search(rows(4), options(), alive),
            coalescer.search(rows(5), options(filter_={"a": 1}), alive),
            coalescer.search(rows(6), options(scoring="asymmetric", oversample=3.0, n_probe=4), alive),
            coalescer.search(rows(7), options(filter_={"a": 1}), alive),
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
    assert kernel.calls[3][1]["filter"] == {"a": 1}
    params = {"k": 1, "scoring": "asymmetric", "oversample": 3.0, "n_probe": 4}
    assert kernel.calls[4][1] == {**params, "filter": None}
    assert sizes == [1, 7]


def test_a_failing_search_is_the_only_one_that_fails():
    async def scenario(coalescer, kernel):
        tasks = await begun(
            coalescer, kernel, *[coalescer.search(rows(i), options(), alive) for i in (12, 13, 14)]
        )
        kernel.open.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    (_, before, failed, after), _, _ = run(scenario)
    assert (before.ids.tolist(), after.ids.tolist()) == ([[12]], [[14]])
    assert str(failed) == "thirteen"


def test_a_batch_has_its_bound():
    async def scenario(coalescer, kernel):
        tasks = await begun(
            coalescer, kernel, *[coalescer.search(rows(i, i), options(), alive) for i in range(4)]
        )
        kernel.open.set()
        return await asyncio.gather(*tasks)

    _, _, sizes = run(scenario, Limits(batch=5))
    assert sizes == [1, 4, 4]


def test_who_has_hung_up_costs_nothing():
    async def scenario(coalescer, kernel):
        tasks = await begun(
            coalescer,
            kernel,
            coalescer.search(rows(1), options(), alive),
            coalescer.search(rows(2), options(), lambda: False),
            coalescer.search(rows(3), options(), alive),
        )
        tasks[3].cancel()
        await asyncio.sleep(0)
        kernel.open.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    (_, found, gone, cancelled), kernel, _ = run(scenario)
    assert found.ids.tolist() == [[1]]
    assert isinstance(gone, ProblemError)
    assert gone.kind == "gone"
    assert isinstance(cancelled, asyncio.CancelledError)
    assert [call[0] for call in kernel.calls] == [[0], [1]]


def test_the_queue_is_bounded_and_empties():
    async def scenario(coalescer, kernel):
        tasks = await begun(
            coalescer,
            kernel,
            coalescer.search(rows(1, 2), options(), alive),
            coalescer.search(rows(3, 4), options(), lambda: False),
        )
        with pytest.raises(ProblemError, match="expected at most 4 waiting queries, got more") as refused:
            await coalescer.search(rows(5), options(), alive)
        assert refused.value.status == 503
        assert refused.value.headers["retry-after"] == "1"
        kernel.open.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        return await coalescer.search(rows(6, 7, 8, 9), options(), alive)

    found, _, _ = run(scenario, Limits(waiting=4))
    assert found.ids.tolist() == [[6], [7], [8], [9]]
