"""Metrics: the score of two vectors, and how vectors are prepared for a search by it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from posh import _native, kernels
from posh._model_files import Arrays, require_array
from posh.preprocess import Float32, normalize_rows

__all__ = ["Metric", "MetricQueries", "as_reals"]

_FITTING = 50  # exponent of numbers that fit well: those of 2**56 do not
_OCTAVES = 6  # by which scales of the same precision may differ
_STEPS = 16  # of the mean, in a unit
_LARGEST = 1022  # exponent of a unit: its inverse fits into float64 too


class MetricQueries(NamedTuple):
    """Queries as they are compared with stored vectors, and the factors of their scores in the metric."""

    vectors: Float32
    factors: npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Metric:
    """A metric, with the scale and the mean of the data.

    Squares of very large or small numbers do not fit into float32, so vectors are stored in a ``unit``: a
    power of two near the scale of the data. For distances the mean is subtracted, which does not change them:
    smaller numbers are more precise. The mean is rounded to a sixteenth of the unit, and queries of products
    are divided by powers of two: so numbers with few digits, such as integers, keep them, and equal scores
    stay equal.

    >>> import numpy as np
    >>> metric = Metric.of("euclidean", np.array([[3.0, 4.0], [3.0, 2.0]]))
    >>> metric.prepare(np.array([[3.0, 4.0]]))
    array([[0., 1.]], dtype=float32)
    """

    name: str
    mean: npt.NDArray[np.float64]
    unit: float

    @classmethod
    def of(cls, name: str, X: npt.NDArray[Any]) -> Metric:
        """Return the metric of this name for data like X (n, d)."""
        mean = np.zeros(X.shape[1])
        if name == "cosine" or not len(X):
            return cls(name, mean, 1.0)
        if name == "euclidean":
            with np.errstate(over="ignore"):
                mean = X.mean(axis=0, dtype=np.float64)
            if not np.isfinite(mean).all():  # the sum does not fit into float64
                mean = (X / len(X)).sum(axis=0)
        scale = float(np.abs(X - mean).max())
        exponent = round(math.log2(scale)) if scale > 0 else 0
        unit = 2.0 ** min(max(exponent, -_LARGEST), _LARGEST)
        step = max(unit / _STEPS, 2.0**-_LARGEST)
        with np.errstate(over="ignore"):
            rounded = np.round(mean / step) * step
        return cls(name, np.where(np.isfinite(rounded), rounded, mean), unit)

    @property
    def is_distance(self) -> bool:
        """Whether the score is minus a squared distance, otherwise it is a product."""
        return self.name == "euclidean"

    def enlarge(self, X: npt.NDArray[Any]) -> Metric:
        """Return the metric with a larger unit if vectors X (n, d) would be too large otherwise.

        >>> Metric("dot", np.zeros(1), 1.0).enlarge(np.array([[2.0**100]])).unit == 2.0**50
        True
        """
        if self.name == "cosine":
            return self
        largest = float(np.abs(X - self.mean).max(initial=0.0))
        exponent = math.ceil(math.log2(largest)) - _FITTING if largest > 0 else -_LARGEST
        return replace(self, unit=max(self.unit, 2.0 ** max(exponent, -_LARGEST)))

    def is_like(self, other: Metric) -> bool:
        """Return whether vectors of the other metric's scale keep their precision in this one.

        >>> X = np.array([[0.0], [1.0]])
        >>> Metric.of("euclidean", X).is_like(Metric.of("euclidean", 2.0 * X))
        True
        >>> Metric.of("euclidean", X).is_like(Metric.of("euclidean", X + 1e6))
        False
        """
        shift = np.abs(self.mean - other.mean).max(initial=0.0)
        octaves = abs(math.log2(self.unit) - math.log2(other.unit))
        return octaves <= _OCTAVES and bool(shift / 2.0**_OCTAVES <= other.unit)

    def prepare(self, X: npt.NDArray[Any]) -> Float32:
        """Return vectors (n, d) as they are stored."""
        prepared = np.empty(X.shape, np.float32)
        if not self.native.prepare_documents(as_reals(X), prepared, kernels.active()):
            raise self.too_large(X)
        return prepared

    def prepare_queries(self, Q: npt.NDArray[Any]) -> MetricQueries:
        """Return queries (m, d) for comparison with stored vectors."""
        prepared = MetricQueries(np.empty(Q.shape, np.float32), np.empty(len(Q)))
        if not self.native.prepare_queries(as_reals(Q), *prepared, kernels.active()):
            raise self.too_large(Q)
        return prepared

    def restore(self, prepared: Float32) -> npt.NDArray[np.float64]:
        """Return vectors as the caller gave them, from prepared ones (n, d)."""
        return prepared.astype(np.float64) * self.unit + self.mean

    def too_large(self, X: npt.NDArray[Any]) -> ValueError:
        """Return the error for vectors that do not fit."""
        return ValueError(
            f"expected vectors that fit into float32 in the scale of the first ones ({self.unit:.2g}), "
            f"got {np.abs(X).max():.3g}: rescale them, or build the index anew"
        )

    def as_queries(self, prepared: Float32) -> Float32:
        """Return prepared vectors as prepared queries."""
        return normalize_rows(prepared) if self.name == "dot" else prepared

    def restore_scores(self, queries: MetricQueries, scores: Float32) -> Float32:
        """Return the scores (m, k) of the metric, rounded to float32, from those of prepared vectors."""
        self.native.scale_scores(queries.factors, scores)
        return scores

    @cached_property
    def native(self) -> _native.Metric:
        """The metric for the kernels."""
        return _native.Metric(self.name, self.mean, self.unit)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle, without the kernels' object."""
        return {name: value for name, value in vars(self).items() if name != "native"}

    def to_arrays(self) -> Arrays:
        """Return mean and unit, for files."""
        return {"metric_mean": self.mean, "metric_unit": np.array(self.unit)}

    @classmethod
    def from_arrays(cls, name: str, n_features: int, arrays: Arrays) -> Metric:
        """Return the metric of :meth:`to_arrays`; raise ValueError if the arrays are wrong."""
        mean = require_array(arrays, "metric_mean", np.float64, (n_features,))
        unit = float(require_array(arrays, "metric_unit", np.float64, ()))
        if not 2.0**-_LARGEST <= unit <= 2.0**_LARGEST:
            raise ValueError(f"expected a unit from 2**-{_LARGEST} to 2**{_LARGEST}, found {unit}")
        return cls(name, mean, unit)


def as_reals(X: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return vectors as the kernels take them: contiguous and aligned float32 or float64."""
    if X.dtype != np.float32 and X.dtype != np.float64:
        X = X.astype(np.float32 if X.dtype == np.float16 else np.float64)
    array = np.ascontiguousarray(X)
    return array if array.flags.aligned else array.copy()
