"""Lists and a projection for codes, trained before there are documents."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from posh import _native
from posh._model_files import Arrays, require_array
from posh._runtime import no_fork, resolve_threads
from posh.hashers.hadamard import draw_signs
from posh.index.kmeans import assign, sums_by_list, train_lists
from posh.index.nearest.metric import Metric
from posh.preprocess import Float32, normalize_rows

__all__ = ["PADDING", "CodeShape", "Space", "choose_n_lists", "compute_means"]

Lists = npt.NDArray[np.int32]

_WIDE = 512  # features from which on fewer numbers are faster: comparing all of them takes most of the time
_ENERGY = 0.9  # share of the squares that is kept
_STEP = 64  # fewer numbers are a multiple of it
PADDING = 64  # columns that the kernels read at once
_ALIKE = 1.1  # times the mean square of residuals
_ROWS = 20_000  # residuals that principal components are computed from


class CodeShape(NamedTuple):
    """The length of codes and their number of set bits."""

    n_bits: int = 256
    n_active: int = 128


def choose_n_lists(n: int) -> int:
    """Return the number of lists for n documents, with which choosing and scanning lists take similar time.

    >>> choose_n_lists(200), choose_n_lists(1_000_000)
    (1, 1750)
    """
    return max(1, min(round(1.75 * math.sqrt(n)), n // 128, 65_536))


@dataclass(frozen=True, eq=False)
class Space:
    """Lists and projection.

    Documents are prepared vectors, see :class:`~posh.index.nearest.metric.Metric`. The residual of a document
    is its difference to ``centroids[its list]``. A document is in the list whose row of ``routing`` is
    nearest.
    Of wide vectors, codes and 8-bit numbers have the products with the rows of ``reduction`` only.
    ``mean_square`` is the mean squared length of residuals. ``stuck`` (n_lists,) are the sizes at which lists
    could not be split, otherwise 0.
    """

    metric: Metric
    shape: CodeShape
    centroids: Float32
    routing: Float32
    signs: Float32  # of the Hadamard matrices that project residuals
    reduction: Float32 | None
    mean_square: float
    n_docs: int  # for which the lists were trained
    stuck: npt.NDArray[np.int64]

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
        """Train lists for ``n_docs`` documents like the sample, prepared vectors (m, d)."""
        routing = train_lists(sample, n_lists, metric=metric.name, rng=rng, n_threads=resolve_threads())
        lists = assign(sample, routing, metric.name, resolve_threads())
        centroids = compute_means(sample, lists, routing)
        residuals = sample - centroids[lists]
        mean_square = float(np.einsum("ij,ij->i", residuals, residuals).mean()) if len(sample) else 0.0
        reduction = find_principal_rows(residuals, rng) if may_reduce else None
        n_columns = sample.shape[1] if reduction is None else len(reduction)
        signs = draw_signs(shape.n_bits, n_columns, rng)
        stuck = np.zeros(n_lists, np.int64)
        return cls(metric, shape, centroids, routing, signs, reduction, mean_square, n_docs, stuck)

    @property
    def n_lists(self) -> int:
        """The number of lists."""
        return len(self.centroids)

    @property
    def n_features(self) -> int:
        """The number of columns of vectors."""
        return int(self.centroids.shape[1])

    @property
    def padded_columns(self) -> int:
        """The columns of 8-bit numbers, padded for the kernels."""
        return -(-int(self.signs.shape[1]) // PADDING) * PADDING

    @property
    def spread(self) -> float:
        """The typical length of residuals."""
        return math.sqrt(self.mean_square)

    def with_mean_square(self, mean_square: float) -> Space:
        """Return a space for residuals of this size; the same one if it is about that of training.

        >>> space = Space.train(Metric.of("dot", np.eye(4)), CodeShape(), np.eye(4, dtype=np.float32), 1, 4,
        ...     np.random.default_rng(0), may_reduce=False)
        >>> space.mean_square, space.with_mean_square(0.8) is space, space.with_mean_square(0.1).mean_square
        (0.75, True, 0.1)
        """
        is_alike = self.mean_square / _ALIKE <= mean_square <= self.mean_square * _ALIKE
        return self if is_alike else replace(self, mean_square=mean_square)

    def assign_lists(self, prepared: Float32) -> Lists:
        """Return the lists of prepared vectors (n, d)."""
        return assign(prepared, self.routing, self.metric.name, resolve_threads())

    def score_lists(self, queries: Float32) -> Float32:
        """Return the scores of all lists for queries (m, d): products, or minus half of squared distances."""
        products = queries @ self.centroids.T
        if not self.metric.is_distance:
            return products
        lengths = np.einsum("ij,ij->i", queries, queries)[:, None]
        return np.asarray(np.minimum(products + self._bias() - 0.5 * lengths, 0))

    def _bias(self) -> Float32:
        """Return the term that routing adds to products: for distances, -|c|² / 2 of each centroid c."""
        squares = np.einsum("ij,ij->i", self.centroids, self.centroids)
        return np.asarray(-0.5 * squares if self.metric.is_distance else np.zeros_like(squares))

    @cached_property
    def native(self) -> _native.BlockSpace:
        """The space for the kernels."""
        routing = normalize_rows(self.centroids) if self.metric.name == "cosine" else self.centroids
        # The mean of all centroids does not matter for the choice of lists. Without it, more of the kernels'
        # 7 bits are left for the differences.
        routing = routing - routing.mean(axis=0)
        if self.reduction is not None:
            routing = routing @ self.reduction.T
        return _native.BlockSpace(
            n_bits=self.shape.n_bits,
            n_active=self.shape.n_active,
            centroids=self.centroids,
            routing=routing,
            routing_bias=self._bias(),
            weights=None,
            signs=self.signs,
            reduction=self.reduction,
            is_distance=self.metric.is_distance,
        )

    def to_arrays(self) -> Arrays:
        """Return the arrays of a file."""
        reduction = {} if self.reduction is None else {"reduction": self.reduction}
        stuck = {"stuck": self.stuck} if self.stuck.any() else {}
        return (
            self.metric.to_arrays()
            | reduction
            | stuck
            | {
                "centroids": self.centroids,
                "routing": self.routing,
                "projection": self.signs,
                "code_shape": np.array(self.shape, np.int64),
                "space": np.array([self.mean_square, self.n_docs]),
            }
        )

    @classmethod
    def from_arrays(cls, metric: str, arrays: Arrays) -> Space:
        """Return the space of :meth:`to_arrays`; raise ValueError or KeyError if the arrays are wrong."""
        centroids = require_array(arrays, "centroids", np.float32, (None, None))
        n_features = centroids.shape[1]
        known = Metric.from_arrays(metric, n_features, arrays)
        n_bits, n_active = require_array(arrays, "code_shape", np.int64, (2,), low=1).tolist()
        routing = require_array(arrays, "routing", np.float32, centroids.shape)
        reduction = None
        if "reduction" in arrays:
            reduction = require_array(arrays, "reduction", np.float32, (None, n_features))
        n_columns = n_features if reduction is None else len(reduction)
        signs = require_array(arrays, "projection", np.float32, (None, n_columns))
        mean_square, n_docs = require_array(arrays, "space", np.float64, (2,)).tolist()
        shape = CodeShape(n_bits, n_active)
        stuck = np.zeros(len(centroids), np.int64)
        if "stuck" in arrays:
            stuck = require_array(arrays, "stuck", np.int64, (len(centroids),), low=0)
        return cls(known, shape, centroids, routing, signs, reduction, mean_square, int(n_docs), stuck)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle, without the kernels' object."""
        return {name: value for name, value in vars(self).items() if name != "native"}


