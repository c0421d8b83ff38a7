"""The measures of a trial, beside plain computations of them."""

from __future__ import annotations

import numpy as np
import pytest

import posh
from posh import metrics
from posh_reproduction.experiments import SPECS, trial
from posh_reproduction.experiments.rankings import Coded, asymmetric, full_map

DIGITS = posh.datasets.load("digits")
SMALL = {"n_bits": 128, "n_train": 500, "n_queries": 40}


def plain_average_precision(ranking, label, at):
    """The definition, one result after the other."""
    hits, total = 0, 0.0
    for place, document in enumerate(ranking[:at], 1):
        if DIGITS.base_labels[document] == label:
            hits += 1
            total += hits / place
    return total / hits if hits else 0.0


def plain_map(scores, at):
    """MAP of documents by score, higher first, then by id."""
    rankings = [sorted(range(len(row)), key=lambda i, row=row: (-row[i], i)) for row in scores]
    pairs = zip(rankings, DIGITS.query_labels, strict=False)
    return np.mean([plain_average_precision(ranking, label, at) for ranking, label in pairs])


def bits(codes):
    return codes.to_dense(np.float64)


def overlaps(hasher, X):
    codes, base = hasher.encode(X), hasher.encode(DIGITS.base)
    if isinstance(codes, posh.Codes):
        return bits(codes) @ bits(base).T
    return -np.abs(bits(codes)[:, None] - bits(base)[None]).sum(axis=2)


def decoder_scores(hasher, X, n_train):
    """Minus the distances to the vectors that least squares restores from codes."""
    codes = hasher.encode(DIGITS.base)
    decoder = posh.LinearDecoder(ridge=None).fit(codes[:n_train], DIGITS.base[:n_train])
    return -np.linalg.norm(X[:, None].astype(np.float64) - decoder.decode(codes)[None], axis=2)


def with_extras(unit, *extras):
    return {**unit, "extras": list(extras)}


def fitted(unit):
    return trial.make_hasher(unit).fit(DIGITS.base[: unit["n_train"]])


@pytest.mark.parametrize("method", ["ITQ", "FruitFly", "POSH"])
def test_measures_are_those_of_a_plain_computation(method):
    unit = with_extras(trial.unit("digits", method, 16, seed=0, **SMALL), "full-map")
    measures = trial.measure(unit)["measures"]
    scores = overlaps(fitted(unit), DIGITS.queries[:40])
    found = np.argsort(-scores, axis=1, kind="stable")[:, :1000]
    relevant = DIGITS.base_labels[found] == DIGITS.query_labels[:40, None]
    assert measures["map_100"]["mean"] == pytest.approx(plain_map(scores, 100))
    assert measures["map_1000"]["mean"] == pytest.approx(plain_map(scores, 1000))
    assert measures["map"]["mean"] == pytest.approx(plain_map(scores, None))
    assert measures["precision_1000"]["mean"] == pytest.approx(relevant.mean())
    assert measures["precision_1000"]["std"] == pytest.approx(relevant.mean(axis=1).std(ddof=1))
    assert measures["precision_1000"]["n_queries"] == 40


def test_asymmetric_scores_are_projections_summed_over_set_bits():
    unit = with_extras(trial.unit("digits", "POSH", 16, seed=0, **SMALL), "asymmetric")
    measures = trial.measure(unit)["measures"]
    hasher = fitted(unit)
    scores = hasher.project(DIGITS.queries[:40]).astype(np.float64) @ bits(hasher.encode(DIGITS.base)).T
    assert measures["asymmetric_map_1000"]["mean"] == pytest.approx(plain_map(scores, 1000), abs=1e-4)
    gain = measures["asymmetric_map_1000"]["mean"] - measures["map_1000"]["mean"]
    assert measures["asymmetric_map_1000_gain"]["mean"] == pytest.approx(gain)


def test_asymmetric_scoring_of_the_first_queries_only():
    hasher = posh.FruitFly(128, 16, random_state=0).fit(DIGITS.base)
    coded = Coded.by(hasher, DIGITS)
    assert np.array_equal(asymmetric(coded, 10, 5), asymmetric(coded, 10, 200)[:5])


