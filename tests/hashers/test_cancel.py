"""Every fit notices soon that it is cancelled, and leaves what was learned before as it was."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import posh
from posh._runtime import cancel_on
from posh.errors import CancelledError
from tests.conftest import clusters

LONG = [
    posh.POSH(512, 8, n_epochs=10**12),
    posh.SphericalHash(512, 8, n_epochs=10**12),
    posh.PowerHash(512, 8, n_epochs=10**12),
    posh.BioHash(512, 8, n_epochs=10**12, stop_norm=0.0),
    posh.BOSL(256, 8, n_epochs=10**12),
    posh.OSL(256, 8, n_epochs=10**12, gamma=0.1),
    posh.ITQ(64, n_epochs=10**12),
    posh.KNNH(64, n_epochs=10**12),
]


@pytest.mark.parametrize("hasher", LONG, ids=lambda hasher: type(hasher).__name__)
def test_a_fit_without_end_is_cancelled(hasher):
    """These would run for years; a minute is for a machine that is busy with other things."""
    X, stop, begun = clusters(2000, 64), threading.Event(), time.perf_counter()
    threading.Timer(0.3, stop.set).start()
    with cancel_on(stop), pytest.raises(CancelledError, match="the work was cancelled"):
        hasher.fit(X)
    assert time.perf_counter() - begun < 60.0
    assert not hasattr(hasher, "weights_")


class Countdown:
    """Is set after it was looked at so many times."""

    def __init__(self, n: int) -> None:
        self.n = n

    def is_set(self) -> bool:
        self.n -= 1
        return self.n < 0


@pytest.mark.parametrize(
    ("work", "looks"),
    [
        (lambda X: posh.POSH(64, 4, n_epochs=1, random_state=0).fit(X), 20),
        (lambda X: posh.BioHash(64, 4, n_epochs=1, random_state=0).fit(X), 20),
        (lambda X: posh.SphericalHash(64, 4, n_epochs=1, random_state=0).fit(X), 2),
        (lambda X: posh.PowerHash(64, 4, n_epochs=1, random_state=0).fit(X), 40),
        (lambda X: posh.BOSL(64, 4, n_steps=2, random_state=0).fit(X), 6),
        (lambda X: posh.KNNH(16, n_epochs=1, random_state=0).fit(X), 3),
        (lambda X: posh.LinearDecoder().fit(posh.FruitFly(64, 4, random_state=0).fit(X).encode(X), X), 2),
        (lambda X: posh.CodeIndex(posh.FruitFly(64, 4).fit(X), structure="ivf", n_lists=4).add(X), 20),
    ],
    ids=["POSH", "BioHash", "SphericalHash", "PowerHash", "BOSL", "KNNH", "decoder", "lists"],
)
def test_work_looks_often_whether_it_is_cancelled(work, looks):
    """Within an epoch, too: those of many vectors take minutes."""
    X, event = clusters(2000, 24), Countdown(10**9)
    with cancel_on(event):
        work(X)
    assert 10**9 - event.n >= looks
    with cancel_on(Countdown(looks - 1)), pytest.raises(CancelledError):
        work(X)


def test_a_second_fit_that_is_cancelled_keeps_the_first(X):
    hasher = posh.POSH(64, 4, n_epochs=2, random_state=0).fit(X)
    before = hasher.encode(X)
    with cancel_on(Countdown(5)), pytest.raises(CancelledError):
        hasher.set_params(n_epochs=100).fit(X + np.arange(24))
    assert hasher.encode(X) == before
