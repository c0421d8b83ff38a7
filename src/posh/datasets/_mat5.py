"""A reader for the numeric matrices in MATLAB 5 files.

SciPy's reader trusts the type numbers in a file and can crash the process on a damaged one; this one
checks every number, and finds variables by inflating no more than their headers.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["MatVariable", "mat5_variables"]

_HEADER_BYTES = 128
_STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_MATRIX, _COMPRESSED = 14, 15
_NUMERIC_CLASSES = range(6, 16)
_COMPLEX_FLAG = 0x800
_INT32 = 5
# Enough for the flags, the shape and the name of any variable.
_HEAD = 1 << 12

Buffer: TypeAlias = bytes | memoryview


@dataclass(frozen=True)
class MatVariable:
    """A real matrix in a file, not yet read."""

    name: str
    shape: tuple[int, ...]
    _packed: Buffer
    _is_compressed: bool
    _order: str

    def read(self) -> NDArray[Any]:
        """Return the values in the type in which they are stored."""
        body = zlib.decompress(self._packed)[8:] if self._is_compressed else self._packed
        # After flags, shape and name.
        kind, data = next(islice(_elements(body, self._order), 3, None), (0, b""))
        if kind not in _STORED:
            raise ValueError(f"{self.name}: expected numbers (type 1..13), got type {kind}")
        values = np.frombuffer(data, dtype=self._order + _STORED[kind])
        expected = int(np.prod(self.shape, dtype=object))
        if values.size != expected:
            raise ValueError(f"{self.name}: expected {expected} values of {self.shape}, got {values.size}")
        return values.reshape(self.shape, order="F")


def mat5_variables(path: Path) -> dict[str, MatVariable]:
    """Return the real numeric matrices of a file by name; other variables are passed over.

    Raises
    ------
    ValueError : the file contradicts itself.
    zlib.error : compressed data are damaged.

    """
    data = np.memmap(path, dtype=np.uint8, mode="r").data
    order = {b"IM": "<", b"MI": ">"}.get(bytes(data[_HEADER_BYTES - 2 : _HEADER_BYTES]))
    if order is None:
        raise ValueError(f"expected the header of MATLAB 5, got {bytes(data[:19])!r}")
    found = [_variable(kind, body, order) for kind, body in _elements(data[_HEADER_BYTES:], order)]
    return {variable.name: variable for variable in found if variable}


def _elements(data: Buffer, order: str) -> Iterator[tuple[int, Buffer]]:
    """Yield type and content of one element after the other."""
    at = 0
    while at < len(data):
        if at + 8 > len(data):
            raise ValueError(f"expected 8 bytes of a tag at {at}, got {len(data) - at}")
        kind, size = struct.unpack_from(f"{order}II", data, at)
        if short := kind >> 16:
            # Up to four bytes of content share the tag, and its first word holds both numbers.
            kind, size, start, end = kind & 0xFFFF, short, at + 4, at + 8
        else:
            start = at + 8
            end = start + size + (0 if kind == _COMPRESSED else -size % 8)
        if start + size > min(end, len(data)):
            raise ValueError(f"expected {size} bytes at {start}, got {len(data) - start}")
        yield kind, data[start : start + size]
        at = end


def _variable(kind: int, body: Buffer, order: str) -> MatVariable | None:
    is_compressed = kind == _COMPRESSED
    head = zlib.decompressobj().decompress(body, _HEAD) if is_compressed else b""
    if is_compressed:
        kind = struct.unpack_from(f"{order}I", head)[0] if len(head) >= 8 else 0
    if kind != _MATRIX:
        raise ValueError(f"expected a matrix (type {_MATRIX}), got type {kind}")
    parts = list(islice(_elements(head[8:] if is_compressed else body, order), 3))
    if len(parts) < 3 or len(parts[0][1]) < 8:
        raise ValueError("expected the flags, the shape and the name of a matrix")
    (_, flags), (shape_kind, dims), (_, name) = parts
    flag_word = struct.unpack_from(f"{order}I", flags)[0]
    if flag_word & 0xFF not in _NUMERIC_CLASSES or flag_word & _COMPLEX_FLAG:
        return None
    if shape_kind != _INT32 or len(dims) % 4 or min(shape := _integers(dims, order), default=0) < 0:
        raise ValueError(f"expected a shape of integers from 0 up, got {bytes(dims).hex(' ', 4)}")
    return MatVariable(bytes(name).decode("latin-1"), shape, body, is_compressed, order)


def _integers(data: Buffer, order: str) -> tuple[int, ...]:
    return struct.unpack(f"{order}{len(data) // 4}i", data)