@pytest.mark.parametrize("factor", [2, 5, 10])
def test_refinement_reorders_the_first_candidates_by_decoded_distance(factor):
    unit = with_extras(trial.unit("digits", "POSH", 16, seed=0, **SMALL), "refinement")
    measures = trial.measure(unit)["measures"]
    hasher, X = fitted(unit), DIGITS.queries[:40]
    candidates = np.argsort(-overlaps(hasher, X), axis=1, kind="stable")[:, : 100 * factor]
    scores = np.full((40, len(DIGITS.base)), -np.inf)
    decoded = decoder_scores(hasher, X, unit["n_train"])
    np.put_along_axis(scores, candidates, np.take_along_axis(decoded, candidates, axis=1), axis=1)
    assert measures[f"map_100_cr{factor}"]["mean"] == pytest.approx(plain_map(scores, 100), abs=1e-4)
    gain = measures[f"map_100_cr{factor}"]["mean"] - measures["map_100"]["mean"]
    assert measures[f"map_100_cr{factor}_gain"]["mean"] == pytest.approx(gain)


def test_a_wrong_metric_would_be_noticed(monkeypatch):
    """AP divided by the number of results, a popular mistake, is not what the plain computation gives."""
    unit = with_extras(trial.unit("digits", "LSH", 16, seed=0, n_train=500, n_queries=40))
    right = plain_map(overlaps(fitted(unit), DIGITS.queries[:40]), 1000)
    assert trial.measure(unit)["measures"]["map_1000"]["mean"] == pytest.approx(right)

    def wrong(found, wanted, at=None):
        relevant = found[:, :at] == wanted[:, None]
        return (relevant.cumsum(axis=1) / np.arange(1, relevant.shape[1] + 1) * relevant).mean(axis=1)

    monkeypatch.setattr(metrics, "average_precision", wrong)
    assert trial.measure(unit)["measures"]["map_1000"]["mean"] != pytest.approx(right, rel=0.05)


def test_full_map_of_a_class_that_is_not_in_the_base():
    data = posh.datasets.Dataset("toy", np.eye(4)[:3], np.eye(4)[3:], [0, 0, 1], [2])
    hasher = posh.FruitFly(8, 2, random_state=0).fit(data.base)
    assert full_map(Coded.by(hasher, data)) == [0.0]


@pytest.mark.parametrize("method", [*trial.DENSE, *trial.SPARSE, *trial.BEYOND])
def test_every_method_runs_and_tells_how_long_it_will_take(method):
    unit = trial.unit("digits", method, 16, seed=0, n_bits=64, n_train=100, n_queries=20)
    assert trial.measure(unit)["measures"]["map_1000"]["mean"] > 0.15
    assert 0.5 < trial.seconds(unit) < 10


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"size": 8}, {"n_bits": 256}], ids=lambda change: next(iter(change))
)
def test_the_parameters_of_a_unit_are_those_of_its_hasher(change):
    unit = trial.unit("digits", "POSH", 16, seed=0)
    params = {"seed": "random_state", "size": "n_active", "n_bits": "n_bits"}
    hasher = trial.make_hasher({**unit, **change})
    for name, value in change.items():
        assert hasher.get_params()[params[name]] == value
        assert trial.make_hasher(unit).get_params()[params[name]] != value


@pytest.mark.parametrize("method", [*trial.DENSE, *trial.SPARSE, *trial.BEYOND])
def test_hashers_keep_the_rules_of_the_paper_and_records_do_not_name_its_reduction(method):
    unit = trial.unit("digits", method, 16, seed=0, n_bits=32)
    hasher = trial.make_hasher(unit).fit(posh.datasets.load("digits").base)
    assert hasher.preprocess_.n_features_out == 16
    assert "reduce" not in trial.identity(unit)["hasher"]
    assert method != "POSH" or hasher.lag == 0.05


def test_a_record_of_another_reduction_names_it():
    unit = trial.unit("digits", "POSH", 16, seed=0, params={"reduce": "auto"})
    assert trial.identity(unit)["hasher"]["reduce"] == "auto"


def test_identity_tells_data_of_other_sizes_apart():
    units = [trial.unit("digits", "LSH", 16, seed=0, n_base=n) for n in (None, 1000, 1200)]
    assert len({trial.identity(unit)["data"]["sha256"] for unit in units}) == 3


def test_the_full_run_is_what_the_paper_did():
    units = SPECS["figure-3"].full
    assert len(units) == 3 * 8 * 5 * 10
    assert {unit["n_train"] for unit in units} == {5000}
    assert {unit["n_bits"] for unit in units if unit["method"] in trial.SPARSE} == {1024}
    assert len(SPECS["table-1"].full) == 2 * 4 * 3 * 10
    assert {unit["method"] for unit in SPECS["table-2"].full} == {"POSH"}
