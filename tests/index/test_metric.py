"""An index with a metric: exact scores, and right results whatever the data, the filter and the history."""

from __future__ import annotations

import copy
import pickle
from functools import cache

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import posh
from posh.index.brute_force import find_nearest
from posh.index.nearest.vectors import decode_vectors
from tests.conftest import clusters

METRICS = ("cosine", "euclidean", "dot")
X = clusters(6000, 24, seed=3).astype(np.float32)
Q = clusters(6000, 24, seed=3)[::60].astype(np.float32) + 0.1


def plain_scores(metric, Q, X):
    """Scores (m, n) in float64, by the definition of the metric."""
    Q, X = Q.astype(np.float64), X.astype(np.float64)
    if metric == "euclidean":
        return -cdist(Q, X, "sqeuclidean")
    if metric == "dot":
        return Q @ X.T
    lengths = np.linalg.norm(Q, axis=1)[:, None] * np.linalg.norm(X, axis=1)
    return np.divide(Q @ X.T, lengths, out=np.zeros((len(Q), len(X))), where=lengths > 0)


@cache
def true_scores(metric):
    """Scores of all Q and X: they take longer than the searches that they judge."""
    return plain_scores(metric, Q, X)


def recall(hits, metric, k):
    best = np.argsort(-true_scores(metric), axis=1, kind="stable")[:, :k]
    return np.mean([len(set(a) & set(b)) / k for a, b in zip(hits.ids.tolist(), best.tolist(), strict=True)])


def index(metric, **options):
    return posh.Index(metric, **{"n_lists": 32} | options)


@cache
def full(metric, store="float32"):
    """An index of all of X, which tests share: who changes it takes a copy."""
    return index(metric, store=store).add(X)


@cache
def thinned(metric, store):
    """An index of which documents were removed; tests share it, too."""
    return index(metric, store=store, optimize="build").add(X[:4000]).delete(np.arange(0, 4000, 5))


@pytest.fixture(params=METRICS)
def built(request):
    return request.param, full(request.param)


def test_most_neighbours_are_found_and_scores_are_those_of_the_metric(built):
    metric, one = built
    hits = one.search(Q, 10)
    assert hits.kind == metric
    assert recall(hits, metric, 10) > 0.9
    expected = np.take_along_axis(true_scores(metric), hits.ids, axis=1)
    np.testing.assert_allclose(hits.scores, expected, rtol=1e-5, atol=1e-5)
    assert (np.diff(hits.scores, axis=1) <= 0).all()


def test_all_lists_and_no_skipping_find_everything(built):
    metric, one = built
    assert recall(one.search(Q, 10, n_probe=32, slack=100.0, oversample=20), metric, 10) == 1.0


def test_exact_equals_brute_force(built):
    metric, one = built
    hits = one.search(Q, 10, exact=True)
    scores = true_scores(metric)
    best = np.take_along_axis(scores, np.argsort(-scores, axis=1)[:, :10], axis=1)
    np.testing.assert_allclose(hits.scores, best, rtol=1e-5, atol=1e-5)
    assert recall(hits, metric, 10) == 1.0


def test_one_by_one_and_threads_do_not_matter_much(built):
    metric, one = built
    together, two = one.search(Q, 10, n_threads=1), one.search(Q, 10, n_threads=2)
    np.testing.assert_array_equal(together.ids, two.ids)
    alone = [one.search(q, 10) for q in Q]
    assert (
        recall(posh.Hits(np.concatenate([h.ids for h in alone]), together.scores, metric), metric, 10) > 0.9
    )


@pytest.mark.parametrize("n_allowed", [0, 1, 7, 300, 3000])
def test_filters(built, n_allowed):
    metric, one = built
    allowed = np.random.default_rng(n_allowed).choice(len(X), n_allowed, replace=False)
    hits = one.search(Q, 10, filter=allowed, slack=2.0)
    assert np.isin(hits.ids, [*allowed, -1]).all()
    n_found = min(10, n_allowed)
    assert ((hits.ids >= 0).sum(axis=1) == n_found).all()
    assert np.isneginf(hits.scores[:, n_found:]).all()
    mask = np.full(len(X), -np.inf)
    mask[allowed] = 0.0
    best = np.sort(true_scores(metric) + mask, axis=1)[:, ::-1][:, :n_found]
    assert np.isclose(hits.scores[:, :n_found], best, rtol=1e-4, atol=1e-4).mean() > 0.9 if n_found else True


