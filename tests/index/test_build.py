"""Index.build: the recall that was asked for, on data of many kinds, and what the report says of it."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import posh
from posh.index.hits import SlotScores
from posh.index.nearest.measuring import KnownNeighbours, drop_own, is_held_out
from tests.index.test_metric import plain_scores

PROMISED, TOLERANCE = 0.95, 0.01


def clusters(rng, n, d, spread=0.5, n_clusters=100):
    centres = rng.standard_normal((n_clusters, d))
    return centres[rng.integers(0, n_clusters, n)] + spread * rng.standard_normal((n, d))


def with_outliers(rng):
    X = clusters(rng, 6300, 48)
    X[rng.integers(0, len(X), 20)] *= 1000
    return X


def duplicates(rng):
    X = clusters(rng, 700, 32)
    return X[rng.integers(0, len(X), 6300)]


def six_orders(rng):
    return clusters(rng, 3300, 40) * 10.0 ** rng.uniform(-3, 3, (3300, 1))


def wide(rng):
    """Of so many columns searches look at principal components, which have most of the squares."""
    return clusters(rng, 2700, 640, spread=1.0) * np.linspace(1, 0, 640) ** 2


DATA = {
    "clusters": lambda rng: clusters(rng, 8300, 64),
    "a ball": lambda rng: rng.standard_normal((6300, 24)),
    "outliers": with_outliers,
    "duplicates": duplicates,
    "wide": wide,
    "six orders": six_orders,
    "few": lambda rng: rng.standard_normal((350, 16)),
    "3,000": lambda rng: clusters(rng, 3300, 100),
}


def found_share(metric, Q, X, hits):
    """A document counts if it is as near as the tenth nearest."""
    true = plain_scores(metric, Q, X)
    last = np.sort(true, axis=1)[:, -10][:, None]
    got = np.take_along_axis(true, hits.ids, axis=1)
    return np.mean(got >= last - 1e-5 * np.abs(last))


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "dot"])
@pytest.mark.parametrize("name", DATA)
def test_the_promise_is_kept(name, metric):
    X = DATA[name](np.random.default_rng(7)).astype(np.float32)
    X, Q = X[:-300], X[-300:]
    index = posh.Index.build(X, metric=metric, recall=PROMISED)
    assert found_share(metric, Q, X, index.search(Q, 10)) >= PROMISED - TOLERANCE


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "dot"])
def test_the_promise_is_kept_with_one_list(metric):
    X = DATA["3,000"](np.random.default_rng(7)).astype(np.float32)
    X, Q = X[:-300], X[-300:]
    index = posh.Index(metric, recall=PROMISED, n_lists=1, optimize="build").add(X)
    assert np.isfinite(index.snapshot().lists.calibration.counts).all()
    assert index.report().lists_visited == 1
    assert found_share(metric, Q, X, index.search(Q, 10)) >= PROMISED - TOLERANCE


@pytest.fixture(scope="module")
def data():
    X = clusters(np.random.default_rng(3), 12300, 32, spread=1.0).astype(np.float32)
    return X[:-300], X[-300:]


@pytest.fixture(scope="module")
def built(data):
    return posh.Index.build(data[0], recall=0.9, optimize="build")


def test_a_search_may_ask_for_another_recall(built, data):
    X, Q = data
    shares = [found_share("cosine", Q, X, built.search(Q, 10, recall=r)) for r in (0.7, 0.9, 0.98, 1.0)]
    assert shares[0] < shares[1] < shares[2] < shares[3] == 1.0
    assert shares[2] >= 0.97
    plain = built.search(Q, 10)
    np.testing.assert_array_equal(plain.ids, built.search(Q, 10, recall=0.9).ids)
    careful = built.search(Q, 10, n_probe=500, slack=5.0, oversample=10)  # what is given counts
    assert found_share("cosine", Q, X, careful) == 1.0


def test_the_report_says_what_was_measured(built, data):
    X, Q = data
    report = built.report()
    assert (report.n_documents, report.n_features, report.metric, report.asked) == (12000, 32, "cosine", 0.9)
    assert report.recall == pytest.approx(found_share("cosine", Q, X, built.search(Q, 10)), abs=0.03)
    assert report.recall - report.error >= 0.9
    assert min(report.seconds_in_batch, report.seconds_alone) > 0
    text = str(report)
    assert f"{report.recall:.3f}" in text
    assert "asked for: 0.9" in text
    assert f"visits {report.lists_visited:.3g} lists" in text
    assert (report.n_measured, report.n_written) == (12000, 0)
    assert report.n_queries >= 500
    assert report.ks == [1, 10, 100, 1000]
    assert min(report.recalls) >= 0.88


def test_the_report_has_the_recall_under_filters(built, data):
    X, Q = data
    report, rng = built.report(), np.random.default_rng(5)
    assert report.filters == [0.5, 0.1, 0.01]
    assert "if 50% pass" in str(report)
    for share, recall in zip(report.filters, report.filter_recalls, strict=True):
        chosen = np.flatnonzero(rng.random(len(X)) < share)
        hits = built.search(Q, 10, filter=chosen)
        exact = built.search(Q, 10, filter=chosen, exact=True)
        own = np.mean(hits.scores >= exact.scores[:, -1:] - 1e-5)
        assert recall == pytest.approx(own, abs=0.04)
        assert 0.88 <= recall <= 1.0
    assert report.filter_recalls[-1] == 1.0  # 1 % are so few that all are compared
    few = posh.Index.build(X[:100]).report()
    assert (few.filters, few.filter_recalls) == ([], [])


def test_few_documents_are_compared_one_by_one():
    X = np.random.default_rng(0).standard_normal((50, 8))
    report = posh.Index.build(X).report()
    assert (report.recall, report.lists_visited) == (1.0, None)
    assert "compares all vectors" in str(report)


def test_an_index_without_documents_has_no_report():
    for index in (posh.Index(), posh.Index().add(np.ones((1, 3))).delete([0])):
        with pytest.raises(ValueError, match="expected an index with documents to report on"):
            index.report()


def test_a_recall_is_a_share():
    X = np.random.default_rng(0).standard_normal((50, 8))
    for wrong in (0.0, 1.5, -1, float("nan")):
        with pytest.raises(ValueError, match="expected recall"):
            posh.Index.build(X, recall=wrong)
        with pytest.raises(ValueError, match="expected recall"):
            posh.Index.build(X).search(X, recall=wrong)


def test_the_same_effort_after_saving_copying_and_building_again(built, data, tmp_path):
    built.save(tmp_path / "index")
    again = posh.Index.build(data[0], recall=0.9, optimize="build")
    for other in (posh.Index.load(tmp_path / "index"), copy.copy(built), again):
        np.testing.assert_array_equal(other.search(data[1], 10).ids, built.search(data[1], 10).ids)
        assert other.report().lists_visited == built.report().lists_visited


def structure_of(index):
    return index.snapshot().lists


def test_recall_is_measured_again_when_a_fifth_was_written(data):
    X, _ = data
    index = posh.Index.build(X[:4000], recall=0.9)
    assert structure_of(index).tuning.n_docs == 4000
    index.add(X[4000:4400], np.arange(4000, 4400)).update(X[4400:4550], np.arange(150))
    assert (structure_of(index).tuning.n_docs, index.report().n_written) == (4000, 700)
    index.delete(np.arange(100))
    assert (structure_of(index).tuning.n_docs, index.report().n_written) == (4300, 0)


def test_lists_follow_documents_that_do_not_fit(data):
    X, _ = data
    index = posh.Index.build(X, recall=0.9, optimize="build")
    before = structure_of(index).space
    rotated = np.ascontiguousarray(X[:, ::-1])
    index.update(rotated, np.arange(len(X)))
    assert structure_of(index).space is not before
    found = found_share("cosine", rotated[:300], rotated, index.search(rotated[:300], 10))
    assert found >= 0.88


@pytest.mark.parametrize("n", [1, 2, 15, 16, 300])
def test_few_documents_without_vectors(n):
    """Nothing is measured; a search does whatever 8-bit numbers allow."""
    X = np.random.default_rng(0).standard_normal((n, 8)).astype(np.float32)
    index = posh.Index.build(X, store="int8")
    np.testing.assert_array_equal(index.search(X, 1).ids[:, 0], np.arange(n))
    assert "not measured with so few documents; asked for: 0.95" in str(index.report())


def test_recall_is_measured_where_no_document_was_held_out(data):
    index = posh.Index.build(data[0][:5000], recall=0.9)
    slots = np.arange(5000)
    index.delete(slots[is_held_out(slots)]).delete(slots[~is_held_out(slots)][:1000])
    assert structure_of(index).tuning.n_docs == len(index)
    assert structure_of(index).tuning.n_queries >= 500


def test_held_out_documents_follow_no_stride():
    held_out = is_held_out(np.arange(160_000))
    assert held_out.mean() == pytest.approx(1 / 16, abs=0.003)
    for stride in (2, 3, 10, 16, 100):
        shares = [held_out[first::stride].mean() for first in range(stride)]
        np.testing.assert_allclose(shares, 1 / 16, atol=0.025)


def test_without_vectors_recall_is_measured_too(data):
    X, Q = data
    index = posh.Index.build(X, recall=0.9, store="int8")
    assert found_share("cosine", Q, X, index.search(Q, 10)) >= 0.88  # 8 bits cannot tell all documents apart
    assert index.search(Q, 10, recall=1.0).ids.shape == (300, 10)


@pytest.mark.parametrize("is_distance", [True, False])
def test_shares_count_equal_scores_and_leave_the_query_out(is_distance):
    vectors = np.float32([[1, 0], [0.9, 0], [0.9, 0], [0.5, 0], [0.9 - 1e-6, 0]])
    true = SlotScores(np.array([[1]]), np.empty((1, 1), np.float32))
    known = KnownNeighbours(
        vectors[:1], np.array([0]), true, np.zeros((1, 1), np.int32), vectors, is_distance
    )
    for slot, share in ((1, 1.0), (2, 1.0), (3, 0.0), (4, 0.0), (-1, 0.0)):  # an equal one is as good
        assert known.shares(np.array([[slot]]), 1).tolist() == [share]
    found = SlotScores(np.array([[1, 0, 3]]), np.float32([[0.5, 1.0, 0.4]]))
    np.testing.assert_array_equal(drop_own(found, np.array([0]), 2).slots, [[1, 3]])


def test_neighbours_that_float32_hardly_tells_apart():
    """Cosines that differ by millionths: measured by their rounded scores, everything would be found."""
    rng = np.random.default_rng(0)
    rows = (100 + rng.standard_normal((10_300, 32))).astype(np.float32)
    vectors, queries = rows[:-300], rows[-300:]
    index = posh.Index.build(vectors, metric="cosine", recall=0.95)
    unit = [
        part / np.linalg.norm(part, axis=1, keepdims=True) for part in map(np.float64, (queries, vectors))
    ]
    true = np.argsort(-(unit[0] @ unit[1].T), axis=1)[:, :10]
    assert posh.metrics.recall(index.search(queries, 10).ids, true).mean() >= 0.93


def test_recall_of_inner_products_is_measured_as_it_is_found():
    """A document need not be its own neighbour: as a query it must not get one more candidate than others."""
    differences = []
    for seed in range(4, 8):
        rng = np.random.default_rng(seed)
        centres, spreads = rng.standard_normal((300, 48)), np.exp(rng.normal(-1.0, 1.0, (300, 1)))
        labels = rng.choice(300, 21_000, p=(shares := 1 / np.arange(1, 301)) / shares.sum())
        rows = (centres[labels] + spreads[labels] * rng.standard_normal((21_000, 48))).astype(np.float32)
        vectors, queries = rows[:-1000], rows[-1000:]
        index = posh.Index.build(vectors, metric="dot", recall=0.9)
        true = (np.float64(queries) @ np.float64(vectors).T).argmax(axis=1)
        found = (index.search(queries, 1).ids[:, 0] == true).mean()
        differences.append(found - index.report().recalls[0])
    assert np.mean(differences) > -0.015
