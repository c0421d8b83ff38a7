"""From trials to means, differences and their 95 % intervals.

A mean over trials is uncertain for two reasons: trials differ by their random start, and the queries are a
sample. With n trials whose means have the variance s², and N queries whose values have the variance q² (the
mean of the trials' own), the variance of our mean is s²/n + q²/N: all trials ask the same queries, so more
trials do not help against the second. The paper's mean has σ²/10 + q²/N, with its printed σ and our q, since
its queries are a sample of the same data, of the same size. The difference of the two has the sum of these
four variances, and Student's t with Welch's degrees of freedom gives the joint interval. Where there is one
trial only, or none of the paper's deviations is printed, that part is left out.

Differences between methods of the same trials need less: queries are the same, so the interval is Student's
over the differences of trials with the same seed. It holds for these queries. Where other queries matter, the
variance over queries is added.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.stats

from posh_reproduction.experiments.records import Record
from posh_reproduction.report.paper import TRIALS, Printed

__all__ = ["CLOSE", "Difference", "Estimate"]
__all__ += ["differences", "estimate", "gain", "mean_of", "paired", "versus_paper"]

CLOSE = 1.5  # percentage points that count as the same


class Difference(NamedTuple):
    """A difference and half of its 95 % interval, NaN if one trial leaves it open."""

    value: float
    half: float

    @property
    def verdict(self) -> int:
        """1 or -1 if the interval is on one side of zero, else 0."""
        if np.isnan(self.half) or abs(self.value) <= self.half:
            return 0
        return 1 if self.value > 0 else -1

    @property
    def agrees(self) -> bool:
        """Whether two values are the same for the purposes of this report."""
        return abs(self.value) <= CLOSE or (not np.isnan(self.half) and self.verdict == 0)


@dataclass(frozen=True)
class Estimate:
    """A mean over trials in percent, and the two parts of its variance."""

    mean: float
    trial_variance: float
    query_variance: float
    n_trials: int
    n_queries: int

    @property
    def half(self) -> float:
        """Half of the 95 % interval over trials, NaN for a single one."""
        if self.n_trials < 2:
            return float("nan")
        return _half([(self.trial_variance, self.n_trials - 1)])


def estimate(records: Sequence[Record], measure: str) -> Estimate:
    """The mean of a measure over the trials of a cell.

    >>> one = {"measures": {"map": {"mean": 0.5, "std": 0.1, "n_queries": 100}}}
    >>> two = {"measures": {"map": {"mean": 0.6, "std": 0.1, "n_queries": 100}}}
    >>> round(estimate([one, two], "map").mean, 6)
    55.0
    """
    found = [record["measures"][measure] for record in records]
    means = 100 * np.array([values["mean"] for values in found])
    queries = np.mean([(100 * values["std"]) ** 2 for values in found])
    n, n_queries = len(found), found[0]["n_queries"]
    trials = float(means.var(ddof=1) / n) if n > 1 else 0.0
    return Estimate(float(means.mean()), trials, float(queries / n_queries), n, n_queries)


def versus_paper(ours: Estimate, printed: Printed) -> Difference:
    """Ours minus the paper's, with the joint interval over trials and query samples."""
    parts = [(ours.query_variance, ours.n_queries - 1), (ours.query_variance, ours.n_queries - 1)]
    if ours.n_trials > 1:
        parts.append((ours.trial_variance, ours.n_trials - 1))
    if printed.std > 0:
        parts.append((printed.std**2 / TRIALS, TRIALS - 1))
    return Difference(ours.mean - printed.mean, _half(parts))


def gain(ours: Estimate) -> Difference:
    """A difference that was taken query by query, with its interval over trials and queries."""
    parts = [(ours.query_variance, ours.n_queries - 1)]
    if ours.n_trials > 1:
        parts.append((ours.trial_variance, ours.n_trials - 1))
    return Difference(ours.mean, _half(parts))


def paired(ours: Iterable[Record], others: Iterable[Record], measure: str) -> Difference | None:
    """The first minus the second, over the trials that both have; None if there is none."""
    return mean_of(differences(ours, others, measure))


def differences(ours: Iterable[Record], others: Iterable[Record], measure: str) -> list[float]:
    """The first minus the second in points, for each trial that both have."""
    sides = [
        {record["unit"]["seed"]: 100 * record["measures"][measure]["mean"] for record in records}
        for records in (ours, others)
    ]
    return [sides[0][seed] - sides[1][seed] for seed in sorted(sides[0].keys() & sides[1].keys())]


def mean_of(values: Sequence[float], queries: Sequence[Estimate] = ()) -> Difference | None:
    """The mean of differences, one per trial, with its interval; None if there is none.

    The interval is over trials, and over the ``queries`` of estimates too, if there are any.

    >>> mean_of([1.0, 3.0]).value
    2.0
    """
    if not values:
        return None
    parts = [(own.query_variance, own.n_queries - 1) for own in queries]
    if len(values) > 1:
        parts.append((float(np.var(values, ddof=1)) / len(values), len(values) - 1))
    return Difference(float(np.mean(values)), _half(parts) if parts else float("nan"))


def _half(parts: Sequence[tuple[float, int]]) -> float:
    """Half of the 95 % interval for a sum of variances with their degrees of freedom (Welch)."""
    total = sum(variance for variance, _ in parts)
    if total <= 0:
        return 0.0
    freedom = total**2 / sum(variance**2 / degrees for variance, degrees in parts)
    return float(scipy.stats.t.ppf(0.975, freedom) * total**0.5)
