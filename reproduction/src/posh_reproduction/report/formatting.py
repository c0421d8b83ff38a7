"""Formatting of numbers in tables."""

from __future__ import annotations

import math

from posh_reproduction.report.estimates import Difference, Estimate, versus_paper
from posh_reproduction.report.paper import Printed

__all__ = ["compare_with_paper", "difference", "mean"]


def mean(value: Estimate | None) -> str:
    """A mean with its interval over trials.

    >>> mean(Estimate(82.5, 0.01, 1.0, n_trials=10, n_queries=1000))
    '82.50 ± 0.23'
    """
    if value is None:
        return "not measured yet"
    return f"{value.mean:.2f}" if math.isnan(value.half) else f"{value.mean:.2f} ± {value.half:.2f}"


def difference(value: Difference | None) -> str:
    """A difference with its interval.

    >>> difference(Difference(1.0, 0.5))
    '+1.00 ± 0.50'
    """
    if value is None:
        return "not measured yet"
    return f"{value.value:+.2f}" if math.isnan(value.half) else f"{value.value:+.2f} ± {value.half:.2f}"


def compare_with_paper(ours: Estimate | None, printed: Printed | None) -> str:
    """Ours, the paper's and the difference, on three lines; an exclamation mark if they disagree."""
    if ours is None:
        return "not measured yet"
    if printed is None:
        return f"**{mean(ours)}**"
    gap = versus_paper(ours, printed)
    mark = "" if gap.agrees else " !"
    paper = f"{printed.mean:.2f} ± {printed.std:.2f}" if printed.std else f"{printed.mean:.2f}"
    return f"**{mean(ours)}**\npaper {paper}\n{difference(gap)}{mark}"
