"""Ours. What the library offers is called here and nowhere else in the comparison."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import posh
from posh_reproduction.ann.contenders.base import Floats, Params, Search, list_counts, probes, reordered
from posh_reproduction.experiments.environment import commit

__all__ = ["PoshExact", "PoshLists"]

_N_BITS, _ACTIVE = 1024, 128
_TRAINING = 5000


@dataclass
class _PoshIndex:
    index: posh.Index

    @property
    def bytes_per_vector(self) -> float:
        return self.index.memory_usage()["total"] / len(self.index)

    def searching(self, k: int, n_threads: int, **params: Any) -> Search:
        return lambda Q: self.index.search(Q, k, n_threads=n_threads, **params).ids


class _Posh:
    """What both structures share."""

    package = "posh-ann"
    structure: str

    def build(self, X: Floats, metric: str, n_threads: int, **params: Any) -> _PoshIndex:
        """Learn and add."""
        hasher = posh.FruitFly(_N_BITS, _ACTIVE, weights="orthogonal", random_state=0).fit(X[:_TRAINING])
        refine = "vectors" if metric == "euclidean" else metric
        return _PoshIndex(posh.Index(hasher, structure=self.structure, refine=refine, **params).add(X))

    def version(self) -> str:
        """The version and the commit: records of other code are not taken for those of this one."""
        return f"{version(self.package)} {commit() or ''}".strip()


class PoshLists(_Posh):
    """Lists of codes."""

    name, structure = "posh-ivf", "ivf"

    def builds(self, n: int, d: int, metric: str) -> list[Params]:
        """Two numbers of lists."""
        return [{"n_lists": count} for count in list_counts(n)]

    def searches(self, build: Params, k: int) -> list[list[Params]]:
        """Lists to visit, and candidates per result."""
        return [[{"n_probe": p, "oversample": r} for p in probes(build["n_lists"])] for r in reordered(k)]


class PoshExact(_Posh):
    """A scan of all codes."""

    name, structure = "posh-exact", "exact"

    def builds(self, n: int, d: int, metric: str) -> list[Params]:
        """There is nothing to choose."""
        return [{}]

    def searches(self, build: Params, k: int) -> list[list[Params]]:
        """Candidates per result."""
        return [[{"oversample": r} for r in (2, 3, 5, 10, 20, 30, 50, 100)]]
