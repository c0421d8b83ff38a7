"""Lists that are split and merged as documents come and go."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import posh
from posh._runtime import limit_threads
from posh.index.arrays import AppendOnlyArray
from posh.index.nearest import lists as lists_module
from posh.index.nearest import rebalance as rebalance_module
from posh.index.nearest.lists import FEW, Lists
from posh.index.nearest.options import NearestOptions, NearestParams
from posh.index.nearest.rebalance import TOO_LARGE, plan_parts, rebalance
from posh.index.nearest.vectors import decode_vectors

METRICS = ["cosine", "euclidean", "dot"]
ALL = 10**6
EVERYTHING = NearestParams(5, n_probe=10**5, slack=50.0, oversample=100)


def draw(n: int, topic: int, d: int = 8) -> np.ndarray:
    """Vectors (n, d) around some centres, which differ between topics."""
    centred = np.random.default_rng(topic)
    centres = 1.5 * centred.normal(size=(1, d)) + centred.normal(size=(12, d))
    rng = np.random.default_rng((topic, n))
    return (centres[rng.integers(0, 12, n)] + 0.3 * rng.normal(size=(n, d))).astype(np.float32)


def make_lists(metric: str = "euclidean", n: int = 400, store: str = "float32") -> Lists:
    X = draw(n, 0)
    return Lists.train(NearestOptions(metric, 0.9, store, n_lists=10), X, n).with_vectors(X)


def require_consistent(lists: Lists) -> None:
    """Every live document is in exactly one list, encoded relative to the centroid of that list."""
    space, live = lists.space, np.flatnonzero(lists.live.rows)
    sizes, stored = lists.blocks.count_documents()
    assert len(sizes) == len(space.centroids) == len(space.routing) == len(space.stuck)
    assert np.isfinite(space.centroids).all()
    assert np.isfinite(space.routing).all()
    slots = lists.blocks.slots_of_lists(np.arange(space.n_lists, dtype=np.int32))
    assert sorted(slots.tolist()) == live.tolist()
    assert (sizes <= stored).all()
    list_of = np.empty(len(lists), np.int32)
    lists.blocks.lists_of_slots(list_of)
    np.testing.assert_array_equal(list_of[slots], np.repeat(np.arange(space.n_lists), sizes))
    vectors, exact = decode_vectors(space, lists.blocks, len(lists))[live], lists.stored.at(live)
    residuals = np.abs(exact - space.centroids[list_of[live]]).max(axis=1, initial=0.0)
    rounding = 1e-3 * np.abs(exact).max(axis=1, initial=0.0)  # of float16
    assert (np.abs(vectors - exact).max(axis=1, initial=0.0) <= residuals / 127 + rounding).all()


def require_equal(some: Lists, other: Lists) -> None:
    for name, array in some.to_arrays().items():
        np.testing.assert_array_equal(array, other.to_arrays()[name], err_msg=name)


# Plans ----------------------------------------------------------------------------------------------------


def test_lists_are_split_given_up_or_made_again():
    sizes = np.full(20, 100)
    assert (plan_parts(sizes, sizes, np.zeros(20), 20) == -1).all()
    sizes[3], sizes[7] = 290, 10
    parts = plan_parts(sizes, sizes, np.zeros(20), 21)
    assert (parts[3], parts[7]) == (3, 0)
    assert plan_parts(sizes, sizes, 290.0 * (np.arange(20) == 3), 21)[3] == -1, "it could not be split before"
    stored = sizes + 40 * (np.arange(20) == 5)
    assert plan_parts(sizes, stored, np.zeros(20), 21)[5] == 1


@pytest.mark.parametrize(("n_wanted", "n_after"), [(20, 20), (21, 20), (30, 30), (19, 19), (12, 12)])
def test_the_number_of_lists_follows_that_of_documents(n_wanted, n_after):
    parts = plan_parts(sizes := np.arange(90, 110), sizes, np.zeros(20), n_wanted)
    assert np.abs(parts).sum() == n_after


@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 300), st.booleans()), min_size=1, max_size=40),
    st.integers(1, 60),
)
def test_a_plan_leaves_a_list_and_about_as_many_as_wanted(rows, n_wanted):
    live, dead, is_stuck = (np.array(column) for column in zip(*rows, strict=True))
    parts = plan_parts(live, live + dead, live * is_stuck, n_wanted)
    assert parts.shape == live.shape
    assert (parts >= -1).all()
    assert np.abs(parts).sum() >= 1
    assert np.abs(parts).sum() <= max(1.05 * n_wanted + 1, 1)
    assert (parts[is_stuck & (live > 0)] <= 1).all()


# Documents ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
def test_a_new_topic_gets_lists_and_an_old_one_loses_its_lists(metric):
    lists = make_lists(metric).with_vectors(draw(900, 1))
    sizes, _ = lists.blocks.count_documents()
    balanced = rebalance(lists, 20, ALL)
    require_consistent(balanced)
    after, stored = balanced.blocks.count_documents()
    assert after.max() <= TOO_LARGE * after.mean() < sizes.max()
    assert 19 <= len(after) <= 21
    fewer = rebalance(balanced.without(np.arange(400)), 14, ALL)
    require_consistent(fewer)
    after, stored = fewer.blocks.count_documents()
    assert 13 <= len(after) <= 15
    assert after.min() > 0
    assert (stored - after).sum() <= 0.3 * 900 + 14


@settings(deadline=None, max_examples=25)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(1, 300), st.integers(0, 3)),
            st.tuples(st.just("same"), st.integers(1, 300), st.integers(0, 3)),
            st.tuples(st.just("delete"), st.integers(0, 1000), st.integers(1, 1000)),
        ),
        max_size=8,
    ),
    st.sampled_from(METRICS),
    st.sampled_from([1, 3, ALL]),
    st.sampled_from(["float32", "float16"]),
)
def test_any_sequence_of_writes_keeps_every_document_in_one_list(writes, metric, n_most, store):
    lists = make_lists(metric, store=store)
    for what, n, other in writes:
        if what == "delete":
            live = np.flatnonzero(lists.live.rows)
            slots = live[n * len(live) // 1001 :][:other]
            lists = lists.without(slots if len(slots) < len(live) else slots[1:])
        else:
            X = draw(n, other)
            lists = lists.with_vectors(np.repeat(X[:1], n, axis=0) if what == "same" else X)
        lists = rebalance(lists, max(2, lists.n_live // 40), n_most)
        require_consistent(lists)
    if n_most == ALL:
        for _ in range(3):
            lists = rebalance(lists, max(2, lists.n_live // 40), n_most)
        sizes, _ = lists.blocks.count_documents()
        bound = np.maximum(TOO_LARGE * lists.n_live / max(2, lists.n_live // 40), 1.5 * lists.space.stuck)
        assert (sizes <= bound).all()
    queries = lists.space.metric.restore(lists.stored.at(np.flatnonzero(lists.live.rows)[:5]))
    exact = lists.search(queries, NearestParams(5, exact=True), None)
    every = lists.calibrate().search(
        queries, NearestParams(5, n_probe=10**5, slack=50.0, oversample=100), None
    )
    np.testing.assert_array_equal(exact.slots, every.slots)
    np.testing.assert_allclose(exact.scores, every.scores, rtol=1e-6)


def test_equal_vectors_are_not_split_for_ever(monkeypatch):
    lists = make_lists().with_vectors(np.ones((2000, 8), np.float32))
    lists = rebalance(lists, 40, ALL)
    require_consistent(lists)
    assert lists.space.stuck.max() == lists.blocks.count_documents()[0].max() == 2000
    arrays = lists.calibrate().to_arrays() | {"removed": np.empty(0, np.int64)}
    opened = Lists.from_arrays(lists.options, len(lists), arrays)
    np.testing.assert_array_equal(opened.space.stuck, lists.space.stuck)
    monkeypatch.setattr(rebalance_module, "_replace_lists", None)
    assert rebalance(lists, 40, ALL) is lists
    assert rebalance(opened, 40, ALL) is opened


def test_a_call_replaces_a_bounded_number_of_lists(monkeypatch):
    lists, made = make_lists().with_vectors(draw(3000, 1)), []
    train = rebalance_module._train_parts

    def count(*args):
        rows, limits = train(*args)
        made.append(len(rows))
        return rows, limits

    monkeypatch.setattr(rebalance_module, "_train_parts", count)
    some = rebalance(lists, 80, 4)
    assert 1 <= sum(made) <= 8
    require_consistent(some)
    for _ in range(100):
        some = rebalance(some, 80, 4)
    assert 76 <= some.space.n_lists <= 84


def test_the_same_lists_with_any_number_of_threads():
    results = []
    for n_threads in (1, 3):
        limit_threads(n_threads)
        try:
            lists = make_lists("cosine").with_vectors(draw(2000, 1)).without(np.arange(0, 2000, 3))
            results.append(rebalance(lists, 40, ALL))
        finally:
            limit_threads(10**6)
    require_equal(*results)


def test_files_and_copies_of_rebalanced_lists():
    lists = rebalance(make_lists().with_vectors(draw(900, 1)), 20, ALL).without(np.arange(5)).calibrate()
    arrays = lists.to_arrays() | {"removed": np.arange(5)}
    for other in (Lists.from_arrays(lists.options, len(lists), arrays), copy.deepcopy(lists)):
        require_consistent(other)
        require_equal(lists, other)


# The index ------------------------------------------------------------------------------------------------


def share_found(index: posh.Index, queries: np.ndarray) -> float:
    return float(
        posh.metrics.recall(index.search(queries, k=10), index.search(queries, k=10, exact=True)).mean()
    )


@pytest.fixture
def never_trained(monkeypatch):
    """Lists are trained for the first documents only."""

    def use():
        monkeypatch.setattr(Lists, "_train_again", None)

    return use


@pytest.mark.parametrize("metric", METRICS)
def test_recall_while_topics_come_and_go(metric, never_trained):
    index = posh.Index(metric, recall=0.9, optimize="build").add(draw(3000, 0, 16))
    never_trained()
    for topic in range(1, 4):
        for part in np.array_split(draw(3000, topic, 16), 6):
            index.add(part)
            if len(index) > 7000:
                index.delete(index.ids[:500])
        sizes, _ = index.snapshot().lists.blocks.count_documents()
        assert sizes.sum() == len(index)
        assert sizes.max() <= 4 * sizes.mean()
        queries = np.concatenate([draw(200, known, 16) for known in range(max(0, topic - 1), topic + 1)])
        assert share_found(index, queries) >= 0.87
    assert abs(len(sizes) / lists_module.n_lists_for(index.options, len(index)) - 1) < 0.1
    require_consistent(index.snapshot().lists)


def test_growing_from_few_documents_trains_once(never_trained):
    X = np.concatenate([draw(3000, topic) for topic in range(3)])
    index = posh.Index("euclidean", recall=0.9, optimize="build").add(X[:100])
    assert index.snapshot().lists.space.n_lists == 1
    index.add(X[100 : FEW + 2])
    assert index.snapshot().lists.space.n_lists == 16
    never_trained()
    for start in range(FEW + 2, len(X), 1000):
        index.add(X[start : start + 1000])
    assert abs(index.snapshot().lists.space.n_lists - 70) <= 4
    assert share_found(index, draw(100, 1)) >= 0.87


def test_a_search_with_more_lists_than_are_left():
    index = posh.Index.build(draw(6000, 0), optimize="build")
    n_probe = index.snapshot().lists.space.n_lists
    queries = draw(20, 0)
    index.search(queries, 5, n_probe=n_probe, slack=50.0, oversample=100)
    lists = index.snapshot().lists
    fewer = rebalance(lists, n_probe // 2, ALL)
    assert fewer.calibration is lists.calibration
    found = fewer.search(queries, NearestParams(10, n_probe=n_probe, slack=50.0, oversample=100), None)
    np.testing.assert_array_equal(
        found.slots, fewer.search(queries, NearestParams(10, exact=True), None).slots
    )


def test_snapshots_do_not_change():
    index = posh.Index.build(draw(5000, 0), recall=0.9, optimize="build")
    queries, snapshot = draw(50, 0), index.snapshot()
    before = snapshot.search(queries, k=10)
    for part in np.array_split(draw(3000, 1), 10):
        index.add(part)
    index.delete(np.arange(3000))
    assert index.snapshot().lists.space.n_lists != snapshot.lists.space.n_lists
    after = snapshot.search(queries, k=10)
    np.testing.assert_array_equal(before.ids, after.ids)
    np.testing.assert_array_equal(before.scores, after.scores)
    require_consistent(snapshot.lists)


def test_an_interrupted_write_leaves_the_index_as_it_was(monkeypatch):
    index = posh.Index.build(draw(5000, 0), recall=0.9, optimize="build")
    queries, replace_lists = draw(50, 0), rebalance_module._replace_lists
    before, n_calls = index.search(queries, k=10), []

    def interrupt(*args):
        n_calls.append(1)
        replace_lists(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(rebalance_module, "_replace_lists", interrupt)
    with pytest.raises(KeyboardInterrupt):
        index.add(draw(900, 1))
    monkeypatch.undo()
    assert n_calls
    assert len(index) == 5000
    require_consistent(index.snapshot().lists)
    np.testing.assert_array_equal(index.search(queries, k=10).ids, before.ids)
    index.add(draw(900, 1))
    assert len(index) == 5900
    require_consistent(index.snapshot().lists)


def test_lists_without_vectors_stay():
    index = posh.Index.build(draw(3000, 0), store="int8", optimize="build")
    before = index.snapshot().lists.space
    index.add(draw(3000, 1))
    assert len(index.snapshot().lists.space.centroids) == len(before.centroids)


def test_measurements_without_stored_vectors_are_taken_over():
    """The residuals of a new topic are longer, but the lists are the same."""
    X = draw(3000, 0)
    old = Lists.train(NearestOptions("euclidean", 0.9, "int8"), X, 3000).with_vectors(X).calibrate()
    before = old.with_vectors(draw(900, 1))
    measured, now = before.measure_if_due(), before.with_vectors(draw(100, 2))
    assert measured.space is not before.space
    later = now.with_measurements(before, measured)
    assert (len(later), later.n_measured, later.drift.n_added) == (4000, 3900, 100)
    found = later.search(draw(100, 2), NearestParams(1, recall=0.99), None).slots[:, 0]
    assert np.mean(found == np.arange(3900, 4000)) > 0.9


def test_wide_vectors_of_another_kind_are_trained_for(never_trained):
    """The reduction to principal components is trained: splitting lists does not change it."""
    rng = np.random.default_rng(0)
    first, second = (rng.normal(size=(20, 512)).astype(np.float32) for _ in range(2))

    def flat(n: int, basis: np.ndarray) -> np.ndarray:
        return rng.normal(size=(n, 20)).astype(np.float32) @ basis

    index = posh.Index.build(flat(3000, first), metric="euclidean", recall=0.9, optimize="build")
    before = index.snapshot().lists.space.reduction
    index.add(flat(1000, first))
    assert index.snapshot().lists.space.reduction is before
    index.add(flat(3000, second))
    lists = index.snapshot().lists
    assert lists.space.reduction is not before
    assert not lists._has_misfit()
    assert share_found(index, flat(100, second)) >= 0.87


def test_a_damaged_slot_is_found():
    lists = make_lists().with_vectors(draw(900, 1))
    damaged = replace(lists, live=AppendOnlyArray.of(lists.live.rows[:500]))
    with pytest.raises(posh.FormatError, match="the slots of documents"):
        rebalance(damaged, 20, ALL)
