"""Range search: exact results by definition, the promise of recall, ragged hits, limits and errors."""

from __future__ import annotations

import pickle
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import posh
from posh import kernels
from posh.index.brute_force import find_reaching
from posh.index.nearest import radius as module
from posh.index.nearest.measuring import Tuning
from tests.conftest import CASES
from tests.index.test_build import clusters, structure_of
from tests.index.test_metric import plain_scores

METRICS = ["cosine", "euclidean", "dot"]
RNG = np.random.default_rng(5)
X = clusters(RNG, 6600, 16, spread=0.8).astype(np.float32)
X, Q = X[:-300], X[-300:]
WHOLE = RNG.integers(-3, 4, (5000, 12)).astype(np.float32)  # scores are exact, many are equal


@cache
def built(metric, whole=False):
    return posh.Index.build(WHOLE if whole else X, metric=metric, recall=0.95, optimize="build")


def expected(scores, bound, chosen=None):
    """The ids of each row that reach the bound, best first."""
    chosen = np.arange(scores.shape[1]) if chosen is None else np.asarray(chosen)
    rows = []
    for row in scores:
        own = chosen[row[chosen] >= np.float32(bound)]
        rows.append(own[np.lexsort((own, -row[own]))].tolist())
    return rows


def as_lists(hits):
    return [[hit.id for hit in hits[i]] for i in range(len(hits))]


def mean_recall(found, true):
    shares = [len(set(a) & set(b)) / len(b) for a, b in zip(found, true, strict=True) if b]
    return np.mean(shares)


# By definition ---------------------------------------------------------------------------------------------


@given(
    data=st.data(),
    metric=st.sampled_from(["euclidean", "dot"]),
    n=st.sampled_from([1, 7, 300, 5000]),
    exact=st.booleans(),
)
@settings(max_examples=CASES, deadline=None)
def test_equals_brute_force_with_ties(data, metric, n, exact):
    """Scores of whole numbers are exact, so that every kind of search must give the same ones."""
    base, queries = WHOLE[:n], WHOLE[data.draw(st.lists(st.integers(0, 4999), min_size=1, max_size=5))]
    index = posh.Index(metric).add(base) if n < 5000 else built(metric, whole=True)
    scores = plain_scores(metric, queries, base).astype(np.float32)
    bound = float(data.draw(st.sampled_from(sorted(set(scores.ravel().tolist()), reverse=True)[:40])))
    allowed = data.draw(st.sampled_from([None, np.arange(0, n, 3), np.empty(0, np.int64)]))
    limit = data.draw(st.none() | st.integers(1, 20))
    hits = index.search_radius(queries, min_score=bound, filter=allowed, limit=limit, exact=exact)
    true = expected(scores, bound, allowed)
    has_more = np.array([limit is not None and len(row) > limit for row in true])
    assert (hits.is_cut <= has_more).all()
    if exact or n < 5000:
        assert as_lists(hits) == [row[:limit] for row in true]
        np.testing.assert_array_equal(hits.is_cut, has_more)
    for i, row in enumerate(as_lists(hits)):  # otherwise it may miss some
        assert set(row) <= set(true[i])
        own = scores[i][row]
        np.testing.assert_array_equal([hit.score for hit in hits[i]], own)
        assert row == [row[j] for j in np.lexsort((row, -own))]


@pytest.mark.parametrize("metric", METRICS)
def test_exact_search_equals_brute_force(metric):
    scores = plain_scores(metric, Q, X)
    for k in (1, 10, 100, 1000):
        ranked = np.sort(scores, axis=None)[::-1]
        # Between two scores, so that rounding does not matter.
        bound = float(ranked[k * len(Q)] + ranked[k * len(Q) - 1]) / 2
        hits = built(metric).search_radius(Q, min_score=bound, exact=True)
        true = expected(scores, bound)
        assert [sorted(row) for row in as_lists(hits)] == [sorted(row) for row in true]
        np.testing.assert_allclose(hits.scores, scores[hits.queries, hits.ids], rtol=1e-5, atol=1e-6)
        assert (np.diff(hits.scores)[np.diff(hits.queries) == 0] <= 0).all()


