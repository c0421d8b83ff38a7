from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import posh
from posh.index.codes.exact import search


def reference(similarity: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    ids = np.argsort(-similarity, axis=1, kind="stable")[:, :k]
    return ids, np.take_along_axis(similarity, ids, axis=1)


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 60), n_bits=st.integers(2, 40), data=st.data())
def test_sparse_search_is_a_stable_sort(seed, n, n_bits, data):
    n_active = data.draw(st.integers(1, n_bits))
    scores = np.random.default_rng(seed).integers(0, 4, size=(n + 3, n_bits)).astype(np.float32)
    codes = posh.Codes(posh.kernels.winners(scores, n_active), n_bits)
    k = data.draw(st.integers(1, n))
    hits = search(codes[:n], codes[n:], k)
    ids, similarity = reference(codes[n:].overlap(codes[:n]), k)
    np.testing.assert_array_equal(hits.ids, ids)
    np.testing.assert_array_equal(hits.scores, similarity)


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 60), n_bits=st.integers(1, 130), data=st.data())
def test_dense_search_is_a_stable_sort(seed, n, n_bits, data):
    dense = np.random.default_rng(seed).integers(0, 2, size=(n + 3, n_bits))
    codes = posh.PackedCodes.from_dense(dense)
    k = data.draw(st.integers(1, n))
    hits = search(codes[:n], codes[n:], k)
    ids, similarity = reference((dense[n:, None] == dense[None, :n]).sum(axis=2), k)
    np.testing.assert_array_equal(hits.ids, ids)
    np.testing.assert_array_equal(hits.scores, similarity)


def test_more_documents_than_a_block():
    scores = np.random.default_rng(0).normal(size=(9000, 32)).astype(np.float32)
    codes = posh.Codes(posh.kernels.winners(scores, 4), 32)
    hits = search(codes, codes[:300], 10)
    ids, similarity = reference(codes[:300].overlap(codes), 10)
    np.testing.assert_array_equal(hits.ids, ids)
    np.testing.assert_array_equal(hits.scores, similarity)


def test_bad_input_is_named():
    codes = posh.Codes([[0, 1], [1, 2]], 4)
    with pytest.raises(ValueError, match=r"expected k between 1 and 2 \(the number of base codes\), got 3"):
        search(codes, codes, 3)
    with pytest.raises(ValueError, match="expected queries like the base"):
        search(codes, codes.to_packed(), 1)
    with pytest.raises(ValueError, match="expected queries like the base"):
        search(codes, posh.Codes([[0, 1]], 5), 1)
