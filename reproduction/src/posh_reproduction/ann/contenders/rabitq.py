"""RaBitQLib: SymphonyQG, a graph with codes on its edges, and lists of RaBitQ codes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from posh_reproduction.ann.contenders.base import Floats, Params, Rival, Search, list_counts, probes

__all__ = ["RabitqLists", "SymphonyQG"]

_FILE = "index.rabitq"
_DEGREES = (32, 64, 96)
_LARGEST = 12e9  # bytes: a build needs more than the index
_MOST_EDGES = 40e6  # with more of them, a build on one thread takes longer than all other contenders together
_EXPANSION = 400
_VISITED = (10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 200, 256, 320, 400, 512, 640, 800)
_FEW = 32  # lists, for which the graph-based k-means, which finds better ones, has too few nodes
_BITS = (7, 32)  # 32: one bit, then the vectors


@dataclass
class _SymphonyQGIndex:
    index: Any

    def searching(self, k: int, n_threads: int, **params: Any) -> Search:
        visited = params["visited"]
        return lambda Q: (
            self.index.search(Q, k, visited)[0]
            if len(Q) == 1
            else self.index.search_batch(Q, k, visited, num_threads=n_threads)[0]
        )

    def save(self, folder: Path) -> None:
        self.index.save(str(folder / _FILE))


class SymphonyQG(Rival):
    """SymphonyQG."""

    name, package, module = "symphonyqg", "rabitqlib", "rabitqlib"

    def builds(self, n: int, d: int, metric: str) -> list[Params]:
        """Return degrees of the graph: those with which it fits into memory and the time of a run, or 32."""
        sizes = {degree: n * (4 * d + degree * (d / 8 + 12)) for degree in _DEGREES}
        return [
            {"degree": degree}
            for degree, size in sizes.items()
            if size < _LARGEST and n * degree < _MOST_EDGES
        ]

    def searches(self, build: Params, k: int) -> list[list[Params]]:
        """Candidates that a search keeps."""
        return [[{"visited": visited} for visited in sorted({max(k, v) for v in _VISITED})]]

    def build(self, X: Floats, metric: str, n_threads: int, **params: Any) -> _SymphonyQGIndex:
        """Build the graph."""
        index = self.imported().SymqgIndex(X.shape[1], params["degree"], _short(metric))
        index.build(X, _EXPANSION, num_threads=n_threads)
        return _SymphonyQGIndex(index)

    def load(self, folder: Path, d: int, metric: str, **params: Any) -> _SymphonyQGIndex:
        """Read a saved index."""
        return _SymphonyQGIndex(self.imported().SymqgIndex.load(str(folder / _FILE)))


@dataclass
class _RabitqListsIndex:
    index: Any

    def searching(self, k: int, n_threads: int, **params: Any) -> Search:
        n_probes, is_careful = params["probes"], params["careful"]

        def search(Q: Floats) -> Any:
            ids = self.index.search(Q, k, n_probes, is_careful, num_threads=n_threads)[0]
            return ids.view(np.int32)  # the largest uint32 stands for nothing found

        return search

    def save(self, folder: Path) -> None:
        self.index.save(str(folder / _FILE))


class RabitqLists(Rival):
    """Lists of RaBitQ codes."""

    name, package, module = "rabitq-ivf", "rabitqlib", "rabitqlib"

    def builds(self, n: int, d: int, metric: str) -> list[Params]:
        """Two numbers of lists, and of bits."""
        return [{"n_lists": count, "bits": bits} for bits in _BITS for count in list_counts(n)]

    def searches(self, build: Params, k: int) -> list[list[Params]]:
        """Lists to visit, and more or less careful estimates."""
        counts = probes(build["n_lists"])
        return [[{"probes": p, "careful": careful} for p in counts] for careful in (False, True)]

    def build(self, X: Floats, metric: str, n_threads: int, **params: Any) -> _RabitqListsIndex:
        """Find the centroids by RaBitQLib's k-means, and add all vectors."""
        rabitqlib, n_lists = self.imported(), params["n_lists"]
        kind = rabitqlib.QGKMeans if n_lists > _FEW else rabitqlib.RaBitQKMeans
        means = kind(X.shape[1], n_lists, num_threads=n_threads, spherical=metric == "cosine", seed=0)
        means.train(X)
        index = rabitqlib.IvfIndex(X.shape[1], len(X), n_lists, params["bits"], _short(metric))
        index.build(X, means.centroids, np.asarray(means.assignments, np.uint32), num_threads=n_threads)
        return _RabitqListsIndex(index)

    def load(self, folder: Path, d: int, metric: str, **params: Any) -> _RabitqListsIndex:
        """Read a saved index."""
        return _RabitqListsIndex(self.imported().IvfIndex.load(str(folder / _FILE)))


def _short(metric: str) -> str:
    return "l2" if metric == "euclidean" else "ip"
