"""What every hasher promises."""

from __future__ import annotations

import copy
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import SkipTestWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_info

import posh
from tests.conftest import clusters
from tests.hashers.cases import ALL, DENSE, SPARSE, name

every_hasher = pytest.mark.parametrize("hasher", ALL, ids=name)


@parametrize_with_checks(ALL)
def test_scikit_learn_conventions(estimator, check):
    with warnings.catch_warnings():
        # scikit-learn's own note that a check does not apply, e.g. because pandas is not installed.
        warnings.simplefilter("ignore", category=SkipTestWarning)
        check(estimator)


@pytest.mark.parametrize("hasher", SPARSE, ids=name)
def test_sparse_codes_are_the_winners_of_the_projection(hasher, X):
    hasher = clone(hasher).fit(X)
    codes = hasher.encode(X)
    scores = hasher.project(X)
    expected = np.sort(np.argsort(-scores, axis=1, kind="stable")[:, : hasher.n_active], axis=1)
    np.testing.assert_array_equal(codes.active, expected)
    assert (codes.n_bits, codes.n_active) == (hasher.n_bits, hasher.n_active)
    transformed = hasher.transform(X)
    assert sp.issparse(transformed)
    np.testing.assert_array_equal(transformed.toarray(), codes.to_dense())


@pytest.mark.parametrize("hasher", DENSE, ids=name)
def test_dense_codes_are_the_signs_of_the_projection(hasher, X):
    hasher = clone(hasher).fit(X)
    np.testing.assert_array_equal(hasher.encode(X).to_dense(), hasher.project(X) > 0)
    np.testing.assert_array_equal(hasher.transform(X), hasher.encode(X).to_dense())


@every_hasher
def test_projection_is_of_centred_data(hasher, X):
    hasher = clone(hasher).fit(X)
    centred = (X - X.mean(axis=0)) / np.sqrt(np.mean((X - X.mean(axis=0)) ** 2))
    if hasher.preprocess_.components is not None:
        centred = centred @ hasher.preprocess_.components.T
    np.testing.assert_allclose(hasher.project(X), centred @ hasher.weights_.T, atol=2e-5)


@every_hasher
def test_the_seed_decides(hasher, X):
    first, again = clone(hasher).fit(X), clone(hasher).fit(X)
    assert first.encode(X) == again.encode(X)
    other = clone(hasher).set_params(random_state=1).fit(X)
    assert first.encode(X) != other.encode(X)


@every_hasher
@pytest.mark.parametrize("factor", [1e-4, 1e4, 2.0**40])
def test_the_scale_of_the_data_does_not_matter(hasher, X, factor):
    expected = clone(hasher).fit(X).encode(X)
    assert clone(hasher).fit(factor * X).encode(factor * X) == expected


@every_hasher
def test_an_offset_does_not_matter(hasher, X):
    # Powers of two, so that adding the offset is exact.
    grid = np.round(X * 2**20) / 2**20
    assert clone(hasher).fit(grid + 64.0).encode(grid + 64.0) == clone(hasher).fit(grid).encode(grid)


@every_hasher
def test_threads_and_batches_do_not_matter(hasher):
    X = clusters(1500, 24).astype(np.float32)
    hasher = clone(hasher).fit(X[:300])
    expected = hasher.encode(X, n_threads=1)
    assert hasher.encode(X, n_threads=2) == expected
    assert hasher.encode(X, n_threads=5) == expected
    for rows in (slice(0, 1), slice(1, 4), slice(700, 1217), slice(1499, 1500)):
        assert hasher.encode(X[rows]) == expected[rows]


@every_hasher
@pytest.mark.parametrize("dtype", ["uint8", "int64", "float16", "float32", "bool"])
def test_any_number_will_do(hasher, dtype):
    X = (clusters(200, 10) * 10).clip(0, 255).astype(dtype)
    hasher = clone(hasher).fit(X)
    assert hasher.encode(X) == hasher.encode(X.astype(np.float64))
    assert len(hasher.encode(np.asfortranarray(X)[::2])) == 100


@every_hasher
def test_fewer_samples_than_bits_and_duplicates_and_constant_columns(hasher):
    X = clusters(20, 30)
    X[:, 3:9] = 7.0
    X[5:10] = X[0]
    codes = clone(hasher).fit(X).encode(X)
    assert len(codes) == 20
    assert all(codes[i] == codes[0] for i in range(5, 10))


@every_hasher
def test_identical_rows_get_identical_codes(hasher):
    X = np.full((10, 5), 3.0)
    codes = clone(hasher).fit(X).encode(X)
    assert all(codes[i] == codes[0] for i in range(10))


@every_hasher
def test_no_vectors_give_no_codes(hasher, X):
    assert len(clone(hasher).fit(X).encode(np.empty((0, 24)))) == 0


@every_hasher
def test_saved_and_loaded(hasher, X, tmp_path):
    hasher = clone(hasher).fit(X)
    hasher.save(tmp_path / "model.safetensors")
    for loaded in (
        posh.Hasher.load(tmp_path / "model.safetensors"),
        type(hasher).load(tmp_path / "model.safetensors"),
    ):
        assert type(loaded) is type(hasher)
        assert loaded.get_params() == hasher.get_params()
        assert loaded.encode(X) == hasher.encode(X)
        np.testing.assert_array_equal(loaded.objective_, hasher.objective_)
        assert loaded.n_iter_ == hasher.n_iter_


def test_a_model_of_another_class_is_refused(X, tmp_path):
    posh.LSH(8, random_state=0).fit(X).save(tmp_path / "model.safetensors")
    with pytest.raises(posh.FormatError, match="expected a POSH, found LSH"):
        posh.POSH.load(tmp_path / "model.safetensors")


@every_hasher
def test_in_a_pipeline(hasher, X):
    labels = (X[:, 0] > X[:, 0].mean()).astype(int)
    for classifier in (LogisticRegression(), LinearSVC()):
        model = make_pipeline(clone(hasher), classifier).fit(X, labels)
        assert model.score(X, labels) > 0.6


@every_hasher
def test_copies_and_pickles_are_independent(hasher, X):
    hasher = clone(hasher).fit(X)
    expected = hasher.encode(X)
    twin = pickle.loads(pickle.dumps(hasher))
    assert twin.encode(X) == expected
    copy.copy(hasher).fit(X + 1.0)
    assert hasher.encode(X) == expected


def test_overlapping_calls_leave_blas_as_it_was(X):
    hasher = posh.FruitFly(64, 6, random_state=0).fit(X)
    big = clusters(20_000, 24)
    before = [pool["num_threads"] for pool in threadpool_info()]
    with ThreadPoolExecutor(3) as pool:
        codes = list(pool.map(lambda n: hasher.encode(big[:n]), [5000, 20_000, 10_000, 2000, 20_000]))
    assert [pool["num_threads"] for pool in threadpool_info()] == before
    assert codes[0] == codes[1][:5000]


def test_a_class_of_the_same_name_does_not_take_over(X, tmp_path):
    posh.LSH(8, random_state=0).fit(X).save(tmp_path / "model")

    class LSH(posh.LSH):
        pass

    assert LSH.__name__ == "LSH"
    assert type(posh.Hasher.load(tmp_path / "model")) is posh.LSH
