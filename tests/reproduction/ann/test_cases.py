"""The data of a comparison: two halves of queries, none of them in the base, and the truth kept on disk."""

from __future__ import annotations

import numpy as np
import pytest

from posh import datasets
from posh_reproduction.ann import cases
from posh_reproduction.ann.cases import CASES, HALVES, Case, case_of


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A data set with too few queries, one of which is in the base."""
    monkeypatch.setenv("POSH_DATA", str(tmp_path))
    rng = np.random.default_rng(0)
    base = rng.normal(size=(500, 6)).astype(np.float32)
    queries = np.concatenate([rng.normal(size=(9, 6)).astype(np.float32), base[:1]])
    data = datasets.Dataset("toy", base, queries)
    monkeypatch.setattr(datasets, "load", lambda name: data)
    return data


def test_the_last_vectors_of_the_base_are_queries_if_there_are_too_few(toy):
    prepared = Case("toy", "toy", "euclidean").prepared()
    asked = np.concatenate([prepared.queries[half] for half in HALVES])
    assert len(asked) == 49  # a twentieth of 510 in each half, without the query that is in the base
    assert len(prepared.base) + 40 == len(toy.base)
    together = [row.tobytes() for row in np.concatenate([prepared.base, asked])]
    assert len(set(together)) == len(together)


def test_true_neighbours_are_computed_once_for_the_same_content(toy, monkeypatch):
    first = Case("toy", "toy", "euclidean").prepared()
    monkeypatch.setattr(cases, "measure_true_distances", None)  # calling it would fail
    again = Case("toy", "toy", "euclidean").prepared()
    for half in HALVES:
        np.testing.assert_array_equal(first.true[half], again.true[half])
        brute = np.linalg.norm(again.queries[half][:, None] - again.base[None], axis=2)
        np.testing.assert_allclose(again.true[half], np.sort(brute, axis=1)[:, :100], rtol=1e-5)
    with pytest.raises(TypeError):
        Case("toy", "toy", "cosine").prepared()  # other content


def test_cosines_have_unit_vectors_and_a_turn_keeps_distances(toy):
    cosine = Case("toy", "toy", "cosine").prepared()
    np.testing.assert_allclose(np.linalg.norm(cosine.base, axis=1), 1, rtol=1e-5)
    plain, turned = (Case("toy", "toy", "euclidean", turned=turned).prepared() for turned in (False, True))
    assert np.abs(plain.base - turned.base).max() > 0.1
    np.testing.assert_allclose(plain.true["report"], turned.true["report"], rtol=1e-4)


def test_patches_are_turned_however_many_are_taken():
    for name in ("cifar10-patches", "cifar10-patches-1m"):
        assert case_of(name).turned
        assert case_of(name).metric == "euclidean"
    assert case_of("wordnet-minilm").metric == case_of("glove-100").metric == "cosine"


def test_cases_can_be_cut_and_given_another_metric():
    case = case_of("mnist", "cosine", 1000)
    assert (case.metric, case.n_base) == ("cosine", 1000)
    assert CASES["mnist"].metric == "euclidean"
    with pytest.raises(ValueError, match="unknown data 'nope'; choose from glove-100, wordnet-minilm"):
        case_of("nope")
