"""Trials that are added to an experiment are in its tables, and it is complete without them."""

from __future__ import annotations

from posh_reproduction.experiments import SPECS, scale
from posh_reproduction.experiments.catalogue import MORE
from posh_reproduction.experiments.spec import key
from posh_reproduction.report import large_sets
from posh_reproduction.report.document import Table
from tests.reproduction.test_report import record, trial_record, value, written


def test_they_are_other_units_than_those_of_the_experiments():
    known = {key(unit) for name in MORE for unit in SPECS[name].full}
    added = [key(unit) for unit in SPECS["more-trials"].full]
    assert len(set(added)) == len(added)
    assert not known & set(added)
    for name, units in MORE.items():
        seeds = {unit["seed"] for unit in SPECS[name].full} | {unit["seed"] for unit in units}
        assert seeds == set(range(5 if name == "scale" else 10))


def test_they_are_in_the_tables_of_the_experiment(tmp_path):
    first = next(unit for unit in SPECS["asymmetric"].full if unit["method"] == "POSH")
    added = next(u for u in MORE["asymmetric"] if (u["data"], u["size"]) == (first["data"], first["size"]))
    records = [
        trial_record(u["data"], u["method"], u["size"], u["seed"], mean) | {"unit": u}
        for u, mean in ((first, 0.5), (added | {"method": "POSH"}, 0.7))
    ]
    evidence = written(tmp_path, records)
    assert len(evidence.records("asymmetric")) == 1
    found = evidence.trials("asymmetric").estimate(first["data"], "POSH", first["size"], "map_1000")
    assert found.n_trials == 2
    assert abs(found.mean - 60.0) < 1e-9


def test_large_sets_show_the_mean_over_trials(tmp_path):
    records = []
    for seed, recall in ((0, 0.4), (1, 0.6)):
        measures = {name: value(recall) for name in ("recall_1000", "recall_100", "map_1000")}
        unit = scale.unit("glove-100", "LSH", 16, seed)
        records.append(record(unit, measures=measures, queries_per_second={"exact": 100.0 * (1 + seed)}))
    table = next(b for b in large_sets.scale(written(tmp_path, records)) if isinstance(b, Table))
    (row,) = table.rows
    assert row[:3] == ["glove-100", "16", "LSH"]
    assert row[3].startswith("50.00 ± ")
    assert row[-1] == "150"
