"""The report on PowerHash: against the best of the eight, cell by cell."""

from __future__ import annotations

import pytest

from posh_reproduction.experiments import SPECS
from posh_reproduction.report import power_hash
from posh_reproduction.report.document import Table, Text
from tests.reproduction.test_report import trial_record, value, written


def records(lead):
    """Three trials on MNIST in which POSH is the best of the eight, and PowerHash is ahead of it."""
    for unit in SPECS["figure-3"].full + SPECS["power-hash"].full:
        if unit["data"] != "mnist" or unit["seed"] > 2:
            continue
        mean = {"POSH": 0.8, "PowerHash": 0.8 + lead}.get(unit["method"], 0.5) + 0.001 * unit["seed"] ** 2
        if unit["method"] == "PowerHash":
            mean += 0.0001 * unit["seed"]
        one = trial_record("mnist", unit["method"], unit["size"], unit["seed"], mean)
        if "asymmetric" in unit["extras"]:
            one["measures"]["asymmetric_map_1000"] = value(mean - 0.1)
        yield one | {"fit_cpu_seconds": 7.0}


@pytest.mark.parametrize(
    ("lead", "words"),
    [
        (0.03, "At least as good as the best of the eight in 5 of 5 cells"),
        (-0.0001, "At least as good as the best of the eight in 5 of 5 cells"),
        (-0.02, "More than 1 point below in 5 cells (the lowest: -1.99)"),
    ],
)
def test_the_best_of_the_eight_is_the_measure(tmp_path, lead, words):
    evidence = written(tmp_path, records(lead))
    blocks = list(power_hash.section(evidence))
    texts = [line for block in blocks if isinstance(block, Text) for line in block.lines]
    assert sum(words in line for line in texts) == 2  # by shared bits and with asymmetric scoring
    table = next(block for block in blocks if isinstance(block, Table))
    row = next(row for row in table.rows if row[0] == "MNIST")
    assert all("\nPOSH 80.17" in cell for cell in row[1:])
    (claim,) = power_hash.claims(evidence)
    assert claim.verdict == {0.03: "confirmed", -0.0001: "undecided", -0.02: "refuted"}[lead]


def test_without_trials_nothing_is_claimed(tmp_path):
    (claim,) = power_hash.claims(written(tmp_path, []))
    assert claim.verdict == "not measured"


def test_rules_are_shown_when_they_are_measured(tmp_path):
    unit = next(u for u in SPECS["power-hash-rules"].full if u["data"] == "mnist" and u["size"] == 16)
    one = trial_record("mnist", "PowerHash", 16, 0, 0.77) | {"unit": unit}
    evidence = written(tmp_path, [*records(0.01), one])
    cells = [c for b in power_hash.section(evidence) if isinstance(b, Table) for row in b.rows for c in row]
    assert "77.00" in cells
