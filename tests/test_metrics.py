from __future__ import annotations

import uuid

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics import average_precision_score

import posh
from posh import metrics

RANKINGS = hnp.arrays(np.int64, st.tuples(st.integers(1, 5), st.integers(1, 30)), elements=st.integers(0, 2))


def plain_average_precision(row: np.ndarray, label: int) -> float:
    hits, total = 0, 0.0
    for rank, found in enumerate(row, start=1):
        if found == label:
            hits += 1
            total += hits / rank
    return total / hits if hits else 0.0


@given(RANKINGS, st.data())
def test_average_precision_is_its_definition(retrieved, data):
    labels = data.draw(hnp.arrays(np.int64, len(retrieved), elements=st.integers(0, 2)))
    at = data.draw(st.integers(1, retrieved.shape[1]))
    expected = [
        plain_average_precision(row[:at], label) for row, label in zip(retrieved, labels, strict=True)
    ]
    np.testing.assert_allclose(metrics.average_precision(retrieved, labels, at), expected)
    assert metrics.mean_average_precision(retrieved, labels, at) == pytest.approx(np.mean(expected))


@given(hnp.arrays(bool, st.integers(1, 40)).filter(np.any))
def test_full_ranking_agrees_with_scikit_learn(relevant):
    ranking = relevant.astype(np.int64)[None]
    expected = average_precision_score(relevant, -np.arange(len(relevant)))
    assert metrics.average_precision(ranking, [1])[0] == pytest.approx(expected)


def test_more_queries_than_a_chunk():
    retrieved = np.random.default_rng(0).integers(0, 3, size=(600, 12))
    labels = np.random.default_rng(1).integers(0, 3, size=600)
    expected = [plain_average_precision(row, label) for row, label in zip(retrieved, labels, strict=True)]
    np.testing.assert_allclose(metrics.average_precision(retrieved, labels), expected)


@given(RANKINGS)
def test_precision_counts(retrieved):
    labels = np.ones(len(retrieved), int)
    np.testing.assert_allclose(
        metrics.precision(retrieved, labels), (retrieved == 1).sum(axis=1) / retrieved.shape[1]
    )
    np.testing.assert_allclose(metrics.precision(retrieved, labels, at=1), retrieved[:, 0] == 1)


def plain_recall(found, true, missing):
    """The plain reference: sets of Python values, row by row."""
    shares = []
    for own, near in zip(found.tolist(), true.tolist(), strict=True):
        wanted = {*near} - {missing}
        shares.append(len(wanted & {*own}) / len(wanted))
    return shares


ROWS = st.tuples(st.integers(1, 4), st.integers(0, 12), st.integers(1, 12))
NAMES = ["a", "b", "ab", "1", "é"]
MIXED = [None, 0, 1, -1, 2**63, "0", "1", ("a", 1), "a"]


def draw_pair(data, dtypes, values):
    """Ids (m, n) and true ids (m, k), of few values so that rows have ties; each true row has an id."""
    m, n, k = data.draw(ROWS)
    elements = st.sampled_from(values)
    found, true = (
        np.empty((m, width), data.draw(st.sampled_from(dtypes), label="dtype")) for width in (n, k)
    )
    for array in (found, true):
        for place in np.ndindex(array.shape):
            array[place] = data.draw(elements)
    true[:, 0] = values[-1]
    return found, true


@given(st.data())
def test_recall_of_integers_is_that_of_sets(data):
    found, true = draw_pair(data, [np.int64, np.int32, np.int8], [-1, -2, *range(10)])
    at = data.draw(st.none() if found.shape[1] == 0 else st.integers(1, found.shape[1]))
    result = metrics.recall(found, true, at)
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, plain_recall(found[:, :at], true, -1))


@given(st.data())
def test_recall_of_large_integers_is_that_of_sets(data):
    """uint64 and int64 have no common type of integers in NumPy: rounded, these ids would be equal."""
    found, true = draw_pair(data, [np.int64, np.uint64], [2**62, 2**62 + 1, 2**63 - 2, 2**63 - 1])
    np.testing.assert_allclose(metrics.recall(found, true), plain_recall(found, true, -1))


@given(st.data())
def test_recall_of_objects_is_that_of_sets(data):
    found, true = draw_pair(data, [object], MIXED)
    np.testing.assert_allclose(metrics.recall(found, true), plain_recall(found, true, None))


@given(st.data())
def test_recall_of_strings_is_that_of_sets(data):
    found, true = draw_pair(data, [object, "U2"], NAMES)
    expected = plain_recall(found, true, None)
    np.testing.assert_allclose(metrics.recall(found, true), expected)
    np.testing.assert_allclose(metrics.recall(found.tolist(), true.tolist()), expected)


def test_recall_of_lists_keeps_types_apart():
    assert metrics.recall([[1, "2"]], [["1", "2"]]) == 0.5
    assert metrics.recall([[1, None]], [[1, 2]]) == 0.5
    assert metrics.recall([[]], [[1, 2]]) == 0.0
    name = uuid.UUID(int=7)
    assert metrics.recall([[str(name)]], [[name]]) == 1.0


def test_missing_ids_of_integers_and_objects():
    """-1 is missing in hits of an index, None in those of a collection, where -1 may be an id."""
    objects = np.array([[3, None, -1]], object)
    assert metrics.recall(np.array([[3, -1, -1]]), objects) == 0.5
    assert metrics.recall(objects, np.array([[3, -1, -1]])) == 1.0


