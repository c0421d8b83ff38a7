"""A reader for 8-bit RGB PNG files, so that the core install needs no imaging library."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from posh.errors import FormatError

__all__ = ["read_png"]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_RGB = 3
_NONE, _SUB, _UP, _AVERAGE, _PAETH = range(5)


def read_png(data: bytes, name: str = "PNG") -> NDArray[np.uint8]:
    """Decode a PNG of 8-bit RGB pixels, not interlaced, to uint8 (height, width, 3)."""
    if not data.startswith(_SIGNATURE):
        raise FormatError(f"{name}: expected a PNG file, got one that starts with {data[:8]!r}")
    header, packed = _chunks(data, name)
    width, height, *kind = struct.unpack(">IIBBBBB", header)
    if kind != [8, 2, 0, 0, 0]:
        raise FormatError(f"{name}: expected 8-bit RGB without interlacing, got IHDR fields {kind}")
    size = height * (1 + width * _RGB)
    try:
        raw = zlib.decompressobj().decompress(packed, size + 1)
    except zlib.error as error:
        raise FormatError(f"{name}: damaged pixel data ({error})") from error
    if len(raw) != size:
        raise FormatError(f"{name}: expected {size} bytes of pixel data, got {len(raw)}")
    lines = np.frombuffer(raw, dtype=np.uint8).reshape(height, -1)
    return _unfilter(lines[:, 0], lines[:, 1:].reshape(height, width, _RGB), name)


def _chunks(data: bytes, name: str) -> tuple[bytes, bytes]:
    """Return the header and the joined pixel data."""
    header, parts, at = b"", [], len(_SIGNATURE)
    while at + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        body = data[at + 8 : at + 8 + length]
        header = body if kind == b"IHDR" else header
        if kind == b"IDAT":
            parts.append(body)
        at += 12 + length
        if kind == b"IEND" and len(header) == 13:
            return header, b"".join(parts)
    raise FormatError(f"{name}: expected IHDR, IDAT and IEND chunks, got a truncated file")


def _unfilter(filters: NDArray[np.uint8], coded: NDArray[np.uint8], name: str) -> NDArray[np.uint8]:
    """Undo the line filters: each line is coded as differences to its left or upper neighbours."""
    if filters.size and filters.max() > _PAETH:
        raise FormatError(f"{name}: expected line filters 0..4, got {filters.max()}")
    image = coded.copy()
    sub = filters == _SUB
    image[sub] = np.cumsum(coded[sub], axis=1, dtype=np.uint8)
    blank = np.zeros_like(image[:1])[0]
    # Only the lines that look upwards have to be undone one after the other; encoders rarely use them
    # on photographs packed one per line.
    for y in np.flatnonzero(filters >= _UP):
        above = image[y - 1] if y else blank
        image[y] = coded[y] + above if filters[y] == _UP else _undo(filters[y], coded[y], above)
    return image


def _undo(kind: int, line: NDArray[np.uint8], above: NDArray[np.uint8]) -> NDArray[np.uint8]:
    out = np.empty_like(line)
    for channel in range(_RGB):
        left = corner = 0
        values = zip(line[:, channel].tolist(), above[:, channel].tolist(), strict=True)
        for x, (value, up) in enumerate(values):
            guess = (left + up) // 2 if kind == _AVERAGE else _paeth(left, up, corner)
            left, corner = (value + guess) & 0xFF, up
            out[x, channel] = left
    return out


def _paeth(left: int, up: int, corner: int) -> int:
    """Return the neighbour nearest to left + up - corner; ties in the order of the arguments."""
    estimate = left + up - corner
    return min((left, up, corner), key=lambda neighbour: abs(estimate - neighbour))
