"""The units of PowerHash: its own choice, and each rule that it chooses from."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

from posh_reproduction.experiments import trial
from posh_reproduction.experiments.spec import Unit

__all__ = ["rules", "units"]

# Power, set bits of the final code per winner in training, and whether rows have unit length.
_RULES: tuple[tuple[float, int, bool], ...] = (
    (0.0, 4, True),
    (0.25, 4, True),
    (0.5, 4, True),
    (0.75, 2, True),
    (1.0, 1, False),
)


def units(data: Iterable[str], sizes: Iterable[int], seeds: Iterable[int], **limits: Any) -> tuple[Unit, ...]:
    """Trials of PowerHash; ``limits`` are those of :func:`trial.unit`.

    >>> units(["mnist"], [16], [0])[0]["method"]
    'PowerHash'
    """
    return tuple(trial.unit(*cell, **limits) for cell in product(data, trial.BEYOND, sizes, seeds))


def rules(data: Iterable[str], sizes: Iterable[int], seeds: Iterable[int], **limits: Any) -> tuple[Unit, ...]:
    """Trials of each rule alone.

    >>> [unit["params"]["n_winners"] for unit in rules(["mnist"], [16], [0])]
    [4, 4, 4, 8, 16]
    """
    return tuple(
        trial.unit(
            name,
            "PowerHash",
            size,
            seed,
            extras=(),
            params={"power": power, "n_winners": size // share, "unit": unit},
            **limits,
        )
        for name, size, seed, (power, share, unit) in product(data, sizes, seeds, _RULES)
    )
