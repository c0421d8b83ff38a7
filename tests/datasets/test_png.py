from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from numpy.typing import NDArray

from posh.datasets._png import read_png
from posh.errors import FormatError

IMAGE = np.random.default_rng(0).integers(0, 256, (6, 7, 3), dtype=np.uint8)


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def encode(image: NDArray[np.uint8], filters: list[int], depth: int = 8, colour: int = 2) -> bytes:
    """Write a PNG whose line y uses filters[y]; the reference against which the reader is tested."""
    height, width, _ = image.shape
    lines = b"".join(bytes([kind]) + _filtered(image, y, kind) for y, kind in enumerate(filters))
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    body = zlib.compress(lines)
    # Two IDAT chunks, as real encoders split them.
    parts = chunk(b"IDAT", body[:20]) + chunk(b"IDAT", body[20:])
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + parts + chunk(b"IEND", b"")


def _filtered(image: NDArray[np.uint8], y: int, kind: int) -> bytes:
    padded = np.pad(image.astype(int), ((1, 0), (1, 0), (0, 0)))
    line, left, up, corner = padded[y + 1, 1:], padded[y + 1, :-1], padded[y, 1:], padded[y, :-1]
    estimate = left + up - corner
    nearest = np.stack([left, up, corner])
    paeth = np.take_along_axis(nearest, np.abs(estimate - nearest).argmin(axis=0)[None], axis=0)[0]
    guess = [np.zeros_like(left), left, up, (left + up) // 2, paeth][kind]
    return ((line - guess) % 256).astype(np.uint8).tobytes()


@pytest.mark.parametrize("filters", [[0] * 6, [1] * 6, [2] * 6, [3] * 6, [4] * 6, [4, 1, 2, 3, 0, 4]])
def test_every_line_filter_is_undone(filters: list[int]) -> None:
    np.testing.assert_array_equal(read_png(encode(IMAGE, filters)), IMAGE)


def test_agrees_with_pillow() -> None:
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    file = io.BytesIO()
    pillow.fromarray(IMAGE).save(file, "PNG")
    np.testing.assert_array_equal(read_png(file.getvalue()), IMAGE)


def test_another_kind_of_file() -> None:
    with pytest.raises(FormatError, match="expected a PNG file"):
        read_png(b"GIF89a")


def test_16_bit_pixels() -> None:
    with pytest.raises(FormatError, match="expected 8-bit RGB"):
        read_png(encode(IMAGE, [0] * 6, depth=16))


def test_unknown_filter() -> None:
    lines = b"".join(b"\x05" + line.tobytes() for line in IMAGE)
    header = struct.pack(">IIBBBBB", 7, 6, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    with pytest.raises(FormatError, match=r"filters 0\.\.4, got 5"):
        read_png(b"\x89PNG\r\n\x1a\n" + parts)


def test_every_truncation_is_noticed() -> None:
    data = encode(IMAGE, [0, 1, 2, 3, 4, 0])
    for size in range(len(data)):
        with pytest.raises(FormatError):
            read_png(data[:size])


def test_more_lines_declared_than_stored() -> None:
    data = encode(np.concatenate([IMAGE, IMAGE]), [1] * 6)
    with pytest.raises(FormatError, match="bytes of pixel data"):
        read_png(data)
