"""What is particular to each hasher, against plain references."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

import posh
from posh.hashers.knnh import average_neighbours
from posh.preprocess import normalize_rows
from tests.conftest import clusters


def plain_spherical(Z: np.ndarray, W: np.ndarray, n_epochs: int) -> np.ndarray:
    """The paper's Algorithm 2; units that win nothing become zero."""
    Z = Z / np.linalg.norm(Z, axis=1, keepdims=True)
    for _ in range(n_epochs):
        M = np.zeros_like(W)
        for z in Z:
            M[np.argmax(W @ z)] += z
        norm = np.linalg.norm(M, axis=1, keepdims=True)
        norm[norm == 0] = 1
        W = M / norm
    return W


def test_spherical_equals_the_plain_algorithm():
    X = clusters(150, 8)
    hasher = posh.SphericalHash(32, 4, n_epochs=5, random_state=0).fit(X)
    W0 = normalize_rows(hasher._make_rng().standard_normal((32, 8), np.float32))
    np.testing.assert_allclose(hasher.weights_, plain_spherical(hasher.preprocess_(X), W0, 5), atol=1e-5)


@pytest.mark.parametrize("empty", ["zero", "keep", "resample"])
def test_spherical_objective_never_falls(empty):
    X = clusters(300, 8)
    hasher = posh.SphericalHash(64, 4, n_epochs=20, empty=empty, random_state=0).fit(X)
    assert (np.diff(hasher.objective_) > -1e-6).all()
    lengths = np.linalg.norm(hasher.weights_, axis=1)
    assert np.allclose(lengths[lengths > 0], 1.0, atol=1e-5)
    assert (lengths == 0).any() == (empty == "zero")


def test_spherical_parameters():
    X = clusters(100, 8)
    codes = {
        e: posh.SphericalHash(64, 40, n_epochs=3, empty=e, random_state=0).fit(X).encode(X)
        for e in ("zero", "keep", "resample")
    }
    assert codes["zero"] != codes["keep"]
    assert codes["keep"] != codes["resample"]
    assert posh.SphericalHash(64, 4, n_epochs=1, random_state=0).fit(X).encode(X) != posh.SphericalHash(
        64, 4, n_epochs=9, random_state=0
    ).fit(X).encode(X)
    with pytest.raises(
        ValueError, match="expected empty to be one of 'zero', 'keep', 'resample', got 'drop'"
    ):
        posh.SphericalHash(empty="drop").fit(X)


def test_fruitfly_weights_are_what_they_are_called(X):
    sparse = posh.FruitFly(512, 6, p=0.3, random_state=0).fit(X).weights_
    assert set(np.unique(sparse)) == {0.0, 1.0}
    assert sparse.mean() == pytest.approx(0.3, abs=0.02)
    dense = posh.FruitFly(64, 6, weights="orthogonal", random_state=0).fit(X).weights_
    np.testing.assert_allclose(dense.T @ dense, np.eye(24), atol=1e-5)
    for bad, message in (
        ({"p": 0.0}, r"expected p in \(0, 1\], got 0"),
        ({"weights": "dense"}, "'orthogonal', got 'dense'"),
    ):
        with pytest.raises(ValueError, match=message):
            posh.FruitFly(64, 6, **bad).fit(X)


def test_itq_equals_the_plain_algorithm(X):
    hasher = posh.ITQ(8, n_epochs=6, random_state=0).fit(X)
    Z = hasher.preprocess_(X).astype(np.float64)
    W = posh.hashers._linalg.draw_orthogonal(8, 8, hasher._make_rng()).astype(np.float64)
    losses = []
    for _ in range(6):
        signs = np.where(Z @ W.T > 0, 1.0, -1.0)
        losses.append(np.square(signs - Z @ W.T).sum(axis=1).mean())
        U, _, Vt = np.linalg.svd(signs.T @ Z)
        W = U @ Vt
    np.testing.assert_allclose(hasher.objective_, losses, rtol=1e-3)
    np.testing.assert_allclose(hasher.weights_, W, atol=2e-2)
    assert (np.diff(hasher.objective_) < 1e-6).all()


def test_itq_epochs_matter(X):
    one, many = (posh.ITQ(12, n_epochs=n, random_state=0).fit(X).encode(X) for n in (1, 20))
    assert one != many


@pytest.mark.parametrize("n_bits", [5, 24, 40])
def test_itq_stays_orthogonal(X, n_bits):
    W = posh.ITQ(n_bits, random_state=0).fit(X).weights_
    np.testing.assert_allclose(W.T @ W, np.eye(W.shape[1]), atol=1e-5)


def test_neighbour_means_are_means_of_neighbours():
    Z = clusters(50, 4).astype(np.float32)
    distances = np.linalg.norm(Z[:, None] - Z[None], axis=2)
    expected = np.stack([Z[np.argsort(row, kind="stable")[:5]].mean(axis=0) for row in distances])
    np.testing.assert_allclose(average_neighbours(Z, 5), expected, atol=1e-5)
    np.testing.assert_allclose(average_neighbours(Z, 500), np.tile(Z.mean(axis=0), (50, 1)), atol=1e-5)


def test_knnh_parameters(X):
    few = posh.KNNH(12, n_neighbors=2, random_state=0).fit(X)
    assert few.encode(X) != clone(few).set_params(n_neighbors=50).fit(X).encode(X)
    assert few.encode(X) != posh.ITQ(12, random_state=0).fit(X).encode(X)
    with pytest.raises(ValueError, match="expected n_neighbors at least 1, got 0"):
        posh.KNNH(12, n_neighbors=0).fit(X)


def test_lsh_preserves_angles():
    X = clusters(200, 16)
    hasher = posh.LSH(4096, random_state=0).fit(X)
    codes = hasher.encode(X[:20])
    Z = normalize_rows(hasher.preprocess_(X[:20]))
    angles = np.arccos(np.clip(Z @ Z.T, -1, 1)) / np.pi
    np.testing.assert_allclose(codes.hamming(codes) / 4096, angles, atol=0.05)


@pytest.mark.parametrize("cls", [posh.BioHash, posh.SphericalHash, posh.POSH])
def test_a_fit_watched_epoch_by_epoch_ends_like_any_other(cls):
    X = np.random.default_rng(0).normal(size=(200, 16))
    plain = cls(64, 4, n_epochs=4, random_state=0).fit(X)
    watched = cls(64, 4, n_epochs=4, random_state=0)
    changed = [state.weights_.copy() for state in watched.fit_epochs(X)]
    assert len(changed) == 4
    assert not np.array_equal(changed[0], changed[1])
    assert np.array_equal(watched.weights_, plain.weights_)
    assert np.array_equal(watched.objective_, plain.objective_)
