from __future__ import annotations

import copy

import numpy as np
import pytest
from sklearn.base import clone

import posh
from posh.hashers._linalg import draw_orthogonal, solve_procrustes
from tests.conftest import clusters


def polar(M: np.ndarray) -> np.ndarray:
    U, _, Vt = np.linalg.svd(M, full_matrices=False)
    return U @ Vt


def plain_posh(Z: np.ndarray, W: np.ndarray, n_active: int, n_epochs: int, batch_size: int) -> np.ndarray:
    """The paper's Algorithm 1 with an SVD per mini-batch; M starts at (a little of) W."""
    M = 1e-3 * W
    for _ in range(n_epochs):
        for start in range(0, len(Z), batch_size):
            batch = Z[start : start + batch_size]
            H = np.zeros((len(batch), len(W)))
            np.put_along_axis(H, np.argsort(-batch @ W.T, axis=1, kind="stable")[:, :n_active], 1, axis=1)
            M = M + H.T @ batch
            W = polar(M)
    return W


def loss(hasher: posh.POSH, Z: np.ndarray, W: np.ndarray) -> float:
    scores = Z @ W.T
    best = -np.sort(-scores, axis=1)[:, : hasher.n_active].sum()
    return float(hasher.n_active - (2 * best - np.square(Z).sum()) / len(Z))


@pytest.mark.parametrize("shape", [(40, 40), (64, 10), (64, 1)])
def test_procrustes_is_the_polar_factor(shape):
    rng = np.random.default_rng(0)
    M = rng.normal(size=shape)
    W = solve_procrustes(1e6 * M, previous=polar(M))
    np.testing.assert_allclose(W, polar(M), atol=1e-5)


def test_procrustes_of_a_rank_deficient_matrix_keeps_the_previous_directions():
    rng = np.random.default_rng(0)
    previous = draw_orthogonal(32, 8, rng)
    M = rng.normal(size=(32, 8))
    M[:, 5:] = 0.0
    W = solve_procrustes(M, previous)
    np.testing.assert_allclose(W.T @ W, np.eye(8), atol=1e-6)
    U = polar(M[:, :5])
    np.testing.assert_allclose(W[:, :5], U, atol=2e-2)
    remaining = previous[:, 5:] - U @ (U.T @ previous[:, 5:])
    np.testing.assert_allclose(W[:, 5:], polar(remaining), atol=2e-2)
    np.testing.assert_array_equal(solve_procrustes(0 * M, previous), previous)


def test_random_orthogonal_has_orthonormal_columns():
    W = draw_orthogonal(50, 20, np.random.default_rng(0))
    np.testing.assert_allclose(W.T @ W, np.eye(20), atol=1e-6)


@pytest.mark.parametrize("n_active", [1, 4, 16])
def test_fit_reaches_the_objective_of_the_plain_algorithm(n_active):
    X = clusters(600, 12)
    hasher = posh.POSH(48, n_active, n_epochs=10, random_state=0).fit(X)
    Z = hasher.preprocess_(X)
    rng = hasher._make_rng()
    W0 = draw_orthogonal(48, 12, rng).astype(np.float64)
    expected = plain_posh(Z[rng.permutation(len(Z))].astype(np.float64), W0, n_active, 10, 100)
    start = loss(hasher, Z, W0)
    reached, plain = loss(hasher, Z, hasher.weights_), loss(hasher, Z, expected)
    assert plain < start
    assert reached <= plain + 0.05 * (start - plain)


def test_one_batch_equals_the_plain_algorithm():
    X = clusters(80, 12)
    hasher = posh.POSH(48, 4, n_epochs=1, batch_size=100, lag=0.0, random_state=0).fit(X)
    rng = hasher._make_rng()
    W0 = draw_orthogonal(48, 12, rng)
    expected = plain_posh(hasher.preprocess_(X), W0, 4, 1, 100)
    np.testing.assert_allclose(hasher.weights_, expected, atol=3e-3)


def test_the_objective_falls_and_is_what_it_says():
    X = clusters(500, 16)
    hasher = posh.POSH(64, 8, n_epochs=20, random_state=0).fit(X)
    assert len(hasher.objective_) == hasher.n_iter_ == 20
    assert hasher.objective_[-1] < hasher.objective_[0]
    Z = hasher.preprocess_(X)
    direct = np.square(hasher.encode(X).to_dense() - Z @ hasher.weights_.T).sum(axis=1).mean()
    assert hasher.objective_[-1] == pytest.approx(direct, rel=0.01)


@pytest.mark.parametrize("n_columns", [5, 64])
def test_columns_stay_orthonormal_whatever_the_rank(n_columns):
    X = clusters(200, n_columns)
    X[:, 1:3] = 4.0  # constant
    X[:, 3] = X[:, 4]  # linearly dependent
    hasher = posh.POSH(64, 8, n_epochs=5, random_state=0).fit(X)
    np.testing.assert_allclose(hasher.weights_.T @ hasher.weights_, np.eye(n_columns), atol=1e-5)


