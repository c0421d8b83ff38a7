"""One trial of the paper's protocol: a method is fitted once, and all measures are taken of it.

Base and queries are fixed, and so are the training vectors: "we use the same training set for every method",
the first 5,000 of the base, which is in random order. The 10 trials differ by their random initialisation
(the paper's "Evaluation metrics"). The ``extras`` of a unit are the measures beyond MAP and Precision:

- ``full-map``: the whole base is ranked (the paper's comparison with deep methods);
- ``refinement``: MAP@100 of 2, 5 and 10 times 100 candidates, reordered by the linear decoder;
- ``asymmetric``: the query's projection instead of its code (beyond the paper).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import posh
from posh import datasets
from posh.datasets import Dataset
from posh_reproduction.experiments import hashers, rankings
from posh_reproduction.experiments.data import fingerprint, load
from posh_reproduction.experiments.rankings import Coded, Values, full_map, summary
from posh_reproduction.experiments.records import Record
from posh_reproduction.experiments.spec import Unit

__all__ = ["BEYOND", "DENSE", "EXTRAS", "SPARSE"]
__all__ += ["headline", "identity", "is_sparse", "make_hasher", "measure", "seconds", "unit"]

DENSE = ("LSH", "ITQ", "KNNH")
SPARSE = ("FruitFly", "BOSL", "BioHash", "SphericalHash", "POSH")
BEYOND = ("PowerHash",)  # sparse too, but not in the paper
EXTRAS = ("asymmetric", "full-map", "refinement")

_DEPTH = 1000
_FACTORS, _REFINED = (2, 5, 10), 100
_ASYMMETRIC_QUERIES = 2000  # more would take longer than most fits; the gain is measured on the same queries
_ASYMMETRIC_TRIALS = 3  # of the paper's methods; the experiment "asymmetric" fits once more for the others
_FULL_MAP_DATA, _FULL_MAP_SIZES = ("cifar10-gist", "mnist"), (16, 32, 64)
_FULL_MAP_METHODS = ("KNNH", "FruitFly", "SphericalHash", "POSH")


def unit(
    data: str,
    method: str,
    size: int,
    seed: int,
    *,
    n_bits: int = 1024,
    n_train: int = 5000,
    n_base: int | None = None,
    n_queries: int | None = None,
    extras: Iterable[str] | None = None,
    params: Mapping[str, Any] | None = None,
) -> Unit:
    """The unit of one trial; ``size`` is the set bits of sparse codes or the length of dense ones.

    ``extras`` are by default those that the paper's tables need; ``params`` are parameters of the
    hasher that differ from their defaults.

    >>> unit("mnist", "POSH", 128, seed=3)["extras"]
    ['refinement']
    """
    wanted = {
        "asymmetric": method in BEYOND or (method in SPARSE and seed < _ASYMMETRIC_TRIALS),
        "full-map": data in _FULL_MAP_DATA and size in _FULL_MAP_SIZES and method in _FULL_MAP_METHODS,
        "refinement": method == "POSH",
    }
    return {
        "kind": "trial",
        "data": data,
        "method": method,
        "size": size,
        "n_bits": n_bits if is_sparse(method) else size,
        "seed": seed,
        "n_train": n_train,
        "n_base": n_base,
        "n_queries": n_queries,
        "extras": [name for name in EXTRAS if (wanted[name] if extras is None else name in extras)],
        **({"params": dict(params)} if params else {}),
    }


def is_sparse(method: str) -> bool:
    """Whether the codes of a method are sparse.

    >>> is_sparse("POSH"), is_sparse("LSH")
    (True, False)
    """
    return method in SPARSE or method in BEYOND


def make_hasher(unit: Unit) -> posh.Hasher[Any]:
    """The unfitted hasher of a unit: the other parameters are the paper's."""
    params = {"n_bits": unit["n_bits"], "random_state": unit["seed"], **unit.get("params", {})}
    if is_sparse(unit["method"]):
        params["n_active"] = unit["size"]
    return hashers.paper_hasher(unit["method"], params)


def identity(unit: Unit) -> dict[str, Any]:
    """Everything else that decides the result: the hasher's parameters and the data."""
    return {
        "hasher": hashers.identity(make_hasher(unit)),
        "data": fingerprint(unit["data"], unit["n_base"], unit["n_queries"]),
    }


