"""The other kinds of units on tiny data, beside plain computations."""

from __future__ import annotations

import numpy as np
import pytest

import posh
from posh import datasets
from posh_reproduction.experiments import (
    KINDS,
    SPECS,
    learning,
    missing_files,
    orthogonality,
    sbiht,
    scale,
    trial,
)
from posh_reproduction.experiments import data as experiment_data
from posh_reproduction.experiments.data import balanced, load
from posh_reproduction.experiments.hashers import paper_hasher
from posh_reproduction.experiments.spec import key

DIGITS = datasets.load("digits")
TINY = {"data": "digits", "per_class": (30, 5), "n_train": 200}


@pytest.fixture
def unlabelled(monkeypatch):
    """Let units find digits without labels."""
    names = {"base_names": np.arange(len(DIGITS.base)), "query_names": np.arange(len(DIGITS.queries))}
    bare = posh.datasets.Dataset("digits", DIGITS.base, DIGITS.queries, **names)
    monkeypatch.setattr("posh.datasets.load", lambda name, n_base=None: bare)
    for cached in (experiment_data.load, experiment_data.fingerprint, scale._nearest):
        cached.cache_clear()
    yield
    for cached in (experiment_data.load, experiment_data.fingerprint, scale._nearest):
        cached.cache_clear()


def test_entries_of_bernoulli_products_are_binomial():
    found = orthogonality.measure(orthogonality.unit(0.3, n_matrices=20, n_bits=200, n_features=40))[
        "entries"
    ]
    scale_ = 200 * 0.3
    for name, p in (("diagonal", 0.3), ("others", 0.09)):
        assert found[name]["mean"] == pytest.approx(200 * p / scale_, rel=0.03)
        assert found[name]["std"] == pytest.approx((200 * p * (1 - p)) ** 0.5 / scale_, rel=0.1)
        low, high = found[name]["quantiles"]["0.025"], found[name]["quantiles"]["0.975"]
        assert high - low == pytest.approx(3.92 * found[name]["std"], rel=0.15)
    assert found["others"]["n"] == 20 * 40 * 39 / 2


def test_quantiles_are_those_of_the_entries():
    found = orthogonality.measure(orthogonality.unit(0.5, n_matrices=1, n_bits=30, n_features=8))["entries"]
    W = posh.FruitFly(30, 1, p=0.5, random_state=0).fit(np.eye(8)).weights_
    diagonal = np.diag(W.T @ W) / 15
    assert found["diagonal"]["mean"] == pytest.approx(diagonal.mean())
    assert found["diagonal"]["quantiles"]["0.5"] == pytest.approx(np.sort(diagonal)[3])


@pytest.mark.parametrize("method", learning.METHODS)
def test_the_last_epoch_is_what_fit_learns(method):
    unit = learning.unit(method, 0, size=8, **TINY)
    measured = learning.measure(unit)
    data = balanced(load("digits"), 30, 5)
    hasher = paper_hasher(method, {"n_bits": 1024, "n_active": 8, "random_state": 0}).fit(data.base[:200])
    last = measured["epochs"][-1]
    assert last["epoch"] == len(hasher.objective_)
    assert last["objective"] == pytest.approx(learning.objective(hasher, data.base[:200]), rel=1e-5)
    shared = hasher.transform(data.queries).toarray() @ hasher.transform(data.base).toarray().T
    order = np.argsort(-shared, axis=1, kind="stable")
    expected = posh.metrics.mean_average_precision(
        data.base_labels[order], data.query_labels, at=len(data.base)
    )
    assert last["mean"] == pytest.approx(expected)
    assert [epoch["epoch"] for epoch in measured["epochs"][:12]] == [*range(1, 11), 15, 20]


