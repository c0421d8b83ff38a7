"""The paper's protocol for millions of vectors: accuracy, the cost of a coarse quantizer, and speed.

Places205, the paper's large set, has labels. Sets without labels are judged by true neighbours: a result is
relevant if it is one of the 100 vectors with the largest cosine. Each measure is taken of a search of the
whole base (``map_1000`` …), of POSH with 2 candidates per result reordered by the decoder (``cr2_…``), and of
POSH behind a coarse quantizer with n/1000 lists of which 20 are visited (``coarse_…``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

import posh
from posh import datasets, metrics
from posh.datasets import Dataset
from posh.index.brute_force import measure_distances, measure_true_distances
from posh_reproduction.experiments import hashers, rankings, trial
from posh_reproduction.experiments.data import fingerprint, load
from posh_reproduction.experiments.rankings import Coded, Ids, Values, summary
from posh_reproduction.experiments.records import Record
from posh_reproduction.experiments.spec import Unit

__all__ = ["METHODS", "headline", "identity", "measure", "seconds", "unit"]

METHODS = ("LSH", "ITQ", "KNNH", "FruitFly", "SphericalHash", "POSH")
_DEPTH, _FACTOR = 1000, 2
_NEIGHBOURS, _METRIC = 100, "cosine"  # the neighbours that codes should preserve
_COARSE_SIZE = 64  # the size at which the paper reports its coarse quantizer
_LISTS, _PROBES = 1000, 20  # vectors per list, lists visited


def unit(
    data: str,
    method: str,
    size: int,
    seed: int,
    *,
    n_train: int = 10_000,
    n_base: int | None = None,
    n_queries: int | None = 1000,
) -> Unit:
    """The unit of one method; ``size`` is the set bits of sparse codes or the length of dense ones.

    >>> unit("glove-100", "POSH", 64, seed=0)["extras"]
    ['coarse', 'refinement']
    """
    wanted = {"coarse": method == "POSH" and size == _COARSE_SIZE, "refinement": method == "POSH"}
    return {
        "kind": "scale",
        "data": data,
        "method": method,
        "size": size,
        "n_bits": 1024 if method in trial.SPARSE else size,
        "seed": seed,
        "n_train": n_train,
        "n_base": n_base,
        "n_queries": n_queries,
        "extras": [name for name, is_wanted in wanted.items() if is_wanted],
    }


def identity(unit: Unit) -> dict[str, Any]:
    """Everything else that decides the result: the hasher's parameters and the data."""
    data = fingerprint(unit["data"], unit["n_base"], unit["n_queries"], labelled=False)
    return {"hasher": hashers.identity(trial.make_hasher(unit)), "data": data}


def measure(unit: Unit) -> dict[str, Any]:
    """Fit, search and count; rates are queries per second of CPU time on one thread."""
    data = load(unit["data"], unit["n_base"], unit["n_queries"], labelled=False)
    cpu = time.process_time()
    hasher = trial.make_hasher(unit).fit(data.base[: unit["n_train"]])
    took = time.process_time() - cpu
    rates: dict[str, float] = {}
    measures = {
        name: summary(values)
        for prefix, ids in _results(unit, hasher, data, rates)
        for name, values in _judged(unit, data, ids, prefix).items()
    }
    return {"measures": measures, "queries_per_second": rates, "fit_cpu_seconds": took}


def seconds(unit: Unit) -> float:
    """About how long the unit takes on one core; only meant to plan with."""
    info = next(info for info in datasets.catalogue() if info.name == unit["data"])
    millions = (unit["n_base"] or info.n_base or 2_428_372) / 1e6
    queries = (unit["n_queries"] or 20_000) / 1000
    if unit["method"] in trial.DENSE:
        return float(2 + millions * (1 + 2.5 * queries))
    total = 3 + 6 * unit["n_train"] / 10_000 + millions * (8 + queries)
    if "refinement" in unit["extras"]:
        total += 8 * millions
    if "coarse" in unit["extras"]:
        total += 25 * millions**2 + 5 * millions
    return float(total)


def headline(record: Record) -> str:
    """A finished unit in a line."""
    unit = record["unit"]
    found = f"MAP@1000 {100 * record['measures']['map_1000']['mean']:.2f}"
    rate = f"{record['queries_per_second']['exact']:,.0f} queries per second"
    return f"{unit['data']} {unit['method']} {unit['size']}: {found}, {rate}"


def _results(
    unit: Unit, hasher: posh.Hasher[Any], data: Dataset, rates: dict[str, float]
) -> Iterator[tuple[str, Ids]]:
    """Rankings (m, 1000) with the prefix of their measures; their rates are put into ``rates``."""
    coded = Coded.by(hasher, data)
    search = coded.searcher()
    ids, rates["exact"] = _timed(lambda: search(_DEPTH), len(data.queries))
    yield "", ids
    if "refinement" in unit["extras"]:
        candidates = search(_FACTOR * _DEPTH)
        yield "cr2_", rankings.refined(coded, candidates, (_FACTOR,), _DEPTH, unit["n_train"])[_FACTOR]
    if "coarse" in unit["extras"]:
        lists = -(-len(data.base) // _LISTS)
        index = posh.CodeIndex(hasher, structure="ivf", n_lists=lists, n_probe=_PROBES).add(data.base)
        ids, rates["coarse"] = _timed(
            lambda: index.search(data.queries, _DEPTH, n_threads=1).ids, len(data.queries)
        )
        yield "coarse_", ids


def _timed(search: Callable[[], Ids], n_queries: int) -> tuple[Ids, float]:
    """Results, and queries per second of CPU time: best of three, or fewer if they are slow."""
    times: list[float] = []
    while len(times) < 3 and sum(times) < 2.0:
        start = time.process_time()
        ids = search()
        times.append(time.process_time() - start)
    return ids, n_queries / max(min(times), 1e-9)


def _judged(unit: Unit, data: Dataset, ids: Ids, prefix: str) -> Mapping[str, Values]:
    """MAP@1000 and Precision@1000 by labels, or MAP@1000 and recall by true neighbours."""
    if data.base_labels is not None and data.query_labels is not None:
        labels = np.where(ids < 0, -1, data.base_labels[ids])
        return {
            f"{prefix}map_1000": metrics.average_precision(labels, data.query_labels),
            f"{prefix}precision_1000": metrics.precision(labels, data.query_labels),
        }
    nearest = _nearest(unit["data"], unit["n_base"], unit["n_queries"])
    own = measure_distances(data.base, data.queries, ids, _METRIC)
    relevant = (own <= nearest[:, -1:] * (1 + 1e-6)).astype(np.int64)
    return {
        f"{prefix}map_1000": metrics.average_precision(relevant, np.ones(len(ids), np.int64)),
        f"{prefix}recall_100": metrics.recall_by_distance(own, nearest, at=100),
        f"{prefix}recall_1000": metrics.recall_by_distance(own, nearest),
    }


@lru_cache(maxsize=1)  # units come one data set after the other
def _nearest(name: str, n_base: int | None, n_queries: int | None) -> npt.NDArray[np.float64]:
    """Distances (m, 100) of the nearest vectors of each query."""
    data = load(name, n_base, n_queries, labelled=False)
    return measure_true_distances(data.base, data.queries, _NEIGHBOURS, _METRIC)
