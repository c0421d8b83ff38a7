"""Somebody who asks little of a service, in a process of its own: those who ask much run elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection

import httpx
import numpy as np

COLD = "/v1/collections/cold"


class Prober:
    """Asks between :meth:`begin` and :meth:`end`, which tells the seconds of each answer."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def begin(self) -> None:
        self._pipe.send("begin")

    def end(self) -> list[float]:
        self._pipe.send("end")
        times = self._pipe.recv()
        assert isinstance(times, list), times
        return times


@contextmanager
def probing(address: str, n_features: int) -> Iterator[Prober]:
    """A prober of a service with a collection ``cold``, whose vectors have so many columns."""
    here, there = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=_work, args=(there, address, n_features), daemon=True)
    process.start()
    try:
        yield Prober(here)
    finally:
        here.send("stop")
        process.join()


def _work(pipe: Connection, address: str, n_features: int) -> None:
    rng = np.random.default_rng(0)
    with httpx.Client(base_url=address, timeout=300) as http:
        while pipe.recv() == "begin":
            times: list[float] = []
            try:
                while not times or not pipe.poll():
                    times += _probe(http, rng.normal(size=(1, n_features)).round(3).tolist())
            except Exception as error:
                pipe.recv()
                pipe.send(repr(error))
                continue
            pipe.recv()
            pipe.send(times)


def _probe(http: httpx.Client, vector: list[list[float]]) -> list[float]:
    """Seconds of a small search and a small read, and of the service's health."""
    times = [time.perf_counter()]
    assert http.post(f"{COLD}/search", json={"vectors": vector, "k": 5}).status_code == 200
    times.append(time.perf_counter())
    assert http.post(f"{COLD}/get", json={"ids": [1, 2]}).status_code == 200
    times.append(time.perf_counter())
    assert http.get("/health").status_code == 200
    times.append(time.perf_counter())
    return np.diff(times).tolist()