def test_objectives_are_what_the_paper_defines():
    X = DIGITS.base[:100]
    hasher = posh.POSH(128, 8, n_epochs=3, random_state=0).fit(X)
    Z, H = hasher.preprocess_(X), hasher.transform(X).toarray()
    expected = np.square(H - Z @ hasher.weights_.T).sum(axis=1).mean()
    assert learning.objective(hasher, X) == pytest.approx(expected, rel=1e-4)
    units = posh.BioHash(128, 8, n_epochs=3, random_state=0).fit(X)
    Z = units.preprocess_(X)
    best = [max(range(128), key=lambda j, z=z: units.weights_[j] @ z) for z in Z]
    cosines = [
        units.weights_[j] @ z / np.linalg.norm(units.weights_[j]) / np.linalg.norm(z)
        for j, z in zip(best, Z, strict=True)
    ]
    assert learning.objective(units, X) == pytest.approx(np.mean(cosines), rel=1e-4)


def test_a_learning_rate_reaches_the_hasher():
    slow, fast = (learning.unit("BioHash", 0, learning_rate=rate, size=8, **TINY) for rate in (0.001, 0.1))
    assert learning.identity(slow)["hasher"]["learning_rate"] == 0.001
    assert learning.measure(slow)["mean_norm"] > learning.measure(fast)["mean_norm"]


def test_sbiht_begins_at_the_linear_decoder_and_meets_codes_better():
    unit = sbiht.unit(8, 0, n_iter=5, data="digits", per_class=(30, 5), n_train=200)
    measured = sbiht.measure(unit)
    data = balanced(load("digits"), 30, 5)
    hasher = paper_hasher("POSH", {"n_bits": 1024, "n_active": 8, "random_state": 0}).fit(data.base[:200])
    codes = hasher.encode(data.base)
    decoded = posh.LinearDecoder().fit(codes[:200], data.base[:200]).decode(codes)
    shared = hasher.transform(data.queries).toarray() @ hasher.transform(data.base).toarray().T
    candidates = np.argsort(-shared, axis=1, kind="stable")[:, :200]
    far = np.linalg.norm(data.queries[:, None] - decoded[candidates], axis=2)
    order = np.take_along_axis(candidates, np.argsort(far, axis=1), axis=1)[:, :100]
    first, last = measured["iterations"][0], measured["iterations"][-1]
    expected = posh.metrics.mean_average_precision(data.base_labels[order], data.query_labels)
    assert first["mean"] == pytest.approx(expected, abs=1e-3)
    assert last["loss"] < first["loss"]
    assert last["met"] >= first["met"]
    plain = posh.metrics.mean_average_precision(data.base_labels[candidates], data.query_labels, at=100)
    assert measured["unrefined"]["mean"] == pytest.approx(plain)


@pytest.mark.usefixtures("unlabelled")
@pytest.mark.parametrize("method", scale.METHODS)
def test_scale_counts_true_neighbours(method):
    unit = scale.unit("digits", method, 64, 0, n_train=300, n_queries=20)
    record = {"unit": unit, **scale.measure(unit)}
    hasher = trial.make_hasher(unit).fit(DIGITS.base[:300])
    unit_rows = [X / np.linalg.norm(X, axis=1, keepdims=True) for X in (DIGITS.base, DIGITS.queries[:20])]
    nearest = np.argsort(-(unit_rows[1] @ unit_rows[0].T), axis=1)[:, :100]
    bits = [hasher.encode(X).to_dense(np.float64) for X in (DIGITS.base, DIGITS.queries[:20])]
    distance = np.abs(bits[1][:, None] - bits[0][None]).sum(axis=2)
    found = np.argsort(distance, axis=1, kind="stable")[:, :1000]
    for at in (100, 1000):
        expected = np.mean([np.isin(true, own[:at]).mean() for true, own in zip(nearest, found, strict=True)])
        assert record["measures"][f"recall_{at}"]["mean"] == pytest.approx(expected, abs=2e-3)
    assert record["queries_per_second"]["exact"] > 0
    assert "queries per second" in scale.headline(record)
    extras = {"cr2_recall_1000", "coarse_recall_1000"} & set(record["measures"])
    assert len(extras) == (2 if method == "POSH" else 0)


def test_scale_counts_labels_where_there_are_any():
    measures = scale.measure(scale.unit("digits", "POSH", 64, 0, n_train=300, n_queries=20))["measures"]
    names = {
        f"{prefix}{name}" for prefix in ("", "cr2_", "coarse_") for name in ("map_1000", "precision_1000")
    }
    assert set(measures) == names
    assert measures["map_1000"]["mean"] > 0.3
    assert measures["coarse_map_1000"]["mean"] > 0.3


