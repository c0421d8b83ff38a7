"""PowerHash: the plain algorithm, its two ends, and what it chooses by itself."""

from __future__ import annotations

import numpy as np
import pytest

import posh
from posh.hashers import power
from posh.hashers.power import _find_neighbours, _score_neighbours
from tests.conftest import clusters

RULE = {"power": 0.5, "n_winners": 2, "unit": True}


def plain(Z: np.ndarray, W: np.ndarray, n_epochs: int, p: float, n_winners: int, unit: bool) -> np.ndarray:
    """W = U S^(1 − p) Vᵀ by the SVD of M = Σ h zᵀ, a sum over all epochs."""
    Z, M = Z.astype(np.float64), np.zeros(W.shape)
    for _ in range(n_epochs):
        for z in Z:
            M[np.argsort(-(W @ z), kind="stable")[:n_winners]] += z
        U, S, Vt = np.linalg.svd(M, full_matrices=False)
        W = U * S ** (1.0 - p) @ Vt
        if unit:
            norm = np.linalg.norm(W, axis=1, keepdims=True)
            W = W / np.where(norm > 1e-9, norm, 1.0)
    return W


@pytest.mark.parametrize(("p", "unit"), [(0.0, True), (0.5, True), (0.75, False), (1.0, True)])
def test_equals_the_plain_algorithm(p, unit):
    X = clusters(300, 8)
    hasher = posh.PowerHash(32, 4, power=p, n_winners=3, unit=unit, n_epochs=3, random_state=0).fit(X)
    Z, seed = hasher.preprocess_(X), int(hasher._make_rng().integers(2**31))
    rng = np.random.default_rng(seed)
    rule = power._Rule(p, 3, unit)
    start = power._draw_start(Z, 32, rule, rng) if unit else power.draw_orthogonal(32, 8, rng)
    expected = plain(Z, start, 3, p, 3, unit)
    expected *= np.linalg.norm(hasher.weights_) / np.linalg.norm(expected)
    np.testing.assert_allclose(hasher.weights_, expected, atol=1e-4)


def test_the_two_ends():
    X = clusters(300, 8)
    last = posh.PowerHash(32, 4, power=1.0, n_winners=3, unit=False, n_epochs=2, random_state=0).fit(X)
    Z, seed = last.preprocess_(X), int(last._make_rng().integers(2**31))
    expected, objective = posh.POSH(32, 3, n_epochs=10)._learn(Z, np.random.default_rng(seed))
    np.testing.assert_array_equal(last.weights_, expected)
    np.testing.assert_array_equal(last.objective_, objective)
    first = posh.PowerHash(32, 4, power=0.0, n_winners=1, unit=True, n_epochs=1, random_state=0).fit(X)
    lengths = np.linalg.norm(first.weights_, axis=1)
    np.testing.assert_allclose(lengths[lengths > 0], 1.0, atol=1e-5)


def test_every_parameter_changes_the_result(X):
    def codes(**params):
        return posh.PowerHash(64, 6, random_state=0, **RULE | params).fit(X).encode(X)

    expected = codes()
    for other in ({"power": 1.0}, {"n_winners": 5}, {"unit": False}, {"n_epochs": 1}):
        assert codes(**other) != expected, other


def test_what_is_given_is_kept(X, tmp_path):
    hasher = posh.PowerHash(64, 6, random_state=0, **RULE).fit(X)
    assert (hasher.power_, hasher.n_winners_, hasher.unit_) == (0.5, 2, True)
    chosen = posh.PowerHash(64, 6, power=0.3, random_state=0).fit(X)
    assert chosen.power_ == 0.3
    chosen.save(tmp_path / "model")
    loaded = posh.PowerHash.load(tmp_path / "model")
    for name in ("power_", "n_winners_", "unit_"):
        assert getattr(loaded, name) == getattr(chosen, name)


def test_it_chooses_by_the_neighbours_of_held_out_vectors(monkeypatch):
    X = clusters(400, 16)
    rules = posh.PowerHash(64, 8)._list_rules()
    assert len(rules) == 5
    for wanted in rules:  # whatever keeps the neighbours best is chosen
        tried = iter(rules)
        monkeypatch.setattr(power, "_score_neighbours", lambda *_, t=tried, w=wanted: float(next(t) == w))
        hasher = posh.PowerHash(64, 8, n_epochs=1, random_state=0).fit(X)
        assert power._Rule(hasher.power_, hasher.n_winners_, hasher.unit_) == wanted


@pytest.mark.parametrize(("lead", "unit"), [(1.05, True), (1.07, False)])
def test_orthonormal_columns_must_be_clearly_better(monkeypatch, lead, unit):
    kept = iter([0.5, 0.5, 0.5, 0.5, 0.5 * lead])
    monkeypatch.setattr(power, "_score_neighbours", lambda *_: next(kept))
    assert posh.PowerHash(64, 8, n_epochs=1, random_state=0).fit(clusters(400, 16)).unit_ is unit


def test_the_number_of_threads_does_not_matter(monkeypatch):
    X = clusters(1000, 300)  # more than one tile of columns
    expected = posh.PowerHash(320, 8, n_epochs=2, random_state=0, **RULE).fit(X).weights_
    monkeypatch.setattr("posh.hashers._linalg.resolve_threads", lambda: 3)
    found = posh.PowerHash(320, 8, n_epochs=2, random_state=0, **RULE).fit(X).weights_
    np.testing.assert_array_equal(found, expected)


def test_neighbours_are_the_nearest_by_cosine():
    Z = clusters(250, 8).astype(np.float32)
    near = _find_neighbours(Z)
    unit = Z / np.linalg.norm(Z, axis=1, keepdims=True)
    for row in range(250):
        cosines = unit @ unit[row]
        cosines[row] = -2.0
        assert set(np.flatnonzero(near[row])) == set(np.argsort(-cosines)[:2])


def test_neighbours_kept_is_the_average_precision():
    near = np.zeros((4, 4), bool)
    near[0, 2] = near[1, 0] = near[2, 3] = near[3, 2] = True
    codes = posh.Codes(np.array([[0, 1], [0, 1], [2, 3], [3, 4]], np.uint16), 8)
    # Vector 0 finds 1, then 2 and 3 in their order; 1 finds 0; 2 finds 3, and 3 finds 2.
    assert _score_neighbours(codes, near) == pytest.approx((1 / 2 + 1 + 1 + 1) / 4)


def test_two_or_three_vectors_are_too_few_to_choose_by():
    assert posh.PowerHash(16, 2, random_state=0).fit(np.eye(3)).power_ == 0.0


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"power": 1.5}, r"expected power .*, got 1.5"),
        ({"power": "best"}, "expected power to be one of 'auto', got 'best'"),
        ({"n_winners": 0}, "expected n_winners"),
        ({"n_winners": 65}, "expected n_winners"),
        ({"unit": "yes"}, "expected unit to be one of True, False, 'auto', got 'yes'"),
        ({"n_epochs": 0}, "expected n_epochs"),
    ],
)
def test_parameters_that_make_no_sense(X, params, message):
    with pytest.raises(ValueError, match=message):
        posh.PowerHash(64, 6, **params).fit(X)
