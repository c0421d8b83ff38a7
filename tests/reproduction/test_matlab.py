from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io
from numpy.typing import NDArray

from posh.errors import FormatError
from posh_reproduction.datasets.matlab import list_variables, read_variables

RNG = np.random.default_rng(0)
MATRICES = [
    pytest.param(RNG.normal(size=(7, 3)), id="double"),
    pytest.param(RNG.normal(size=(7, 3)).astype(np.float32), id="single"),
    pytest.param(RNG.integers(-9, 9, (4, 5)).astype(np.int16), id="int16"),
    pytest.param(np.zeros((0, 4)), id="empty"),
]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "compressed"])
@pytest.mark.parametrize("matrix", MATRICES)
def test_matrices_of_version_5(tmp_path: Path, matrix: NDArray[Any], packed: bool) -> None:
    path = tmp_path / "x.mat"
    scipy.io.savemat(path, {"first": np.eye(2), "matrix": matrix}, do_compression=packed)
    assert list_variables(path) == ["first", "matrix"]
    contents = read_variables(path, ["matrix", "absent"])
    assert list(contents) == ["matrix"]
    np.testing.assert_array_equal(contents["matrix"], matrix)


def test_matrices_of_version_7_3(tmp_path: Path) -> None:
    path, matrix = tmp_path / "x.mat", RNG.normal(size=(7, 3))
    with h5py.File(path, "w", userblock_size=512) as file:
        file["matrix"] = matrix.T
        file.create_group("others")
    assert list_variables(path) == ["matrix"]
    np.testing.assert_array_equal(read_variables(path, ["matrix"])["matrix"], matrix)


def test_version_7_3_that_declares_a_terabyte(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.mat", "w") as file:
        file.create_dataset("matrix", shape=(2**30, 256), dtype="f4", chunks=(1024, 256))
    with pytest.raises(FormatError, match="1,099,511,627,776 bytes it declares, got only 0 stored"):
        read_variables(tmp_path / "x.mat", ["matrix"])


def test_text_and_cells_are_skipped(tmp_path: Path) -> None:
    cell = np.empty((1, 1), dtype=object)
    cell[0, 0] = np.eye(2)
    scipy.io.savemat(tmp_path / "x.mat", {"a": "text", "b": cell, "d": np.eye(2)})
    assert list_variables(tmp_path / "x.mat") == ["d"]


@pytest.mark.parametrize("size", [0, 60, 140, 300])
def test_truncated_files(tmp_path: Path, size: int) -> None:
    path = tmp_path / "x.mat"
    scipy.io.savemat(path, {"matrix": np.ones((20, 3))})
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(FormatError, match=r"x\.mat: expected a complete MATLAB 5 or 7\.3 file"):
        read_variables(path, ["matrix"])
