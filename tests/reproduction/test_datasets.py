"""The data sets that this package adds."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from posh import datasets
from posh.datasets._fetch import write_arrays
from posh_reproduction.datasets import ENTRIES, gist

RNG = np.random.default_rng(0)
LABELS = np.repeat(np.arange(10), 120).astype(np.uint8)
ROW = np.array([256, 1, 0, 0])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data folder with small stand-ins, every vector telling its row and its class."""
    rows = np.arange(1200)
    features = np.stack([rows // 256, rows % 256, LABELS, LABELS], axis=1).astype(np.float32)
    for folder, arrays in {
        "mnist-gist.v1": {"features": features, "labels": LABELS},
        "mnist-gist-128.v1": {"features": features, "labels": LABELS},
        "cifar10-gist.v1": {"features": features, "labels": LABELS},
        "cifar10-patches.v1": {"base": features[:1100], "queries": features[1100:]},
    }.items():
        (tmp_path / folder).mkdir()
        write_arrays(tmp_path / folder, arrays)
    return tmp_path


@pytest.mark.parametrize("name", ["mnist-gist", "mnist-gist-128", "cifar10-gist"])
def test_a_tenth_of_each_class_is_queries(root: Path, name: str) -> None:
    data = datasets.load(name, root)
    base, queries = data.base @ ROW, data.queries @ ROW
    assert sorted([*base, *queries]) == list(range(1200))
    assert (np.diff(base) < 0).any()
    np.testing.assert_array_equal(data.base[:, 2], data.base_labels)
    assert np.bincount(data.query_labels).tolist() == [12] * 10


def test_patches_are_mapped_from_the_file(root: Path) -> None:
    data = datasets.load("cifar10-patches", root)
    assert not data.base.flags.owndata
    assert data.base.shape == (1100, 4)


def test_gist_sets_are_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mnist.v1").mkdir()
    images = RNG.integers(0, 256, (1200, 4, 4), dtype=np.uint8)
    write_arrays(tmp_path / "mnist.v1", {"images": images, "labels": LABELS})
    data = datasets.load("mnist-gist", tmp_path)
    assert data.base.shape == (1080, 512)
    monkeypatch.setattr(gist, "compute_gist", None)
    np.testing.assert_array_equal(datasets.load("mnist-gist", tmp_path).base, data.base)
    shutil.rmtree(tmp_path / "mnist-gist.v1")
    with pytest.raises(TypeError):
        datasets.load("mnist-gist", tmp_path)


def test_the_core_lists_them_after_its_own(root: Path) -> None:
    listed = {info.name: info for info in datasets.catalogue(root)}
    assert list(listed) == ["digits", "mnist", "glove-100", *ENTRIES]
    assert listed["mnist-gist"].cached
    assert not listed["places205"].cached
    assert listed["cifar10-patches"].n_base == 2_428_372
