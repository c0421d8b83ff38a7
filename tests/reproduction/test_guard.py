"""Leaks are caught."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import posh
from posh_reproduction.experiments import data as experiment_data
from posh_reproduction.experiments import trial
from posh_reproduction.experiments.guard import LeakError, check_data, check_ids
from posh_reproduction.experiments.rankings import Coded

DIGITS = posh.datasets.load("digits")


@pytest.fixture
def swapped(monkeypatch):
    """Let units find other data under the name of digits."""
    experiment_data.load.cache_clear()

    def swap(data):
        monkeypatch.setattr("posh.datasets.load", lambda name, n_base=None: data)

    yield swap
    experiment_data.load.cache_clear()


def test_a_query_in_the_base(swapped):
    swapped(replace(DIGITS, queries=np.concatenate([DIGITS.queries[:-1], DIGITS.base[7:8]])))
    with pytest.raises(LeakError, match="expected no query in the base, got 1"):
        trial.measure(trial.unit("digits", "LSH", 16, seed=0))


@pytest.mark.parametrize("column", [0, 63])
def test_a_label_among_the_features(swapped, column):
    leaking = {}
    for side, labels in (("base", DIGITS.base_labels), ("queries", DIGITS.query_labels)):
        leaking[side] = getattr(DIGITS, side).copy()
        leaking[side][:, column] = labels
    swapped(replace(DIGITS, **leaking))
    with pytest.raises(LeakError, match=f"got the label in column {column}"):
        trial.measure(trial.unit("digits", "LSH", 16, seed=0))


def test_data_without_labels():
    unlabelled = replace(DIGITS, base_labels=None, query_labels=None)
    with pytest.raises(LeakError, match="expected labels"):
        check_data(unlabelled)


def test_queries_without_labels_that_are_in_the_base_are_left_out(swapped):
    queries = np.concatenate([DIGITS.queries[:5], DIGITS.base[7:8], DIGITS.queries[5:9]])
    swapped(posh.datasets.Dataset("digits", DIGITS.base, queries))
    found = experiment_data.load("digits", n_queries=8, labelled=False)
    assert np.array_equal(found.queries, DIGITS.queries[:7])


def test_fit_gets_the_training_vectors_only(monkeypatch):
    given = []

    def fit(self, *args, **kwargs):
        given.append((args, kwargs))
        return original(self, *args, **kwargs)

    original = posh.LSH.fit
    monkeypatch.setattr(posh.LSH, "fit", fit)
    trial.measure(trial.unit("digits", "LSH", 16, seed=0, n_train=500))
    ((X,), kwargs) = given[0]
    assert np.array_equal(X, DIGITS.base[:500])
    assert (len(given), kwargs) == (1, {})


@pytest.mark.parametrize("method", ["LSH", "POSH"])
def test_labels_change_what_is_counted_but_nothing_that_is_found(swapped, method):
    unit = trial.unit("digits", method, 16, seed=0, n_bits=128, n_train=500)
    honest = trial.measure(unit)["measures"]["map_1000"]["mean"]
    rng = np.random.default_rng(0)
    experiment_data.load.cache_clear()
    swapped(
        replace(
            DIGITS,
            base_labels=rng.permutation(DIGITS.base_labels),
            query_labels=rng.permutation(DIGITS.query_labels),
        )
    )
    chance = trial.measure(unit)["measures"]["map_1000"]["mean"]
    assert honest > 0.3
    assert abs(chance - 0.1) < 0.03  # ten classes


@pytest.mark.parametrize(
    ("ids", "message"),
    [([[0, -1]], "got -1..0"), ([[0, 5]], "got 0..5"), ([[3, 3]], "got one twice")],
    ids=["missing", "beyond the base", "twice"],
)
def test_ids_that_are_no_ranking(ids, message):
    with pytest.raises(ValueError, match=message):
        check_ids(np.array(ids), 5)


def test_a_search_for_more_than_there_is():
    data = replace(DIGITS.head(20))
    coded = Coded.by(posh.LSH(16, random_state=0).fit(data.base), data)
    with pytest.raises(ValueError, match=r"expected ids in 0\.\.19, got -1"):
        coded.ranked(21)
