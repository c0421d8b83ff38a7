"""Refined searches give the same order for data of any scale that hashers accept."""

from __future__ import annotations

import numpy as np
import pytest

import posh
from tests.conftest import clusters

DATA = clusters(300, 8).astype(np.float32)
QUERIES = clusters(20, 8, seed=1).astype(np.float32)
REFINERS = ("decoder", "sbiht", "vectors", "cosine")
EXPONENTS = (-98, -83, -50, -20, 20, 50, 83, 98)  # 2^±98 is about 1e±30
LARGEST = np.finfo(np.float32).max


def searched(refine: str, scale: float, dtype: type = np.float32, n: int = 60) -> posh.Hits:
    X = (DATA.astype(np.float64) * scale).astype(dtype)
    hasher = posh.POSH(32, 4, n_epochs=1, random_state=0).fit(X)
    index = posh.CodeIndex(hasher, refine=refine, oversample=2.0).add(X[:100]).add(X[100:])
    return index.search((QUERIES.astype(np.float64) * scale).astype(dtype), n)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("refine", REFINERS)
def test_order_is_that_of_data_of_ordinary_scale(refine, exponent, dtype):
    expected, found = searched(refine, 1.0, dtype), searched(refine, 2.0**exponent, dtype)
    np.testing.assert_array_equal(found.ids, expected.ids)
    unit = 1.0 if refine == "cosine" else 4.0**exponent
    wanted = np.clip(expected.scores.astype(np.float64) * unit, -LARGEST, LARGEST)
    np.testing.assert_array_equal(found.scores, wanted.astype(np.float32))


@pytest.mark.parametrize("scale", [1e-25, 1e25])
@pytest.mark.parametrize("refine", REFINERS)
def test_an_index_that_is_loaded_or_given_its_trained_state_agrees(refine, scale, tmp_path):
    X = DATA * np.float32(scale)
    hasher = posh.POSH(32, 4, n_epochs=1, random_state=0).fit(X)
    index = posh.CodeIndex(hasher, refine=refine).add(X)
    expected = index.search(X[:20], 40)
    index.save(tmp_path / "index")
    state = index.snapshot().trained_state()
    again = posh.CodeIndex(hasher, refine=refine).snapshot().with_trained_state(state)
    again = again.with_documents(index.ids, X)
    loaded = posh.CodeIndex.load(tmp_path / "index")
    for found in (loaded.search(X[:20], 40), again.search(X[:20], k=40)):
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_array_equal(found.scores, expected.scores)


def test_documents_far_from_the_others_are_in_order():
    hasher = posh.LSH(12, random_state=0).fit(DATA * np.float32(1e20))
    far = np.outer([3e32, 1e32, 2e32], np.ones(8)).astype(np.float32)
    index = posh.CodeIndex(hasher, refine="vectors").add(DATA[:5] * np.float32(1e20)).add(far)
    hits = index.search(DATA[:1] * np.float32(1e20), 8)
    assert hits.ids[0, 5:].tolist() == [6, 7, 5]
    assert (hits.scores[0, 5:] == -LARGEST).all()


def test_vectors_beyond_float32_are_refused():
    hasher = posh.LSH(12, random_state=0).fit(DATA * 5e29)
    index = posh.CodeIndex(hasher, refine="vectors")
    with pytest.raises(ValueError, match=r"expected vectors within float32's range .* got 1e\+39"):
        index.add(np.full((2, 8), 1e39))
    assert index.add(DATA * 5e29).search(np.full((1, 8), 1e39), 3).ids.min() >= 0


@pytest.mark.parametrize("scale", [1e-40, 1e-25, 1.0, 1e25])
def test_the_cosine_of_a_zero_vector_is_zero(scale):
    X = DATA * 1.0
    X[3] = 0.0
    hasher = posh.LSH(12, random_state=0).fit(X)
    index = posh.CodeIndex(hasher, refine="cosine").add(X[:10])
    assert (index.search(np.zeros((1, 8)), 10).scores == 0.0).all()
    hits = index.search(QUERIES[:1] * scale if scale <= 1.0 else QUERIES[:1], 10)
    assert hits.scores[0][hits.ids[0] == 3] == [0.0]
    assert np.isfinite(hits.scores).all()


@pytest.mark.parametrize("scale", [1e-40, 1e-25, 1.0, 1e12])
def test_cosine_does_not_depend_on_the_length_of_a_vector(scale):
    hasher = posh.LSH(12, random_state=0).fit(DATA)
    index = posh.CodeIndex(hasher, refine="cosine", oversample=30.0).add(DATA.astype(np.float64) * scale)
    plain = posh.CodeIndex(hasher, refine="cosine", oversample=30.0).add(DATA)
    found, expected = index.search(QUERIES.astype(np.float64) * scale, 10), plain.search(QUERIES, 10)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-6)
