"""Hadamard: its weights, and the fast transform against the plain matrix."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import hadamard

import posh
from posh import _model_files, kernels
from tests.conftest import clusters

KERNELS = kernels.available()

pytestmark = pytest.mark.usefixtures("fastest_again")


def plain_weights(signs: np.ndarray, n_bits: int) -> np.ndarray:
    """Hadamard matrices times signs (r, d), one below the other, (n_bits, d)."""
    size = n_bits // len(signs)
    columns = np.arange(signs.shape[1]) % size
    return np.vstack([hadamard(size)[:, columns] * row for row in signs])


@pytest.mark.parametrize(
    ("d", "n_bits", "size"), [(1, 2, 1), (2, 64, 2), (24, 64, 32), (24, 96, 32), (64, 64, 64), (33, 128, 64)]
)
def test_columns_are_orthonormal(d, n_bits, size):
    hasher = posh.Hadamard(n_bits, 2, random_state=0).fit(clusters(100, d))
    assert hasher.signs_.shape == (n_bits // size, d)
    assert hasher.signs_.dtype == hasher.weights_.dtype == np.float32
    np.testing.assert_allclose(hasher.weights_.T @ hasher.weights_, np.eye(d), atol=1e-6)


@pytest.mark.parametrize(("d", "n_bits", "size"), [(40, 96, 32), (24, 50, 2), (24, 63, 1)])
def test_only_columns_that_share_a_place_are_not_orthogonal(d, n_bits, size):
    hasher = posh.Hadamard(n_bits, 2, random_state=0).fit(clusters(100, d))
    assert hasher.signs_.shape == (n_bits // size, d)
    products = hasher.weights_.T @ hasher.weights_
    np.testing.assert_allclose(np.diag(products), 1.0, atol=1e-5)
    apart = np.subtract.outer(np.arange(d), np.arange(d)) % size != 0
    np.testing.assert_allclose(products[apart], 0.0, atol=1e-6)


@pytest.mark.parametrize(("d", "n_bits"), [(24, 64), (24, 96), (40, 96), (1, 2), (150, 64)])
def test_weights_are_hadamard_matrices_times_signs(d, n_bits):
    hasher = posh.Hadamard(n_bits, 2, random_state=0).fit(clusters(100, d))
    assert set(np.unique(hasher.signs_)) <= {-1.0, 1.0}
    expected = plain_weights(hasher.signs_, n_bits) / np.sqrt(n_bits)
    np.testing.assert_allclose(hasher.weights_, expected, rtol=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_codes_tell_the_first_column(seed):
    X = clusters(100, 16)
    moved = X + 50.0 * np.eye(16)[0]
    hasher = posh.Hadamard(64, 8, random_state=seed).fit(np.vstack([X, moved]))
    low, high = hasher.encode(X).to_dense(), hasher.encode(moved).to_dense()
    assert not (low & high).any()


@pytest.mark.parametrize("kernel", KERNELS)
@given(
    exponent=st.integers(0, 8),
    n_matrices=st.integers(1, 3),
    d=st.integers(1, 300),
    n=st.integers(0, 3),
    seed=st.integers(0, 2**32),
)
def test_every_kernel_gives_the_bits_of_the_specification(kernel, exponent, n_matrices, d, n, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d), np.float32)
    signs = rng.choice(np.float32([-1, 1]), (n_matrices, d))
    scores = {}
    for name in ("scalar", kernel):
        kernels.use(name)
        out = np.full((n, n_matrices << exponent), np.nan, np.float32)
        scores[name] = kernels.hadamard_project(X, signs, out)
    np.testing.assert_array_equal(scores[kernel].view(np.int32), scores["scalar"].view(np.int32))
    expected = X.astype(np.float64) @ plain_weights(signs, n_matrices << exponent).T
    np.testing.assert_allclose(scores["scalar"], expected, atol=1e-3)


@pytest.mark.parametrize(
    ("signs", "n_bits"), [((2, 4), 8), ((3, 5), 8), ((2, 5), 6), ((0, 5), 8), ((4, 5), 2)]
)
def test_wrong_shapes_do_not_reach_the_kernel(signs, n_bits):
    with pytest.raises(ValueError, match="signs: "):
        kernels.hadamard_project(
            np.ones((3, 5), np.float32), np.ones(signs, np.float32), np.empty((3, n_bits), np.float32)
        )


def test_a_file_with_other_weights_is_refused():
    hasher = posh.Hadamard(64, 6, random_state=0).fit(clusters(100, 24))
    hasher.weights_[3, 5] *= -1
    with pytest.raises(_model_files.FormatError, match="not Hadamard matrices times signs"):
        posh.Hasher.from_bytes(hasher.to_bytes(), "model")
