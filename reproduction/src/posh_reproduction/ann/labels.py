"""Label retrieval: codes compared with an exact search of the original vectors.

MAP@1000 by labels, as the paper counts it. The rivals are exact searches by Euclidean distance and by cosine.
Each gain is taken query by query, so its interval is that of a paired difference.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from posh import metrics
from posh._runtime import track_progress
from posh.datasets import Dataset
from posh.preprocess import normalize_rows
from posh_reproduction.experiments import rankings, trial
from posh_reproduction.experiments.data import fingerprint, load
from posh_reproduction.experiments.rankings import Coded, Values, summary
from posh_reproduction.experiments.records import OtherParametersError, Records
from posh_reproduction.experiments.spec import Unit

__all__ = ["DATA", "FLOATS", "METHODS", "measure", "retrieve", "units"]

DATA = ("mnist", "mnist-gist")
METHODS = {
    "POSH 128": ("POSH", 128, False),
    "POSH 64": ("POSH", 64, False),
    "SphericalHash 8, asymmetric": ("SphericalHash", 8, True),
}
FLOATS = ("euclidean", "cosine")
_DEPTH, _TRAIN, _N_BITS = 1000, 5000, 1024
_BLOCK = 200  # queries compared together with the whole base


def units(data: tuple[str, ...] = DATA, *, trials: int = 5) -> list[Unit]:
    """The exact searches of each data set, and the trials of each method."""
    exact = [{"kind": "labels", "data": name, "method": "float", "seed": 0} for name in data]
    coded = [
        {"kind": "labels", "data": name, "method": method, "seed": seed}
        for seed in range(trials)
        for name in data
        for method in METHODS
    ]
    return exact + coded


def retrieve(
    units: list[Unit], records: Records, *, recompute: bool = False, say: Callable[[str], None] = print
) -> None:
    """Measure the units that have no record."""
    with records.locked():
        for unit in track_progress(units, "label retrieval", "unit"):
            identity = {"data": fingerprint(unit["data"])}
            try:
                done = records.find(unit, identity) is not None
            except OtherParametersError:
                if not recompute:
                    raise
                done = False
            if not done:
                records.append({"unit": unit, "identity": identity, "measures": measure(unit)})
                say(f"label retrieval, {unit['data']}, {unit['method']}, trial {unit['seed'] + 1}: done")


def measure(unit: Unit) -> dict[str, Any]:
    """Mean and deviation over queries of MAP@1000, and of the gains over the exact searches."""
    data = load(unit["data"])
    exact = {metric: _exact(unit["data"], metric) for metric in FLOATS}
    if unit["method"] == "float":
        return {f"{metric}_map_1000": summary(values) for metric, values in exact.items()}
    values = _coded(unit, data)
    gains = {f"gain_over_{metric}": summary(values - exact[metric]) for metric in FLOATS}
    return {"map_1000": summary(values), **gains}


def _coded(unit: Unit, data: Dataset) -> Values:
    method, size, asymmetric = METHODS[unit["method"]]
    hasher = trial.make_hasher({"method": method, "size": size, "n_bits": _N_BITS, "seed": unit["seed"]})
    coded = Coded.by(hasher.fit(data.base[:_TRAIN]), data)
    ids = rankings.asymmetric(coded, _DEPTH, len(data.queries)) if asymmetric else coded.ranked(_DEPTH)
    return metrics.average_precision(coded.labels(ids), coded.query_labels())


@lru_cache(maxsize=4)
def _exact(name: str, metric: str) -> Values:
    """Average precision (m,) of an exact search by the metric."""
    data = load(name)
    assert data.base_labels is not None
    assert data.query_labels is not None
    base, queries = data.base, data.queries
    if metric == "cosine":
        base, queries = normalize_rows(base), normalize_rows(queries)
    half_norms = 0.5 * np.einsum("ij,ij->i", base, base)
    found = []
    for start in track_progress(range(0, len(queries), _BLOCK), f"exact search of {name}", "block"):
        scores = half_norms - queries[start : start + _BLOCK] @ base.T  # ‖q − x‖²/2 − ‖q‖²/2
        best = np.argpartition(scores, _DEPTH, axis=1)[:, :_DEPTH]
        order = np.argsort(np.take_along_axis(scores, best, axis=1), axis=1, kind="stable")
        found.append(data.base_labels[np.take_along_axis(best, order, axis=1)])
    return metrics.average_precision(np.concatenate(found), data.query_labels)
