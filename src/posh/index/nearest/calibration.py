"""Calibrate how many shared bits a near document has, so that a search knows which documents it may skip.

The projections of a query and of a residual with the cosine r are like Gaussian numbers with the correlation
r. A document has the largest of its projections as bits. The query counts the bits of its own largest
projections, and the clear bits of its smallest ones. So a plane at which the query has v counts with the
probability P((r v - z) / sqrt(1 - r²)), where z is the smallest projection that becomes a bit.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from posh import _native, kernels
from posh._model_files import Arrays, require_array
from posh.index.nearest.space import Space
from posh.preprocess import Float32

__all__ = ["Asked", "Calibration", "CountModel", "calibrate", "spread_evenly", "with_limits"]

Doubles = npt.NDArray[np.float64]

_N_PLUS, _N_MINUS = 32, 32  # planes of the largest and of the smallest projections of a query
_HALF_MARGIN = 1.2  # times the slack: deviations by which a score from four bits may be too low
_FIRST_MARGIN = 2.0  # deviations by which the first limit is below the expected k-th best score
_FIRST_SHARE = 0.977  # of the queries whose k-th nearest is nearer than the first limit: two deviations
_QUERIES = 500
_CACHED = 1000
_CAREFUL = 4.0  # slack of searches that begin without a limit: nothing is to be lost
_MIN_SHARED = 4.0  # visits per list from which on lists are visited in order, all queries at once
_GROUPS, _LISTS = 20, 16  # of 256 documents, in the nearest lists of each query
N_THRESHOLDS = 256  # from a cosine of -1 to 1
_POINTS = 16
_TABLE = 2001  # cosines
_LEAST_VARIANCE = 0.25
_KS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


class Asked(NamedTuple):
    """The parameters of a search in blocks: ``n_probe`` lists, or those that ``power`` and ``bound`` choose.

    ``bound`` is a lift divided by the number of live documents. ``rank`` is that of the first limit.
    """

    rank: float
    n_probe: int
    power: int
    bound: float
    slack: float
    n_keep: int


@dataclass(frozen=True, eq=False)
class Calibration:
    """Measured with ``n_docs`` documents.

    ``counts`` (2,) are scale and spread: what the cosine of a residual and a query is multiplied by, and the
    standard deviation of counts, compared with :class:`CountModel`. ``limits`` (n, 3) are
    k, intercept, slope: from the score of the best list, a score that the k-th best most likely exceeds.
    """

    n_docs: int
    counts: npt.NDArray[np.float64]
    limits: Doubles

    def settings(self, space: Space, asked: Asked) -> _native.BlockSettings:
        """Return the settings of the kernels, cached by parameters."""
        if asked not in self._cached_settings:
            if len(self._cached_settings) > _CACHED:
                self._cached_settings.clear()
            self._cached_settings[asked] = _settings(space, self, asked)
        return self._cached_settings[asked]

    @cached_property
    def _cached_settings(self) -> dict[Asked, _native.BlockSettings]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def first_limit(self, rank: float) -> tuple[float, float] | None:
        """Return intercept and slope of a score that the best up to a rank most likely exceed, if known."""
        for number, intercept, slope in self.limits.tolist():
            if number >= rank:
                return intercept, slope
        return None

    def to_arrays(self) -> Arrays:
        """Return the arrays of a file."""
        return {
            "calibration": np.array([self.n_docs, *self.counts]),
            "calibration_limits": self.limits,
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Calibration:
        """Return the calibration of :meth:`to_arrays`."""
        numbers = require_array(arrays, "calibration", np.float64, (3,))
        limits = require_array(arrays, "calibration_limits", np.float64, (None, 3))
        return cls(int(numbers[0]), numbers[1:], limits)


def _settings(space: Space, calibration: Calibration, asked: Asked) -> _native.BlockSettings:
    """Return the settings of the kernels."""
    scale, spread = calibration.counts.tolist()
    model = _model(space)
    return _native.BlockSettings(
        n_probe=asked.n_probe,
        power=asked.power,
        bound=asked.bound,
        spread=space.spread,
        n_plus=model.n_plus,
        n_minus=model.n_minus,
        n_scanned=model.n_scanned,
        n_keep=asked.n_keep,
        thresholds=model.thresholds(asked.slack * spread),
        threshold_scale=scale * N_THRESHOLDS / 2 / model.reach,
        half_margin=_HALF_MARGIN * asked.slack,
        first=calibration.first_limit(asked.rank) if asked.slack < _CAREFUL else None,
        min_shared=_MIN_SHARED,
    )


def spread_evenly(n: int) -> npt.NDArray[np.int64]:
    """Return the numbers of those of n documents to calibrate with."""
    return np.linspace(0, n - 1, min(_QUERIES, n)).astype(np.int64)


def calibrate(space: Space, blocks: _native.Blocks, queries: Float32, n_docs: int) -> Calibration:
    """Measure counts with prepared queries (m, d) among ``n_docs`` documents."""
    return Calibration(n_docs, np.array(_counts(space, blocks, queries)), np.empty((0, 3)))


def with_limits(calibration: Calibration, space: Space, queries: Float32, scores: Float32) -> Calibration:
    """Return the calibration with first limits, from the best scores (m, k) of prepared queries (m, d)."""
    ks = [k for k in _KS if k <= scores.shape[1]]
    return replace(calibration, limits=_limits(space, queries, scores, ks))


def _model(space: Space) -> CountModel:
    shape, n_minus = space.shape, _N_MINUS if space.n_lists > 1 else 0
    return CountModel(_N_PLUS, n_minus, shape.n_bits, shape.n_active / shape.n_bits)


def _counts(space: Space, blocks: _native.Blocks, queries: Float32) -> tuple[float, float]:
    """Return how cosines and deviations of counts compare with the model."""
    expected = np.empty((len(queries), _GROUPS), np.float32)
    counts = np.empty_like(expected)
    known = Calibration(0, np.ones(2), np.empty((0, 3)))
    asked = Asked(1, min(_LISTS, space.n_lists), 1, 0.0, 0.0, 1)
    blocks.sample_counts(known.settings(space, asked), queries, 1, expected, counts, kernels.active())
    seen = np.isfinite(expected) & np.isfinite(counts)
    return _model(space).fit(expected[seen], counts[seen])


def _limits(space: Space, queries: Float32, scores: Float32, ks: list[int]) -> Doubles:
    """For each k: a score that the k-th best exceeds for nearly all queries, see :class:`Calibration`."""
    best = space.score_lists(queries).max(axis=1).astype(np.float64)
    rows = []
    for k in ks:
        own = scores[:, k - 1].astype(np.float64)
        found = np.isfinite(own)
        if found.sum() < 10:
            break
        if space.metric.is_distance:
            rows.append((k, *_distance_limit(own[found], best[found], space.mean_square)))
        else:
            rows.append((k, *_product_limit(own[found], best[found])))
    return np.array(rows, np.float64).reshape(-1, 3)


def _product_limit(own: Doubles, best: Doubles) -> tuple[float, float]:
    """From the line through (score of the best list, k-th best score)."""
    lines = np.column_stack([np.ones(len(own)), best])
    (intercept, slope), *_ = np.linalg.lstsq(lines, own, rcond=None)
    deviation = np.std(own - lines @ [intercept, slope])
    return float(intercept - _FIRST_MARGIN * deviation), float(slope)


def _distance_limit(own: Doubles, best: Doubles, mean_square: float) -> tuple[float, float]:
    """From a share of two squared distances: to the k-th nearest, and to a typical document of the best list.

    Distances may differ by orders of magnitude between queries, their shares do not. The score of a list is
    -|q - c|² / 2, so that a typical document is at mean_square - 2 · score.
    """
    typical = mean_square - 2.0 * best
    differ = typical > np.finfo(np.float32).tiny  # else all vectors are equal
    shares = np.divide(-own, typical, out=np.zeros_like(own), where=differ)
    share = float(np.quantile(shares, _FIRST_SHARE))
    return -0.5 * share * mean_square, share


@dataclass(frozen=True)
class CountModel:
    """A query counts ``n_plus`` and ``n_minus`` planes of ``n_scanned``; documents have the share ``active``.

    >>> model = CountModel(32, 32, 256, 0.5)
    >>> model.moments(np.array([0.0, 0.5, 0.99]))[0].round(1)
    array([32. , 52.6, 64. ])
    """

    n_plus: int
    n_minus: int
    n_scanned: int
    active: float

    @property
    def reach(self) -> float:
        """The sum of the query's projections at its planes, in deviations, those of minus planes negated."""
        return sum(n * float(self._top(n).mean()) for n in (self.n_plus, self.n_minus) if n)

    def _top(self, n: int) -> Doubles:
        """Return quantiles that stand for the n largest of n_scanned Gaussian numbers."""
        share = min(n / self.n_scanned, 0.999)
        return np.asarray(ndtri(1 - share * (np.arange(_POINTS) + 0.5) / _POINTS))

    def moments(self, cosines: Doubles) -> tuple[Doubles, Doubles]:
        """Return the expected count of documents with these cosines (n,), and its variance (n,)."""
        z = ndtri(1 - min(max(self.active, 1e-6), 1 - 1e-6))
        rest = np.sqrt(np.maximum(1 - cosines**2, 1e-6))[:, None]
        mean, variance = np.zeros(len(cosines)), np.zeros(len(cosines))
        for n, bound in ((self.n_plus, z), (self.n_minus, -z)):
            if n:
                counted = ndtr((cosines[:, None] * self._top(n) - bound) / rest)
                mean += n * counted.mean(axis=1)
                variance += n * (counted * (1 - counted)).mean(axis=1)
        return mean, np.maximum(variance, _LEAST_VARIANCE)

    def thresholds(self, slack: float) -> npt.NDArray[np.int32]:
        """Return the count that documents exceed but for ``slack`` deviations, for N_THRESHOLDS cosines."""
        half = N_THRESHOLDS // 2
        mean, variance = self.moments(np.clip(np.arange(-half, half) / half, -1, 1))
        counts = np.ceil(mean - slack * np.sqrt(variance))
        counts = np.maximum.accumulate(np.clip(counts, 0, self.n_plus + self.n_minus + 1))
        counts[0] = 0
        return counts.astype(np.int32)

    def fit(self, x: Float32, counts: Float32) -> tuple[float, float]:
        """Return the factors of cosines and of deviations with which this model fits best.

        ``x`` (n,) are cosines times :attr:`reach`, ``counts`` (n,) the counts minus those of cosine 0.
        """
        if not len(x):
            return 1.0, 1.0
        order = np.argsort(x)  # a table is read faster in order
        cosines = x[order].astype(np.float64) / self.reach
        found = counts[order] + self.moments(np.zeros(1))[0]
        scales = np.geomspace(0.1, 10.0, 201)
        # A table: moments of all cosines for all scales would take a second. It is dense near -1 and 1, where
        # counts change fastest.
        known = np.sin(np.linspace(-np.pi / 2, np.pi / 2, _TABLE))
        means = self.moments(known)[0]
        errors = [np.mean((found - np.interp(scale * cosines, known, means)) ** 2) for scale in scales]
        scale = float(scales[int(np.argmin(errors))])
        mean, variance = self.moments(np.clip(scale * cosines, -1, 1))
        return scale, float(np.sqrt(np.mean((found - mean) ** 2 / variance)))
