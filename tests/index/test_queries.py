"""Calibration of ``posh.Index`` on the user's queries, and the warning for queries of another kind."""

from __future__ import annotations

import copy
import json
import pickle
import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import posh
from posh.index.nearest.options import NearestParams
from posh.index.nearest.queries import LEAST, NO_WATCH, OwnQueries, QueryWatch
from posh.index.nearest.space import CodeShape, Space
from tests.index.test_metric import plain_scores

N, D = 4000, 24
METRICS = ["cosine", "euclidean", "dot"]
STRUCTURES = {"lists": "memory", "graph": "latency"}

pytestmark = pytest.mark.filterwarnings("ignore::posh.RecallWarning")


def draw(n: int, seed: int) -> np.ndarray:
    """Documents in clusters."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(9).normal(size=(30, D))
    return (centres[rng.integers(0, 30, n)] + 0.4 * rng.normal(size=(n, D))).astype(np.float32)


def draw_others(n: int, seed: int) -> np.ndarray:
    """Queries between the clusters and around them."""
    return (2.0 * np.random.default_rng(seed).normal(size=(n, D))).astype(np.float32)


def draw_near(n: int, seed: int) -> np.ndarray:
    """Queries near the clusters, for which an index keeps its graph."""
    return draw(n, seed) + 0.3 * np.random.default_rng(seed).normal(size=(n, D)).astype(np.float32)


GIVEN, TESTED = draw_others(450, seed=1), draw_others(500, seed=2)
OWN = {"lists": (GIVEN, TESTED), "graph": (draw_near(450, seed=1), draw_near(500, seed=2))}
"""Queries to calibrate with and to test, by structure."""


@cache
def build(metric: str, structure: str, *, own: bool) -> posh.Index:
    queries = OWN[structure][0] if own else None
    return posh.Index.build(
        draw(N, 0), metric=metric, recall=0.9, optimize=STRUCTURES[structure], queries=queries
    )


def share_found(index: posh.Index, queries: np.ndarray, k: int, **options) -> np.ndarray:
    """The share of its true k nearest that each query finds, by a plain comparison."""
    lists = index.snapshot().lists
    live = np.flatnonzero(lists.live.rows)
    rows = lists.space.metric.restore(lists.vectors(live))
    scores = plain_scores(index.options.metric, queries, rows)
    last = -np.sort(-scores, axis=1)[:, k - 1 : k]
    found = index.search(queries, k, **options).scores
    return (found >= last - 1e-5 * np.abs(last)).mean(axis=1)


def measured(index: posh.Index) -> dict[str, np.ndarray]:
    return index.snapshot().lists.trained_state()


# The promise ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("metric", METRICS)
def test_the_promise_holds_for_the_users_queries(metric, structure):
    index = build(metric, structure, own=True)
    uses_graph = index.snapshot().lists.choose_graph_effort(NearestParams(10)) is not None
    assert uses_graph == (structure == "graph")
    for k in (1, 10, 100):
        shares = share_found(index, OWN[structure][1], k)
        assert shares.mean() > 0.9 - 0.02 - 2 * shares.std() / np.sqrt(len(shares)), k


def test_without_them_the_promise_is_broken():
    shares = share_found(build("euclidean", "graph", own=False), TESTED, 10)
    assert shares.mean() < 0.85


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("metric", METRICS)
def test_the_reported_recall_is_that_of_queries_that_tuned_nothing(metric, structure):
    index = build(metric, structure, own=True)
    own = index.snapshot().queries
    assert (len(own.choosing), len(own.reporting)) == (300, 150)
    both = np.concatenate([own.choosing, own.reporting])
    np.testing.assert_array_equal(np.sort(both, axis=0), np.sort(OWN[structure][0], axis=0))
    report = index.report()
    assert (report.n_queries, report.n_given, report.ks) == (150, 450, [1, 10, 100, 1000])
    for k, recall in zip(report.ks, report.recalls, strict=True):
        some = own.reporting[: max(100, 30_000 // k)] if k == 1000 else own.reporting
        assert recall == pytest.approx(share_found(index, some, k).mean(), abs=1e-3)
    assert "on 150 of your 450 queries, which tuned nothing, among 4,000 documents" in str(report)


def test_calibrating_equals_building_with_queries():
    built = build("euclidean", "lists", own=True)
    later = copy.copy(build("euclidean", "lists", own=False)).calibrate(GIVEN)
    assert measured(built).keys() == measured(later).keys()
    for name, array in measured(built).items():
        np.testing.assert_array_equal(array, measured(later)[name], err_msg=name)


def test_none_returns_to_documents():
    index = copy.copy(build("euclidean", "graph", own=True)).calibrate(None)
    assert index.snapshot().queries is None
    assert index.memory_usage()["queries"] == 0
    assert share_found(index, TESTED, 10).mean() < 0.85
    assert "held-out documents, among 4,000 documents" in str(index.report())


def test_the_number_of_threads_does_not_matter(monkeypatch):
    states = []
    for n_threads in (1, 4):
        monkeypatch.setattr("posh._runtime._thread_limit", n_threads)
        monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(4)))
        index = posh.Index.build(draw(N, 0), metric="dot", optimize="latency", queries=GIVEN)
        states.append((measured(index), index.search(TESTED, 10).ids))
    for name, array in states[0][0].items():
        np.testing.assert_array_equal(array, states[1][0][name], err_msg=name)
    np.testing.assert_array_equal(states[0][1], states[1][1])


# Arguments ------------------------------------------------------------------------------------------------


def test_wrong_queries_are_refused():
    index = posh.Index.build(draw(100, 0))
    few = f"expected at least {LEAST} different queries to calibrate with, 300 or more"
    for queries in (GIVEN[: LEAST - 1], np.repeat(GIVEN[:10], 20, axis=0)):
        with pytest.raises(ValueError, match=few):
            index.calibrate(queries)
    with pytest.raises(ValueError, match="expected vectors with 24 columns"):
        index.calibrate(np.ones((300, 3)))
    with pytest.raises(ValueError, match="queries contains NaN or inf"):
        index.calibrate(np.full((300, D), np.nan))
    with pytest.raises(ValueError, match="expected documents to calibrate searches with, got none"):
        posh.Index().calibrate(GIVEN)
    with pytest.raises(ValueError, match="expected documents to calibrate searches with, got none"):
        posh.Index.build(np.empty((0, D)), queries=GIVEN)
    assert index.snapshot().queries is None


def test_few_queries_warn_with_the_interval():
    index = copy.copy(build("euclidean", "lists", own=False))
    with pytest.warns(posh.RecallWarning, match=r"60 queries leave the recall uncertain.*± 0\.\d+ \(95 %"):
        index.calibrate(GIVEN[:60])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        index.calibrate(GIVEN[:300])
        posh.Index.build(draw(100, 0)).calibrate(GIVEN[:60])  # compares all vectors


def test_any_real_dtype_is_kept_precisely():
    index = posh.Index.build(draw(N, 0).astype(np.float64) * 1e60, metric="euclidean")
    index.calibrate(GIVEN.astype(np.float64) * 1e60)
    assert index.snapshot().queries.choosing.dtype == np.float64
    assert index.report().recall > 0.9
    index = posh.Index.build(draw(100, 0)).calibrate(GIVEN.astype(np.float16))
    assert index.snapshot().queries.choosing.dtype == np.float32


@given(n=st.integers(LEAST, 4000))
@settings(max_examples=30, deadline=None)
def test_queries_are_split_into_two_parts_of_a_bounded_sample(n):
    own = OwnQueries.of(np.arange(n, dtype=np.float32)[:, None], 1)
    parts = [set(part.ravel().tolist()) for part in (own.choosing, own.reporting)]
    assert not parts[0] & parts[1]
    assert len(parts[0] | parts[1]) == len(own.choosing) + len(own.reporting) == min(n, 1500)
    assert len(parts[1]) == min(n, 1500) // 3
    assert own.n_given == n


# Writes and files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("structure", STRUCTURES)
def test_later_measurements_use_the_queries(structure):
    index = copy.copy(build("euclidean", structure, own=True))
    own = index.snapshot().queries
    index.add(draw(1500, 5))
    assert index.snapshot().lists.tuning.n_docs == 5500
    index.delete(range(0, 3000))
    index.compact()
    assert index.snapshot().queries is own
    assert index.report().n_given == 450
    shares = share_found(index, OWN[structure][1], 10)
    assert shares.mean() > 0.9 - 0.02 - 2 * shares.std() / np.sqrt(len(shares))


def test_few_documents_keep_the_queries_until_they_are_many():
    index = posh.Index.build(draw(500, 0), metric="euclidean", recall=0.9, queries=GIVEN)
    assert index.report().n_given == 450
    index.add(draw(N, 1))
    assert index.snapshot().lists.tuning.n_queries == 150


def test_documents_that_were_few_for_a_while_are_measured_with_the_queries():
    index = posh.Index.build(draw(2500, 0), metric="euclidean", optimize="memory")
    index.delete(range(455))
    index.calibrate(GIVEN)
    assert index.snapshot().lists.tuning is None
    index.add(draw(20, 1), range(3000, 3020))  # too few writes for another measurement
    assert index.snapshot().lists.tuning.n_queries == 150


def test_lists_that_are_trained_again_keep_the_queries():
    index = posh.Index.build(draw(2500, 0), metric="cosine", optimize="memory", queries=GIVEN)
    n_lists = index.snapshot().lists.space.n_lists
    index.add(draw(9000, 1))
    assert index.snapshot().lists.space.n_lists > n_lists
    assert index.report().n_given == 450


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("store", ["float32", "int8"])
def test_saved_indexes_keep_the_queries(tmp_path, store, mmap):
    index = posh.Index.build(draw(N, 0), store=store, optimize="memory", queries=GIVEN)
    index.save(tmp_path / "index")
    opened = posh.Index.load(tmp_path / "index", mmap=mmap)
    np.testing.assert_array_equal(opened.snapshot().queries.choosing, index.snapshot().queries.choosing)
    assert opened.memory_usage()["queries"] == 450 * D * 4
    before, after = index.report(), opened.report()
    assert (before.recalls, before.n_given) == (after.recalls, after.n_given)
    np.testing.assert_array_equal(opened.search(TESTED, 10).ids, index.search(TESTED, 10).ids)
    again = pickle.loads(pickle.dumps(opened))
    assert again.add(draw(1500, 3)).report().n_given == 450


LIES = {
    "no reporting queries": ("queries_reporting", lambda array: array[:0]),
    "another width": ("queries_choosing", lambda array: array[:, 1:]),
    "another dtype": ("queries_reporting", lambda array: array.astype(np.int32)),
    "NaN": ("queries_choosing", lambda array: array * np.nan),
    "a negative number": ("queries_given", lambda array: -array),
}


@pytest.mark.parametrize("lie", LIES)
def test_wrong_queries_in_a_file_are_an_error(lie):
    name, change = LIES[lie]
    index = posh.Index.build(draw(100, 0), queries=GIVEN)
    state = measured(index)
    with pytest.raises(ValueError, match="expected"):
        index.snapshot().with_trained_state(state | {name: change(state[name])})
    del state["queries_reporting"]
    with pytest.raises(KeyError):
        index.snapshot().with_trained_state(state)


# Filters in the report ------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [False, True])
def test_the_report_has_the_recall_under_filters(own):
    queries = draw_others(450, 1) if own else None
    index = posh.Index.build(draw(30_000, 0), metric="euclidean", optimize="memory", queries=queries)
    report = index.report()
    assert report.filters == [0.5, 0.1, 0.01]
    assert min(report.filter_recalls) > 0.93
    assert (report.filter_recalls[2], report.filter_errors[2]) == (1.0, 0.0)  # 300 are compared one by one
    assert "if 10% pass, 1.000 ± 0.000 if 1% pass" in str(report)


def test_the_filters_of_the_report_are_measured_only_where_something_is_approximate():
    assert posh.Index.build(draw(100, 0)).report().filters == []
    assert posh.Index.build(draw(N, 0), store="int8", optimize="memory").report().filters == []


# Queries that differ --------------------------------------------------------------------------------------


def is_warned(index: posh.Index, *batches: np.ndarray) -> bool:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for batch in batches:
            index.search(batch, 10)
    return any("call calibrate(queries)" in str(warning.message) for warning in caught)


def fresh(metric: str, structure: str, *, own: bool = False) -> posh.Index:
    """A copy of an index that has not warned."""
    snapshot = build(metric, structure, own=own).snapshot().detach()
    watch = QueryWatch(snapshot.lists.tuning.low_score)
    return posh.Index.from_snapshot(replace(snapshot, lists=replace(snapshot.lists, watch=watch)))


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_other_queries_warn_once(metric, structure):
    index = fresh(metric, structure)
    others = draw_others(40_000, 4)
    assert is_warned(index, others)
    assert not is_warned(index, others)
    index.add(draw(1500, 7))  # measured again
    assert not is_warned(index, others)
    assert not is_warned(pickle.loads(pickle.dumps(index)), others)


def test_the_warning_points_to_the_search():
    with pytest.warns(posh.RecallWarning) as caught:
        fresh("euclidean", "lists").search(TESTED, 10)
    assert Path(caught[0].filename) == Path(__file__)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("metric", METRICS)
def test_queries_like_the_documents_do_not_warn(metric, structure):
    index = fresh(metric, structure)
    assert not is_warned(index, draw(1000, 11), draw(20_000, 12), draw(50_000, 13))
    assert not is_warned(fresh(metric, structure, own=True), OWN[structure][1])


def test_single_queries_and_small_batches_are_counted_together():
    for size in (1, 3, 30):
        index = fresh("euclidean", "lists")
        assert not is_warned(index, *draw_others(180, 4).reshape(-1, size, D))
        assert is_warned(index, *draw_others(6000, 5).reshape(-1, size, D))
    index = fresh("euclidean", "lists")
    assert not is_warned(index, *draw(6000, 5)[:, None])
    assert is_warned(index, draw_others(20_000, 5))


def test_one_topic_and_calibrated_queries_do_not_warn():
    index = fresh("euclidean", "lists")
    assert not is_warned(index, np.repeat(draw_others(1, 4), 1000, axis=0))
    assert not is_warned(index.calibrate(GIVEN), draw_others(60_000, 6))


def test_searches_that_compare_all_vectors_do_not_warn():
    assert not is_warned(posh.Index.build(draw(100, 0)), draw_others(1000, 4))
    data = posh.datasets.load("digits")
    assert not is_warned(posh.Index.build(data.base), data.queries, -data.queries)


@given(sizes=st.lists(st.integers(1, 5000), max_size=60))
@settings(max_examples=50, deadline=None)
def test_few_queries_are_looked_at(sizes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4)).astype(np.float32)
    metric = posh.index.nearest.metric.Metric.of("cosine", X)
    space = Space.train(metric, CodeShape(), metric.prepare(X), 8, 400, rng, may_reduce=False)
    looks, watch = [], QueryWatch(-1.0)  # nothing is lower
    for size in sizes:
        watch.left -= size
        if watch.left < 0:
            looks.append(size)
            watch.look(space, X[:1].repeat(size, axis=0))
    # The first 200 queries take 200 looks at most; then one look, or 200 at few queries, per doubled pause.
    assert len(looks) <= 200 * (1 + np.log2(1 + sum(sizes) / 10_000))
    assert len(watch._seen) < 200


def test_the_searches_of_a_report_are_not_looked_at():
    index = fresh("cosine", "lists")
    index.report()
    assert index.snapshot().lists.watch.left == 0
    assert is_warned(index, draw_others(1000, 4))


def test_nothing_is_watched_without_a_calibration():
    assert NO_WATCH.left == np.inf
    assert posh.Index.build(draw(100, 0)).snapshot().lists.watch is NO_WATCH


def test_files_of_older_versions_have_no_watch(tmp_path):
    state = measured(build("cosine", "lists", own=False))
    del state["tuned_low_score"]
    opened = build("cosine", "lists", own=False).snapshot().with_trained_state(state)
    assert opened.lists.watch.left == np.inf
    assert json.dumps(opened.lists.tuning.measured.tolist())
