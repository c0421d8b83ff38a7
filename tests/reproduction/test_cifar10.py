"""CIFAR-10 from both places, and files of it that are damaged."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from posh.datasets._fetch import hash_content
from posh.errors import FormatError
from posh_reproduction.datasets import cifar10
from tests.datasets.archives import RNG, tar

BATCHES = ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"]
IMAGES = RNG.integers(0, 256, (18, 32, 32, 3), dtype=np.uint8)
LABELS = RNG.integers(0, 10, 18, dtype=np.uint8)


def png(image: NDArray[np.uint8]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, format="PNG")
    return file.getvalue()


def cifar_binary(path: Path, images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> Path:
    """``images`` (6 * k, 32, 32, 3), k per batch."""
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    records = np.concatenate([labels[:, None], planes], axis=1)
    parts = np.split(records, 6)
    names = [f"cifar-10-batches-bin/{name}.bin" for name in BATCHES]
    return tar(path, {name: part.tobytes() for name, part in zip(names, parts, strict=True)})


def cifar_pngs(path: Path, images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> Path:
    k = len(images) // 6
    sheets = np.split(images.reshape(len(images), 1024, 3), 6)
    files = {f"package/{name}.png": png(sheet) for name, sheet in zip(BATCHES, sheets, strict=True)}
    files["package/train_lables.json"] = json.dumps(labels[: 5 * k].tolist()).encode()
    files["package/test_lables.json"] = json.dumps(labels[5 * k :].tolist()).encode()
    return tar(path, files)


def test_cifar_is_the_same_from_both_places(tmp_path: Path) -> None:
    binary = cifar10.decode_binary([cifar_binary(tmp_path / "b.tar.gz", IMAGES, LABELS)])
    pngs = cifar10.decode_archive([cifar_pngs(tmp_path / "p.tgz", IMAGES, LABELS)])
    np.testing.assert_array_equal(binary["images"], IMAGES)
    np.testing.assert_array_equal(pngs["labels"], LABELS)
    assert hash_content(binary) == hash_content(pngs)


def test_binary_records_of_another_length(tmp_path: Path) -> None:
    files = {f"cifar-10-batches-bin/{name}.bin": bytes(100) for name in BATCHES}
    with pytest.raises(FormatError, match="records of 3073 bytes, got 600"):
        cifar10.decode_binary([tar(tmp_path / "b.tar.gz", files)])


@pytest.mark.parametrize("labels", [b"[1,2", b"[300]", b'["cat"]', b"[{}]"])
def test_labels_that_are_no_small_numbers(labels: bytes) -> None:
    with pytest.raises(FormatError, match=r"JSON list of numbers 0\.\.255"):
        cifar10._decode_labels(labels)


def test_lines_of_another_length(tmp_path: Path) -> None:
    sheet = png(IMAGES[:1].reshape(2, 512, 3))
    path = tar(tmp_path / "p.tgz", {f"package/{name}.png": sheet for name in BATCHES})
    with pytest.raises(FormatError, match="lines of 1024 pixels, got 512"):
        cifar10.decode_archive([path])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"not a picture", "complete PNG", id="another file"),
        pytest.param(png(IMAGES[0])[:-40], "complete PNG", id="truncated"),
        pytest.param(png(IMAGES[0, :, :, 0]), "expected RGB pixels, got L", id="grey"),
    ],
)
def test_pictures_that_cannot_be_read(tmp_path: Path, content: bytes, message: str) -> None:
    path = tar(tmp_path / "p.tgz", {f"package/{name}.png": content for name in BATCHES})
    with pytest.raises(FormatError, match=message):
        cifar10.decode_archive([path])
