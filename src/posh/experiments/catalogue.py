"""The experiments by name."""

from __future__ import annotations

from itertools import product

from posh.experiments import trial
from posh.experiments.spec import Spec, Unit

__all__ = ["SPECS"]

_DATA = ("mnist", "mnist-gist", "cifar10-gist")
_METHODS = (*trial.DENSE, *trial.SPARSE)
_SIZES, _SEEDS = (8, 16, 32, 64, 128), range(10)
_QUICK_SIZES, _QUICK_SEEDS = (16, 64), range(2)
_PROTOCOL = (
    "Base and queries are fixed; 5,000 training vectors, the same for every method; 10 trials that differ by "
    "their random initialisation; sparse codes have 1,024 bits. The quick twin: 1,000 training vectors, the "
    "first 10,000 of the base, 500 queries, 2 trials."
)

_FULL = tuple(trial.unit(*cell) for cell in product(_DATA, _METHODS, _SIZES, _SEEDS))
_QUICK = tuple(
    trial.unit(*cell, n_train=1000, n_base=10_000, n_queries=500)
    for cell in product(_DATA, _METHODS, _QUICK_SIZES, _QUICK_SEEDS)
)


def _with_extra(units: tuple[Unit, ...], extra: str) -> tuple[Unit, ...]:
    return tuple(unit for unit in units if extra in unit["extras"])


_SPECS = (
    Spec(
        "figure-3",
        "MAP@1000 of eight methods at 8 to 128 bits",
        "SphericalHash and BOSL are best at few set bits, POSH at many; FruitFly beats most dense codes.",
        _PROTOCOL,
        _FULL,
        _QUICK,
    ),
    Spec(
        "figure-3-precision",
        "Precision@1000 of eight methods at 8 to 128 bits",
        "Precision@1000 shows the same as MAP@1000.",
        _PROTOCOL,
        _FULL,
        _QUICK,
    ),
    Spec(
        "table-1",
        "MAP of the whole base, beside deep methods",
        "SphericalHash and POSH are competitive with deep methods.",
        f"{_PROTOCOL} The whole base is ranked.",
        _with_extra(_FULL, "full-map"),
        _with_extra(_QUICK, "full-map"),
    ),
    Spec(
        "table-2",
        "MAP@100 of POSH with candidate refinement",
        "Reordering 2, 5 or 10 times as many candidates by the linear decoder helps, 2 times most.",
        f"{_PROTOCOL} The decoder learns from the training vectors.",
        _with_extra(_FULL, "refinement"),
        _with_extra(_QUICK, "refinement"),
    ),
    Spec(
        "asymmetric",
        "MAP@1000 of sparse methods with asymmetric scoring (beyond the paper)",
        "The query's projection, summed over a document's set bits, ranks better than shared bits do.",
        f"{_PROTOCOL} The first 3 trials, at most 2,000 queries; gains are of the same queries.",
        _with_extra(_FULL, "asymmetric"),
        _with_extra(_QUICK, "asymmetric"),
    ),
)

SPECS: dict[str, Spec] = {spec.name: spec for spec in _SPECS}
