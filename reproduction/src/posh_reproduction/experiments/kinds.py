"""The functions that do the units of each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from posh_reproduction.experiments import gains, gist_settings, learning, orthogonality, sbiht, scale, trial
from posh_reproduction.experiments.records import Record
from posh_reproduction.experiments.spec import Unit

__all__ = ["KINDS", "Kind", "cost_minutes"]


@dataclass(frozen=True)
class Kind:
    """The functions that process units of one kind.

    ``identity(unit)`` returns values that must agree for a record to count. ``measure(unit)`` does the work.
    ``seconds(unit)`` estimates how long that takes. ``headline(record)`` is the line that is printed then.
    """

    identity: Callable[[Unit], dict[str, Any]]
    measure: Callable[[Unit], dict[str, Any]]
    seconds: Callable[[Unit], float]
    headline: Callable[[Record], str]


KINDS = {
    "gains": Kind(gains.identity, gains.measure, gains.seconds, gains.headline),
    "gist-settings": Kind(
        gist_settings.identity, gist_settings.measure, gist_settings.seconds, gist_settings.headline
    ),
    "learning": Kind(learning.identity, learning.measure, learning.seconds, learning.headline),
    "orthogonality": Kind(
        orthogonality.identity, orthogonality.measure, orthogonality.seconds, orthogonality.headline
    ),
    "sbiht": Kind(sbiht.identity, sbiht.measure, sbiht.seconds, sbiht.headline),
    "scale": Kind(scale.identity, scale.measure, scale.seconds, scale.headline),
    "trial": Kind(trial.identity, trial.measure, trial.seconds, trial.headline),
}


def cost_minutes(units: Iterable[Unit]) -> float:
    """About how many minutes of one core the units take.

    >>> cost_minutes([])
    0.0
    """
    return sum((KINDS[unit["kind"]].seconds(unit) for unit in units), 0.0) / 60
