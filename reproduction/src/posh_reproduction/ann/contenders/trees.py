"""Lists and product quantization, reordered by the vectors: ScaNN and faiss."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posh_reproduction.ann.contenders.base import (
    Floats,
    Params,
    Rival,
    Search,
    list_counts,
    probes,
    reordered,
)

__all__ = ["FaissLists", "Scann"]

_TRAINING = 250_000  # vectors that ScaNN learns its tree from
_WIDE = 256  # with more features, faiss is also tried after a reduction


@dataclass
class _ScannIndex:
    searcher: Any
    bytes_per_vector: float

    def searching(self, k: int, n_threads: int, **params: Any) -> Search:
        leaves, reordered = params["leaves"], params["reorder"] * k
        searcher = self.searcher
        if n_threads == 1:
            return lambda Q: (
                searcher.search(Q[0], k, reordered, leaves)[0][None]
                if len(Q) == 1
                else searcher.search_batched(Q, k, reordered, leaves)[0]
            )
        searcher.set_num_threads(n_threads - 1)  # in addition to the calling thread, which works, too
        # Two pieces for each thread, so that none of them waits long for the other.
        return lambda Q: searcher.search_batched_parallel(
            Q, k, reordered, leaves, max(1, len(Q) // (2 * n_threads))
        )[0]


class Scann(Rival):
    """ScaNN: a tree, anisotropic hashing, exact reordering."""

    name, package, module = "scann", "scann", "scann"

    def builds(self, n: int, d: int, metric: str) -> list[Params]:
        """Two sizes of the tree."""
        return [{"n_leaves": count} for count in list_counts(n)]

    def searches(self, build: Params, k: int) -> list[list[Params]]:
        """Leaves to search, and candidates per result that are reordered."""
        return [[{"leaves": p, "reorder": r} for p in probes(build["n_leaves"])] for r in reordered(k)]

    def build(self, X: Floats, metric: str, n_threads: int, **params: Any) -> _ScannIndex:
        """Build the tree and the codes."""
        builder = self.imported().scann_ops_pybind.builder(X, 10, _scann_metric(metric))
        tree = builder.tree(
            num_leaves=params["n_leaves"],
            num_leaves_to_search=params["n_leaves"] // 16,
            training_sample_size=min(len(X), _TRAINING),
        )
        # The threshold is meant for inner products. For distances ScaNN's documentation leaves it out.
        hashing = {} if metric == "euclidean" else {"anisotropic_quantization_threshold": 0.2}
        # Each code stands for 2 features, as ScaNN's documentation recommends.
        searcher = tree.score_ah(2, **hashing).reorder(100).set_n_training_threads(n_threads).build()
        return _ScannIndex(searcher, _saved_size(searcher) / len(X))


def _scann_metric(metric: str) -> str:
    return "squared_l2" if metric == "euclidean" else "dot_product"


def _saved_size(searcher: Any) -> int:
    with tempfile.TemporaryDirectory() as folder:
        searcher.serialize(folder)
        return sum(path.stat().st_size for path in Path(folder).iterdir())


@dataclass
class _FaissListsIndex:
    faiss: Any
    index: Any
    bytes_per_vector: float

    def searching(self, k: int, n_threads: int, **params: Any) -> Search:
        self.faiss.omp_set_num_threads(n_threads)
        self.faiss.extract_index_ivf(self.index.base_index).nprobe = params["probes"]
        self.index.k_factor = params["reorder"]
        return lambda Q: self.index.search(Q, k)[1]


class FaissLists(Rival):
    """faiss: IVF, 4-bit product quantization with FastScan, reordered by the vectors."""

    name, package, module = "faiss-ivfpq", "faiss-cpu", "faiss"

    def builds(self, n: int, d: int, metric: str) -> list[Params]:
        """Two numbers of lists; for wide vectors also behind a PCA with a rotation."""
        reductions = [0] if d <= _WIDE else [0, 128, 256]
        return [{"n_lists": count, "pca": width} for width in reductions for count in list_counts(n)]

    def searches(self, build: Params, k: int) -> list[list[Params]]:
        """Lists to visit, and candidates per result that are reordered."""
        return [[{"probes": p, "reorder": r} for p in probes(build["n_lists"])] for r in reordered(k)]

    def build(self, X: Floats, metric: str, n_threads: int, **params: Any) -> _FaissListsIndex:
        """Train and add."""
        faiss = self.imported()
        faiss.omp_set_num_threads(n_threads)
        index = faiss.index_factory(
            X.shape[1], _recipe(X.shape[1], params["n_lists"], params["pca"]), faiss_metric(faiss, metric)
        )
        index.train(X)
        index.add(X)
        return _FaissListsIndex(faiss, index, faiss.serialize_index(index).nbytes / len(X))


def _recipe(d: int, n_lists: int, pca: int) -> str:
    """Describe the index in the words of faiss: 4 bits for each pair of features.

    >>> _recipe(100, 1024, pca=0), _recipe(784, 256, pca=128)
    ('IVF1024,PQ50x4fs,RFlat', 'PCAR128,IVF256,PQ64x4fs,RFlat')
    """
    width = pca or d
    n_parts = width // 2 if width % 2 == 0 else width
    return f"{f'PCAR{pca},' if pca else ''}IVF{n_lists},PQ{n_parts}x4fs,RFlat"


def faiss_metric(faiss: Any, metric: str) -> int:
    """Return the faiss constant of a metric; cosines are inner products of unit vectors."""
    return int(faiss.METRIC_L2 if metric == "euclidean" else faiss.METRIC_INNER_PRODUCT)