def test_what_is_removed_is_gone_and_what_is_added_is_found(built):
    _, one = built
    own = copy.copy(one)
    first = own.search(Q, 1).ids[:, 0]
    own.delete(np.unique(first))
    assert not np.isin(own.search(Q, 10).ids, first).any()
    own.add(X[np.unique(first)])
    scores = own.search(Q, 1, n_probe=32, slack=100.0).scores
    np.testing.assert_allclose(scores, one.search(Q, 1, n_probe=32, slack=100.0).scores, rtol=1e-5)
    before = own.search(Q, 10, n_probe=32, slack=100.0).scores
    np.testing.assert_allclose(own.compact().search(Q, 10, n_probe=32, slack=100.0).scores, before, rtol=1e-5)


def test_more_results_than_documents(built):
    metric, one = built
    few = index(metric).add(X[:5])
    hits = few.search(Q, 9)
    assert (np.sort(hits.ids[:, :5], axis=1) == np.arange(5)).all()
    assert (hits.ids[:, 5:] == -1).all()
    assert (one.search(Q[:3], 6500).ids >= 0).sum() == 3 * 6000


@pytest.mark.parametrize("store", ["float16", "int8"])
@pytest.mark.parametrize("metric", METRICS)
def test_smaller_stores(metric, store):
    hits = full(metric, store).search(Q, 10)
    assert recall(hits, metric, 10) > 0.85
    expected = np.take_along_axis(true_scores(metric), hits.ids, axis=1)
    scale = np.abs(true_scores(metric)).max()
    np.testing.assert_allclose(hits.scores, expected, atol=0.01 * scale)


def test_int8_has_no_exact_search():
    small = index("cosine", store="int8").add(X[:300])
    with pytest.raises(ValueError, match=r"store='int8': build it with store='float32'"):
        small.search(Q, exact=True)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_scales(metric, scale):
    hits = index(metric).add(X.astype(np.float64) * scale).search(Q.astype(np.float64) * scale, 10)
    assert recall(hits, metric, 10) > 0.9
    factor = 1.0 if metric == "cosine" else scale**2
    expected = np.take_along_axis(true_scores(metric), hits.ids, axis=1) * factor
    np.testing.assert_allclose(hits.scores, expected, rtol=1e-4, atol=1e-5 * factor)


@pytest.mark.parametrize("metric", METRICS)
def test_zero_vectors_and_duplicates(metric):
    data = np.repeat(X[:50], 80, axis=0)
    data[::3] = 0.0
    one = index(metric).add(data)
    hits = one.search(np.vstack([Q[:5], np.zeros((1, 24), np.float32)]), 10, slack=4.0)
    assert (hits.ids >= 0).all()
    assert np.isfinite(hits.scores).all()
    exact = one.search(Q[:5], 10, exact=True)
    np.testing.assert_allclose(hits.scores[:5], exact.scores, rtol=1e-5, atol=1e-5)


def test_one_list_holds_everything():
    one = index("cosine", n_lists=1).add(X)
    assert recall(one.search(Q, 10, n_probe=1, slack=2.0), "cosine", 10) > 0.9


def test_parameters_of_the_other_class_are_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument 'hasher'"):
        posh.Index(hasher=posh.POSH(64, 8))
    with pytest.raises(TypeError, match="unexpected keyword argument 'scoring'"):
        index("dot").add(X[:10]).search(Q, scoring="overlap")
    with pytest.raises(ValueError, match="expected metric to be one of"):
        posh.Index("l2")


@pytest.mark.parametrize("is_distance", [False, True])
def test_brute_force_breaks_ties_by_slot(is_distance):
    vectors = np.repeat(np.eye(4, dtype=np.float32), 30, axis=0)
    slots = np.arange(1, 120, 2)
    found = find_nearest(vectors, slots, vectors[[0, 119]], 5, is_distance=is_distance)
    assert found.slots.tolist() == [[1, 3, 5, 7, 9], [91, 93, 95, 97, 99]]