def compute_means(vectors: Float32, lists: npt.NDArray[Any], otherwise: Float32) -> Float32:
    """Return the mean of the vectors of each list, or its row of ``otherwise`` if it has none."""
    sums, counts = sums_by_list(vectors, lists, len(otherwise))
    means = sums / np.maximum(counts, 1)[:, None]
    return np.where(counts[:, None] > 0, means, otherwise).astype(np.float32)


def find_principal_rows(residuals: Float32, rng: np.random.Generator) -> Float32 | None:
    """Return orthonormal rows (m, d) whose products with residuals (n, d) keep nine tenths of their squares.

    The rows are principal components, turned at random: then all products are about equally large, which is
    best for 8-bit numbers. None if d is small, or if m would be more than half of d.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> flat = rng.standard_normal((1000, 40)) @ rng.standard_normal((40, 800))
    >>> find_principal_rows(flat.astype(np.float32), rng).shape
    (64, 800)
    """
    d = residuals.shape[1]
    if d < _WIDE or len(residuals) < 2:
        return None
    some = residuals[np.sort(rng.permutation(len(residuals))[:_ROWS])]
    with no_fork:
        energies, directions = np.linalg.eigh(some.T @ some)  # ascending
    shares = np.cumsum(energies[::-1].astype(np.float64)) / max(float(energies.sum()), np.finfo(float).tiny)
    needed = int(np.searchsorted(shares, _ENERGY)) + 1
    m = -(-needed // _STEP) * _STEP
    if 2 * m > d:
        return None
    turned, _ = np.linalg.qr(rng.standard_normal((m, m)))
    return np.ascontiguousarray(turned @ directions[:, -m:].T, np.float32)
