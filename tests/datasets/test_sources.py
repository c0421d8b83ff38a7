from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from posh.datasets import _sources
from posh.datasets._fetch import content_hash
from posh.errors import FormatError

from . import archives

LABELS = archives.RNG.integers(0, 10, 18, dtype=np.uint8)


def test_mnist_is_the_same_from_both_places(tmp_path: Path) -> None:
    files = archives.mnist_files()
    zipped = _sources.mnist_from_gzip(archives.gzipped(tmp_path, files))
    packed = _sources.mnist_from_archive([archives.mnist_archive(tmp_path / "m.tgz", files)])
    assert content_hash(zipped) == content_hash(packed)
    assert zipped["images"].shape == (8, 28, 28)
    assert zipped["labels"].shape == (8,)


def test_glove_keeps_odd_words(tmp_path: Path) -> None:
    words = ['"', "\\", "]", "naïve", "unkVector2", "a:[1]", "}"]
    vectors = {word: archives.RNG.normal(size=100).tolist() for word in words}
    found = _sources.glove_from_archive([archives.glove_archive(tmp_path / "g.tgz", vectors)])
    assert found["words"].tolist() == words
    np.testing.assert_allclose(found["vectors"], list(vectors.values()), rtol=1e-6)


def test_glove_with_short_vectors(tmp_path: Path) -> None:
    path = archives.glove_archive(tmp_path / "g.tgz", {"short": [1.0, 2.0]})
    with pytest.raises(FormatError, match="expected vectors of 100 numbers"):
        _sources.glove_from_archive([path])


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
        _sources.decode_idx(data, "file")


def test_truncated_archive(tmp_path: Path) -> None:
    path = archives.mnist_archive(tmp_path / "m.tgz", archives.mnist_files())
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(FormatError, match=r"complete \.tar\.gz"):
        _sources.mnist_from_archive([path])


def test_truncated_gzip(tmp_path: Path) -> None:
    paths = archives.gzipped(tmp_path, archives.mnist_files())
    paths[0].write_bytes(paths[0].read_bytes()[:-20])
    with pytest.raises(FormatError, match=r"complete \.gz"):
        _sources.mnist_from_gzip(paths)


def test_archive_without_a_file(tmp_path: Path) -> None:
    path = archives.tar(tmp_path / "m.tgz", {"package/readme.md": b"no data"})
    with pytest.raises(FormatError, match="expected to contain package/data/train-images"):
        _sources.mnist_from_archive([path])
