from __future__ import annotations

import numpy as np
import pytest

import posh
from posh.preprocess import normalize_rows
from tests.conftest import clusters


def plain_biohash(Z, W, rng, *, n_epochs, batch_size, rate, p, delta, rank):
    """The rule of Krotov and Hopfield, sample by sample."""
    for epoch in range(n_epochs):
        order = rng.permutation(len(Z))
        for start in range(0, len(Z), batch_size):
            step = np.zeros_like(W)
            for x in Z[order[start : start + batch_size]]:
                products = (np.sign(W) * np.abs(W) ** (p - 1)) @ x
                ranking = np.argsort(-products, kind="stable")
                step[ranking[0]] += x - products[ranking[0]] * W[ranking[0]]
                loser = ranking[rank - 1]
                step[loser] -= delta * (x - products[loser] * W[loser])
            W = W + rate * (1 - epoch / n_epochs) / np.abs(step).max() * step
    return np.sign(W) * np.abs(W) ** (p - 1)


@pytest.mark.parametrize(("p", "delta", "rank"), [(2.0, 0.0, 2), (2.0, 0.4, 2), (3.0, 0.2, 4)])
def test_biohash_is_the_published_rule(p, delta, rank):
    X = clusters(120, 6)
    hasher = posh.BioHash(
        24, 4, n_epochs=5, batch_size=30, p=p, delta=delta, rank=rank, learning_rate=0.1, random_state=0
    ).fit(X)
    rng = hasher._make_rng()
    W = rng.standard_normal((24, 6), np.float32).astype(np.float64)
    Z = normalize_rows(hasher.preprocess_(X))
    expected = plain_biohash(Z, W, rng, n_epochs=5, batch_size=30, rate=0.1, p=p, delta=delta, rank=rank)
    np.testing.assert_allclose(hasher.weights_, expected, atol=1e-3)


def test_a_large_learning_rate_reaches_unit_norm_and_stops():
    X = clusters(400, 8)
    hasher = posh.BioHash(16, 2, learning_rate=0.2, stop_norm=1.06, random_state=0).fit(X)
    assert hasher.n_iter_ < 100
    assert np.linalg.norm(hasher.weights_, axis=1).mean() == pytest.approx(1.0, abs=0.07)
    assert hasher.objective_[-1] > hasher.objective_[0]


@pytest.mark.parametrize(
    "change",
    [
        {"n_epochs": 3},
        {"batch_size": 17},
        {"learning_rate": 0.2},
        {"schedule": "constant"},
        {"p": 2.5},
        {"delta": 0.4},
        {"stop_norm": 100.0},
    ],
    ids=str,
)
def test_every_parameter_matters(X, change):
    base = {"n_bits": 64, "n_active": 6, "n_epochs": 10, "learning_rate": 0.05, "random_state": 0}
    assert posh.BioHash(**base | change).fit(X).encode(X) != posh.BioHash(**base).fit(X).encode(X)


def test_the_rank_matters_when_delta_does(X):
    base = {"n_bits": 64, "n_active": 6, "n_epochs": 5, "delta": 0.4, "random_state": 0}
    assert posh.BioHash(**base, rank=5).fit(X).encode(X) != posh.BioHash(**base).fit(X).encode(X)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": 0.0}, r"expected learning_rate in \(0, inf\), got 0"),
        ({"schedule": "cosine"}, "expected schedule to be one of 'linear', 'constant', got 'cosine'"),
        ({"p": 1.0}, r"expected p in \(1, inf\), got 1"),
        ({"delta": -1.0}, r"expected delta in \[0, inf\), got -1"),
        ({"rank": 65}, r"expected rank between 2 and 64 \(n_bits\), got 65"),
    ],
    ids=str,
)
def test_bad_parameters_are_named(X, change, message):
    with pytest.raises(ValueError, match=message):
        posh.BioHash(64, 6, **change).fit(X)
