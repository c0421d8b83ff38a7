"""What a block index measures on its own documents, so that a search knows which it may skip."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from posh import _native, kernels
from posh.index.counts import N_THRESHOLDS, CountModel
from posh.index.space import Space
from posh.model_files import Arrays, expect
from posh.preprocess import Float32

__all__ = ["Asked", "Calibration", "calibrate", "evenly", "with_limits"]

Doubles = npt.NDArray[np.float64]

_N_PLUS, _N_MINUS = 32, 32  # planes of the largest and of the smallest projections of a query
_HALF_MARGIN = 1.2  # times the slack: deviations by which a score from four bits may be too low
_FIRST_MARGIN = 2.0  # deviations by which the first limit is below the expected k-th best score
_FIRST_SHARE = 0.977  # of the queries whose k-th nearest is nearer than the first limit: two deviations
_QUERIES = 500
_REMEMBERED = 1000
_CAREFUL = 4.0  # slack of searches that begin without a limit: nothing is to be lost
_MIN_SHARED = 4.0  # visits per list from which on lists are visited in order, all queries at once
_GROUPS, _LISTS = 20, 16  # of 256 documents, in the nearest lists of each query
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
    standard deviation of counts, compared with :class:`~posh.index.counts.CountModel`. ``limits`` (n, 3) are
    k, intercept, slope: from the score of the best list, a score that the k-th best most likely exceeds.
    """

    n_docs: int
    counts: npt.NDArray[np.float64]
    limits: Doubles

    def settings(self, space: Space, asked: Asked) -> _native.BlockSettings:
        """The settings of the kernels; made once for what is asked for again and again."""
        if asked not in self._made:
            if len(self._made) > _REMEMBERED:
                self._made.clear()
            self._made[asked] = _settings(space, self, asked)
        return self._made[asked]

    @cached_property
    def _made(self) -> dict[Asked, _native.BlockSettings]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """What a pickle holds."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def first_limit(self, rank: float) -> tuple[float, float] | None:
        """Return intercept and slope of a score that the best up to a rank most likely exceed, if known."""
        for number, intercept, slope in self.limits.tolist():
            if number >= rank:
                return intercept, slope
        return None

    def to_arrays(self) -> Arrays:
        """For files."""
        return {
            "calibration": np.array([self.n_docs, *self.counts]),
            "calibration_limits": self.limits,
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Calibration:
        """From the arrays of :meth:`to_arrays`."""
        numbers = expect(arrays, "calibration", np.float64, (3,))
        limits = expect(arrays, "calibration_limits", np.float64, (None, 3))
        return cls(int(numbers[0]), numbers[1:], limits)


def _settings(space: Space, calibration: Calibration, asked: Asked) -> _native.BlockSettings:
    """Return the settings of the kernels."""
    scale, spread = calibration.counts.tolist()
    model = _model(space)
    return _native.BlockSettings(
        n_probe=min(asked.n_probe, space.n_lists),
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


def evenly(n: int) -> npt.NDArray[np.int64]:
    """Which of n documents to calibrate with."""
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
    return _model(space).fitted(expected[seen], counts[seen])


def _limits(space: Space, queries: Float32, scores: Float32, ks: list[int]) -> Doubles:
    """For each k: a score that the k-th best exceeds for nearly all queries, see :class:`Calibration`."""
    best = space.list_scores(queries).max(axis=1).astype(np.float64)
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