@pytest.mark.parametrize("metric", METRICS)
def test_the_bound_is_that_of_search(metric):
    """The k nearest of a search reach the score of the last one, and no other document does."""
    index = built(metric)
    nearest = index.search(Q[:20], 7, exact=True)
    for query, scores, ids in zip(Q, nearest.scores, nearest.ids, strict=False):
        found = index.search_radius(query, min_score=float(scores[-1]), exact=True)
        np.testing.assert_array_equal(found.scores[:7], scores)
        assert set(ids) <= set(found.ids)
        above = float(np.nextafter(scores[0], np.inf))
        assert len(index.search_radius(query, min_score=above, exact=True).ids) == 0


@pytest.mark.parametrize("kernel", kernels.available())
def test_every_kernel_finds_the_same(kernel, fastest_again):
    hits = built("euclidean").search_radius(Q[:40], min_score=-14.0)
    kernels.use(kernel)
    other = built("euclidean").search_radius(Q[:40], min_score=-14.0, n_threads=1)
    for one, two in zip(hits, other, strict=True):
        np.testing.assert_array_equal(one, two)


def test_brute_force_of_nearby_numbers():
    """A large offset leaves few digits to float32: candidates are compared in float64."""
    vectors = (1000 + np.random.default_rng(0).standard_normal((500, 8))).astype(np.float32)
    wide = vectors.astype(np.float64)
    scores = -((wide[:9, None] - wide) ** 2).sum(axis=2)
    rows, slots, found = find_reaching(
        vectors, np.arange(500), vectors[:9], np.full(9, -3, np.float32), is_distance=True
    )
    np.testing.assert_array_equal(
        np.sort(rows * 500 + slots), np.flatnonzero(scores.astype(np.float32) >= -3)
    )
    np.testing.assert_array_equal(found, scores.astype(np.float32)[rows, slots])


# The promise -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", ["float32", "float16", "int8"])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("k", [1, 10, 100, 1000])
def test_finds_the_promised_share(metric, k, store):
    index = built(metric) if store == "float32" else built_with(metric, store)
    scores = plain_scores(metric, Q, X)
    bound = float(np.sort(scores, axis=None)[-k * len(Q)])
    found = as_lists(index.search_radius(Q, min_score=bound))
    lost = 0.05 if store == "int8" else 0.0  # rounded scores near the bound fall on either side of it
    assert mean_recall(found, expected(scores, bound)) >= 0.94 - lost
    careful = as_lists(index.search_radius(Q, min_score=bound, recall=0.99))
    assert mean_recall(careful, expected(scores, bound)) >= 0.98 - lost
    quick = index.search_radius(Q, min_score=bound, recall=0.5)
    assert len(quick.ids) <= sum(map(len, careful))


@cache
def built_with(metric, store):
    return posh.Index.build(X, metric=metric, store=store, optimize="build")


@pytest.mark.parametrize("metric", METRICS)
def test_finds_the_promised_share_after_changes_and_with_filters(metric):
    rng = np.random.default_rng(1)
    index = posh.Index.build(X[:3000], metric=metric, optimize="build").add(X[3000:])
    gone = rng.permutation(len(X))[:1000]
    index.delete(gone)
    live = np.setdiff1d(np.arange(len(X)), gone)
    scores = plain_scores(metric, Q, X)
    side = X @ rng.standard_normal(16).astype(np.float32)
    filters = [None, live[rng.random(len(live)) < 0.5], live[side[live] < np.quantile(side, 0.5)]]
    for chosen in filters:
        kept = live if chosen is None else chosen
        for k in (1, 30, 300):
            bound = float(np.sort(scores[:, kept], axis=None)[-k * len(Q)])
            hits = index.search_radius(Q, min_score=bound, filter=chosen)
            true = expected(scores, bound, kept)
            found = as_lists(hits)
            assert mean_recall(found, true) >= 0.94
            assert np.isin(hits.ids, kept).all()


