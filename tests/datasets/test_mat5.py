from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
from numpy.typing import NDArray

from posh.datasets._mat5 import mat5_variables

RNG = np.random.default_rng(0)
MATRICES = [
    pytest.param(RNG.normal(size=(7, 3)), id="double"),
    pytest.param(RNG.normal(size=(7, 3)).astype(np.float32), id="single"),
    pytest.param(RNG.integers(0, 9, (1, 3)).astype(np.uint8), id="three bytes inside a tag"),
    pytest.param(RNG.integers(-9, 9, (4, 5)).astype(np.int16), id="int16"),
    pytest.param(RNG.integers(-9, 9, (4, 5)).astype(np.int64), id="int64"),
    pytest.param(RNG.normal(size=(2, 3, 4)), id="three axes"),
    pytest.param(np.zeros((0, 4)), id="empty"),
]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "compressed"])
@pytest.mark.parametrize("matrix", MATRICES)
def test_reads_what_scipy_writes(tmp_path: Path, matrix: NDArray[Any], packed: bool) -> None:
    path = tmp_path / "x.mat"
    scipy.io.savemat(path, {"first": np.eye(2), "matrix": matrix}, do_compression=packed)
    found = mat5_variables(path)
    assert list(found) == ["first", "matrix"]
    assert found["matrix"].shape == matrix.shape
    np.testing.assert_array_equal(found["matrix"].read(), matrix)


def test_text_cells_and_complex_numbers_are_passed_over(tmp_path: Path) -> None:
    cell = np.empty((1, 1), dtype=object)
    cell[0, 0] = np.eye(2)
    scipy.io.savemat(tmp_path / "x.mat", {"a": "text", "b": cell, "c": np.eye(2) * 1j, "d": np.eye(2)})
    assert list(mat5_variables(tmp_path / "x.mat")) == ["d"]


def lie(tmp_path: Path, at: int, value: int) -> dict[str, Any]:
    """Write a plain 2 x 3 matrix named "matrix" and change the 32-bit word at ``at``."""
    path = tmp_path / "x.mat"
    scipy.io.savemat(path, {"matrix": np.ones((2, 3))})
    data = bytearray(path.read_bytes())
    data[at : at + 4] = value.to_bytes(4, "little")
    path.write_bytes(data)
    return {name: variable.read() for name, variable in mat5_variables(path).items()}


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        pytest.param(124, 0, "expected the header of MATLAB 5", id="no byte order"),
        pytest.param(128, 99, r"expected a matrix \(type 14\), got type 99", id="not a matrix"),
        pytest.param(132, 2**32 - 1, "expected 4294967295 bytes", id="longer than the file"),
        pytest.param(160, 2**31, "integers from 0 up", id="negative shape"),
        pytest.param(160, 2**30, r"values of \(1073741824, 3\), got 6", id="huge shape"),
        pytest.param(184, 77, r"expected numbers .* got type 77", id="unknown type of number"),
        pytest.param(188, 8, "expected 6 values .* got 1", id="too few numbers"),
    ],
)
def test_files_that_lie(tmp_path: Path, at: int, value: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lie(tmp_path, at, value)
