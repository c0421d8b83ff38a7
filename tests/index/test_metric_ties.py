"""Vectors with few digits, such as integers: equal scores are equal, and the lower id comes first."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import posh


def plain(X, Q, metric, k):
    """Ids and scores (m, k) in float64."""
    X, Q = X.astype(np.float64), Q.astype(np.float64)
    scores = Q @ X.T if metric == "dot" else -((Q[:, None] - X[None]) ** 2).sum(axis=2)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(scores, order, axis=1)


@pytest.mark.parametrize("n_lists", [1, None])
@pytest.mark.parametrize("metric", ["dot", "euclidean"])
@pytest.mark.parametrize("high", [3, 256])
def test_exact_searches_of_integers_are_those_of_integers(metric, n_lists, high):
    rng = np.random.default_rng(1)
    X, Q = (rng.integers(0, high, (n, 12)).astype(np.float32) for n in (3000, 40))
    index = posh.Index(metric, n_lists=n_lists).add(X)
    found = index.search(Q, 20, exact=True)
    ids, scores = plain(X, Q, metric, 20)
    assert np.array_equal(found.scores, scores)
    assert np.array_equal(found.ids, ids)


@pytest.mark.parametrize("metric", ["dot", "euclidean"])
def test_approximate_searches_have_true_scores_in_order(metric):
    rng = np.random.default_rng(2)
    X, Q = (rng.integers(-2, 3, (n, 12)).astype(np.float32) for n in (20_000, 40))
    found = posh.Index.build(X, metric=metric).search(Q, 20)
    for q, ids, scores in zip(Q, found.ids, found.scores, strict=True):
        true = X[ids] @ q if metric == "dot" else -((X[ids] - q) ** 2).sum(axis=1)
        assert np.array_equal(scores, true)
        assert np.array_equal(np.lexsort((ids, -scores)), np.arange(20))


@settings(max_examples=30, deadline=None)
@given(st.integers(-300, 300), st.integers(0, 2**20), st.sampled_from(["dot", "euclidean"]))
def test_powers_of_two_change_no_order(exponent, seed, metric):
    rng = np.random.default_rng(seed)
    X, Q = rng.integers(-4, 5, (60, 5)) * 2.0**exponent, rng.integers(-4, 5, (6, 5)) * 2.0**exponent
    found = posh.Index(metric=metric).add(X).search(Q, 60)
    assert np.array_equal(found.ids, plain(X / 2.0**exponent, Q / 2.0**exponent, metric, 60)[0])


@pytest.mark.parametrize(
    ("metric", "first", "shift"),
    [
        ("dot", 1e-20, 0.0),
        ("dot", 1e20, 0.0),
        ("euclidean", 1e-20, 0.0),
        ("euclidean", 1e20, 0.0),
        ("euclidean", 1.0, 1e4),
    ],
)
def test_the_scale_of_a_few_first_vectors_does_not_decide(metric, first, shift):
    rng = np.random.default_rng(3)
    X = np.concatenate([rng.normal(size=(3, 8)) * first, shift + 0.01 * rng.normal(size=(2000, 8))])
    index = posh.Index(metric=metric).add(X[:3]).delete([1]).add(X[3:])
    Q = shift + 0.01 * rng.normal(size=(20, 8))
    found = index.search(Q, 5)
    X[1] = X[0]  # what is deleted may not win: its place is taken by one that is no nearer
    ids, scores = plain(X, Q, metric, 5)
    rows = [row for row in range(20) if not {0, 1} & set(ids[row])]
    assert rows or (metric, first) == ("dot", 1e20)
    assert np.array_equal(found.ids[rows], ids[rows])
    np.testing.assert_allclose(found.scores[rows], scores[rows], rtol=1e-3)
    assert (found.ids >= 0).all()


def test_vectors_that_do_not_fit_the_scale_of_many_are_refused():
    X = np.random.default_rng(4).normal(size=(50, 4))
    index = posh.Index(metric="euclidean").add(X)
    with pytest.raises(ValueError, match="in the scale of the first ones"):
        index.add(1e20 * X[:3])
    assert len(index) == 50
    with pytest.raises(ValueError, match="in the scale of the first ones"):
        index.search(1e20 * X[:3], 2)
