"""SBIHT iteration by iteration: the number of wrong bits, and the gain of refinement (from the appendix)."""

from __future__ import annotations

from typing import Any

import numpy as np

import posh
from posh import kernels, metrics
from posh.datasets import Dataset
from posh.preprocess import Float32
from posh_reproduction.experiments import hashers
from posh_reproduction.experiments.data import balanced, fingerprint, load
from posh_reproduction.experiments.rankings import Coded, Ids, Values, summary
from posh_reproduction.experiments.records import Record
from posh_reproduction.experiments.spec import Unit

__all__ = ["headline", "identity", "measure", "seconds", "unit"]

_REFINED, _FACTOR = 100, 2


def unit(
    size: int,
    seed: int,
    *,
    data: str = "cifar10-gist",
    per_class: tuple[int, int] = (1000, 100),
    n_train: int = 5000,
    n_iter: int = 50,
) -> Unit:
    """The unit of POSH codes with ``size`` set bits.

    >>> unit(64, 0)["n_iter"]
    50
    """
    return {
        "kind": "sbiht",
        "data": data,
        "per_class": list(per_class),
        "size": size,
        "n_train": n_train,
        "n_iter": n_iter,
        "seed": seed,
    }


def identity(unit: Unit) -> dict[str, Any]:
    """Everything else that decides the result: the hasher's parameters and the data."""
    return {"hasher": hashers.identity(_hasher(unit)), "data": fingerprint(unit["data"])}


def measure(unit: Unit) -> dict[str, Any]:
    """After each iteration: wrong bits and exactly met codes of the base, and MAP@100 of 200 refined.

    Iteration 0 is the linear decoder. The list ends early when every code is met.
    """
    data = balanced(load(unit["data"]), *unit["per_class"])
    training = data.base[: unit["n_train"]]
    hasher = _hasher(unit).fit(training)
    coded = Coded.by(hasher, data)
    assert isinstance(coded.base, posh.Codes)
    decoder = posh.LinearDecoder().fit(coded.base[: len(training)], training)
    candidates = coded.ranked(_FACTOR * _REFINED)
    iterations: list[dict[str, float]] = []
    for restored, loss in posh.SBIHT(hasher, decoder, unit["n_iter"]).iterate(coded.base):
        ids = _refined(data, restored, candidates)
        met = (hasher.encode(restored, n_threads=1).active == coded.base.active).all(axis=1).mean()
        found = {"loss": loss / len(data.base), "met": float(met), **summary(_map_100(coded, ids))}
        iterations.append({"iteration": len(iterations), **found})
    return {"iterations": iterations, "unrefined": summary(_map_100(coded, candidates))}


def seconds(unit: Unit) -> float:
    """About how long the unit takes on one core."""
    fit = 18 * (0.1 + 0.9 * unit["n_train"] / 5000)
    return float(fit + unit["n_iter"] * 0.7e-3 * unit["per_class"][0])


def headline(record: Record) -> str:
    """A finished unit in a line."""
    unit, last = record["unit"], record["iterations"][-1]
    found = f"{last['loss']:.2f} wrong bits, MAP@100 {100 * last['mean']:.2f}"
    return f"SBIHT {unit['size']} seed {unit['seed']}: after {last['iteration']} iterations {found}"


def _hasher(unit: Unit) -> posh.POSH:
    params = {"n_bits": 1024, "n_active": unit["size"], "random_state": unit["seed"]}
    hasher = hashers.paper_hasher("POSH", params)
    assert isinstance(hasher, posh.POSH)
    return hasher


def _refined(data: Dataset, restored: Float32, candidates: Ids) -> Ids:
    """The best candidates by their distance to the query once decoded."""
    halves = data.queries @ restored.T - 0.5 * np.einsum("ij,ij->i", restored, restored)
    scores = np.take_along_axis(halves, candidates, axis=1)
    ids, _ = kernels.best_candidates(candidates.copy(), scores, _REFINED)
    return ids


def _map_100(coded: Coded, ids: Ids) -> Values:
    return metrics.average_precision(coded.labels(ids), coded.query_labels(), at=_REFINED)
