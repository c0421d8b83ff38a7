"""Count the writes since an index was measured, and watch how well new documents fit their lists."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from posh._model_files import Arrays, require_array

__all__ = ["NO_DRIFT", "Drift"]

_WRITTEN = 0.2  # share of the measured documents, after which everything is measured again
_OVERDUE = 0.5  # the same, after which the last measurement says nothing any more
_SEEN = 0.02  # share of new documents that show a worse fit
_LEAST = 1000  # new documents that show a worse fit
_WORSE = 1.3  # times the mean squared residual


@dataclass(frozen=True)
class Drift:
    """The writes since the last measurement.

    That was of ``n_docs`` documents, whose mean squared residual was ``residual``. ``n_written`` counts
    additions and deletions, ``n_added`` and ``squares`` the additions and the sum of their squared residuals.
    """

    n_docs: int
    residual: float
    n_written: int = 0
    n_added: int = 0
    squares: float = 0.0

    def with_added(self, n: int, residual: float) -> Drift:
        """Count n new documents with this mean squared residual."""
        return replace(
            self,
            n_written=self.n_written + n,
            n_added=self.n_added + n,
            squares=self.squares + n * residual,
        )

    def with_deleted(self, n: int) -> Drift:
        """Count n deleted documents."""
        return replace(self, n_written=self.n_written + n)

    @property
    def is_due(self) -> bool:
        """Whether to measure again.

        >>> Drift(10_000, 1.0).with_deleted(1_999).is_due, Drift(10_000, 1.0).with_deleted(2_000).is_due
        (False, True)
        >>> Drift(10_000, 1.0).with_added(1_000, 1.2).is_due, Drift(10_000, 1.0).with_added(1_000, 1.4).is_due
        (False, True)
        """
        if self.n_written >= _WRITTEN * self.n_docs:
            return True
        is_seen = self.n_added >= max(_LEAST, _SEEN * self.n_docs)
        return is_seen and self.is_worse

    @property
    def is_worse(self) -> bool:
        """Whether the new documents fit their lists worse than the measured ones, however few they are.

        >>> Drift(10_000, 1.0).with_added(300, 1.2).is_worse, Drift(10_000, 1.0).with_added(300, 1.4).is_worse
        (False, True)
        """
        return self.squares > _WORSE * self.n_added * self.residual

    @property
    def is_overdue(self) -> bool:
        """Whether the last measurement says nothing about the present documents."""
        return self.n_written >= _OVERDUE * self.n_docs

    def with_margin(self, recall: float) -> float:
        """Return a higher recall to aim at, the more was written since the measurement.

        >>> round(Drift(1_000, 1.0).with_deleted(100).with_margin(0.9), 3)
        0.91
        """
        return recall + (1 - recall) * min(0.5, self.n_written / max(1, self.n_docs))

    def to_arrays(self) -> Arrays:
        """Return the arrays of a file."""
        return {"drift": np.array([self.n_docs, self.residual, self.n_written, self.n_added, self.squares])}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Drift:
        """Return the drift of :meth:`to_arrays`; raise ValueError or KeyError if it is wrong."""
        n_docs, residual, n_written, n_added, squares = require_array(
            arrays, "drift", np.float64, (5,), low=0
        ).tolist()
        return cls(int(n_docs), residual, int(n_written), int(n_added), squares)


NO_DRIFT = Drift(0, 0.0)
