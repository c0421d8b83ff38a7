"""faiss: lists with product quantization, RaBitQ or Panorama, and HNSW."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posh_reproduction.ann.contenders.base import (
    EXPANSION,
    LINKS,
    Floats,
    Params,
    Rival,
    Search,
    list_counts,
    probes,
    reordered,
    visits,
)

__all__ = ["FaissGraph", "FaissLists", "FaissPanorama", "FaissRabitq", "FaissSmallGraph"]

_WIDE = 256  # with more features, product quantization is also tried after a reduction
_NAMES = {"probes": "nprobe", "reorder": "k_factor_rf", "visited": "efSearch"}
_FILE = "index.faiss"


@dataclass
class _FaissIndex:
    faiss: Any
    index: Any

    def searching(self, k: int, n_threads: int, **params: Any) -> Search:
        self.faiss.omp_set_num_threads(n_threads)
        for name, value in params.items():
            self.faiss.ParameterSpace().set_index_parameter(self.index, _NAMES[name], value)
        return lambda Q: self.index.search(Q, k)[1]

    def save(self, folder: Path) -> None:
        self.faiss.write_index(self.index, str(folder / _FILE))


class _Faiss(Rival):
    """Base class: builds have a ``recipe``, which describes the index in the words of faiss."""

    package, module = "faiss-cpu", "faiss"
    by_distance = False
    """Whether cosines are searched as distances of unit vectors, which have the same order."""

    def build(self, X: Floats, metric: str, n_threads: int, **params: Any) -> _FaissIndex:
        """Train and add."""
        faiss = self.imported()
        faiss.omp_set_num_threads(n_threads)
        by_distance = metric == "euclidean" or self.by_distance
        kind = faiss.METRIC_L2 if by_distance else faiss.METRIC_INNER_PRODUCT
        index = faiss.index_factory(X.shape[1], params["recipe"], kind)
        if "expansion" in params:
            faiss.ParameterSpace().set_index_parameter(index, "efConstruction", params["expansion"])
        index.train(X)
        index.add(X)
        return _FaissIndex(faiss, index)

    def load(self, folder: Path, d: int, metric: str, **params: Any) -> _FaissIndex:
        """Read a saved index."""
        faiss = self.imported()
        return _FaissIndex(faiss, faiss.read_index(str(folder / _FILE)))

    def limit(self, kernel: str) -> bool:
        """Set faiss's level of instructions."""
        faiss = self.imported()
        faiss.SIMDConfig.set_level(getattr(faiss, f"SIMDLevel_{kernel.upper()}"))
        return True


class FaissLists(_Faiss):
    """IVF, 4-bit product quantization with FastScan, reordered by the vectors."""

    name = "faiss-ivfpq"

    def builds(self, n: int, d: int, metric: str) -> list[Params]:
        """Two numbers of lists; for wide vectors also behind a PCA with a rotation."""
        reductions = [0] if d <= _WIDE else [0, 128, 256]
        return [
            {"n_lists": count, "recipe": _quantised(d, count, width)}
            for width in reductions
            for count in list_counts(n)
        ]

    def searches(self, build: Params, k: int) -> list[list[Params]]:
        """Lists to visit, and candidates per result that are reordered."""
        return [[{"probes": p, "reorder": r} for p in probes(build["n_lists"])] for r in reordered(k)]


def _quantised(d: int, n_lists: int, pca: int) -> str:
    """Describe lists with 4 bits for each pair of features.

    >>> _quantised(100, 1024, pca=0), _quantised(784, 256, pca=128)
    ('IVF1024,PQ50x4fs,RFlat', 'PCAR128,IVF256,PQ64x4fs,RFlat')
    """
    width = pca or d
    n_parts = width // 2 if width % 2 == 0 else width
    return f"{f'PCAR{pca},' if pca else ''}IVF{n_lists},PQ{n_parts}x4fs,RFlat"


class FaissRabitq(FaissLists):
    """IVF, RaBitQ with FastScan in 1 or 4 bits, reordered by the vectors.

    By distances: with inner products, 1-bit codes of GloVe find less.
    """

    name, by_distance = "faiss-ivfrabitq", True

    def builds(self, n: int, d: int, metric: str) -> list[Params]:
        """Two numbers of lists; with 4 bits, which are several times as slow, one."""
        counts = list_counts(n)
        pairs = [*((count, "") for count in counts), (counts[-1], "4")]
        return [{"n_lists": count, "recipe": f"IVF{count},RaBitQfs{bits},RFlat"} for count, bits in pairs]


class FaissPanorama(_Faiss):
    """IVF with float vectors in blocks of 64, whose distances are bounded by their first features.

    By distances, and behind a PCA, which puts most of a distance into these features.
    """

    name, by_distance = "faiss-panorama", True

    def builds(self, n: int, d: int, metric: str) -> list[Params]:
        """Two numbers of lists."""
        return [
            {"n_lists": count, "recipe": f"PCA{d},IVF{count},FlatPanorama8_64"} for count in list_counts(n)
        ]

    def searches(self, build: Params, k: int) -> list[list[Params]]:
        """Lists to visit."""
        return [[{"probes": p} for p in probes(build["n_lists"])]]


class FaissGraph(_Faiss):
    """HNSW over the vectors."""

    name = "faiss-hnsw"

    def builds(self, n: int, d: int, metric: str) -> list[Params]:
        """Return one setting."""
        return [{"recipe": f"HNSW{LINKS}", "expansion": EXPANSION}]

    def searches(self, build: Params, k: int) -> list[list[Params]]:
        """Candidates that a search keeps."""
        return [[{"visited": visited} for visited in visits(k)]]


class FaissSmallGraph(FaissGraph):
    """HNSW over 8-bit numbers, reordered by the vectors."""

    name = "faiss-hnsw-sq8"

    def builds(self, n: int, d: int, metric: str) -> list[Params]:
        """Return one setting."""
        return [{"recipe": "HNSW32,SQ8,RFlat", "expansion": EXPANSION}]

    def searches(self, build: Params, k: int) -> list[list[Params]]:
        """Candidates that a search keeps, and those per result that are reordered."""
        return [[{"visited": v, "reorder": r} for v in visits(r * k)] for r in (1, 2)]