def test_recall_of_hits(tmp_path):
    data = posh.datasets.load("digits")
    index = posh.Index.build(data.base, metric="cosine")
    true, other = index.search(data.queries, 10, exact=True), index.search(data.queries[::-1], 10)
    np.testing.assert_array_equal(metrics.recall(true, true), 1.0)
    np.testing.assert_allclose(metrics.recall(other, true), plain_recall(other.ids, true.ids, -1))
    assert metrics.recall(true, true, at=3) == pytest.approx(np.full(len(data.queries), 0.3))
    with posh.Collection(tmp_path, metric="cosine") as collection:
        collection.upsert(range(len(data.base)), data.base)
        np.testing.assert_array_equal(metrics.recall(collection.search(data.queries, 10), true), 1.0)


def test_random_ids_and_zeros_have_the_recall_of_chance():
    """By distance, ids as they come scored 0.9 and zeros 1.0."""
    rng = np.random.default_rng(0)
    true = np.stack([rng.permutation(10_000)[:10] for _ in range(500)])
    random = rng.integers(10_000, size=true.shape)
    assert metrics.recall(random, true).mean() < 0.01
    assert metrics.recall(np.zeros_like(true), true).mean() < 0.01
    with pytest.raises(ValueError, match=r"posh\.metrics\.recall\(found, true\)"):
        metrics.recall_by_distance(random, true)


def test_many_queries_with_many_ids():
    rng = np.random.default_rng(0)
    found, true = rng.integers(3000, size=(2, 200, 1000))
    np.testing.assert_allclose(metrics.recall(found, true), plain_recall(found, true, -1))


def test_recall_by_distance_counts_ties_and_missing_items():
    true = np.array([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]])
    retrieved = np.array([[2.0, 2.0, 3.0], [1.0, np.inf, np.inf], [2.0, 2.0, 2.0]])
    np.testing.assert_allclose(metrics.recall_by_distance(retrieved, true), [1.0, 0.5, 1.0])


def test_recall_by_distance_looks_at_the_first_results_only():
    retrieved, true = [[9.0, 1.0, 2.0]], [[1.0, 2.0]]
    assert metrics.recall_by_distance(retrieved, true) == 1
    assert metrics.recall_by_distance(retrieved, true, at=2) == 0.5


def test_recall_by_distance_takes_a_tolerance():
    assert metrics.recall_by_distance([[1.005]], [[1.0]], tolerance=0.0) == 0
    assert metrics.recall_by_distance([[1.005]], [[1.0]], tolerance=0.01) == 1


@given(st.data())
def test_both_recalls_agree_on_distinct_distances(data):
    n = data.draw(st.integers(1, 20))
    distances = np.array(data.draw(st.permutations(range(n))), float)  # of the documents from one query
    k = data.draw(st.integers(1, n))
    found = np.array([data.draw(st.permutations(range(n)))])
    true = np.argsort(distances)[None, :k]
    at = data.draw(st.integers(1, n))
    by_distance = metrics.recall_by_distance(distances[found], distances[true], at)
    np.testing.assert_allclose(metrics.recall(found, true, at), by_distance)


def test_interval_is_students():
    values = np.random.default_rng(0).normal(5.0, 2.0, size=12)
    low, high = scipy.stats.t.interval(0.95, 11, values.mean(), scipy.stats.sem(values))
    assert metrics.interval(values) == pytest.approx((values.mean(), low, high))
    assert metrics.interval(values, level=0.5).low > low
    assert np.isnan(metrics.interval([1.0]).low)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.average_precision([1, 0], [1]), r"expected labels of the results as \(m >= 1, n"),
        (lambda: metrics.average_precision([[1, 0]], [1, 0]), "expected 1 query labels, got 2"),
        (lambda: metrics.average_precision([[1, 0]], [1], at=3), r"expected at between 1 and 2 .*, got 3"),
        (lambda: metrics.average_precision([[1, 0]], [[1]]), "1-D"),
        (lambda: metrics.recall([[0.5]], [[1]]), r"got float64: .*posh\.metrics\.recall_by_distance"),
        (lambda: metrics.recall([[1]], np.float32([[1]])), r"got float32: .*recall_by_distance"),
        (lambda: metrics.recall([[1]], [[0.5, None]]), r"got objects that are floats: .*recall_by_distance"),
        (lambda: metrics.recall([[1]], [[True]]), "expected ids, got bool"),
        (lambda: metrics.recall([1, 2], [1, 2]), r"expected ids \(m >= 1, n\) .*, got \(2,\) and \(2,\)"),
        (lambda: metrics.recall([[1]], [[1], [2]]), r"got \(1, 1\) and \(2, 1\)"),
        (lambda: metrics.recall([[1]], [[]]), r"got \(1, 1\) and \(1, 0\)"),
        (lambda: metrics.recall([[1], [2]], [[1], [2, 3]]), "got several lengths: pad rows with None"),
        (lambda: metrics.recall([[1], [2]], [[1], [-1]]), "got none for query 1: leave this query out"),
        (lambda: metrics.recall([[1]], [[1]], at=2), r"expected at between 1 and 1 .*, got 2"),
        (lambda: metrics.recall_by_distance([[1.0]], [[1.0], [2.0]]), r"got \(1, 1\) and \(2, 1\)"),
        (lambda: metrics.recall_by_distance([[np.nan]], [[1.0]]), "got NaN: use inf"),
        (lambda: metrics.recall_by_distance([[1.0]], [[np.inf]]), "expected finite true distances"),
        (lambda: metrics.recall_by_distance([[1]], [[1.0]]), r"got int64: .*posh\.metrics\.recall\("),
        (lambda: metrics.recall_by_distance([[1.0]], [["a"]]), r"got <U1: .*posh\.metrics\.recall\("),
        (lambda: metrics.mean_average_precision(np.empty((0, 3)), []), "m >= 1"),
        (lambda: metrics.interval([]), "at least one value"),
        (lambda: metrics.interval([1.0, 2.0], level=1.5), r"expected level in \(0, 1\], got 1.5"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
