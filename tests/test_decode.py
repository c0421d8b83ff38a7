from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import posh
from tests.conftest import clusters


@pytest.fixture(scope="module")
def fitted():
    X = clusters(600, 16)
    hasher = posh.POSH(64, 8, n_epochs=10, random_state=0).fit(X)
    return X, hasher, hasher.encode(X)


@pytest.mark.parametrize("ridge", [1e-6, 1e-3, 1.0])
def test_linear_decoder_is_ridge_regression(fitted, ridge):
    X, _, codes = fitted
    decoder = posh.LinearDecoder(ridge).fit(codes, X)
    H = codes.to_dense(float)
    penalty = ridge * np.trace(H.T @ H) / 64
    weights = np.linalg.solve(H.T @ H + penalty * np.eye(64), H.T @ (X - X.mean(axis=0)))
    np.testing.assert_allclose(decoder.weights_, weights, atol=1e-4)
    np.testing.assert_allclose(decoder.decode(codes), H @ weights + X.mean(axis=0), atol=1e-3)


def test_linear_decoder_reaches_plain_least_squares(fitted):
    X, _, codes = fitted
    H = np.hstack([codes.to_dense(float), np.ones((len(X), 1))])
    best = X - H @ np.linalg.lstsq(H, X, rcond=None)[0]
    ours = X - posh.LinearDecoder(1e-9).fit(codes, X).decode(codes)
    assert np.square(ours).sum() == pytest.approx(np.square(best).sum(), rel=1e-3)


def test_partial_fits_equal_one_fit(fitted):
    X, _, codes = fitted
    parts = posh.LinearDecoder()
    for start in range(0, 600, 70):
        parts.partial_fit(codes[start : start + 70], X[start : start + 70])
    whole = posh.LinearDecoder().fit(codes, X)
    np.testing.assert_allclose(parts.weights_, whole.weights_, atol=1e-5)
    np.testing.assert_allclose(whole.fit(codes, X).weights_, parts.weights_, atol=1e-5)


@pytest.mark.parametrize(("n", "noise"), [(40, 0.5), (100, 3.0), (600, 0.01)])
def test_the_chosen_ridge_is_good_on_held_out_vectors(fitted, n, noise):
    _, hasher, _ = fitted
    X = clusters(1600, 16)
    X = X + np.random.default_rng(0).normal(scale=noise, size=X.shape)
    codes = hasher.encode(X)

    def error(ridge):
        decoder = posh.LinearDecoder(ridge).fit(codes[:n], X[:n])
        return np.square(X[600:] - decoder.decode(codes[600:])).sum()

    errors = [error(10.0**power) for power in np.arange(-3, 1.5, 0.5)]
    assert error(None) < 1.05 * min(errors)
    assert error(None) <= error(1e-3)


def test_the_chosen_ridge_has_the_least_cross_validation_error(fitted):
    """By the plain formula, with the matrix that maps vectors to decoded vectors."""
    X, _, codes = fitted
    X, codes = X[:90], codes[:90]
    H, Z = codes.to_dense(float), X - X.mean(axis=0)

    def error(ridge):
        penalty = ridge * np.trace(H.T @ H) / 64
        smoother = H @ np.linalg.solve(H.T @ H + penalty * np.eye(64), H.T)
        return np.square(Z - smoother @ Z).sum() / (90 - np.trace(smoother)) ** 2

    decoder = posh.LinearDecoder(ridge=None).fit(codes, X)
    assert decoder.ridge_ == min((0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0), key=error)
    same = posh.LinearDecoder(decoder.ridge_).fit(codes, X)
    np.testing.assert_allclose(decoder.weights_, same.weights_, atol=1e-5)


def test_bits_that_are_never_set_decode_to_nothing():
    codes = posh.Codes([[0, 1], [0, 2], [1, 2]], n_bits=8)
    decoder = posh.LinearDecoder().fit(codes, np.eye(3))
    np.testing.assert_array_equal(decoder.weights_[3:], 0.0)
    np.testing.assert_allclose(decoder.decode(posh.Codes([[6, 7]], 8)), [[1 / 3] * 3], atol=1e-6)


