"""Memory for the requests in work."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from posh.serve.budget import Budget, Share
from posh.serve.problems import ProblemError

MB = 1 << 20


def test_who_exceeds_it_waits_until_others_give_back():
    budget, order = Budget(100 * MB, 30.0), []
    first = Share(budget)
    first.add(80 * MB)

    def wait() -> None:
        share = Share(budget)
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
    budget = Budget(100 * MB, 30.0)

    async def scenario() -> bool:
        first, second = Share(budget), Share(budget)
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
    budget = Budget(100 * MB, 0.05)
    first = Share(budget)
    first.add(80 * MB)
    with pytest.raises(ProblemError, match=r"expected room for this request in 104,857,600 bytes") as caught:
        Share(budget).add(50 * MB)
    assert (caught.value.status, caught.value.headers["retry-after"]) == (503, "1")
    Share(budget).add(20 * MB)
    assert budget.taken == 100 * MB


def test_small_requests_do_not_wait_behind_large_ones():
    budget = Budget(100 * MB, 0.05)
    Share(budget).add(98 * MB)
    for _ in range(6):
        Share(budget).add(4 * MB)
    with pytest.raises(ProblemError):  # but they are bounded, too
        Share(budget).add(4 * MB)


def test_a_request_that_alone_exceeds_it_gets_all_of_it():
    budget = Budget(100 * MB, 0.05)
    share = Share(budget)
    share.add(500 * MB)
    assert budget.taken == 100 * MB
    share.close()
    assert budget.taken == 0


def test_what_comes_after_the_answer_is_given_back():
    """A thread may go on after its request was answered with 504."""
    budget = Budget(100 * MB, 0.05)
    share = Share(budget)
    share.close()
    with pytest.raises(ProblemError):
        share.add(50 * MB)
    assert budget.taken == 0