def mat_files(folder, stem="cifar10_vggfc7"):
    """Files as the authors of KNNH lay them out, with digits in them."""
    from scipy.io import savemat

    (folder / "knnh").mkdir()
    parts = {"train": (DIGITS.base, DIGITS.base_labels), "test": (DIGITS.queries, DIGITS.query_labels)}
    for part, (X, labels) in parts.items():
        content = {f"{part}_features": X, f"{part}_labels": labels[:, None]}
        savemat(folder / "knnh" / f"{stem}_{part}.mat", content)
    for part, (X, labels) in parts.items():
        name = "places205-" + part
        savemat(folder / "knnh" / f"{name}.mat", {f"{part.upper()}_GIST_MAT": X.T})
        savemat(folder / "knnh" / f"{name}-label.mat", {f"{part.upper()}_LABEL_MAT": labels[None]})


@pytest.mark.parametrize(
    "unit",
    [
        trial.unit("cifar10-vgg", "POSH", 16, 0, n_bits=64, extras=["refinement"]),
        scale.unit("places205", "POSH", 64, 0, n_train=500, n_queries=None),
    ],
    ids=["figure-3-authors", "places205"],
)
def test_the_authors_files_are_all_that_is_missing(unit, tmp_path, monkeypatch):
    monkeypatch.setenv("POSH_DATA", str(tmp_path))
    assert missing_files([unit]) == [unit["data"]]
    mat_files(tmp_path)
    assert missing_files([unit]) == []
    kind = KINDS[unit["kind"]]
    measures = kind.measure(unit)["measures"]
    assert measures["map_1000"]["mean"] > 0.3
    assert measures["map_1000"]["n_queries"] == 200
    assert kind.identity(unit)["data"]["base"] == [1597, 64]


def test_random_weights_reach_the_hasher():
    unit = trial.unit("digits", "FruitFly", 16, 0, params={"weights": "orthogonal"}, extras=())
    assert trial.identity(unit)["hasher"]["weights"] == "orthogonal"
    assert "{'weights': 'orthogonal'}" in trial.headline({"unit": unit, **trial.measure(unit)})
    assert key(trial.unit("digits", "FruitFly", 16, 0, params={})) == key(
        trial.unit("digits", "FruitFly", 16, 0)
    )


def test_every_unit_tells_how_long_it_will_take():
    for spec in SPECS.values():
        for unit in {unit["kind"]: unit for unit in (*spec.full, *spec.quick)}.values():
            assert 0 < KINDS[unit["kind"]].seconds(unit) < 3600


def test_the_lengths_of_codes_include_those_of_figure_3():
    units = SPECS["hash-length"].full
    shared = {key(unit) for unit in SPECS["figure-3"].full}
    assert {unit["n_bits"] for unit in units} == {128, 256, 512, 1024, 2048}
    assert {unit["n_bits"] for unit in units if key(unit) in shared} == {1024}


def test_asymmetric_scoring_has_ten_trials_and_takes_those_of_figure_3_first():
    units = SPECS["asymmetric"].full
    shared = {key(unit) for name in ("figure-3", "power-hash") for unit in SPECS[name].full}
    assert {unit["method"] for unit in units} == {*trial.SPARSE, *trial.BEYOND}
    assert {unit["seed"] for unit in units} == set(range(10))
    by_method = {m: {u["seed"] for u in units if u["method"] == m and key(u) in shared} for m in trial.SPARSE}
    assert all(seeds == {0, 1, 2} for seeds in by_method.values())
    assert all(key(unit) in shared for unit in units if unit["method"] in trial.BEYOND)
    assert all("asymmetric" in unit["extras"] for unit in units)


def test_posh_by_mini_batches_begins_at_random_weights_and_learns():
    epochs = learning.measure(learning.unit("POSH", 0, batches=True, size=8, **TINY))["epochs"]
    assert [epoch["epoch"] for epoch in epochs] == [0, 0.5, *range(1, 11)]
    objectives = [epoch["objective"] for epoch in epochs]
    assert objectives[0] > objectives[2] > objectives[-1]
