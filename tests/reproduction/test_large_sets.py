"""The report on large sets: means, differences and intervals of one trial and of several."""

from __future__ import annotations

import pytest

from posh_reproduction.experiments import scale
from posh_reproduction.report import large_sets
from posh_reproduction.report.document import Table
from tests.reproduction.test_report import record, value, written


def trials(method, recalls):
    for seed, recall in enumerate(recalls):
        measures = {name: value(recall) for name in ("recall_1000", "recall_100", "map_1000")}
        unit = scale.unit("glove-100", method, 16, seed)
        yield record(unit, measures=measures, queries_per_second={"exact": 100.0 * (1 + seed) ** 2})


def claim(evidence, words):
    return next(claim for claim in large_sets.claims(evidence) if words in claim.text)


def test_the_table_has_means_over_trials_and_median_rates(tmp_path):
    evidence = written(tmp_path, trials("LSH", (0.4, 0.5, 0.9)))
    table = next(block for block in large_sets.scale(evidence) if isinstance(block, Table))
    (row,) = table.rows
    assert row[:3] == ["glove-100", "16", "LSH"]
    assert row[3].startswith("60.00 ± ")
    assert row[-1] == "400"


def test_differences_are_paired_by_trial(tmp_path):
    # Trials differ by far more than the methods do: only pairs show which is ahead.
    posh = list(trials("POSH", (0.350, 0.552, 0.753)))
    evidence = written(tmp_path, [*posh, *trials("FruitFly", (0.3, 0.5, 0.7))])
    assert claim(evidence, "POSH clearly outperforms FruitFly").verdict == "confirmed"


@pytest.mark.parametrize(("ahead", "verdict"), [(0.3, "confirmed"), (0.002, "undecided")])
def test_one_trial_is_judged_by_its_queries(tmp_path, ahead, verdict):
    evidence = written(tmp_path, [*trials("POSH", [0.3 + ahead]), *trials("FruitFly", [0.3])])
    assert claim(evidence, "POSH clearly outperforms FruitFly").verdict == verdict


def test_many_trials_do_not_help_against_few_queries(tmp_path):
    posh = list(trials("POSH", (0.302, 0.502, 0.703)))
    evidence = written(tmp_path, [*posh, *trials("FruitFly", (0.3, 0.5, 0.7))])
    assert claim(evidence, "POSH clearly outperforms FruitFly").verdict == "undecided"


def test_refinement_is_compared_within_each_trial(tmp_path):
    records = list(trials("POSH", (0.3, 0.5, 0.7)))
    for one, gain in zip(records, (0.050, 0.052, 0.053), strict=True):
        one["measures"]["cr2_recall_1000"] = value(one["measures"]["recall_1000"]["mean"] + gain)
    assert claim(written(tmp_path, records), "refinement by a factor 2 helps").verdict == "confirmed"
