from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import posh


@st.composite
def sparse_codes(draw):
    n_bits = draw(st.integers(2, 80))
    n_active = draw(st.integers(1, n_bits))
    n = draw(st.integers(0, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = [np.sort(rng.permutation(n_bits)[:n_active]) for _ in range(n)]
    return posh.Codes(np.array(rows, np.int64).reshape(n, n_active), n_bits)


@given(sparse_codes())
def test_every_form_has_the_same_bits(codes):
    dense = codes.to_dense()
    assert (dense.sum(axis=1) == codes.n_active).all()
    np.testing.assert_array_equal(codes.to_csr().toarray(), dense)
    np.testing.assert_array_equal(codes.to_packed().to_dense(), dense)
    np.testing.assert_array_equal(codes.overlap(codes), dense.astype(int) @ dense.T.astype(int))


@given(sparse_codes())
def test_hamming_distance_follows_from_the_overlap(codes):
    packed = codes.to_packed()
    np.testing.assert_array_equal(packed.hamming(packed), 2 * codes.n_active - 2 * codes.overlap(codes))


def test_rows_can_be_selected():
    codes = posh.Codes([[0, 1], [1, 2], [2, 3]], n_bits=4)
    assert codes[1] == posh.Codes([[1, 2]], 4)
    assert codes[1:] == posh.Codes([[1, 2], [2, 3]], 4)
    assert codes[[2, 0]] == posh.Codes([[2, 3], [0, 1]], 4)
    assert codes != posh.Codes([[0, 1], [1, 2], [2, 3]], n_bits=5)
    assert codes.to_packed()[1] == posh.Codes([[1, 2]], 4).to_packed()


def test_codes_keep_their_own_copy():
    rows = np.array([[0, 1]], np.uint16)
    codes = posh.Codes(rows, 4)
    rows[0] = 3
    assert codes.active.tolist() == [[0, 1]]
    again = pickle.loads(pickle.dumps(codes))
    assert again == codes
    assert not again.active.flags.writeable
    packed = pickle.loads(pickle.dumps(codes.to_packed()))
    assert packed == codes.to_packed()
    assert not packed.bits.flags.writeable


def test_only_rows_can_be_selected():
    with pytest.raises(TypeError, match="expected rows"):
        posh.Codes([[0, 1]], 4)[:, :1]


def test_codes_cannot_be_changed():
    codes = posh.Codes(np.array([[0, 1]], np.uint16), n_bits=4)
    with pytest.raises(ValueError, match="read-only"):
        codes.active[0, 0] = 3
    with pytest.raises(AttributeError):
        codes.n_bits = 8


@pytest.mark.parametrize(
    ("active", "n_bits", "message"),
    [
        ([[0, 4]], 4, r"expected bit numbers in 0..3, got 0..4"),
        ([[-1, 2]], 4, r"got -1..2"),
        ([[2, 1]], 4, "ascending"),
        ([[1, 1]], 4, "distinct"),
        ([[0.5, 1.0]], 4, "integer array"),
        ([0, 1], 4, "integer array"),
        ([[0, 1, 2]], 2, r"expected n_active between 1 and 2 \(n_bits\), got 3"),
        ([[0]], 1, "expected n_bits between 2 and 65536, got 1"),
        ([[0]], 100_000, "expected n_bits between 2 and 65536, got 100000"),
    ],
)
def test_impossible_codes_are_refused(active, n_bits, message):
    with pytest.raises(ValueError, match=message):
        posh.Codes(np.array(active), n_bits)


def test_impossible_packed_codes_are_refused():
    with pytest.raises(ValueError, match=r"expected 9 bits packed as uint8 \(n, 2\), got uint8 \(1, 1\)"):
        posh.PackedCodes(np.zeros((1, 1), np.uint8), 9)
    with pytest.raises(ValueError, match="zeros after bit 2"):
        posh.PackedCodes(np.array([[8]], np.uint8), 3)
    with pytest.raises(ValueError, match="expected codes of 3 bits, got 4"):
        posh.PackedCodes.from_dense([[1, 0, 1]]).hamming(posh.PackedCodes.from_dense([[1, 0, 1, 0]]))
    with pytest.raises(ValueError, match="expected codes of 4 bits, got 5"):
        posh.Codes([[1]], 4).overlap(posh.Codes([[1]], 5))
