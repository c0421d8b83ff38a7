from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics import average_precision_score

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


def test_recall_counts_ties_and_missing_items():
    true = np.array([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]])
    retrieved = np.array([[2.0, 2.0, 3.0], [1.0, np.inf, np.inf], [2.0, 2.0, 2.0]])
    np.testing.assert_allclose(metrics.recall(retrieved, true), [1.0, 0.5, 1.0])


def test_recall_at_looks_at_the_first_results_only():
    retrieved, true = [[9.0, 1.0, 2.0]], [[1.0, 2.0]]
    assert metrics.recall(retrieved, true) == 1
    assert metrics.recall(retrieved, true, at=2) == 0.5


def test_recall_tolerance_changes_the_result():
    assert metrics.recall([[1.005]], [[1.0]], tolerance=0.0) == 0
    assert metrics.recall([[1.005]], [[1.0]], tolerance=0.01) == 1


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
        (lambda: metrics.recall([[1.0]], [[1.0], [2.0]]), "expected distances"),
        (lambda: metrics.recall([[1.0]], [[np.nan]]), "got NaN: use inf"),
        (lambda: metrics.mean_average_precision(np.empty((0, 3)), []), "m >= 1"),
        (lambda: metrics.interval([]), "at least one value"),
        (lambda: metrics.interval([1.0, 2.0], level=1.5), r"expected level in \(0, 1\], got 1.5"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
