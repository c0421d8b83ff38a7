"""Products in tiles equal those of NumPy, and do not depend on the number of threads."""

from __future__ import annotations

import numpy as np
import pytest

import posh
from posh.hashers import _linalg
from posh.hashers._linalg import Team, draw_orthogonal, improve_procrustes, reorthogonalize, solve_procrustes
from tests.conftest import clusters
from tests.hashers.test_posh import loss, plain_posh

WIDE = clusters(700, 300)  # more features than the exact Procrustes step is used for


def matrix(n_rows: int, n_columns: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n_rows, n_columns), np.float32)


@pytest.mark.parametrize("shape", [(1, 1), (256, 256), (257, 511), (600, 3), (3, 600)])
def test_products_equal_those_of_numpy(shape):
    A, B = matrix(*shape), matrix(shape[1], 70, seed=1)
    with Team() as team:
        np.testing.assert_allclose(team.multiply(A, B), A.astype(np.float64) @ B, atol=1e-3)
        np.testing.assert_allclose(team.compute_gram(A), A.astype(np.float64).T @ A, atol=1e-3)


@pytest.mark.parametrize("n_threads", [2, 3, 7])
def test_threads_change_no_bit(monkeypatch, n_threads):
    A = matrix(900, 700)

    def results(n):
        monkeypatch.setattr(_linalg, "resolve_threads", lambda: n)
        hasher = posh.POSH(320, 8, n_epochs=3, random_state=0).fit(WIDE)
        with Team() as team:
            return team.multiply(A, A.T), team.compute_gram(A), hasher.weights_

    for one, many in zip(results(1), results(n_threads), strict=True):
        np.testing.assert_array_equal(one, many)


def test_steps_lead_to_the_solution():
    M, W = matrix(400, 300), draw_orthogonal(400, 300, np.random.default_rng(1))
    exact = solve_procrustes(M, W)
    gains = [np.vdot(W, M)]
    for _ in range(10):
        with Team() as team:
            W = improve_procrustes(M, W, team)
        np.testing.assert_allclose(W.T @ W, np.eye(300), atol=1e-3)
        gains.append(np.vdot(W, M))
    assert (np.diff(gains) > -1e-6 * gains[-1]).all()
    assert gains[1] > 0.99 * np.vdot(exact, M)
    np.testing.assert_allclose(W, exact, atol=1e-3)


def test_steps_with_constant_columns_keep_orthonormal_columns():
    M = matrix(400, 300)
    M[:, 100:200] = 0.0
    with Team() as team:
        W = improve_procrustes(M, draw_orthogonal(400, 300, np.random.default_rng(1)), team)
        np.testing.assert_allclose(W.T @ W, np.eye(300), atol=1e-3)
        np.testing.assert_array_equal(improve_procrustes(0 * M, W, team), W)


def test_reorthogonalizing_squares_the_error():
    W = draw_orthogonal(400, 300, np.random.default_rng(0)) + 1e-4 * matrix(400, 300)
    with Team() as team:
        better = reorthogonalize(W, team)
    before, after = (np.abs(A.T @ A - np.eye(300)).max() for A in (W, better))
    assert before > 1e-4
    assert after < 1e-5


def test_with_many_features_fit_reaches_the_objective_of_the_plain_algorithm():
    hasher = posh.POSH(320, 8, n_epochs=3, random_state=0).fit(WIDE)
    Z = hasher.preprocess_(WIDE)
    rng = hasher._make_rng()
    W0 = draw_orthogonal(320, 300, rng).astype(np.float64)
    expected = plain_posh(Z[rng.permutation(len(Z))].astype(np.float64), W0, 8, 3, 100)
    start, plain = loss(hasher, Z, W0), loss(hasher, Z, expected)
    assert loss(hasher, Z, hasher.weights_) <= plain + 0.05 * (start - plain)
    largest = np.linalg.svd(hasher.moment_.astype(np.float64), compute_uv=False).sum()
    assert np.vdot(hasher.weights_, hasher.moment_) == pytest.approx(largest, rel=1e-4)


def test_with_many_features_neither_scale_nor_constant_columns_matter():
    X = WIDE.copy()
    X[:, 10:60] = 4.0
    hasher = posh.POSH(320, 8, n_epochs=3, random_state=0)
    expected = hasher.fit(X).encode(X)
    np.testing.assert_allclose(hasher.weights_.T @ hasher.weights_, np.eye(300), atol=1e-5)
    for factor in (2.0**40, 2.0**-40):
        assert hasher.fit(factor * X).encode(factor * X) == expected


def test_with_many_features_every_state_has_orthonormal_columns():
    hasher = posh.POSH(320, 8, n_epochs=3, random_state=0)
    for state in hasher.fit_epochs(WIDE):
        np.testing.assert_allclose(state.weights_.T @ state.weights_, np.eye(300), atol=1e-5)
    stream = posh.POSH(320, 8, random_state=0).partial_fit(WIDE[:350]).partial_fit(WIDE[350:])
    np.testing.assert_allclose(stream.weights_.T @ stream.weights_, np.eye(300), atol=1e-5)
