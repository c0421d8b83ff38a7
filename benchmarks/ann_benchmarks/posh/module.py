"""POSH for ann-benchmarks (https://github.com/erikbern/ann-benchmarks).

Copy this folder to ``ann_benchmarks/algorithms/posh`` of a clone, then ``python install.py --algorithm posh``
and ``python run.py --algorithm posh --dataset glove-100-angular``. The index is built and asked by the same
code as in ``posh bench ann``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from posh._runtime import resolve_threads
from posh_reproduction.ann.contenders import CONTENDERS, Search

from ..base.module import BaseANN  # the place of this file is given by ann-benchmarks

METRICS = {"angular": "cosine", "euclidean": "euclidean"}


class Posh(BaseANN):
    """An index of ``posh bench ann`` by its name there, with parameters of its build."""

    def __init__(self, metric: str, contender: str, build: dict[str, Any]) -> None:
        if metric not in METRICS:
            raise ValueError(f"expected a metric of {', '.join(METRICS)}, got {metric!r}")
        self._metric, self._contender, self._build = METRICS[metric], contender, build
        self._params: dict[str, Any] = {}
        self._prepared: dict[tuple[int, int], Search] = {}
        self._name_again()

    def fit(self, X: np.ndarray) -> None:
        """Index vectors (n, d)."""
        X = np.ascontiguousarray(X, np.float32)
        self._index = CONTENDERS[self._contender].build(X, self._metric, resolve_threads(), **self._build)

    def set_query_arguments(self, params: dict[str, Any]) -> None:
        """Parameters of the searches that follow."""
        self._params, self._prepared = params, {}
        self._name_again()

    def query(self, q: np.ndarray, n: int) -> np.ndarray:
        """Ids (n,) of the nearest of one vector (d,), on one thread."""
        return _found(self._search(n, 1)(np.asarray(q, np.float32)[None])[0])

    def batch_query(self, X: np.ndarray, n: int) -> None:
        """Search for many vectors (m, d) in one call, on all cores."""
        self.res = self._search(n, resolve_threads())(np.ascontiguousarray(X, np.float32))

    def get_batch_results(self) -> list[np.ndarray]:
        """Ids of the nearest of each vector of the last batch."""
        return [_found(row) for row in self.res]

    def get_additional(self) -> dict[str, Any]:
        """Return the values that are stored with the result."""
        return {"bytes_per_vector": self._index.bytes_per_vector}

    def __str__(self) -> str:
        return self.name

    def _search(self, n: int, n_threads: int) -> Search:
        if (n, n_threads) not in self._prepared:
            self._prepared = {(n, n_threads): self._index.searching(n, n_threads, **self._params)}
        return self._prepared[n, n_threads]

    def _name_again(self) -> None:
        shown = ", ".join(f"{name}={value}" for name, value in {**self._build, **self._params}.items())
        self.name = f"{self._contender}({shown})"


def _found(ids: np.ndarray) -> np.ndarray:
    """Ids without those that stand for nothing found: ann-benchmarks expects distinct ones."""
    return ids[ids >= 0]
