"""Vectors with more features than bits go through PCA."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from sklearn.base import clone

import posh
from tests.conftest import clusters
from tests.hashers.cases import DENSE, SPARSE, name

WIDE = clusters(300, 150)
every_sparse_hasher = pytest.mark.parametrize("hasher", SPARSE, ids=name)


def check(hasher: posh.Hasher, expected: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "posh"):
        hasher.fit(WIDE)
    assert f"150 features: PCA keeps {expected} components" in caplog.text
    components = hasher.preprocess_.components
    assert components.shape == (expected, 150)
    np.testing.assert_allclose(components @ components.T, np.eye(expected), atol=1e-5)
    assert hasher.weights_.shape == (hasher.n_bits, expected)
    assert len(hasher.encode(WIDE)) == 300


@every_sparse_hasher
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"reduce": "paper"}, 6),
        ({"reduce": "auto"}, 64),
        ({"reduce": "auto", "n_bits": 140}, 128),
        ({"reduce": "auto", "n_bits": 144, "n_active": 136}, 136),
    ],
    ids=str,
)
def test_of_sparse_hashers(hasher, change, expected, caplog):
    check(clone(hasher).set_params(**change), expected, caplog)


@pytest.mark.parametrize("hasher", DENSE, ids=name)
def test_of_dense_hashers(hasher, caplog):
    check(clone(hasher), hasher.n_bits, caplog)


@every_sparse_hasher
def test_it_changes_the_codes_only_if_there_are_more_features_than_bits(hasher, X, caplog):
    auto, paper = (clone(hasher).set_params(reduce=rule) for rule in ("auto", "paper"))
    assert auto.fit(WIDE).encode(WIDE) != paper.fit(WIDE).encode(WIDE)
    with caplog.at_level(logging.INFO, "posh"):
        assert auto.fit(X).encode(X) == paper.fit(X).encode(X)
    assert not caplog.records


@every_sparse_hasher
def test_another_rule_is_refused(hasher, X):
    with pytest.raises(ValueError, match="expected reduce to be one of 'auto', 'paper', got 'pca'"):
        clone(hasher).set_params(reduce="pca").fit(X)


def test_a_subclass_needs_no_such_parameter():
    class Plain(posh.SparseHasher):
        def __init__(self, n_bits=64, n_active=6, random_state=None):
            self.n_bits, self.n_active, self.random_state = n_bits, n_active, random_state

        def _learn(self, Z, rng):
            return rng.standard_normal((self.n_bits, Z.shape[1]), np.float32), []

    hasher = Plain(random_state=0).fit(WIDE)
    assert hasher.preprocess_.n_features_out == 64
    assert Plain.from_bytes(hasher.to_bytes(), "here").encode(WIDE) == hasher.encode(WIDE)


def test_a_rotation_into_more_features_loses_no_neighbours():
    X = clusters(3000, 100)
    wide = X @ np.linalg.qr(np.random.default_rng(0).normal(size=(300, 100)))[0].T
    hasher = posh.POSH(128, 16, n_epochs=5, random_state=0)
    kept = recall(clone(hasher).fit(X), X)
    assert recall(clone(hasher).fit(wide), wide) > kept - 0.02
    assert recall(clone(hasher).set_params(reduce="paper").fit(wide), wide) < kept - 0.04


def recall(hasher: posh.POSH, X: np.ndarray) -> float:
    """Share of the 10 nearest neighbours of 200 vectors among the 10 that share most bits."""
    true = np.argsort(np.square(X).sum(axis=1) - 2 * X[:200] @ X.T, axis=1)[:, :10]
    codes = hasher.encode(X)
    found = np.argsort(-codes[:200].overlap(codes), axis=1, kind="stable")[:, :10]
    return float(np.mean([len(np.intersect1d(a, b)) for a, b in zip(true, found, strict=True)])) / 10
