"""The merge of results against a plain sort of everything."""

from __future__ import annotations

import numpy as np
import pytest

import posh
from posh.batch import merge_hits
from posh.batch.shard_search import _join_segments, search_shards
from posh.index.codes.options import CodeParams


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
        best = merge_hits(best, other, k)
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
        ids, scores = merge_hits(one, other, 2)
        assert ids.tolist() == [[4, 3]]
        assert scores.tolist() == [[2.0, 1.0]]


@pytest.mark.parametrize("first_ids", [(0, 100, 200), (200, 0, 100)], ids=["ascending", "not ascending"])
@pytest.mark.parametrize("k", [1, 7, 500])
def test_shards_that_are_joined_are_those_that_are_merged(first_ids, k):
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(60, 8)), 5, axis=0).astype(np.float32)  # many equal scores
    hasher = posh.POSH(64, 4, n_epochs=1, random_state=0).fit(X)
    parts = [posh.CodeIndex(hasher).add(X[i : i + 100], np.arange(i, i + 100)).snapshot() for i in first_ids]
    assert (_join_segments(parts, CodeParams()) is None) == (first_ids[0] > 0)
    hits = search_shards(parts, X[::7], CodeParams(k=k, min_score=1.0))
    expected = posh.CodeIndex(hasher).add(X).search(X[::7], k=k, min_score=1.0)
    np.testing.assert_array_equal(hits.ids, expected.ids)
    np.testing.assert_array_equal(hits.scores, expected.scores)


def test_other_indexes_are_not_joined():
    X = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    hasher = posh.POSH(64, 4, n_epochs=1, random_state=0).fit(X)
    assert _join_segments([posh.CodeIndex(hasher).snapshot()], CodeParams()) is None
    assert _join_segments([posh.CodeIndex(hasher, refine="decoder").add(X).snapshot()], CodeParams()) is None
    assert _join_segments([posh.CodeIndex(hasher, structure="ivf").add(X).snapshot()], CodeParams()) is None
    assert _join_segments([posh.CodeIndex(hasher).add(X).snapshot()], CodeParams()) is not None
