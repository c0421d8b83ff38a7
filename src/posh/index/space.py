"""What a block index learns before it holds documents: lists, and a projection for codes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from posh import _native
from posh._threads import cores
from posh.hashers._units import unit_rows
from posh.hashers.base import Hasher, SparseHasher
from posh.hashers.hadamard import Hadamard, random_signs
from posh.index.kmeans import assign, sums_by_list, train_lists
from posh.index.metric import Metric
from posh.index.reduction import principal_rows
from posh.model_files import Arrays, expect
from posh.preprocess import Float32

__all__ = ["CodeShape", "Space", "code_shape", "default_lists"]


Lists = npt.NDArray[np.int32]


class CodeShape(NamedTuple):
    """How long codes are, and how they are made: by weights (n_bits, d), or by Hadamard matrices."""

    n_bits: int
    n_active: int
    weights: Float32 | None = None


def code_shape(hasher: Hasher[Any], n_active: int | None) -> CodeShape:
    """Codes by the projection of a hasher; Hadamard matrices are made again, for the columns of residuals."""
    assert isinstance(hasher, SparseHasher)
    if isinstance(hasher, Hadamard):
        return CodeShape(hasher.n_bits, n_active or hasher.n_active)
    d = hasher.n_features_in_
    weights = hasher.project(np.eye(d, dtype=np.float32)) - hasher.project(np.zeros((1, d), np.float32))
    return CodeShape(hasher.n_bits, n_active or hasher.n_active, np.ascontiguousarray(weights.T, np.float32))


def default_lists(n: int) -> int:
    """How many lists n documents have. Choosing lists and scanning them then take similar time.

    >>> default_lists(200), default_lists(1_000_000)
    (1, 1750)
    """
    return max(1, min(round(1.75 * math.sqrt(n)), n // 128, 65_536))


@dataclass(frozen=True, eq=False)
class Space:
    """Lists and projection.

    Documents are stored vectors, see :class:`~posh.index.metric.Metric`. The residual of a document is its
    difference to ``centroids[its list]``. A document is in the list whose row of ``routing`` is nearest.
    Of wide vectors, codes and 8-bit numbers have the products with the rows of ``reduction`` only.
    ``mean_square`` is the mean squared length of residuals.
    """

    metric: Metric
    shape: CodeShape
    centroids: Float32
    routing: Float32
    projection: Float32  # signs of Hadamard matrices, or weights
    reduction: Float32 | None
    mean_square: float
    n_docs: int  # for which the lists were made

    @classmethod
    def train(
        cls,
        metric: Metric,
        shape: CodeShape,
        sample: Float32,
        n_lists: int,
        n_docs: int,
        rng: np.random.Generator,
        may_reduce: bool,
    ) -> Space:
        """Lists for ``n_docs`` documents like the sample, stored vectors (m, d)."""
        routing = train_lists(sample, n_lists, metric=metric.name, rng=rng, n_threads=cores())
        lists = assign(sample, routing, metric.name, cores())
        centroids = _means(sample, lists, routing)
        residuals = sample - centroids[lists]
        mean_square = float(np.einsum("ij,ij->i", residuals, residuals).mean()) if len(sample) else 0.0
        reduction = principal_rows(residuals, rng) if may_reduce else None
        projection = _projection(shape, reduction, sample.shape[1], rng)
        return cls(metric, shape, centroids, routing, projection, reduction, mean_square, n_docs)

    @property
    def n_lists(self) -> int:
        """The number of lists."""
        return len(self.centroids)

    @property
    def n_features(self) -> int:
        """The number of columns of vectors."""
        return int(self.centroids.shape[1])

    @property
    def spread(self) -> float:
        """The typical length of residuals."""
        return math.sqrt(self.mean_square)

    def lists_of(self, stored: Float32) -> Lists:
        """The lists of documents (n, d)."""
        return assign(stored, self.routing, self.metric.name, cores())

    def list_scores(self, queries: Float32) -> Float32:
        """The scores of all lists for queries (m, d): products, or half of minus the squared distances."""
        products = queries @ self.centroids.T
        if not self.metric.is_distance:
            return products
        lengths = np.einsum("ij,ij->i", queries, queries)[:, None]
        return np.asarray(np.minimum(products + self._bias() - 0.5 * lengths, 0))

    def _bias(self) -> Float32:
        """What routing adds to products: for distances, minus half of the squared lengths of centroids."""
        squares = np.einsum("ij,ij->i", self.centroids, self.centroids)
        return np.asarray(-0.5 * squares if self.metric.is_distance else np.zeros_like(squares))

    @cached_property
    def native(self) -> _native.BlockSpace:
        """The same for the kernels."""
        routing = unit_rows(self.centroids) if self.metric.name == "cosine" else self.centroids
        # What all centroids have in common does not matter for the choice of lists. Without it, more of the
        # kernels' 7 bits are left for the differences.
        routing = routing - routing.mean(axis=0)
        if self.reduction is not None:
            routing = routing @ self.reduction.T
        is_dense = self.shape.weights is not None
        return _native.BlockSpace(
            n_bits=self.shape.n_bits,
            n_active=self.shape.n_active,
            centroids=self.centroids,
            routing=routing,
            routing_bias=self._bias(),
            weights=self.projection if is_dense else None,
            signs=None if is_dense else self.projection,
            reduction=self.reduction,
            is_distance=self.metric.is_distance,
        )

    def to_arrays(self) -> Arrays:
        """For files."""
        reduction = {} if self.reduction is None else {"reduction": self.reduction}
        return (
            self.metric.to_arrays()
            | reduction
            | {
                "centroids": self.centroids,
                "routing": self.routing,
                "projection": self.projection,
                "space": np.array([self.mean_square, self.n_docs]),
            }
        )

    @classmethod
    def from_arrays(cls, metric: str, shape: CodeShape, n_features: int, arrays: Arrays) -> Space:
        """From the arrays of :meth:`to_arrays`; a ValueError or KeyError if they are wrong."""
        known = Metric.from_arrays(metric, n_features, arrays)
        centroids = expect(arrays, "centroids", np.float32, (None, n_features))
        routing = expect(arrays, "routing", np.float32, centroids.shape)
        reduction = None
        if "reduction" in arrays:
            reduction = expect(arrays, "reduction", np.float32, (None, n_features))
        n_columns = n_features if reduction is None else len(reduction)
        projection = expect(arrays, "projection", np.float32, (None, n_columns))
        mean_square, n_docs = expect(arrays, "space", np.float64, (2,)).tolist()
        return cls(known, shape, centroids, routing, projection, reduction, mean_square, int(n_docs))

    def __getstate__(self) -> dict[str, Any]:
        """What a pickle holds: without the kernels' object."""
        return {name: value for name, value in vars(self).items() if name != "native"}


def _means(vectors: Float32, lists: Lists, otherwise: Float32) -> Float32:
    """The mean of each list's vectors, and a row of ``otherwise`` for a list without any."""
    sums, counts = sums_by_list(vectors, lists, len(otherwise))
    means = sums / np.maximum(counts, 1)[:, None]
    return np.where(counts[:, None] > 0, means, otherwise).astype(np.float32)


def _projection(
    shape: CodeShape, reduction: Float32 | None, n_features: int, rng: np.random.Generator
) -> Float32:
    if shape.weights is None:
        return random_signs(shape.n_bits, n_features if reduction is None else len(reduction), rng)
    return shape.weights if reduction is None else np.ascontiguousarray(shape.weights @ reduction.T)
