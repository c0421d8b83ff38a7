"""An experiment: a claim, a protocol, and units of work that can be done in any order."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

__all__ = ["Spec", "Unit", "key", "seed_major"]

Unit: TypeAlias = dict[str, Any]
"""Parameters of one piece of work, of types that JSON has.

``kind`` says which module does the work; ``seed`` is the number of the trial.
"""


@dataclass(frozen=True)
class Spec:
    """One table or figure of the paper, or an experiment that goes beyond it.

    ``full`` and ``quick`` are the units of the real run and of its laptop-sized twin. Specs may share units:
    a trial is fitted once, and several tables read from its record.
    """

    name: str
    title: str
    claim: str
    protocol: str
    full: tuple[Unit, ...]
    quick: tuple[Unit, ...]

    def units(self, *, quick: bool) -> tuple[Unit, ...]:
        """The units of the real run or of its twin."""
        return self.quick if quick else self.full


def key(unit: Unit) -> str:
    """Text that is equal for equal units.

    >>> key({"seed": 0, "kind": "trial"}) == key({"kind": "trial", "seed": 0})
    True
    """
    return json.dumps(unit, sort_keys=True, separators=(",", ":"), allow_nan=False)


def seed_major(units: Iterable[Unit]) -> list[Unit]:
    """Each unit once, sorted by seed: a run that stops half way has half of the trials of every cell.

    >>> seed_major([{"kind": "a", "seed": 1}, {"kind": "a", "seed": 0}, {"kind": "a", "seed": 1}])
    [{'kind': 'a', 'seed': 0}, {'kind': 'a', 'seed': 1}]
    """
    distinct = {key(unit): unit for unit in units}
    return sorted(distinct.values(), key=lambda unit: int(unit["seed"]))
