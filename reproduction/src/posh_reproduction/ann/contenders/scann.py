"""ScaNN: a tree of lists, anisotropic hashing, reordered by the vectors."""

from __future__ import annotations

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

__all__ = ["Scann"]

_TRAINING = 250_000  # vectors that ScaNN learns its tree from
_SOAR, _OVERRETRIEVED = 1.5, 2.0  # as published
_BY_ANGLE = [(0.0, 0.2), *((_SOAR, threshold) for threshold in (0.1, 0.2, 0.3))]
_BY_DISTANCE = [(0.0, threshold) for threshold in (0.0, 0.2)]


@dataclass
class _ScannIndex:
    searcher: Any

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

    def save(self, folder: Path) -> None:
        self.searcher.serialize(str(folder), relative_path=True)  # the folder will be renamed


class Scann(Rival):
    """ScaNN, for cosines with and without SOAR, which stores each vector in two lists."""

    name, package, module = "scann", "scann", "scann"

    def builds(self, n: int, d: int, metric: str) -> list[Params]:
        """Two sizes of the tree, with and without SOAR, and anisotropic thresholds.

        ScaNN refuses SOAR for distances, and its documentation leaves out their threshold.
        """
        grid = _BY_DISTANCE if metric == "euclidean" else _BY_ANGLE
        return [
            {"n_leaves": count, "soar": soar, "threshold": threshold}
            for count in list_counts(n)
            for soar, threshold in grid
        ]

    def searches(self, build: Params, k: int) -> list[list[Params]]:
        """Leaves to search, and candidates per result that are reordered."""
        return [[{"leaves": p, "reorder": r} for p in probes(build["n_leaves"])] for r in reordered(k)]

    def build(self, X: Floats, metric: str, n_threads: int, **params: Any) -> _ScannIndex:
        """Build the tree and the codes."""
        distance = "squared_l2" if metric == "euclidean" else "dot_product"
        soar = {"soar_lambda": params["soar"], "overretrieve_factor": _OVERRETRIEVED}
        threshold = {"anisotropic_quantization_threshold": params["threshold"]}
        searcher = (
            self.imported()
            .scann_ops_pybind.builder(X, 10, distance)
            .tree(
                num_leaves=params["n_leaves"],
                num_leaves_to_search=params["n_leaves"] // 16,
                training_sample_size=min(len(X), _TRAINING),
                spherical=metric == "cosine",
                quantize_centroids=True,
                **(soar if params["soar"] else {}),
            )
            .score_ah(
                2, **(threshold if params["threshold"] else {})
            )  # 2 features for each code, as documented
            .reorder(100)
            .set_n_training_threads(n_threads)
            .build()
        )
        return _ScannIndex(searcher)

    def load(self, folder: Path, d: int, metric: str, **params: Any) -> _ScannIndex:
        """Read a saved searcher."""
        return _ScannIndex(self.imported().scann_ops_pybind.load_searcher(str(folder)))