def test_wide_vectors_of_which_8_bit_numbers_have_a_part():
    rng = np.random.default_rng(0)
    wide = (clusters(rng, 2900, 640, spread=1.0) * np.linspace(1, 0, 640) ** 2).astype(np.float32)
    base, queries = wide[:-200], wide[-200:]
    index = posh.Index.build(base, metric="cosine", optimize="build")
    assert structure_of(index).space.reduction is not None
    scores = plain_scores("cosine", queries, base)
    bound = float(np.sort(scores, axis=None)[-10 * 200])
    found = as_lists(index.search_radius(queries, min_score=bound))
    assert mean_recall(found, expected(scores, bound)) >= 0.94


def test_more_results_than_assumed_are_searched_again(monkeypatch):
    """Without an estimate, rounds find out how many results there are."""
    index = built("cosine")
    scores = plain_scores("cosine", Q, X)
    bound = float(np.sort(scores, axis=None)[-300 * len(Q)])
    monkeypatch.setattr(
        module._RadiusSearch, "first_ranks", lambda self, queries, bounds: np.ones(len(queries))
    )
    assert mean_recall(as_lists(index.search_radius(Q, min_score=bound)), expected(scores, bound)) >= 0.94


def test_searching_in_parts_changes_nothing(monkeypatch):
    hits = built("cosine").search_radius(Q, min_score=0.7, limit=9)
    monkeypatch.setattr(module, "_QUERIES", 70)
    monkeypatch.setattr(module, "_RESULTS", 40)
    parts = built("cosine").search_radius(Q, min_score=0.7, limit=9)
    for one, other in zip(hits, parts, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(hits.is_cut, parts.is_cut)


def test_an_index_without_the_measurement_compares_all(monkeypatch):
    """Files of older versions have no codes of range searches."""
    index = pickle.loads(pickle.dumps(built("cosine")))
    structure = structure_of(index)
    arrays = {name: array for name, array in structure.tuning.to_arrays().items() if name != "tuned_radius"}
    assert Tuning.from_arrays(structure.tuning.to_arrays()).radius == structure.tuning.radius
    monkeypatch.setitem(vars(structure), "tuning", Tuning.from_arrays(arrays))
    exact = index.search_radius(Q[:9], min_score=0.7, exact=True)
    for one, other in zip(index.search_radius(Q[:9], min_score=0.7), exact, strict=True):
        np.testing.assert_array_equal(one, other)


# Hits ------------------------------------------------------------------------------------------------------


def test_ragged_hits():
    index = posh.Index("euclidean").add([[0.0], [1.0], [5.0], [1.0]], ids=["a", "b", "c", "d"])
    hits = index.search_radius([[0.0], [9.0], [5.0]], min_score=-1.0)
    offsets, ids, scores = hits
    assert offsets.tolist() == [0, 3, 3, 4]
    assert ids.tolist() == ["a", "b", "d", "c"]
    assert scores.tolist() == [0.0, -1.0, -1.0, 0.0]
    assert scores.dtype == np.float32
    assert hits.kind == "euclidean"
    assert len(hits) == 3
    assert hits[1] == []
    assert hits[-1] == [posh.Hit("c", 0.0)] == hits[2]
    with pytest.raises(IndexError):
        hits[3]
    assert hits.counts.tolist() == [3, 0, 1]
    assert hits.queries.tolist() == [0, 0, 0, 2]
    assert hits.to_pandas()["id"].tolist() == ids.tolist()
    assert hits.to_arrow()["query"].to_pylist() == [0, 0, 0, 2]
    assert repr(hits) == "RadiusHits(3 queries, 4 hits, kind='euclidean')"
    cut = index.search_radius([0.0], min_score=-1.0, limit=2)
    assert cut.ids.tolist() == ["a", "b"]
    assert cut.is_cut.tolist() == [True]
    assert "1 cut" in repr(cut)


@pytest.mark.parametrize("metric", METRICS)
def test_empty_answers(metric):
    hits = posh.Index(metric).search_radius(Q[:3], min_score=0.5)
    assert (len(hits), len(hits.ids)) == (3, 0)
    index = built(metric)
    hits = index.search_radius(Q[:0], min_score=0.5)
    assert (len(hits), len(hits.ids), hits.offsets.tolist()) == (0, 0, [0])
    assert len(index.search_radius(Q, min_score=1e30).ids) == 0
    assert len(index.search_radius(Q, min_score=1e300).ids) == 0
    assert len(index.search_radius(Q[:3], min_score=-1e9, filter=np.zeros(len(X), bool)).ids) == 0


def test_a_low_bound_returns_all():
    hits = built("dot").search_radius(Q[:3], min_score=-1e300)
    assert hits.counts.tolist() == [len(X)] * 3
    hits = built("euclidean").search_radius(Q[:3], min_score=-1e9, limit=5)
    np.testing.assert_array_equal(hits.ids.reshape(3, 5), built("euclidean").search(Q[:3], 5, exact=True).ids)
    assert hits.is_cut.all()
    zero = built("dot").search_radius(np.zeros(16), min_score=0.0)
    assert len(zero.ids) == len(X)
    assert len(built("dot").search_radius(np.zeros(16), min_score=1e-9).ids) == 0


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"min_score": np.nan}, ValueError, "min_score"),
        ({"min_score": np.inf}, ValueError, "min_score"),
        ({"min_score": -np.inf}, ValueError, "min_score"),
        ({"min_score": "0.5"}, TypeError, "min_score"),
        ({"min_score": 0.5, "limit": 0}, ValueError, "limit"),
        ({"min_score": 0.5, "limit": 2.5}, TypeError, "limit"),
        ({"min_score": 0.5, "recall": 1.5}, ValueError, "recall"),
        ({"min_score": 0.5, "exact": 1}, TypeError, "exact"),
        ({"min_score": 0.5, "n_threads": 0}, ValueError, "n_threads"),
    ],
)
def test_wrong_arguments(options, error, words):
    with pytest.raises(error, match=words):
        built("cosine").search_radius(Q, **options)


