"""The contenders of this library; no other module of the comparison calls it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import posh
from posh import _native, kernels
from posh_reproduction.ann.contenders.base import Floats, Params, Search, list_counts, probes
from posh_reproduction.experiments.environment import commit

__all__ = ["PoshDefault", "PoshExact", "PoshGraph", "PoshLists"]

_SLACKS = (0.75, 1.0, 1.5, 2.0)
_RECALLS = (0.8, 0.85, 0.9, 0.93, 0.95, 0.96, 0.97, 0.98, 0.99)
_BEYOND = (0.993, 0.995, 0.997, 0.998, 0.999)  # queries unlike the documents find less than is asked for
_FOLDER = "index"


@dataclass
class _PoshIndex:
    index: posh.Index

    @property
    def bytes_per_vector(self) -> float:
        return self.index.memory_usage()["total"] / len(self.index)

    def searching(self, k: int, n_threads: int, **params: Any) -> Search:
        return lambda Q: self.index.search(Q, k, n_threads=n_threads, **params).ids

    def save(self, folder: Path) -> None:
        self.index.save(folder / _FOLDER)


class _Posh:
    """Base class: builds are parameters of :meth:`posh.Index.build`."""

    package = "posh-ann"

    def builds(self, n: int, d: int, metric: str) -> list[Params]:
        """There is nothing to choose."""
        return [{}]

    def build(self, X: Floats, metric: str, n_threads: int, **params: Any) -> _PoshIndex:
        """Learn and add."""
        return _PoshIndex(posh.Index.build(X, metric=metric, **params))

    def load(self, folder: Path, d: int, metric: str, **params: Any) -> _PoshIndex:
        """Read a saved index."""
        return _PoshIndex(posh.Index.load(folder / _FOLDER))

    def version(self) -> str:
        """The version and the last commit of the search: records of other code are not taken for its own."""
        state = commit("native", "src/posh/index") or ""
        if state.endswith("-dirty"):
            state = f"{state}-{_hash_code()}"
        return f"{version(self.package)} {state}".strip()

    def limit(self, kernel: str) -> bool:
        """Use this kernel."""
        kernels.use(kernel)
        return True


class PoshDefault(_Posh):
    """The index that :meth:`posh.Index.build` chooses, asked for several recalls and never tuned by hand."""

    name = "posh-default"

    def searches(self, build: Params, k: int) -> list[list[Params]]:
        """Return recalls to ask for, each in a line of its own: several may need the same effort."""
        return [[{"recall": recall}] for recall in _RECALLS + _BEYOND]


class PoshGraph(PoshDefault):
    """A graph with codes on its edges."""

    name = "posh-graph"

    def builds(self, n: int, d: int, metric: str) -> list[Params]:
        """Return one setting."""
        return [{"optimize": "latency"}]


class PoshLists(_Posh):
    """Lists of codes."""

    name = "posh-ivf"

    def builds(self, n: int, d: int, metric: str) -> list[Params]:
        """Two numbers of lists."""
        return [{"n_lists": count, "optimize": "build"} for count in list_counts(n)]

    def searches(self, build: Params, k: int) -> list[list[Params]]:
        """Lists to visit, and how carefully codes skip documents."""
        return [[{"n_probe": p, "slack": s} for p in probes(build["n_lists"])] for s in _SLACKS]


class PoshExact(_Posh):
    """A scan of all codes: one list."""

    name = "posh-exact"

    def builds(self, n: int, d: int, metric: str) -> list[Params]:
        """There is nothing to choose."""
        return [{"n_lists": 1, "optimize": "build"}]

    def searches(self, build: Params, k: int) -> list[list[Params]]:
        """Return settings of the care with which codes skip documents."""
        return [[{"slack": s} for s in (0.0, *_SLACKS, 2.5, 3.0)]]


def _hash_code() -> str:
    """Return a short hash of the code of the search, which differs after each change."""
    python = sorted((Path(posh.__file__).parent / "index").rglob("*.py"))
    paths = [Path(_native.__file__), *python]
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:6]