def test_decoder_refuses_bad_input(fitted):
    X, _, codes = fitted
    with pytest.raises(NotFittedError):
        posh.LinearDecoder().decode(codes)
    decoder = posh.LinearDecoder().fit(codes, X)
    with pytest.raises(ValueError, match=r"expected as many vectors as codes \(600\), got 599"):
        decoder.fit(codes, X[:-1])
    with pytest.raises(ValueError, match=r"expected codes of 64 bits \(the decoder's\), got 8"):
        decoder.decode(posh.Codes([[0, 1]], 8))
    with pytest.raises(ValueError, match="expected codes of 64 bits"):
        decoder.partial_fit(posh.Codes([[0, 1]], 8), X[:1])
    with pytest.raises(ValueError, match="expected vectors with 16 columns"):
        decoder.partial_fit(codes, X[:, :3])
    with pytest.raises(TypeError, match=r"expected sparse codes \(posh.Codes\), got PackedCodes"):
        decoder.fit(codes.to_packed(), X)
    with pytest.raises(TypeError, match="got ndarray"):
        decoder.fit(X, X)
    assert decoder.decode(codes).shape == X.shape  # what failed has changed nothing
    with pytest.raises(NotFittedError):
        posh.SBIHT(posh.POSH(64, 8), decoder).decode(codes)
    with pytest.raises(ValueError, match=r"expected ridge in \(0, inf\), got 0"):
        posh.LinearDecoder(0.0).fit(codes, X)


def test_sbiht_starts_at_the_linear_decoder_and_recovers_the_codes(fitted):
    X, hasher, codes = fitted
    linear = posh.LinearDecoder().fit(codes, X)
    steps = list(posh.SBIHT(hasher, linear, n_iter=200).iterate(codes))
    np.testing.assert_allclose(steps[0][0], linear.decode(codes), atol=1e-3)
    losses = [loss for _, loss in steps]
    assert losses[-1] < 0.2 * losses[0]
    restored = posh.SBIHT(hasher, linear, n_iter=200).decode(codes)
    np.testing.assert_array_equal(restored, steps[-1][0])
    wrong = (hasher.encode(restored).to_dense() != codes.to_dense()).sum()
    assert wrong == pytest.approx(losses[-1], abs=4)


def test_sbiht_follows_the_plain_algorithm(fitted):
    X, hasher, codes = fitted
    linear = posh.LinearDecoder().fit(codes, X)
    W = hasher.weights_.astype(np.float64)
    restored = posh.SBIHT(hasher, linear, n_iter=3).decode(codes[:20])
    for row in range(20):
        start = hasher.preprocess_(linear.decode(codes[row : row + 1]))[0].astype(np.float64)
        z = start / np.linalg.norm(start)
        h = codes[row].to_dense(float)[0]
        for _ in range(3):
            b = np.zeros(64)
            b[np.argsort(-W @ z, kind="stable")[:8]] = 1
            z = z - W.T @ (b - h) / np.sqrt(16 * 64)
        expected = z * np.linalg.norm(start) * hasher.preprocess_.scale + hasher.preprocess_.mean
        np.testing.assert_allclose(restored[row], expected, atol=1e-4)


def test_sbiht_parameters(fitted):
    X, hasher, codes = fitted
    linear = posh.LinearDecoder().fit(codes, X)
    default = posh.SBIHT(hasher, linear, n_iter=5).decode(codes)
    assert not np.allclose(default, posh.SBIHT(hasher, linear, n_iter=1).decode(codes))
    assert not np.allclose(default, posh.SBIHT(hasher, linear, n_iter=5, step=0.2).decode(codes))
    np.testing.assert_allclose(
        posh.SBIHT(hasher, linear, n_iter=0).decode(codes), linear.decode(codes), atol=1e-3
    )
    with pytest.raises(ValueError, match=r"expected step in \(0, inf\), got -1"):
        posh.SBIHT(hasher, linear, step=-1.0).decode(codes)
