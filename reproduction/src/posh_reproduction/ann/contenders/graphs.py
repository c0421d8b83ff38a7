"""Graphs: HNSW as faiss, hnswlib and usearch have it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from posh_reproduction.ann.contenders.base import LARGE, Floats, Params, Rival, Search
from posh_reproduction.ann.contenders.trees import faiss_metric

__all__ = ["FaissGraph", "Hnswlib", "Usearch"]

_LINKS = 16
_EXPANSION = 200  # candidates per vector while the graph is built
_VISITED = (12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


class _Graph(Rival):
    """The parameters that the three share."""

    def builds(self, n: int, d: int, metric: str) -> list[Params]:
        """Return one setting: graphs take by far the longest to build."""
        return [{"links": _LINKS, "expansion": _EXPANSION}]

    def searches(self, build: Params, k: int) -> list[list[Params]]:
        """Candidates that a search keeps, at least k."""
        return [[{"visited": visited} for visited in _VISITED if visited >= k]]


@dataclass
class _FaissGraphIndex:
    faiss: Any
    index: Any
    bytes_per_vector: float

    def searching(self, k: int, n_threads: int, **params: Any) -> Search:
        self.faiss.omp_set_num_threads(n_threads)
        self.index.hnsw.efSearch = params["visited"]
        return lambda Q: self.index.search(Q, k)[1]


class FaissGraph(_Graph):
    """HNSW of faiss over the vectors."""

    name, package, module = "faiss-hnsw", "faiss-cpu", "faiss"

    def build(self, X: Floats, metric: str, n_threads: int, **params: Any) -> _FaissGraphIndex:
        """Add all vectors."""
        faiss = self.imported()
        faiss.omp_set_num_threads(n_threads)
        index = faiss.IndexHNSWFlat(X.shape[1], params["links"], faiss_metric(faiss, metric))
        index.hnsw.efConstruction = params["expansion"]
        index.add(X)
        return _FaissGraphIndex(faiss, index, faiss.serialize_index(index).nbytes / len(X))


@dataclass
class _HnswlibIndex:
    index: Any
    bytes_per_vector: float

    def searching(self, k: int, n_threads: int, **params: Any) -> Search:
        self.index.set_ef(params["visited"])
        return lambda Q: self.index.knn_query(Q, k, num_threads=n_threads)[0]


class Hnswlib(_Graph):
    """hnswlib."""

    name, package, module = "hnswlib", "hnswlib", "hnswlib"

    def build(self, X: Floats, metric: str, n_threads: int, **params: Any) -> _HnswlibIndex:
        """Add all vectors."""
        index = self.imported().Index("l2" if metric == "euclidean" else "ip", X.shape[1])
        index.init_index(len(X), M=params["links"], ef_construction=params["expansion"])
        index.add_items(X, num_threads=n_threads)
        return _HnswlibIndex(index, index.index_file_size() / len(X))


@dataclass
class _UsearchIndex:
    index: Any
    bytes_per_vector: float

    def searching(self, k: int, n_threads: int, **params: Any) -> Search:
        self.index.expansion_search = params["visited"]
        return lambda Q: self.index.search(Q, k, threads=n_threads).keys.reshape(len(Q), -1)


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
        return _UsearchIndex(index, index.serialized_length / len(X))
