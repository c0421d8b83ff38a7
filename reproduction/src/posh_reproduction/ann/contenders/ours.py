"""The contenders of this library; no other module of the comparison calls it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import posh
from posh_reproduction.ann.contenders.base import Floats, Params, Search, list_counts, probes
from posh_reproduction.experiments.environment import commit

__all__ = ["PoshExact", "PoshLists"]

_SLACKS = (0.75, 1.0, 1.5, 2.0)


@dataclass
class _PoshIndex:
    index: posh.Index

    @property
    def bytes_per_vector(self) -> float:
        return self.index.memory_usage()["total"] / len(self.index)

    def searching(self, k: int, n_threads: int, **params: Any) -> Search:
        return lambda Q: self.index.search(Q, k, n_threads=n_threads, **params).ids


class _Posh:
    """Base class of both structures."""

    package = "posh-ann"

    def build(self, X: Floats, metric: str, n_threads: int, **params: Any) -> _PoshIndex:
        """Learn and add."""
        return _PoshIndex(posh.Index(metric, **params).add(X))

    def version(self) -> str:
        """The version and the last commit of the search: records of other code are not taken for its own."""
        return f"{version(self.package)} {commit('native', 'src/posh/index') or ''}".strip()


class PoshLists(_Posh):
    """Lists of codes."""

    name = "posh-ivf"

    def builds(self, n: int, d: int, metric: str) -> list[Params]:
        """Two numbers of lists."""
        return [{"n_lists": count} for count in list_counts(n)]

    def searches(self, build: Params, k: int) -> list[list[Params]]:
        """Lists to visit, and how carefully codes skip documents."""
        return [[{"n_probe": p, "slack": s} for p in probes(build["n_lists"])] for s in _SLACKS]


class PoshExact(_Posh):
    """A scan of all codes: one list."""

    name = "posh-exact"

    def builds(self, n: int, d: int, metric: str) -> list[Params]:
        """There is nothing to choose."""
        return [{"n_lists": 1}]

    def searches(self, build: Params, k: int) -> list[list[Params]]:
        """Return settings of the care with which codes skip documents."""
        return [[{"slack": s} for s in (0.0, *_SLACKS, 2.5, 3.0)]]