@pytest.mark.parametrize("change", [{"n_epochs": 1}, {"batch_size": 37}, {"lag": 0.5}], ids=str)
def test_every_parameter_matters(X, change):
    hasher = posh.POSH(64, 6, n_epochs=6, random_state=0)
    assert clone(hasher).set_params(**change).fit(X).encode(X) != hasher.fit(X).encode(X)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_epochs": 0}, "expected n_epochs at least 1, got 0"),
        ({"batch_size": 0}, "expected batch_size at least 1, got 0"),
        ({"lag": -0.1}, r"expected lag in \[0, 1\], got -0.1"),
        ({"lag": float("nan")}, r"expected lag in \[0, 1\], got nan"),
    ],
    ids=str,
)
def test_bad_parameters_are_named(X, change, message):
    with pytest.raises(ValueError, match=message):
        posh.POSH(64, 6, **change).fit(X)


def test_partial_fit_follows_the_mean_exactly():
    first, second = clusters(60, 8), clusters(90, 8, seed=1) + 5.0
    hasher = posh.POSH(32, 4, batch_size=1000, lag=0.0, random_state=0)
    W0 = draw_orthogonal(32, 8, hasher._make_rng())
    hasher.partial_fit(first)
    scale = hasher.preprocess_.scale
    H1 = posh.Codes(posh.kernels.winners(hasher.preprocess_(first) @ W0.T, 4), 32).to_dense(float)
    W1 = hasher.weights_
    hasher.partial_fit(second)
    mean = np.concatenate([first, second]).mean(axis=0)
    np.testing.assert_allclose(hasher.preprocess_.mean, mean)
    H2 = posh.Codes(posh.kernels.winners(hasher.preprocess_(second) @ W1.T, 4), 32).to_dense(float)
    expected = (H1.T @ (first - mean) + H2.T @ (second - mean)) / scale
    np.testing.assert_allclose(hasher.moment_, expected, atol=1e-3)
    assert hasher.n_seen_ == 150
    assert hasher.n_iter_ == len(hasher.objective_) == 2


def test_partial_fit_learns_a_stream_as_well_as_fit_learns_the_whole():
    X = clusters(2000, 16)
    whole = posh.POSH(64, 8, n_epochs=1, random_state=0).fit(X)
    stream = posh.POSH(64, 8, random_state=0)
    for start in range(0, 2000, 50):
        stream.partial_fit(X[start : start + 50])
    Z = whole.preprocess_(X)
    assert loss(stream, Z, stream.weights_) == pytest.approx(loss(whole, Z, whole.weights_), rel=0.03)
    np.testing.assert_allclose(stream.weights_.T @ stream.weights_, np.eye(16), atol=1e-5)


def test_a_refused_batch_changes_nothing(X):
    hasher = posh.POSH(64, 6, random_state=0).partial_fit(X)
    expected = hasher.encode(X)
    bad = X.copy()
    bad[0, 0] = 1e30
    with pytest.raises(ValueError, match="on the scale of the training data"):
        hasher.partial_fit(bad)
    assert hasher.encode(X) == expected
    assert hasher.n_seen_ == len(X)


@pytest.mark.parametrize("lag", [0.0, 1.0])
def test_partial_fit_learns_with_any_lag(X, lag):
    hasher = posh.POSH(64, 6, lag=lag, random_state=0)
    start = draw_orthogonal(64, 24, hasher._make_rng())
    assert np.abs(hasher.partial_fit(X).weights_ - start).max() > 0.01


def test_a_copy_learns_on_its_own(X):
    hasher = posh.POSH(64, 6, random_state=0).partial_fit(X)
    moment = hasher.moment_.copy()
    copy.copy(hasher).partial_fit(X + 1.0)
    np.testing.assert_array_equal(hasher.moment_, moment)


def test_partial_fit_goes_on_after_loading(X, tmp_path):
    hasher = posh.POSH(64, 6, n_epochs=2, random_state=0).fit(X[:200])
    hasher.save(tmp_path / "model")
    loaded = posh.POSH.load(tmp_path / "model")
    assert loaded.partial_fit(X[200:]).encode(X) == hasher.partial_fit(X[200:]).encode(X)


def test_partial_fit_refuses_what_it_cannot_do(X):
    with pytest.raises(ValueError, match=r"expected at most n_bits=16 columns for partial_fit, got 24"):
        posh.POSH(16, 4).partial_fit(X)
    with pytest.raises(ValueError, match="n_samples=1, expected at least 2"):
        posh.POSH(64, 4).partial_fit(X[:1])
    hasher = posh.POSH(64, 4, random_state=0).partial_fit(X)
    assert hasher.partial_fit(X[:1]).n_seen_ == 401
    with pytest.raises(ValueError, match="expected vectors with 24 columns"):
        hasher.partial_fit(X[:, :5])
