"""A contender whose recall, builds and searches the tests control."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from posh_reproduction.ann.contenders.brute import BruteForce


class Stub:
    """Exact search that spoils the results which ``spoils(search, query)`` names."""

    package = "none"

    def __init__(self, name: str, searches: list[dict], spoils: Callable[[dict, np.ndarray], bool]) -> None:
        self.name, self._searches, self._spoils = name, searches, spoils
        self.n_built = self.n_asked = 0
        self.on_search: Callable[[], None] = lambda: None
        self.number = "1"

    def version(self) -> str:
        return self.number

    def builds(self, n, d, metric):
        return [{"size": 1}]

    def searches(self, build, k):
        return [self._searches]

    def build(self, X, metric, n_threads, **params):
        self.n_built += 1
        return _StubIndex(self, BruteForce().build(X, metric, n_threads))

    def load(self, folder, d, metric, **params):
        return _StubIndex(self, BruteForce().load(folder, d, metric))


class _StubIndex:
    def __init__(self, stub: Stub, exact) -> None:
        self._stub, self._exact = stub, exact

    def searching(self, k, n_threads, **params):
        stub, exact = self._stub, self._exact.searching(k, n_threads)

        def search(Q):
            stub.n_asked += 1
            stub.on_search()
            ids = exact(Q)
            spoiled = np.array([stub._spoils(params, query) for query in Q])
            return np.where(spoiled[:, None], -1, ids)

        return search

    def save(self, folder):
        self._exact.save(folder)


def never(search: dict, query: np.ndarray) -> bool:
    return False
