from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
from hypothesis import example, given
from hypothesis import strategies as st

import posh
from posh.hashers import lifting
from posh.hashers.lifting import (
    SimilarityMatching,
    _find_best_step,
    _solve_ridge,
    mark_winners,
    minimize_on_box,
)
from posh.preprocess import normalize_rows
from tests.conftest import clusters


def random_problem(n: int = 30, d: int = 5, n_bits: int = 12, seed: int = 0):
    rng = np.random.default_rng(seed)
    X = normalize_rows(rng.normal(size=(n, d)).astype(np.float32))
    target = mark_winners(rng.normal(size=(n, n_bits)), 3)
    Y = rng.random((n, n_bits), np.float32)
    return X, target, Y


def plain_value(X: np.ndarray, target: np.ndarray, Y: np.ndarray) -> float:
    """The definition, with its n × n matrices."""
    X, Y = X.astype(np.float64), Y.astype(np.float64)
    return 0.25 * np.square(X @ X.T - Y @ Y.T).sum() + 0.5 * np.square(Y - target).sum()


def test_similarity_matching_is_its_definition():
    X, target, Y = random_problem()
    problem = SimilarityMatching(X, target)
    assert problem.evaluate(Y) == pytest.approx(plain_value(X, target, Y), rel=1e-4)
    gradient = problem.compute_gradient(Y)
    for i, j in ((0, 0), (3, 7), (29, 11)):
        shift = np.zeros(Y.shape)
        shift[i, j] = 1e-3
        slope = (plain_value(X, target, Y + shift) - plain_value(X, target, Y - shift)) / 2e-3
        assert gradient[i, j] == pytest.approx(slope, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_solver_reaches_the_value_of_l_bfgs_b(seed):
    X, target, Y = random_problem(seed=seed)
    rival = scipy_minimum(X, target, Y)
    ours = minimize_on_box(SimilarityMatching(X, target), Y, 200, "test")
    assert ours.min() >= 0
    assert ours.max() <= 1
    assert plain_value(X, target, ours) <= 1.05 * plain_value(X, target, rival)  # not convex: minima differ


def test_ridge_map_is_ridge_regression():
    X, _, Y = random_problem()
    penalty = 0.1 * np.trace(X.T @ X) / 5
    expected = np.linalg.solve(X.T @ X + penalty * np.eye(5), X.T @ Y).T
    np.testing.assert_allclose(_solve_ridge(X, Y, 0.1), expected, atol=1e-4)


@given(st.lists(st.floats(-5, 5), min_size=4, max_size=4))
@example([-1.0, 1.0, 1e-125, 1e-125])
@example([-1.0, 2.0, 0.0, -1.3e-125])
def test_best_step_is_the_minimum_of_the_quartic(coefficients):
    t = np.linspace(0, 1, 2001)
    value = lambda t: t * np.polyval(coefficients[::-1], t)  # noqa: E731
    assert value(_find_best_step(*coefficients)) <= value(t).min() + 1e-6


def scipy_minimum(X: np.ndarray, target: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """L-BFGS-B, on the definition."""
    X, target = X.astype(np.float64), target.astype(np.float64)

    def value_and_gradient(y):
        y = y.reshape(Y.shape)
        return plain_value(X, target, y), ((y @ y.T - X @ X.T) @ y + y - target).ravel()

    start = Y.astype(np.float64).ravel()
    bounds = [(0, 1)] * Y.size
    return scipy.optimize.minimize(
        value_and_gradient, start, jac=True, method="L-BFGS-B", bounds=bounds
    ).x.reshape(Y.shape)


def test_bosl_is_the_papers_admm(monkeypatch):
    """With the same solver inside, Algorithm 3 step by step gives the same weights."""
    monkeypatch.setattr(
        lifting, "minimize_on_box", lambda problem, Y, *_: scipy_minimum(problem.X, problem.target, Y)
    )
    X = clusters(80, 6)
    hasher = posh.BOSL(16, 3, n_epochs=3, ridge=1e-3, random_state=0).fit(X)
    Z = normalize_rows(hasher.preprocess_(X)).astype(np.float64)
    Y = Z @ hasher._make_rng().standard_normal((6, 16), np.float32)
    H, L = mark_winners(Y, 3), np.zeros_like(Y)
    Y = np.clip(Y, 0, 1)
    Y = Y * np.linalg.norm(Z.T @ Y) / np.linalg.norm(Y.T @ Y)
    for epoch in range(3):
        if epoch:
            H = mark_winners(Y + L, 3)
        Y = scipy_minimum(Z, H + L, Y)
        L = L + H - Y
    penalty = 1e-3 * np.trace(Z.T @ Z) / 6
    W = np.linalg.solve(Z.T @ Z + penalty * np.eye(6), Z.T @ Y).T
    np.testing.assert_allclose(hasher.weights_, W, atol=0.02)
    expected = 0.25 * np.square(Z @ Z.T - Y @ Y.T).mean()
    assert hasher.objective_[-1] == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("change", [{"n_epochs": 3}, {"n_steps": 1}, {"ridge": 10.0}], ids=str)
def test_bosl_parameters_matter(X, change):
    expected = posh.BOSL(64, 6, n_steps=8, random_state=0).fit(X).encode(X)
    assert (
        posh.BOSL(**{"n_bits": 64, "n_active": 6, "n_steps": 8, "random_state": 0} | change).fit(X).encode(X)
        != expected
    )


@pytest.mark.parametrize("gamma", [0.0, 2.0])
def test_osl_stays_feasible_and_descends(gamma):
    X = clusters(200, 10)
    hasher = posh.OSL(32, 4, n_inputs=3, gamma=gamma, beta=0.1, n_epochs=30, random_state=0).fit(X)
    assert (np.diff(hasher.objective_) <= 1e-6 * hasher.objective_[0]).all()
    assert hasher.objective_[-1] < hasher.objective_[0]
    np.testing.assert_allclose(hasher.weights_.sum(axis=1), 3.0, atol=1e-3)
    assert hasher.weights_.min() >= -1e-5
    assert hasher.weights_.max() <= 1 + 1e-5


def test_osl_weights_descend():
    X = clusters(200, 10)
    losses = []
    for n_epochs in (1, 5, 50):
        hasher = posh.OSL(32, 4, n_inputs=3, n_epochs=n_epochs, random_state=0)
        Z = normalize_rows(hasher.fit(X).preprocess_(X))
        Y = mark_winners(Z @ np.random.default_rng(0).normal(size=(10, 32)), 4)
        losses.append(np.square(Z @ hasher._learn_weights(Z, Y, 3).T - Y).sum())
    assert losses[0] > losses[1] >= losses[2]


def test_osl_objective_is_its_definition():
    X = clusters(60, 6)
    hasher = posh.OSL(16, 3, gamma=0.5, n_epochs=10, random_state=0).fit(X)
    Z = normalize_rows(hasher.preprocess_(X))
    Y, objective = hasher._learn_codes(Z, hasher._make_rng())
    np.testing.assert_allclose(Y.sum(axis=1), 3.0, atol=1e-4)
    plain = 0.5 * np.square(3 * Z @ Z.T - Y @ Y.T).sum() + 0.5 * np.sqrt(Y + 0.01).sum()
    assert objective[-1] == pytest.approx(plain / 60**2, rel=1e-3)


@pytest.mark.parametrize(
    "change",
    [{"n_inputs": 9}, {"gamma": 50.0}, {"beta": 5.0}, {"gamma": 50.0, "p": 0.9}, {"n_epochs": 2}],
    ids=str,
)
def test_osl_parameters_matter(X, change):
    base = {
        "n_bits": 64,
        "n_active": 6,
        "n_epochs": 8,
        "random_state": 0,
        "gamma": 50.0 if "p" in change else 0.0,
    }
    assert posh.OSL(**base | change).fit(X).encode(X) != posh.OSL(**base).fit(X).encode(X)


@pytest.mark.parametrize(
    ("hasher", "message"),
    [
        (posh.BOSL(64, 6, ridge=0.0), r"expected ridge in \(0, inf\), got 0"),
        (posh.BOSL(64, 6, n_steps=0), "expected n_steps at least 1"),
        (posh.OSL(64, 6, p=0.0), r"expected p in \(0, 1\], got 0"),
        (
            posh.OSL(64, 6, n_inputs=25),
            r"expected n_inputs between 1 and 24 \(the number of features\), got 25",
        ),
        (posh.OSL(64, 6, gamma=-1.0), r"expected gamma in \[0, inf\), got -1"),
    ],
)
def test_bad_parameters_are_named(X, hasher, message):
    with pytest.raises(ValueError, match=message):
        hasher.fit(X)