@pytest.mark.parametrize("store", ["float32", "float16", "int8"])
@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("metric", METRICS)
def test_a_saved_index_gives_the_same_answers(metric, mmap, store, tmp_path):
    one = thinned(metric, store)
    one.save(tmp_path / "index")
    again = posh.Index.load(tmp_path / "index", mmap=mmap)
    for other in (again, copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        np.testing.assert_array_equal(other.search(Q, 10).ids, one.search(Q, 10).ids)
        np.testing.assert_array_equal(other.search(Q, 10).scores, one.search(Q, 10).scores)
    assert len(again.add(X[4000:])) == 5200
    assert (again.search(X[4000:4010], 1, slack=100.0).ids[:, 0] >= 0).all()


@pytest.mark.parametrize("n_lists", [1, None])
@pytest.mark.parametrize("metric", METRICS)
def test_an_index_before_and_after_its_first_documents(metric, n_lists, tmp_path):
    one = posh.Index(metric, n_lists=n_lists)
    assert one.search(Q[:2], 3).ids.tolist() == [[-1] * 3] * 2
    one.save(tmp_path / "empty")
    assert len(posh.Index.load(tmp_path / "empty").add(X[:9])) == 9
    one.add(X)
    assert recall(one.search(Q, 10), metric, 10) > 0.9
    one.save(tmp_path / "index")
    again = posh.Index.load(tmp_path / "index")
    np.testing.assert_array_equal(again.search(Q, 10).ids, one.search(Q, 10).ids)
    with pytest.raises(ValueError, match="expected vectors with 24 columns"):
        one.add(X[:, :5])


def test_wide_vectors():
    wide = np.random.default_rng(0).normal(size=(3000, 700)).astype(np.float32)
    one = posh.Index(metric="euclidean").add(wide)
    assert (one.search(wide[:20], 1, n_probe=99, slack=100.0).ids[:, 0] == np.arange(20)).all()


@pytest.mark.parametrize("store", ["float32", "float16", "int8"])
@pytest.mark.parametrize("n_lists", [1, None])
def test_the_memory_is_estimated(n_lists, store):
    one = posh.Index("euclidean", n_lists=n_lists, store=store)
    with pytest.raises(ValueError, match="expected n_features"):
        one.estimate_memory(6000)
    estimate = one.estimate_memory(6000, 24)
    used = one.add(X).memory_usage()
    assert used["vectors"] == 6000 * 24 * {"float32": 4, "float16": 2, "int8": 0}[store]
    assert used["total"] == pytest.approx(estimate, rel=0.2)


@pytest.mark.parametrize("metric", METRICS)
def test_lists_grow_with_the_documents(metric):
    one = posh.Index(metric)
    for start in range(0, 6000, 500):
        one.add(X[start : start + 500])
    assert one.snapshot().lists.space.n_lists > 10
    assert recall(one.search(Q, 10, n_probe=12, slack=2.0), metric, 10) > 0.9


@pytest.mark.parametrize("metric", METRICS)
def test_8_bits_are_enough_to_compact(metric):
    one = copy.copy(full(metric, "int8"))
    vectors = one.snapshot().lists
    decoded = decode_vectors(vectors.space, vectors.blocks, len(X))
    stored = vectors.space.metric.prepare(X)
    assert np.abs(decoded - stored).max() < 0.02 * np.abs(stored).max()
    one.delete(np.arange(0, 6000, 2))
    before = one.search(Q, 5, n_probe=32, slack=100.0)
    after = one.compact().search(Q, 5, n_probe=32, slack=100.0)
    np.testing.assert_allclose(after.scores, before.scores, rtol=0.02)  # they are rounded again


@pytest.mark.parametrize("n", [1, 2, 30, 2048])
@pytest.mark.parametrize("metric", METRICS)
def test_few_documents_without_vectors(metric, n, tmp_path):
    one = index(metric, store="int8").add(X[:n])
    hits = one.search(Q, 5, n_probe=32, slack=100.0)
    assert ((hits.ids >= 0).sum(axis=1) == min(5, n)).all()
    one.save(tmp_path / "index")
    again = posh.Index.load(tmp_path / "index").search(Q, 5, n_probe=32, slack=100.0)
    np.testing.assert_array_equal(again.ids, hits.ids)


def test_few_live_documents_of_many_are_saved(tmp_path):
    one = index("cosine").add(X[:1500])
    one.delete(np.arange(1400)).add(X[:1500])
    one.save(tmp_path / "index")
    again = posh.Index.load(tmp_path / "index")
    np.testing.assert_array_equal(again.search(Q, 5).ids, one.search(Q, 5).ids)
