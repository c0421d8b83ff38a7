"""The first wrong row, and what is wrong with it."""

from __future__ import annotations

import numpy as np
import pytest

from posh.vector_files import checked_vectors

GOOD = [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ([1.0], "expected a vector of 2 numbers, got 1"),
        ([1.0, 2.0, 3.0], "expected a vector of 2 numbers, got 3"),
        ([1.0, float("nan")], "expected finite numbers, got nan in place 1 of the vector"),
        ([1.0, None], "expected finite numbers, got nan in place 1 of the vector"),
        ([float("-inf"), 1], "expected finite numbers, got -inf in place 0 of the vector"),
        ([1.0, 1e39], "expected numbers that float32 can hold, got 1e+39 in place 1 of the vector"),
        (["a", "b"], "expected a list of numbers, got ['a', 'b']"),
        ([], "expected a list of numbers, got []"),
        (None, "expected a list of numbers, got None"),
        ("text", "expected a list of numbers, got 'text'"),
        ([[1, 2], [3, 4]], "expected a list of numbers, got [[1, 2], [3, 4]]"),
    ],
)
def test_lists(bad, problem):
    for width in (2, None):
        matrix, found = checked_vectors([*GOOD, bad, GOOD[0]], width)
        np.testing.assert_array_equal(matrix, np.float32(GOOD))
        assert found.startswith(problem)


@pytest.mark.parametrize("bad", ["", "abc"])
def test_a_text_in_a_long_vector_is_located(bad):
    vector = ["1.5"] * 50 + [bad] + ["2"] * 50
    assert f"float: '{bad}' in place 50 of the vector)" in checked_vectors([vector], 101)[1]


def test_arrays():
    array = np.ones((5, 3))
    assert checked_vectors(array, 3)[1] is None
    assert checked_vectors(array.astype(np.float32), None)[0].dtype == np.float32
    matrix, problem = checked_vectors(array, 4)
    assert len(matrix) == 0
    assert problem == "expected a vector of 4 numbers, got 3"
    array[3, 1] = np.nan
    matrix, problem = checked_vectors(array, 3)
    assert matrix.shape == (3, 3)
    assert problem == "expected finite numbers, got nan in place 1 of the vector"
    large = np.array([[1, 2], [3, 2**24 + 1]])
    assert "float32 can hold, got 16777217 in place 1" in checked_vectors(large, 2)[1]


def test_no_rows():
    assert checked_vectors([], 3)[1] is None
    assert checked_vectors(np.empty((0, 3)), 4) == (pytest.approx(np.empty((0, 3))), None)
