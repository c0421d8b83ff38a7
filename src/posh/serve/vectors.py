"""Vectors on the wire: rows of numbers, or packed as base64 of float32."""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from posh.preprocess import Float32

if TYPE_CHECKING:  # the client has no pydantic
    from posh.serve.models import Packed

__all__ = ["from_base64", "pack", "unpack"]

_AT_ONCE = 1 << 20  # characters decoded in one go, a multiple of 4: other threads work in between


def unpack(vectors: list[list[float]] | Packed) -> Any:
    """An array (n, d), float32; inf, which is what is too large, and NaN are left to the collection."""
    if not isinstance(vectors, list):
        return from_base64(vectors.shape, vectors.float32)
    if not vectors:
        raise ValueError(
            "expected at least one vector, got none: give rows, or packed vectors of shape [0, d]"
        )
    lengths = {len(row) for row in vectors}
    if len(lengths) > 1:
        raise ValueError(f"expected vectors of equal length, got {min(lengths)} to {max(lengths)} numbers")
    with np.errstate(over="ignore"):
        return np.array(vectors, np.float32)


def pack(array: Float32) -> dict[str, Any]:
    """Vectors (n, d) as a :class:`~posh.serve.models.Packed` object.

    >>> pack(np.array([[1, 2]], np.float32))
    {'shape': [1, 2], 'float32': 'AACAPwAAAEA='}
    """
    content = np.ascontiguousarray(array, "<f4").tobytes()
    return {"shape": list(array.shape), "float32": binascii.b2a_base64(content, newline=False).decode()}


def from_base64(shape: Sequence[int], text: str) -> Float32:
    """The vectors (n, d) of a packed object, not to be changed."""
    content = bytearray()
    try:
        for start in range(0, len(text), _AT_ONCE):
            content += binascii.a2b_base64(text[start : start + _AT_ONCE], strict_mode=True)
    except ValueError as error:
        raise ValueError(f"expected float32 to be base64, got something else: {error}") from None
    n, d = shape
    if len(content) != 4 * n * d:
        raise ValueError(f"expected {4 * n * d} bytes for vectors of shape [{n}, {d}], got {len(content)}")
    return np.frombuffer(content, "<f4").reshape(n, d)
