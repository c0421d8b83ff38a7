"""Graphs without codes or with 8-bit numbers: hnswlib, usearch, VSAG and PyNNDescent."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from posh_reproduction.ann.contenders.base import (
    EXPANSION,
    LARGE,
    LINKS,
    Floats,
    Params,
    Rival,
    Search,
    visits,
)

__all__ = ["Hnswlib", "PyNNDescent", "Usearch", "Vsag"]

_FILE, _SCALE = "graph", "scale.txt"
_EPSILONS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5)


class _Graph(Rival):
    """The parameters that they share."""

    def builds(self, n: int, d: int, metric: str) -> list[Params]:
        """Return one setting: graphs take by far the longest to build."""
        return [{"links": LINKS, "expansion": EXPANSION}]

    def searches(self, build: Params, k: int) -> list[list[Params]]:
        """Candidates that a search keeps."""
        return [[{"visited": visited} for visited in visits(k)]]


@dataclass
class _HnswlibIndex:
    index: Any

    def searching(self, k: int, n_threads: int, **params: Any) -> Search:
        self.index.set_ef(params["visited"])
        return lambda Q: self.index.knn_query(Q, k, num_threads=n_threads)[0]

    def save(self, folder: Path) -> None:
        self.index.save_index(str(folder / _FILE))


class Hnswlib(_Graph):
    """hnswlib."""

    name, package, module = "hnswlib", "hnswlib", "hnswlib"

    def build(self, X: Floats, metric: str, n_threads: int, **params: Any) -> _HnswlibIndex:
        """Add all vectors."""
        index = self._new(X.shape[1], metric)
        index.init_index(len(X), M=params["links"], ef_construction=params["expansion"])
        index.add_items(X, num_threads=n_threads)
        return _HnswlibIndex(index)

    def load(self, folder: Path, d: int, metric: str, **params: Any) -> _HnswlibIndex:
        """Read a saved index."""
        index = self._new(d, metric)
        index.load_index(str(folder / _FILE))
        return _HnswlibIndex(index)

    def _new(self, d: int, metric: str) -> Any:
        return self.imported().Index("l2" if metric == "euclidean" else "ip", d)


@dataclass
class _UsearchIndex:
    index: Any

    def searching(self, k: int, n_threads: int, **params: Any) -> Search:
        self.index.expansion_search = params["visited"]
        return lambda Q: self.index.search(Q, k, threads=n_threads).keys.reshape(len(Q), -1)

    def save(self, folder: Path) -> None:
        self.index.save(str(folder / _FILE))


class Usearch(_Graph):
    """usearch, with float32 vectors, and for cosines also with int8, which are smaller and faster."""

    name, package, module = "usearch", "usearch", "usearch.index"

    def builds(self, n: int, d: int, metric: str) -> list[Params]:
        """The same graph over one or two types of numbers: the norms of vectors are lost in int8."""
        dtypes = ("f32", "i8") if metric == "cosine" and n <= LARGE else ("f32",)
        return [{**build, "dtype": dtype} for build in super().builds(n, d, metric) for dtype in dtypes]

    def build(self, X: Floats, metric: str, n_threads: int, **params: Any) -> _UsearchIndex:
        """Add all vectors."""
        index = self.imported().Index(
            ndim=X.shape[1],
            metric="l2sq" if metric == "euclidean" else "ip",
            dtype=params["dtype"],
            connectivity=params["links"],
            expansion_add=params["expansion"],
        )
        index.add(np.arange(len(X)), X, threads=n_threads)
        return _UsearchIndex(index)

    def load(self, folder: Path, d: int, metric: str, **params: Any) -> _UsearchIndex:
        """Read a saved index."""
        return _UsearchIndex(self.imported().Index.restore(str(folder / _FILE)))


@dataclass
class _VsagIndex:
    index: Any
    scale: float

    def searching(self, k: int, n_threads: int, **params: Any) -> Search:
        """Search one by one: the bindings have no batches."""
        parameters = json.dumps({"hgraph": {"ef_search": params["visited"]}})

        def search(Q: Floats) -> Any:
            scaled = Q * np.float32(self.scale)
            return np.stack([self.index.knn_search(vector=q, k=k, parameters=parameters)[0] for q in scaled])

        return search

    def save(self, folder: Path) -> None:
        self.index.save(str(folder / _FILE))
        (folder / _SCALE).write_text(str(self.scale))


class Vsag(_Graph):
    """VSAG's HGraph over 8-bit numbers, reordered by the vectors.

    It aborts while building from pixels of 0 to 255: vectors are scaled to numbers of at most 1.
    """

    name, package, module = "vsag", "pyvsag", "pyvsag"

    def builds(self, n: int, d: int, metric: str) -> list[Params]:
        """Return one setting: on GloVe, 4-bit numbers find much less."""
        return [{"links": 2 * LINKS, "expansion": 300, "numbers": "sq8_uniform"}]

    def searches(self, build: Params, k: int) -> list[list[Params]]:
        """Candidates that a search keeps: with more than 1,000, VSAG returns arbitrary ids."""
        return [[{"visited": visited} for visited in visits(k) if visited <= 1000]]

    def build(self, X: Floats, metric: str, n_threads: int, **params: Any) -> _VsagIndex:
        """Build the graph."""
        n, d = X.shape
        scale = 1 / float(max(X.max(), -X.min()))
        index = self._new(d, metric, n_threads, **params)
        index.build(vectors=X * np.float32(scale), ids=np.arange(n), num_elements=n, dim=d)
        return _VsagIndex(index, scale)

    def load(self, folder: Path, d: int, metric: str, **params: Any) -> _VsagIndex:
        """Read a saved index."""
        index = self._new(d, metric, 1, **params)
        index.load(str(folder / _FILE))
        return _VsagIndex(index, float((folder / _SCALE).read_text()))

    def _new(self, d: int, metric: str, n_threads: int, **params: Any) -> Any:
        pyvsag = self.imported()
        pyvsag.set_logger_off()
        graph = {
            "base_quantization_type": params["numbers"],
            "use_reorder": True,
            "precise_quantization_type": "fp32",
            "max_degree": params["links"],
            "ef_construction": params["expansion"],
            "build_thread_count": n_threads,
        }
        kind = "l2" if metric == "euclidean" else "ip"
        whole = {"dtype": "float32", "metric_type": kind, "dim": d, "index_param": graph}
        return pyvsag.Index("hgraph", json.dumps(whole))


@dataclass
class _PyNNDescentIndex:
    index: Any

    def searching(self, k: int, n_threads: int, **params: Any) -> Search:
        return lambda Q: self.index.query(Q, k, **params)[0]

    def save(self, folder: Path) -> None:
        (folder / _FILE).write_bytes(pickle.dumps(self.index))


class PyNNDescent(Rival):
    """PyNNDescent, which the first build in a process compiles: with numba 0.68, some runs crash then."""

    name, package, module = "pynndescent", "pynndescent", "pynndescent"

    def builds(self, n: int, d: int, metric: str) -> list[Params]:
        """Return one setting: the default."""
        return [{}]

    def searches(self, build: Params, k: int) -> list[list[Params]]:
        """Return shares by which a candidate may be farther than the k-th result."""
        return [[{"epsilon": epsilon} for epsilon in _EPSILONS]]

    def build(self, X: Floats, metric: str, n_threads: int, **params: Any) -> _PyNNDescentIndex:
        """Build the graph, and prepare it for searches."""
        kind = "euclidean" if metric == "euclidean" else "dot"
        index = self.imported().NNDescent(X, metric=kind, n_jobs=n_threads, random_state=0)
        index.prepare()
        return _PyNNDescentIndex(index)

    def load(self, folder: Path, d: int, metric: str, **params: Any) -> _PyNNDescentIndex:
        """Read a saved index."""
        self.imported()
        return _PyNNDescentIndex(pickle.loads((folder / _FILE).read_bytes()))
