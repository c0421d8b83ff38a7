"""Which lists a search visits: the rule, the table of bounds, and the rank of filtered results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import posh
from posh import kernels
from posh.index.nearest.drift import Drift
from posh.index.nearest.measuring import Effort
from posh.index.nearest.options import NearestParams
from posh.index.nearest.reach import Among, Neighbours, Reach, Regional, lifts_of, measure_reach, scales_of
from tests.conftest import CASES
from tests.index.test_build import clusters, structure_of
from tests.index.test_metric import plain_scores

METRICS = ["cosine", "euclidean", "dot"]
X = clusters(np.random.default_rng(1), 6200, 16, spread=0.8).astype(np.float32)
X, Q = X[:-200], X[-200:]


@pytest.fixture(scope="module", params=METRICS)
def built(request):
    index = posh.Index.build(X, metric=request.param, recall=0.9)
    return index.delete(np.arange(0, 900, 3))


def routed(structure, queries):
    """Routing scores and scales of prepared queries, and the live documents of each list."""
    scores = np.empty((len(queries), structure.space.n_lists), np.float32)
    structure.blocks.routing_scores(queries, scores, kernels.active())
    lists = np.empty(len(structure), np.int32)
    structure.blocks.lists_of_slots(lists)
    n_live = np.bincount(lists[lists >= 0], minlength=structure.space.n_lists).astype(float)
    return scores, scales_of(structure.space, queries, scores), lists, n_live


@given(power=st.sampled_from([3, 8, 12, 27]), lift=st.floats(0.01, 200.0))
@settings(max_examples=max(10, CASES // 5), deadline=None)
def test_a_search_visits_the_lists_whose_lift_reaches_the_bound(built, power, lift):
    """Without skipping, it finds the best documents of exactly these lists."""
    structure = structure_of(built)
    prepared = structure.space.metric.prepare_queries(Q[:20]).vectors
    scores, scales, lists, n_live = routed(structure, prepared)
    lifts = lifts_of(scores, scales, n_live, power)
    near_bound = (np.abs(lifts / lift - 1) < 1e-4).any(axis=1)  # rounding may decide either way
    effort = Effort(0, Reach(power, lift, 0.0), 100.0, 40.0)
    found = structure._search_blocks(Q[:20], NearestParams(5, n_threads=1), effort)
    true = plain_scores(structure.space.metric.name, Q[:20], X)
    for row in np.flatnonzero(~near_bound):
        visited = lifts[row] >= lift
        visited[scores[row].argmax()] = True
        inside = (lists >= 0) & visited[lists]
        if inside.sum() < 5:
            continue  # then more lists are visited
        expected = np.sort(true[row][inside])[::-1][:5]
        np.testing.assert_allclose(true[row][found.slots[row]], expected, rtol=1e-5)


def test_lists_without_live_documents_are_not_visited(built):
    structure = structure_of(built)
    lists = np.empty(len(structure), np.int32)
    structure.blocks.lists_of_slots(lists)
    kept = lists == lists[lists >= 0][0]
    alone = structure.without(np.flatnonzero((lists >= 0) & ~kept))
    prepared = structure.space.metric.prepare_queries(Q[:3]).vectors
    scores, _, _, n_live = routed(alone, prepared)
    assert (scores[:, n_live == 0] == -np.inf).all()
    effort = Effort(1, Reach(1, 0.0, 0.0), 100.0, 9.0)
    found = alone._search_blocks(Q[:3], NearestParams(2, n_threads=1), effort)
    assert kept[found.slots].all()


def test_a_higher_rank_or_recall_visits_no_less(built):
    table = structure_of(built).tuning.reach
    for among in Among:
        shares = [
            [table.choose(rank, recall, among).share for recall in (0.6, 0.9, 0.95, 0.99)]
            for rank in (1, 30, 900)
        ]
        assert (np.diff(shares, axis=1) >= 0).all()
        assert shares[0][2] <= shares[2][2]
    assert table.choose(10**9, 0.9) == (1, 0.0, 1.0)  # deeper than anything measured: all lists
    assert table.choose(10, 0.99999) == (1, 0.0, 1.0)
    region = table.choose(900, 0.95, Among.REGION)
    assert region.share >= table.choose(900, 0.95, Among.RANDOM).share


def test_codes_are_as_careful_as_the_rank_needs(built):
    """A filter that leaves a fifth makes the 10 nearest of 50: codes may lose more of these than of 10."""
    structure = structure_of(built)
    rows = [(1, 1.0, 3.0, 1.0), (10, 1.0, 1.4, 1.0), (100, 1.0, 1.4, 0.8), (100, 2.0, 8.0, 1.0)]
    tuning = replace(structure.tuning, codes=np.array(rows))
    of_all = tuning.choose_effort(structure.space, 0.9, 10, 10.0)
    filtered = tuning.choose_effort(structure.space, 0.9, 10, 50.0, Among.RANDOM)
    assert (of_all.slack, of_all.oversample) == (1.0, 1.4)
    assert (filtered.slack, filtered.oversample) == (2.0, 8.0)


def test_bounds_find_the_share_that_was_asked_for():
    """In a world where the lists of neighbours are known."""
    rng = np.random.default_rng(0)
    routing = rng.normal(size=(800, 50)).astype(np.float32)
    order = np.argsort(-routing, axis=1)
    places = np.minimum(rng.geometric(0.3, size=(800, 100)) - 1, 49)
    lists = np.take_along_axis(order, places, axis=1).astype(np.int32)
    none = Regional(np.empty(0, np.int64), np.empty(0), np.empty(0, np.int32))
    neighbours = Neighbours(
        lists, np.empty((800, 0), np.int32), 5000, [np.arange(400), np.arange(400, 800)], none
    )
    n_live, scales = np.full(50, 100.0), np.ones(800)
    table = measure_reach(routing, scales, n_live, neighbours)
    for rank in (10, 100):
        for recall in (0.8, 0.95, 0.99):
            reach = table.choose(rank, recall)
            lifts = lifts_of(routing, scales, n_live, reach.power)
            found = (np.take_along_axis(lifts, lists[:, :rank], axis=1) >= reach.lift).mean()
            assert recall <= found <= recall + 0.03


def test_every_group_must_reach_the_recall():
    rng = np.random.default_rng(0)
    routing = rng.normal(size=(600, 40)).astype(np.float32)
    order = np.argsort(-routing, axis=1)
    places = np.zeros((600, 10), np.int64)
    places[500:] = rng.integers(0, 20, size=(100, 10))  # a sixth of the queries is much harder
    lists = np.take_along_axis(order, places, axis=1).astype(np.int32)
    none = Regional(np.empty(0, np.int64), np.empty(0), np.empty(0, np.int32))
    n_live, scales = np.full(40, 50.0), np.ones(600)
    for groups, least in (([np.arange(600)], 0.0), ([np.arange(500), np.arange(500, 600)], 0.9)):
        neighbours = Neighbours(lists, np.empty((600, 0), np.int32), 2000, groups, none)
        reach = measure_reach(routing, scales, n_live, neighbours).choose(10, 0.9)
        lifts = lifts_of(routing, scales, n_live, reach.power)
        hard = (np.take_along_axis(lifts, lists, axis=1) >= reach.lift)[500:].mean()
        assert hard >= least
        assert least or hard < 0.6


def test_ranks_are_estimated_from_a_sample(built):
    structure = structure_of(built)
    true = -np.sort(-plain_scores(structure.space.metric.name, Q, X)[:, structure.live.rows], axis=1)
    for rank in (200, 2000):
        estimated = structure._estimate_ranks(Q, true[:, rank - 1].astype(np.float32))
        np.testing.assert_allclose(np.median(estimated), rank, rtol=0.1)
        alone = np.concatenate(
            [
                structure._estimate_ranks(q[None], true[i : i + 1, rank - 1].astype(np.float32))
                for i, q in enumerate(Q)
            ]
        )
        np.testing.assert_array_equal(alone, estimated)


def test_writes_raise_the_recall_that_is_aimed_at(built):
    structure = structure_of(built)
    drift = Drift(1000, 1.0)
    assert drift.with_margin(0.9) == 0.9
    assert drift.with_added(100, 1.0).with_margin(0.9) == pytest.approx(0.91)
    assert drift.with_deleted(5000).with_margin(0.9) == pytest.approx(0.95)
    assert structure.drift.n_written == 300


@pytest.mark.parametrize("store", ["float32", "int8"])
def test_filters_that_leave_nothing_or_little(store):
    index = posh.Index.build(X, metric="cosine", recall=0.9, store=store)
    assert (index.search(Q[:3], 2, filter=np.zeros(len(X), bool)).ids == -1).all()
    found = index.search(Q[:3], 4, filter=np.array([5, 9]))
    assert [sorted(row) for row in found.ids.tolist()] == [[-1, -1, 5, 9]] * 3
    assert index.search(Q[:0], 4, filter=np.arange(3000)).ids.shape == (0, 4)


def test_a_filter_that_depends_on_the_vectors_is_noticed(built):
    structure = structure_of(built)
    rng = np.random.default_rng(0)
    side = X @ rng.standard_normal(16).astype(np.float32)
    for share in (0.1, 0.5, 0.9):
        assert structure.depends_on_vectors(side <= np.quantile(side, share))
    noticed = [
        structure.depends_on_vectors(rng.random(len(X)) < share)
        for share in (0.1, 0.5, 0.9)
        for _ in range(20)
    ]
    assert sum(noticed) <= 2


@pytest.mark.parametrize("recall", [0.5, 0.9])
def test_the_documents_that_pass_are_compared_where_lists_take_longer(built, monkeypatch, recall):
    structure, mask = structure_of(built), np.arange(len(X)) % 2 == 1
    n, true = int(np.count_nonzero(mask & structure.live.rows)), plain_scores(built.options.metric, Q, X)
    true[:, ~(mask & structure.live.rows)] = -np.inf
    best = np.sort(np.argsort(-true, axis=1, kind="stable")[:, :5], axis=1)
    params = NearestParams(5, recall=recall)
    share = structure.tuning.choose_effort(
        structure.space, structure.drift.with_margin(recall), 5, 5 * structure.tuning.n_docs / n, Among.RANDOM
    ).reach.share
    limit = n * structure.space.n_features / (share * structure.n_live)
    for visit, compares in ((limit * 1.01, True), (limit * 0.99, False)):
        monkeypatch.setattr("posh.index.nearest.lists._VISIT", visit)
        assert (structure.choose_effort(params, n) is None) == compares
        assert structure.choose_effort(params) is not None  # without a filter, lists are always searched
        found = np.sort(built.search(Q, 5, filter=mask, recall=recall).ids, axis=1)
        assert (found == best).all() == compares


def test_without_vectors_nothing_can_be_compared(monkeypatch):
    monkeypatch.setattr("posh.index.nearest.lists._VISIT", np.inf)
    index = posh.Index.build(X, metric="cosine", recall=0.9, store="int8")
    assert structure_of(index).choose_effort(NearestParams(5), 3000) is not None


@given(rank=st.floats(1.0, 5000.0), seed=st.integers(0, 1000))
@settings(max_examples=max(10, CASES // 5), deadline=None)
def test_the_choice_of_a_sample_seldom_explains_a_higher_rank(built, rank, seed):
    structure = structure_of(built)
    n, n_sampled = structure.n_live, len(structure._sampled[0])
    counts = np.random.default_rng(seed).binomial(n_sampled, min(1.0, rank / n), 2000)
    highest = structure._highest_rank_by_chance(rank)
    assert highest > rank
    assert np.mean(counts * (n / n_sampled) > highest) < 0.02


def test_an_effort_is_chosen_once(built, monkeypatch):
    structure = structure_of(built)
    first = structure.choose_effort(NearestParams(7), 3000)
    monkeypatch.setattr(type(structure.tuning), "choose_effort", None)  # calling it would fail
    assert structure.choose_effort(NearestParams(7), 3000) is first
    structure._efforts.clear()
    with pytest.raises(TypeError):
        structure.choose_effort(NearestParams(7), 3000)
