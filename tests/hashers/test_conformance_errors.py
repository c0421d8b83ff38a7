"""What every hasher refuses, and in which words."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from tests.hashers.cases import SPARSE, name
from tests.hashers.test_conformance import every_hasher


@every_hasher
def test_unfitted(hasher, X, tmp_path):
    for call in (hasher.encode, hasher.transform, hasher.project):
        with pytest.raises(NotFittedError, match="not fitted"):
            call(X)
    with pytest.raises(NotFittedError):
        hasher.save(tmp_path / "model")


NAN = np.full((5, 24), 1.0)
NAN[3, 7] = np.nan


@every_hasher
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.zeros((3, 23)), r"expected vectors with 24 columns \(the model was fitted on 24\), got 23"),
        (NAN, r"X contains NaN or inf \(nan at row 3, column 7\), expected finite numbers"),
        (np.where(np.isnan(NAN), -np.inf, NAN), r"\(-inf at row 3, column 7\)"),
        (np.zeros(24), r"expected 2 \(n_vectors, n_features\)\. Reshape your data: X\.reshape\(1, -1\)"),
        (np.zeros((2, 3, 24)), "3 dimension"),
        (np.array([["a"] * 24]), "dtype <U1, expected numbers"),
        (np.zeros((2, 24), complex), "Complex data not supported"),
        (np.full((2, 24), 1e30), "expected vectors on the scale of the training data"),
        (np.empty((3, 0)), r"0 feature\(s\)"),
    ],
    ids=["width", "nan", "inf", "1-d", "3-d", "strings", "complex", "far", "no-columns"],
)
def test_bad_vectors_are_named(hasher, X, bad, message):
    hasher = clone(hasher).fit(X)
    with pytest.raises(ValueError, match=message):
        hasher.encode(bad)


@every_hasher
def test_bad_training_data_is_named(hasher):
    with pytest.raises(ValueError, match="n_samples=1, expected at least 2"):
        clone(hasher).fit(np.zeros((1, 5)))
    with pytest.raises(ValueError, match="n_samples=0"):
        clone(hasher).fit(np.zeros((0, 5)))
    with pytest.raises(ValueError, match="NaN"):
        clone(hasher).fit(NAN)
    with pytest.raises(TypeError, match=r"sparse matrix, expected a dense array: call X\.toarray\(\)"):
        clone(hasher).fit(sp.csr_array(np.eye(5)))


@every_hasher
@pytest.mark.parametrize(
    ("n_bits", "error", "message"),
    [
        (1, ValueError, "expected n_bits between 2 and 65536, got 1"),
        (70_000, ValueError, "got 70000"),
        (64.0, TypeError, "expected n_bits to be an integer, got 64.0 of type float"),
        ("64", TypeError, "got '64' of type str"),
        (True, TypeError, "integer"),
    ],
)
def test_bad_code_lengths_are_named(hasher, X, n_bits, error, message):
    with pytest.raises(error, match=message):
        clone(hasher).set_params(n_bits=n_bits).fit(X)


@pytest.mark.parametrize("hasher", SPARSE, ids=name)
@pytest.mark.parametrize("n_active", [0, -1, 65])
def test_bad_numbers_of_active_bits_are_named(hasher, X, n_active):
    with pytest.raises(ValueError, match=rf"expected n_active between 1 and 64 \(n_bits\), got {n_active}"):
        clone(hasher).set_params(n_active=n_active).fit(X)


@every_hasher
def test_a_failed_refit_changes_nothing(hasher, X, monkeypatch):
    hasher = clone(hasher).fit(X)
    expected = hasher.encode(X)

    def interrupted(Z, rng):
        raise KeyboardInterrupt

    monkeypatch.setattr(hasher, "_learn", interrupted)
    with pytest.raises(KeyboardInterrupt):
        hasher.fit(X[:, :5] + 50.0)
    assert hasher.encode(X) == expected


@every_hasher
def test_another_length_after_fitting_is_refused(hasher, X, tmp_path):
    hasher = clone(hasher).fit(X).set_params(n_bits=128)
    for call in (hasher.encode, hasher.project, lambda _: hasher.save(tmp_path / "model")):
        with pytest.raises(ValueError, match=r"n_bits was \d+ when fitted and is now 128: fit again"):
            call(X)


@every_hasher
@pytest.mark.parametrize("factor", [1e-40, 1e300, 1e306])
def test_extreme_scales_are_refused(hasher, X, factor):
    with pytest.raises(ValueError, match=r"deviation from their mean is within 1e-30 \.\. 1e30"):
        clone(hasher).fit(factor * (X - 3.0))


@every_hasher
def test_bad_thread_counts_are_named(hasher, X):
    with pytest.raises(ValueError, match="expected n_threads at least 1, got 0"):
        clone(hasher).fit(X).encode(X, n_threads=0)
