from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io
from numpy.typing import NDArray

from posh.datasets import is_cached, load
from posh.errors import DataUnavailableError, FormatError

RNG = np.random.default_rng(0)
BASE, BASE_LABELS = RNG.normal(size=(9, 4)), np.arange(9.0)[:, None]
QUERIES, QUERY_LABELS = RNG.normal(size=(5, 4)), np.arange(5.0)[:, None]
TRAIN = {"train_features": BASE, "train_labels": BASE_LABELS}
TEST = {"test_features": QUERIES, "test_labels": QUERY_LABELS}


def save_v73(path: Path, variables: dict[str, NDArray[np.float64]]) -> None:
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, matrix in variables.items():
            file[name] = matrix.T
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file")


def expect_the_set(name: str, root: Path) -> None:
    data = load(name, root)
    assert data.base_labels is not None
    assert data.query_labels is not None
    np.testing.assert_allclose(data.base, BASE[data.base_labels], rtol=1e-6)
    np.testing.assert_allclose(data.queries, QUERIES[data.query_labels], rtol=1e-6)
    assert sorted(data.base_labels) == list(range(9))
    assert data.base_labels.tolist() != list(range(9))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "knnh").mkdir()
    return tmp_path / "knnh"


@pytest.mark.parametrize("save", [scipy.io.savemat, save_v73], ids=["v5", "v7.3"])
def test_train_and_test_files(folder: Path, save: object) -> None:
    save(folder / "cifar10_vggfc7_train.mat", TRAIN)  # type: ignore[operator]
    save(folder / "cifar10_vggfc7_test.mat", TEST)  # type: ignore[operator]
    expect_the_set("cifar10-vgg", folder.parent)


def test_everything_in_one_file(folder: Path) -> None:
    scipy.io.savemat(folder / "labelme_gist512_train.mat", TRAIN | TEST)
    expect_the_set("labelme-gist", folder.parent)


@pytest.mark.parametrize("save", [scipy.io.savemat, save_v73], ids=["v5", "v7.3"])
def test_places205_has_one_sample_per_column(folder: Path, save: object) -> None:
    for part, matrix in (("train", BASE.T), ("test", QUERIES.T)):
        save(folder / f"places205-{part}.mat", {f"{part.upper()}_GIST_MAT": matrix})  # type: ignore[operator]
    for part, labels in (("train", BASE_LABELS.T), ("test", QUERY_LABELS.T)):
        save(folder / f"places205-{part}-label.mat", {f"{part.upper()}_LABEL_MAT": labels})  # type: ignore[operator]
    expect_the_set("places205", folder.parent)


def test_missing_files_are_named_with_their_folder_and_origin(folder: Path) -> None:
    scipy.io.savemat(folder / "mnist_gist512_train.mat", TRAIN)
    assert not is_cached("mnist-gist-knnh", folder.parent)
    with pytest.raises(DataUnavailableError) as caught:
        load("mnist-gist-knnh", folder.parent)
    for part in ("test_features, test_labels not found", "mnist_gist512_test.mat", str(folder), "github.com"):
        assert part in str(caught.value)


def test_labels_that_do_not_fit(folder: Path) -> None:
    scipy.io.savemat(folder / "mnist_gist512_train.mat", TRAIN | TEST | {"train_labels": np.zeros(8)})
    with pytest.raises(FormatError, match=r"8 labels for a matrix of shape \(9, 4\)"):
        load("mnist-gist-knnh", folder.parent)


def test_a_damaged_file_is_not_cached_and_says_why(folder: Path) -> None:
    (folder / "labelme_vggfc7_train.mat").write_bytes(b"MATLAB 5.0 MAT-file" + bytes(200))
    assert not is_cached("labelme-vgg", folder.parent)
    with pytest.raises(FormatError, match="expected a complete MATLAB 5 or"):
        load("labelme-vgg", folder.parent)
