from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from posh.datasets import _recipes
from posh.datasets._fetch import hash_content
from posh.datasets._recipes import permute, split_at_random, split_by_class
from posh.errors import FormatError

from . import archives

LABELS = archives.RNG.integers(0, 10, 18, dtype=np.uint8)


def test_mnist_is_the_same_from_both_places(tmp_path: Path) -> None:
    files = archives.mnist_files()
    zipped = _recipes.decode_mnist_gzip(archives.gzipped(tmp_path, files))
    packed = _recipes.decode_mnist_archive([archives.mnist_archive(tmp_path / "m.tgz", files)])
    assert hash_content(zipped) == hash_content(packed)
    assert zipped["images"].shape == (8, 28, 28)
    assert zipped["labels"].shape == (8,)


def test_glove_keeps_odd_words(tmp_path: Path) -> None:
    words = ['"', "\\", "]", "naïve", "unkVector2", "a:[1]", "}"]
    vectors = {word: archives.RNG.normal(size=100).tolist() for word in words}
    found = _recipes.decode_glove_archive([archives.glove_archive(tmp_path / "g.tgz", vectors)])
    assert found["words"].tolist() == words
    np.testing.assert_allclose(found["vectors"], list(vectors.values()), rtol=1e-6)


def test_glove_with_short_vectors(tmp_path: Path) -> None:
    path = archives.glove_archive(tmp_path / "g.tgz", {"short": [1.0, 2.0]})
    with pytest.raises(FormatError, match="expected vectors of 100 numbers"):
        _recipes.decode_glove_archive([path])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", "expected an idx file", id="empty"),
        pytest.param(b"\x00\x00\x0d\x01\x00\x00\x00\x01\x00", "expected an idx file", id="floats"),
        pytest.param(b"\x00\x00\x08\x03\x00\x00", "header of 16 bytes", id="short header"),
        pytest.param(archives.idx(LABELS)[:-1], "expected 26 bytes .* got 25", id="a label is missing"),
        pytest.param(archives.idx(LABELS) + b"x", "expected 26 bytes .* got 27", id="a byte too many"),
        pytest.param(b"\x00\x00\x08\x04" + b"\xff" * 16, "expected .* bytes for shape", id="huge shape"),
    ],
)
def test_idx_files_that_lie(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        _recipes.decode_idx(data, "file")


def test_truncated_archive(tmp_path: Path) -> None:
    path = archives.mnist_archive(tmp_path / "m.tgz", archives.mnist_files())
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(FormatError, match=r"complete \.tar\.gz"):
        _recipes.decode_mnist_archive([path])


def test_truncated_gzip(tmp_path: Path) -> None:
    paths = archives.gzipped(tmp_path, archives.mnist_files())
    paths[0].write_bytes(paths[0].read_bytes()[:-20])
    with pytest.raises(FormatError, match=r"complete \.gz"):
        _recipes.decode_mnist_gzip(paths)


def test_archive_without_a_file(tmp_path: Path) -> None:
    path = archives.tar(tmp_path / "m.tgz", {"package/readme.md": b"no data"})
    with pytest.raises(FormatError, match="expected to contain package/data/train-images"):
        _recipes.decode_mnist_archive([path])


def test_the_order_is_the_same_for_ever() -> None:
    assert permute(10).tolist() == [2, 8, 4, 9, 1, 6, 7, 3, 0, 5]


def test_split_by_class_takes_the_quota_and_every_row_once() -> None:
    labels = np.repeat(np.arange(3), [50, 30, 20])
    split = split_by_class(labels, np.array([5, 3, 2]))
    assert np.bincount(labels[split.queries]).tolist() == [5, 3, 2]
    assert sorted([*split.base, *split.queries]) == list(range(100))


def test_split_by_class_does_not_sort_by_class() -> None:
    labels = np.repeat(np.arange(10), 100)
    split = split_by_class(labels, np.full(10, 10))
    for rows in split:
        assert np.unique(labels[rows[: len(rows) // 2]]).size == 10
        assert (np.diff(labels[rows]) < 0).any()


def test_split_at_random_takes_every_row_once() -> None:
    split = split_at_random(50, 7)
    assert len(split.queries) == 7
    assert sorted([*split.base, *split.queries]) == list(range(50))
