"""The merge of results against a plain sort of everything."""

from __future__ import annotations

import numpy as np
import pytest

import posh
from posh.batch import merged
from posh.batch.joined import _joined, search_all
from posh.index.params import SearchParams


@pytest.mark.parametrize("seed", range(20))
def test_merging_is_a_sort_of_everything(seed):
    rng = np.random.default_rng(seed)
    m, k, n_lists = 5, int(rng.integers(1, 8)), int(rng.integers(2, 6))
    ids = rng.permutation(m * 100).reshape(m, 100)[:, : n_lists * k]
    scores = rng.integers(0, 4, ids.shape).astype(np.float32)  # many are equal
    ids[:, -k:][rng.random((m, k)) < 0.3] = -1
    scores[ids < 0] = -np.inf
    lists = [(ids[:, i * k : (i + 1) * k], scores[:, i * k : (i + 1) * k]) for i in range(n_lists)]
    best = lists[0]
    for other in lists[1:]:
        best = merged(best, other, k)
    for row in range(m):
        pairs = sorted(
            (-score, number) for number, score in zip(ids[row], scores[row], strict=True) if number >= 0
        )
        pairs = (pairs + [(np.inf, -1)] * k)[:k]
        assert best[0][row].tolist() == [number for _, number in pairs]
        assert best[1][row].tolist() == [-score for score, _ in pairs]


def test_the_order_of_lists_does_not_matter():
    some = np.array([[4, 9]]), np.array([[2.0, 1.0]], np.float32)
    others = np.array([[3, 8]]), np.array([[1.0, 1.0]], np.float32)
    for one, other in ((some, others), (others, some)):
        ids, scores = merged(one, other, 2)
        assert ids.tolist() == [[4, 3]]
        assert scores.tolist() == [[2.0, 1.0]]


def test_an_id_of_two_shards_is_an_error():
    some = np.array([[4, 9]]), np.array([[2.0, 1.0]], np.float32)
    with pytest.raises(ValueError, match="expected each id in one shard only, got 9 from two"):
        merged(some, (np.array([[9, -1]]), np.array([[1.0, -np.inf]], np.float32)), 2)


@pytest.mark.parametrize("first_ids", [(0, 100, 200), (200, 0, 100)], ids=["ascending", "not ascending"])
@pytest.mark.parametrize("k", [1, 7, 500])
def test_shards_that_are_joined_are_those_that_are_merged(first_ids, k):
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(60, 8)), 5, axis=0).astype(np.float32)  # many equal scores
    hasher = posh.POSH(64, 4, n_epochs=1, random_state=0).fit(X)
    parts = [posh.Index(hasher).add(X[i : i + 100], np.arange(i, i + 100)).snapshot() for i in first_ids]
    assert (_joined(parts) is None) == (first_ids[0] > 0)
    hits = search_all(parts, X[::7], SearchParams(k=k, min_score=1.0))
    expected = posh.Index(hasher).add(X).search(X[::7], k=k, min_score=1.0)
    np.testing.assert_array_equal(hits.ids, expected.ids)
    np.testing.assert_array_equal(hits.scores, expected.scores)


def test_what_cannot_be_joined():
    X = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    hasher = posh.POSH(64, 4, n_epochs=1, random_state=0).fit(X)
    assert _joined([posh.Index(hasher).snapshot()]) is None
    assert _joined([posh.Index(hasher, refine="decoder").add(X).snapshot()]) is None
    assert _joined([posh.Index(hasher, structure="ivf").add(X).snapshot()]) is None
    assert _joined([posh.Index(hasher).add(X).snapshot()]) is not None