def measure(unit: Unit) -> dict[str, Any]:
    """Fit, search and evaluate; return the measures, their cost, and the rule that PowerHash chose."""
    data = load(unit["data"], unit["n_base"], unit["n_queries"])
    hasher = make_hasher(unit)
    wall, cpu = time.perf_counter(), time.process_time()
    hasher.fit(data.base[: unit["n_train"]])
    took = {"fit_seconds": time.perf_counter() - wall, "fit_cpu_seconds": time.process_time() - cpu}
    cpu = time.process_time()
    measures = {name: summary(values) for name, values in evaluate(unit, hasher, data)}
    found = {"measures": measures, **took, "evaluate_cpu_seconds": time.process_time() - cpu}
    if isinstance(hasher, posh.PowerHash):
        found["chosen"] = {"power": hasher.power_, "n_winners": hasher.n_winners_, "unit": hasher.unit_}
    return found


def evaluate(unit: Unit, hasher: posh.Hasher[Any], data: Dataset) -> Iterator[tuple[str, Values]]:
    """Every measure of a fitted hasher with one value per query."""
    coded = Coded.by(hasher, data)
    ids = coded.ranked(_DEPTH)
    plain = rankings.within(coded, ids)
    yield from plain.items()
    if "full-map" in unit["extras"]:
        yield "map", full_map(coded)
    if "refinement" in unit["extras"]:
        reordered = rankings.refined(coded, ids, _FACTORS, _REFINED, unit["n_train"])
        for factor, best in reordered.items():
            values = posh.metrics.average_precision(coded.labels(best), coded.query_labels())
            yield f"map_100_cr{factor}", values
            yield f"map_100_cr{factor}_gain", values - plain["map_100"]
    if "asymmetric" in unit["extras"]:
        best = rankings.asymmetric(coded, _DEPTH, _ASYMMETRIC_QUERIES)
        for name, values in rankings.within(coded, best).items():
            yield f"asymmetric_{name}", values
            yield f"asymmetric_{name}_gain", values - plain[name][: len(values)]


def headline(record: Record) -> str:
    """A finished unit in a line."""
    unit, value = record["unit"], 100 * record["measures"]["map_1000"]["mean"]
    cell = f"{unit['data']} {unit['method']} {unit['size']} seed {unit['seed']}"
    if unit.get("params"):
        cell += f" {unit['params']}"
    if is_sparse(unit["method"]) and unit["n_bits"] != 1024:
        cell += f" of {unit['n_bits']} bits"
    return f"{cell}: MAP@1000 {value:.2f}, fit {record['fit_seconds']:.1f} s"


# Measured on one core of an AMD EPYC (Milan): seconds to learn from 5,000 vectors of 784 features.
_FIT_SECONDS = {
    "LSH": 0.4,
    "ITQ": 0.7,
    "KNNH": 1,
    "FruitFly": 0.1,
    "BOSL": 14,
    "BioHash": 16,
    "SphericalHash": 5.5,
    "POSH": 27,
    "PowerHash": 11,
}


def seconds(unit: Unit) -> float:
    """About how long the unit takes on one core; only meant to plan with."""
    info = _info(unit["data"])
    n_base = unit["n_base"] or info.n_base or 50_000
    n_queries = unit["n_queries"] or info.n_queries or 5000
    share = 0.1 + 0.9 * unit["n_train"] / 5000  # some of the work does not depend on the number of vectors
    total = _FIT_SECONDS[unit["method"]] * share * info.n_features / 784
    if is_sparse(unit["method"]):
        total *= unit["n_bits"] / 1024
        if info.n_features > unit["n_bits"]:
            total *= unit["size"] / info.n_features  # the paper's rule: PCA to that number of components
    total += 0.5 + 3e-11 * n_base * info.n_features * unit["n_bits"]
    if "full-map" in unit["extras"]:
        total += 18e-9 * n_base * n_queries
    if "refinement" in unit["extras"]:
        total += 4e-5 * n_base
    if "asymmetric" in unit["extras"]:
        total += (6e-9 + 0.4e-9 * unit["size"]) * n_base * min(n_queries, _ASYMMETRIC_QUERIES)
    return float(total)


@cache
def _info(name: str) -> datasets.Info:
    return next(info for info in datasets.catalogue() if info.name == name)
