"""How many planes of a query a document has, from the cosine of the two.

The projections of a query and of a residual with the cosine r are like Gaussian numbers with the correlation
r. A document has the largest of its projections as bits. The query counts the bits of its own largest
projections, and the clear bits of its smallest ones. So a plane at which the query has v counts with the
probability P((r v - z) / sqrt(1 - r²)), where z is the smallest projection that becomes a bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from posh.preprocess import Float32

__all__ = ["N_THRESHOLDS", "CountModel"]

N_THRESHOLDS = 256  # from a cosine of -1 to 1
_POINTS = 16
_TABLE = 2001  # cosines
_LEAST_VARIANCE = 0.25

Doubles = npt.NDArray[np.float64]


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
        """Some of the n largest of n_scanned Gaussian numbers, which stand for all of them."""
        share = min(n / self.n_scanned, 0.999)
        return np.asarray(ndtri(1 - share * (np.arange(_POINTS) + 0.5) / _POINTS))

    def moments(self, cosines: Doubles) -> tuple[Doubles, Doubles]:
        """The expected count of documents with these cosines (n,), and its variance (n,)."""
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
        """For each of N_THRESHOLDS cosines: the count that documents exceed but for ``slack`` deviations."""
        half = N_THRESHOLDS // 2
        mean, variance = self.moments(np.clip(np.arange(-half, half) / half, -1, 1))
        counts = np.ceil(mean - slack * np.sqrt(variance))
        counts = np.maximum.accumulate(np.clip(counts, 0, self.n_plus + self.n_minus + 1))
        counts[0] = 0
        return counts.astype(np.int32)

    def fitted(self, x: Float32, counts: Float32) -> tuple[float, float]:
        """The factor of cosines, and of deviations, with which this model fits best.

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
