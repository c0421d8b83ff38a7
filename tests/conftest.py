"""Data that many tests share, small enough to fit in seconds."""

from __future__ import annotations

import _thread
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import numpy as np
import pytest
from hypothesis import settings

from posh import kernels

CASES = int(os.environ.get("POSH_CASES", "50"))
"""Random cases of each property of the kernels and the index; more for a thorough run."""

settings.register_profile("posh", deadline=None, derandomize=True)  # the same cases on every machine
settings.load_profile("posh")

for _step in ("connect", "read", "write", "pool"):  # each may take more than 5 seconds on a busy machine
    setattr(httpx._config.DEFAULT_TIMEOUT_CONFIG, _step, 60)


def clusters(n: int, d: int, n_clusters: int = 10, seed: int = 0) -> np.ndarray:
    """Vectors (n, d) around a few centres, off the origin: what a hasher should cope with."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n_clusters, d))
    return 3.0 + centres[rng.integers(n_clusters, size=n)] + 0.5 * rng.normal(size=(n, d))


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Ctrl-C comes inside, after so many seconds: outside of ``pytest.raises`` it would end all tests."""
    timer = threading.Timer(seconds, _thread.interrupt_main)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@pytest.fixture(scope="session")
def X() -> np.ndarray:
    return clusters(400, 24)


@pytest.fixture
def listening():
    """Ctrl-C is heard: processes in the background are started deaf to it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def fastest_again():
    """The fastest kernel is in use again after a test that chose another one."""
    yield
    kernels.use(None)
