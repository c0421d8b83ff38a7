"""How vectors are prepared for a metric: the kernels against NumPy, whatever the scale and the dtype."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import posh
from posh import _native, kernels
from posh.index.choices import METRICS
from posh.index.nearest.metric import Metric, as_reals

LARGEST = float(np.finfo(np.float32).max)


def plain_directions(X):
    scaled = X / np.maximum(np.abs(X).max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
    return np.divide(scaled, lengths, out=np.zeros_like(scaled), where=lengths > 0)


def plain_powers(X):
    """The power of two above the length of each row, and 0 for zeros."""
    lengths = np.linalg.norm(X, axis=1)
    return np.where(lengths > 0, np.ldexp(1.0, np.frexp(lengths)[1]), 0.0)


@given(
    seed=st.integers(0, 2**32 - 1),
    name=st.sampled_from(sorted(METRICS)),
    exponent=st.integers(-30, 30),
    dtype=st.sampled_from([np.float64, np.float32, np.float16, np.int32]),
)
def test_vectors_equal_those_of_numpy(seed, name, exponent, dtype):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rng.integers(1, 6), rng.integers(1, 40))) * 10.0**exponent
    X[rng.random(len(X)) < 0.2] = 0
    with np.errstate(over="ignore"):
        X = (
            np.nan_to_num(np.clip(X, -1e4, 1e4).astype(dtype))
            if dtype in (np.float16, np.int32)
            else X.astype(dtype)
        )
    metric = Metric.of(name, X)
    wide = X.astype(np.float64)
    differences = (wide - metric.mean) / metric.unit
    documents = plain_directions(wide) if name == "cosine" else differences
    powers = plain_powers(wide)  # queries of products are divided by these: it keeps all digits
    scaled = np.divide(wide, powers[:, None], out=np.zeros_like(wide), where=powers[:, None] > 0)
    queries = {"euclidean": differences, "cosine": documents, "dot": scaled}[name]
    np.testing.assert_allclose(metric.prepare(X), documents, rtol=3e-7, atol=1e-38)
    prepared = metric.prepare_queries(X)
    np.testing.assert_allclose(prepared.vectors, queries, rtol=3e-7, atol=1e-38)
    factors = {
        "cosine": np.ones(len(X)),
        "euclidean": np.full(len(X), metric.unit**2),
        "dot": metric.unit * powers,
    }
    np.testing.assert_array_equal(prepared.factors, factors[name])


def test_doubles_whose_squares_do_not_fit_keep_their_direction():
    X = np.array([[3e200, 4e200], [3e-200, -4e-200], [0.0, 0.0]])
    for name in ("cosine", "dot"):
        prepared = Metric.of(name, np.ones((1, 2))).prepare_queries(X)
        directions = plain_directions(prepared.vectors.astype(np.float64))
        np.testing.assert_allclose(directions, [[0.6, 0.8], [0.6, -0.8], [0, 0]], rtol=1e-6)
    lengths = np.linalg.norm(prepared.vectors, axis=1)
    np.testing.assert_allclose(lengths * prepared.factors, [5e200, 5e-200, 0])


def test_scores_become_those_of_the_metric_and_stay_finite():
    metric = Metric.of("dot", np.array([[1e30, 0.0]]))
    prepared = metric.prepare_queries(np.array([[1e30, 0.0], [1.0, 0.0]]))
    scores = metric.restore_scores(
        prepared, np.array([[1.0, -1.0, -np.inf], [0.5, 0.0, -np.inf]], np.float32)
    )
    np.testing.assert_array_equal(scores[0], np.float32([LARGEST, -LARGEST, -np.inf]))
    np.testing.assert_allclose(scores[1, :2], [metric.unit, 0.0], rtol=1e-6)  # of a query of 1/2 times 2
    assert scores[1, 2] == -np.inf


@pytest.mark.parametrize("scale", [1e-310, 1e-300, 1e300, 1e307])
def test_whatever_the_scale_a_document_is_its_own_nearest(scale):
    X = np.random.default_rng(0).uniform(-1, 1, (50, 8)) * scale
    hits = posh.Index(metric="euclidean").add(X).search(X, 2)
    np.testing.assert_array_equal(hits.ids[:, 0], np.arange(50))
    np.testing.assert_array_equal(hits.scores[:, 0], np.zeros(50))
    assert np.isfinite(hits.scores).all()


@pytest.mark.parametrize("name", ["euclidean", "dot"])
def test_numbers_that_do_not_fit_are_named(name):
    metric = Metric.of(name, np.ones((3, 2)) * [[1.0], [2.0], [3.0]])
    with pytest.raises(ValueError, match=r"expected vectors that fit into float32 .* got 1e\+200"):
        metric.prepare(np.array([[1e200, 0.0]]))


def test_arrays_with_gaps_are_copied_and_others_are_not():
    X = np.ones((4, 6), np.float32)
    assert as_reals(X) is X
    np.testing.assert_array_equal(as_reals(X[:, ::2]), X[:, ::2])
    assert as_reals(X.astype(np.float16)).dtype == np.float32
    assert as_reals(X.astype(np.int64)).dtype == np.float64


def test_a_pickle_makes_the_same_vectors():
    X = np.random.default_rng(0).standard_normal((5, 3))
    metric = Metric.of("euclidean", X)
    metric.prepare(X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(metric)).prepare(X), metric.prepare(X))


@pytest.mark.parametrize("name", sorted(METRICS))
def test_stored_vectors_can_be_searched_for_again(name):
    X = np.random.default_rng(0).standard_normal((5, 3)) * 1000 + 7
    metric = Metric.of(name, X)
    expected = plain_directions(X) if name == "cosine" else X
    np.testing.assert_allclose(metric.restore(metric.prepare(X)), expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["cosine", "euclidean", "dot"])
def test_kernels_prepare_the_same_vectors(name, dtype):
    """Bit by bit: additions have the same order, and no product is fused with a sum."""
    rng = np.random.default_rng(0)
    widest = 30 if dtype == np.float32 else 200
    scales = np.logspace(-widest, widest, 20)[:, None]
    for d in (1, 3, 4, 15, 16, 17, 37, 128, 783):
        X = (rng.standard_normal((20, d)) * scales).astype(dtype)
        X[1, d // 2], X[2, -1], X[3] = np.nan, np.inf, 0
        native = _native.Metric(name, rng.standard_normal(d), 2.0)
        prepared = [prepare_by_kernel(native, X, kernel) for kernel in kernels.available()]
        assert prepared[0][3][:5].tolist() == [True, False, False, True, True]
        for others in prepared[1:]:
            for found, expected in zip(others, prepared[0], strict=True):
                np.testing.assert_array_equal(found, expected)


def prepare_by_kernel(native, X, kernel):
    """Return documents, queries, factors, and whether each query fits."""
    documents, queries = np.empty(X.shape, np.float32), np.empty(X.shape, np.float32)
    factors = np.empty(len(X))
    rows = [slice(i, i + 1) for i in range(len(X))]
    native.prepare_documents(X, documents, kernel)
    fits = [native.prepare_queries(X[row], queries[row], factors[row], kernel) for row in rows]
    return documents, queries, factors, np.array(fits)
