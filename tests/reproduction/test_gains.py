"""PowerHash: gains over its rivals query by query, what it chose, and the rules that it chooses from."""

from __future__ import annotations

import pytest

import posh
from posh_reproduction.experiments import KINDS, SPECS, gains, trial

LIMITS = {"n_bits": 64, "n_train": 200, "n_base": 1200, "n_queries": 30}


def test_gains_are_those_of_the_trials_with_the_same_seed():
    unit = gains.unit("digits", 16, seed=0, **LIMITS)
    found = gains.measure(unit)["measures"]
    single = {
        method: trial.measure(trial.unit("digits", method, 16, 0, extras=("asymmetric",), **LIMITS))
        for method in (gains.OURS, *gains.RIVALS)
    }
    for rival in gains.RIVALS:
        for measure in gains.MEASURES:
            values = [single[method]["measures"][measure]["mean"] for method in (gains.OURS, rival)]
            gain = found[gains.name(measure, rival)]
            assert gain["mean"] == pytest.approx(values[0] - values[1])
            assert gain["n_queries"] == 30
            assert gain["std"] > 0


def test_all_hashers_decide_the_identity_and_the_line_names_the_rivals():
    unit = gains.unit("digits", 16, seed=0, **LIMITS)
    assert set(KINDS["gains"].identity(unit)["hashers"]) == {gains.OURS, *gains.RIVALS}
    record = {"unit": unit, **gains.measure(unit)}
    assert all(f"over {rival}" in gains.headline(record) for rival in gains.RIVALS)
    assert gains.seconds(unit) > max(trial.seconds(one) for one in gains._trials(unit))


def test_a_trial_of_power_hash_records_what_it_chose():
    unit = trial.unit("digits", "PowerHash", 16, 0, **LIMITS)
    chosen = trial.measure(unit)["chosen"]
    rules = posh.PowerHash(64, 16)._list_rules()
    assert chosen in [{"power": r.power, "n_winners": r.n_winners, "unit": r.unit} for r in rules]
    assert "chosen" not in trial.measure(trial.unit("digits", "LSH", 16, 0, **LIMITS))


def test_each_rule_that_is_measured_alone_is_one_that_it_chooses_from():
    for size in (8, 128):
        measured = [u["params"] for u in SPECS["power-hash-rules"].full if u["size"] == size]
        rules = posh.PowerHash(1024, size)._list_rules()
        known = [{"power": r.power, "n_winners": r.n_winners, "unit": r.unit} for r in rules]
        assert measured == 3 * known
