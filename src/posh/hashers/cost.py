"""An estimate of what a fit costs, from the sizes of the data and of the code, before it begins."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from posh import _validate

__all__ = ["EstimatesFit", "FitCost"]

STEP = 1_000_000  # one step of a Python loop takes as long as this many operations
ORTHOGONAL = 36  # peak bytes per matrix entry, to make a random orthogonal matrix or for a Procrustes step
_ROWS = 4096  # vectors per step of the preprocessing


@dataclass(frozen=True)
class FitCost:
    """Peak memory of a fit in ``bytes``, without its vectors, and its ``operations`` (multiply and add).

    Both should be right within a factor of three. A core of today does 10⁹ to 10¹⁰ operations per second.
    """

    bytes: int
    operations: int


class EstimatesFit:
    """The part of a hasher that estimates what its ``fit`` will cost."""

    n_bits: int

    @abstractmethod
    def _check_params(self) -> None:
        """Raise for parameters that make no sense."""

    @abstractmethod
    def _n_components(self) -> int:
        """Return the number of PCA components when there are more features than bits."""

    def _learning_cost(self, n: int, d: int) -> FitCost:
        """Return the cost of learning from preprocessed vectors (n, d); by default that of random weights."""
        return FitCost(8 * self.n_bits * d, 20 * self.n_bits * d)

    def estimate_fit(self, n: int, d: int) -> FitCost:
        """Return what ``fit`` on vectors (n, d) would cost with the present parameters.

        >>> import posh
        >>> small, large = posh.BOSL(1024, 32), posh.BOSL(16_384, 32)
        >>> small.estimate_fit(1000, 128).bytes < 2**28, large.estimate_fit(1000, 128).bytes > 2**32
        (True, True)
        """
        self._check_params()
        n, d = _validate.integer("n", n, 1), _validate.integer("d", d, 1)
        n_left = min(self._n_components(), n, d) if d > self.n_bits else d
        before = _preparing(n, d, None if n_left == d else n_left)
        learning = self._learning_cost(n, n_left)
        return FitCost(
            4 * n * n_left + max(before.bytes, learning.bytes), before.operations + learning.operations
        )


def _preparing(n: int, d: int, n_components: int | None) -> FitCost:
    """Return the cost of preprocessing vectors (n, d): mean, scale, PCA, and centring."""
    scale = FitCost(4 * n * d + 24 * min(n, _ROWS) * d, 30 * n * d)
    if n_components is None:
        return scale
    smaller = min(n, d)
    # By the shape, scikit-learn decides to decompose the covariance, a random projection or the whole matrix.
    if d <= 1000 and n >= 10 * d:
        per_value, operations = 12, n * d * d + 20 * d**3
    elif max(n, d) > 500 and n_components < 0.8 * smaller:
        per_value, operations = 32, 20 * n * d * (n_components + 10)
    else:
        per_value, operations = 32, 20 * n * d * smaller
    return FitCost((4 + per_value) * n * d, scale.operations + 2 * operations)


def procrustes_cost(n_bits: int, d: int) -> FitCost:
    """Return the cost of solving the Procrustes problem for M (n_bits, d) in float64."""
    return FitCost(ORTHOGONAL * n_bits * d + 40 * d * d, 4 * n_bits * d * d + 20 * d**3)