def test_wrong_vectors():
    with pytest.raises(ValueError, match="16 columns"):
        built("cosine").search_radius(Q[:, :5], min_score=0.5)
    with pytest.raises(ValueError, match="NaN"):
        built("cosine").search_radius(np.full((2, 16), np.nan), min_score=0.5)
    with pytest.raises(ValueError, match="stores vectors"):
        built_with("cosine", "int8").search_radius(Q, min_score=0.5, exact=True)


# Duplicates ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("metric", METRICS)
def test_duplicates_are_all_pairs(metric, exact):
    base = X[:4000]
    scores = plain_scores(metric, base, base)
    upper = np.triu(np.ones(scores.shape, bool), 1)
    bound = float(np.sort(scores[upper])[-3000])
    found = posh.duplicates(base, min_score=bound, metric=metric, exact=exact)
    left, right = np.nonzero(upper & (scores >= np.nextafter(np.float32(bound), np.inf)))
    true = set(zip(left.tolist(), right.tolist(), strict=True))
    pairs = [tuple(pair) for pair in found.pairs.tolist()]
    assert len(pairs) == len(set(pairs))
    assert pairs == sorted(pairs)
    assert all(a < b for a, b in pairs)
    assert len(true & set(pairs)) >= (1.0 if exact else 0.95) * len(true)
    ends = tuple(found.pairs.T)
    np.testing.assert_allclose(found.scores, scores[ends], rtol=1e-4, atol=1e-5)
    assert not found.is_cut


def test_groups_are_connected_components():
    copies = np.repeat(RNG.standard_normal((40, 8)), 3, axis=0)
    found = posh.duplicates(copies, min_score=0.9999, ids=[f"v{i}" for i in range(120)])
    assert found.groups == [[f"v{3 * i}", f"v{3 * i + 1}", f"v{3 * i + 2}"] for i in range(40)]
    assert found.pairs.shape == (120, 2)
    none = posh.duplicates(RNG.standard_normal((5, 8)), min_score=0.9999)
    assert (len(none), none.groups, none.pairs.shape) == (0, [], (0, 2))


def test_the_limit_of_duplicates():
    same = np.ones((30, 4))
    assert posh.duplicates(same, min_score=0.99).pairs.shape == (435, 2)
    found = posh.duplicates(same, min_score=0.99, limit=29)
    assert (len(found), found.is_cut) == (435, False)
    found = posh.duplicates(same, min_score=0.99, limit=3)
    assert found.is_cut
    assert len(found.groups) == 1
    assert "cut" in repr(found)
    with pytest.raises(ValueError, match="limit"):
        posh.duplicates(same, min_score=0.99, limit=0)
