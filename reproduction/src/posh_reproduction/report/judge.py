"""Claims and how they are judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from posh_reproduction.report.estimates import Difference

__all__ = ["CONFIRMED", "MARKS", "MISSING", "MIXED", "REFUTED", "UNDECIDED"]
__all__ += ["Claim", "always", "clearly", "counted", "missing", "mostly"]

CONFIRMED, REFUTED, MIXED = "confirmed", "refuted", "mixed"
UNDECIDED, MISSING = "undecided", "not measured"
MARKS = {CONFIRMED: "✓", REFUTED: "✗", MIXED: "±", UNDECIDED: "?", MISSING: "–"}


@dataclass(frozen=True)
class Claim:
    """A claim, its verdict, and the measurement behind it."""

    text: str
    verdict: str
    evidence: str


def missing(text: str) -> Claim:
    """A claim about which nothing is recorded."""
    return Claim(text, MISSING, "no records yet")


def always(text: str, leads: Sequence[Difference | None], note: str = "") -> Claim:
    """A claim about every cell: refuted by a single one that is clearly behind, open while one is missing.

    >>> always("A is better than B", [Difference(1.0, 0.5), Difference(2.0, 0.5)]).verdict
    'confirmed'
    """
    known = [lead for lead in leads if lead is not None]
    verdicts = {lead.verdict for lead in known}
    if not known:
        return Claim(text, MISSING, "no trials yet")
    complete = len(known) == len(leads)
    verdict = CONFIRMED if verdicts == {1} and complete else REFUTED if -1 in verdicts else UNDECIDED
    return Claim(text, verdict, _joined(counted(leads), note))


def mostly(text: str, leads: Sequence[Difference | None], note: str = "") -> Claim:
    """A claim about most cells: confirmed if more than half are clearly ahead, refuted if as many are behind.

    With neither majority it is mixed if some are clearly ahead and others behind, and undecided otherwise.

    >>> mostly("A is better than B", [Difference(1.0, 0.5), Difference(-2.0, 0.5)]).verdict
    'mixed'
    """
    known = [lead for lead in leads if lead is not None]
    if not known:
        return Claim(text, MISSING, "no trials yet")
    ahead, behind = (sum(lead.verdict == side for lead in known) for side in (1, -1))
    half = len(known) / 2
    neither = MIXED if ahead and behind else UNDECIDED
    verdict = CONFIRMED if ahead > half else REFUTED if behind > half else neither
    return Claim(text, verdict, _joined(counted(leads), note))


def counted(leads: Sequence[Difference | None]) -> str:
    """Describe the numbers of cells ahead, behind and undecided, and the mean difference."""
    values = [lead.value for lead in leads if lead is not None]
    spread = f"{np.mean(values):+.2f} points on average ({min(values):+.2f} to {max(values):+.2f})"
    missing = len(leads) - len(values)
    return f"{clearly(leads)}; {spread}" + (f"; {missing} cells not measured yet" if missing else "")


def clearly(leads: Sequence[Difference | None]) -> str:
    """In how many cells the interval is above zero, and in how many below.

    >>> clearly([Difference(1.0, 0.5), Difference(0.1, 0.5)])
    'clearly ahead in 1 of 2 cells, clearly behind in 0'
    """
    known = [lead for lead in leads if lead is not None]
    ahead, behind = (sum(lead.verdict == side for lead in known) for side in (1, -1))
    return f"clearly ahead in {ahead} of {len(known)} cells, clearly behind in {behind}"


def _joined(*texts: str) -> str:
    return "; ".join(text for text in texts if text)
