"""A search for the setting of GIST features that gives the paper's values on MNIST-GIST.

The authors' features are not to be had, and the paper does not say how they were made. A unit computes the
features of some of the images by one setting and measures the cells of figure 3 whose methods learn fast.
The results are cut off at the same share of the base as 1,000 of 63,004 are. LSH, which is nothing but random
directions, differs by points from trial to trial: other units measure it alone, with more trials.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from posh import datasets, metrics
from posh.datasets import Dataset
from posh_reproduction.datasets.gist import compute_digits_gist
from posh_reproduction.experiments import hashers
from posh_reproduction.experiments.data import fingerprint
from posh_reproduction.experiments.rankings import Coded, summary
from posh_reproduction.experiments.records import Record
from posh_reproduction.experiments.spec import Unit

__all__ = ["METHODS", "SETTINGS", "SIZES"]
__all__ += ["headline", "identity", "is_for_choosing", "measure", "seconds", "unit"]

METHODS = ("LSH", "ITQ", "KNNH", "FruitFly", "SphericalHash")
SIZES = (8, 16, 32, 64, 128)
# Sides, then the other settings.
SETTINGS: tuple[tuple[Any, ...], ...] = (
    (None,),
    *((side,) for side in (64, 96, 128, 112, 56)),
    (128, "bilinear"),
    (128, "nearest"),
    (128, "bicubic", 32),
    (256,),
)
_DENSE = METHODS[:3]
_FULL_BASE, _DEPTH, _N_TRAIN = 63_004, 1000, 5000


def unit(
    side: int | None,
    interpolation: str = "bicubic",
    pad: int = 16,
    *,
    n_images: int = 10_500,
    lsh_trials: int | None = None,
) -> Unit:
    """The unit of one setting; ``side=None`` has the features of the data set mnist-gist.

    With ``lsh_trials``, LSH alone is measured, as the mean of that number of trials.

    >>> unit(96)["side"]
    96
    """
    more = {} if lsh_trials is None else {"lsh_trials": lsh_trials}
    return more | {
        "kind": "gist-settings",
        "data": "mnist",
        "side": side,
        "interpolation": interpolation,
        "pad": pad,
        "n_images": n_images,
        "seed": 0,
    }


def is_for_choosing(method: str, size: int) -> bool:
    """Whether a cell is in the half that chooses the setting: every other one, like the squares of a board.

    >>> is_for_choosing("LSH", 8), is_for_choosing("LSH", 16), is_for_choosing("ITQ", 8)
    (True, False, False)
    """
    return (METHODS.index(method) + SIZES.index(size)) % 2 == 0


def identity(unit: Unit) -> dict[str, Any]:
    """The data and the hashers."""
    return {
        "hashers": {method: hashers.identity(_hasher(method, 8, unit)) for method in _methods(unit)},
        "data": fingerprint(unit["data"]),
    }


def measure(unit: Unit) -> dict[str, Any]:
    """MAP of each cell, by the name of its method and its size."""
    data = _features(unit)
    at = max(1, round(_DEPTH * len(data.base) / _FULL_BASE))
    seeds = range(unit["seed"], unit["seed"] + unit.get("lsh_trials", 1))
    trials = [_cells(unit | {"seed": seed}, data, at) for seed in seeds]
    measures = {name: summary(np.mean([cells[name] for cells in trials], axis=0)) for name in trials[0]}
    return {"measures": measures, "at": at}


def _cells(unit: Unit, data: Dataset, at: int) -> dict[str, npt.NDArray[np.float64]]:
    """Average precision of each query, by cell."""
    found = {}
    for method in _methods(unit):
        fitted = _hasher(method, SIZES[0], unit).fit(data.base[:_N_TRAIN])
        for size in SIZES:
            if method in _DENSE:
                fitted = _hasher(method, size, unit).fit(data.base[:_N_TRAIN])
            else:
                fitted.set_params(n_active=size)  # learning does not depend on the number of set bits
            coded = Coded.by(fitted, data)
            ranked = coded.labels(coded.ranked(at))
            found[f"{method}-{size}"] = metrics.average_precision(ranked, coded.query_labels())
    return found


def _methods(unit: Unit) -> tuple[str, ...]:
    return METHODS if unit.get("lsh_trials") is None else METHODS[:1]


def seconds(unit: Unit) -> float:
    """About how long the unit takes on one core."""
    side = (unit["side"] or 32) + 2 * unit["pad"]
    return float(unit["n_images"] * 1e-3 * (side / 64) ** 2 + 30)


def headline(record: Record) -> str:
    """A finished unit in a line."""
    unit, found = record["unit"], record["measures"]
    shown = ", ".join(
        f"{name} {100 * found[name]['mean']:.1f}" for name in ("LSH-64", "SphericalHash-8") if name in found
    )
    return f"side {unit['side']} {unit['interpolation']} pad {unit['pad']}: {shown}"


def _hasher(method: str, size: int, unit: Unit) -> Any:
    params = {"n_bits": size if method in _DENSE else 1024, "random_state": unit["seed"]}
    return hashers.paper_hasher(method, params if method in _DENSE else params | {"n_active": size})


def _features(unit: Unit) -> Dataset:
    """The features of the first images of the base and of a tenth as many queries."""
    images, labels = _images(unit["n_images"])
    features = compute_digits_gist(images, unit["side"], unit["interpolation"], unit["pad"])
    first = len(images) // 10
    return Dataset("mnist", features[first:], features[:first], labels[first:], labels[:first])


@lru_cache(maxsize=1)
def _images(n: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    data = datasets.load("mnist")
    assert data.base_labels is not None
    return data.base[:n].reshape(-1, 28, 28).astype(np.uint8), data.base_labels[:n]
