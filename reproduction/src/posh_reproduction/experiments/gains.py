"""PowerHash and its rivals on the same queries: how much the gain differs from query to query.

Trials tell by how much a method is ahead on these queries. Other queries would give another lead; how far it
may differ follows from the spread of the gain over queries, which single trials do not record.
"""

from __future__ import annotations

from typing import Any

from posh_reproduction.experiments import trial
from posh_reproduction.experiments.data import load
from posh_reproduction.experiments.rankings import Values, summary
from posh_reproduction.experiments.records import Record
from posh_reproduction.experiments.spec import Unit

__all__ = ["MEASURES", "RIVALS", "headline", "identity", "measure", "name", "seconds", "unit"]

OURS, RIVALS = "PowerHash", ("SphericalHash", "BOSL", "POSH")
MEASURES = ("map_1000", "asymmetric_map_1000")


def unit(data: str, size: int, seed: int, **limits: Any) -> Unit:
    """The unit of a cell; ``limits`` are those of :func:`trial.unit`.

    >>> unit("mnist", 16, seed=0)["rivals"]
    ['SphericalHash', 'BOSL', 'POSH']
    """
    return _trial(data, OURS, size, seed, **limits) | {"kind": "gains", "rivals": list(RIVALS)}


def name(measure: str, rival: str) -> str:
    """The name of a gain in the records.

    >>> name("map_1000", "POSH")
    'map_1000_over_POSH'
    """
    return f"{measure}_over_{rival}"


def identity(unit: Unit) -> dict[str, Any]:
    """Everything else that decides the result: the parameters of all hashers, and the data."""
    found = {one["method"]: trial.identity(one) for one in _trials(unit)}
    return {"hashers": {method: own["hasher"] for method, own in found.items()}, "data": found[OURS]["data"]}


def measure(unit: Unit) -> dict[str, Any]:
    """Fit all, and take the differences query by query."""
    data = load(unit["data"], unit["n_base"], unit["n_queries"])
    values: dict[str, dict[str, Values]] = {}
    for one in _trials(unit):
        hasher = trial.make_hasher(one).fit(data.base[: unit["n_train"]])
        values[one["method"]] = dict(trial.evaluate(one, hasher, data))
    gains = {
        name(measure, rival): summary(values[OURS][measure] - values[rival][measure])
        for measure in MEASURES
        for rival in unit["rivals"]
    }
    return {"measures": gains}


def seconds(unit: Unit) -> float:
    """About how long the unit takes on one core; only meant to plan with."""
    return sum(trial.seconds(one) for one in _trials(unit))


def headline(record: Record) -> str:
    """A finished unit in a line."""
    unit = record["unit"]
    gains = (100 * record["measures"][name(MEASURES[0], rival)]["mean"] for rival in unit["rivals"])
    shown = ", ".join(f"{gain:+.2f} over {rival}" for gain, rival in zip(gains, unit["rivals"], strict=True))
    return f"{unit['data']} {OURS} {unit['size']} seed {unit['seed']}: {shown}"


def _trials(unit: Unit) -> list[Unit]:
    """The trials of PowerHash and of its rivals that a unit is made of."""
    limits = {key: unit[key] for key in ("n_bits", "n_train", "n_base", "n_queries")}
    return [_trial(unit["data"], m, unit["size"], unit["seed"], **limits) for m in (OURS, *unit["rivals"])]


def _trial(data: str, method: str, size: int, seed: int, **limits: Any) -> Unit:
    return trial.unit(data, method, size, seed, extras=("asymmetric",), **limits)
