"""Objects that the service and its clients exchange: names, packed vectors, descriptions of collections.

Clients are installed without the packages of the service, so this module uses none of them.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

import numpy as np

from posh.preprocess import Float32

__all__ = ["NAME_PATTERN", "READS", "HasherInfo", "Indexing", "Info", "TextInfo", "is_name", "pack_vectors"]
__all__ += ["unpack_vectors", "validate_name"]

NAME_PATTERN = "[a-z0-9][a-z0-9_-]{0,63}"  # names are also folder names and parts of URLs
READS = ("search", "search_radius", "get", "items", "count", "sample")  # POST requests that change nothing
_CHUNK = 1 << 20  # characters decoded per call, a multiple of 4: other threads run between two calls


def is_name(value: Any) -> bool:
    """Return whether a value is a valid name of a collection."""
    return isinstance(value, str) and re.fullmatch(NAME_PATTERN, value) is not None


def validate_name(value: Any) -> str:
    """Return the name of a collection, or raise ValueError.

    >>> validate_name("glove-100")
    'glove-100'
    """
    if not is_name(value):
        raise ValueError(
            "expected a name of 1 to 64 of the characters a-z, 0-9, _ and -, no _ or - in front, "
            f"got {value!r:.80}"
        )
    return str(value)


def pack_vectors(vectors: Float32) -> dict[str, Any]:
    """Pack vectors (n, d) as base64 of little-endian float32.

    >>> pack_vectors(np.array([[1, 2]], np.float32))
    {'shape': [1, 2], 'float32': 'AACAPwAAAEA='}
    """
    content = np.ascontiguousarray(vectors, "<f4").tobytes()
    return {"shape": list(vectors.shape), "float32": binascii.b2a_base64(content, newline=False).decode()}


def unpack_vectors(shape: Sequence[int], text: str) -> Float32:
    """Return the vectors (n, d) of a packed object; the array may be read-only."""
    content = bytearray()
    try:
        for start in range(0, len(text), _CHUNK):
            content += binascii.a2b_base64(text[start : start + _CHUNK], strict_mode=True)
    except ValueError as error:
        raise ValueError(f"expected float32 to be base64, got something else: {error}") from None
    n, d = shape
    if len(content) != 4 * n * d:
        raise ValueError(f"expected {4 * n * d} bytes for vectors of shape [{n}, {d}], got {len(content)}")
    return np.frombuffer(content, "<f4").reshape(n, d)


class _Message:
    """A dataclass that is built from a JSON object."""

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """Build the object; fields that a newer service adds are ignored."""
        return cls(**{field.name: content[field.name] for field in fields(cls)})  # type: ignore[arg-type]


@dataclass(frozen=True)
class HasherInfo(_Message):
    """The hasher whose codes are searched; ``n_active`` is null for dense codes."""

    method: str
    n_bits: int
    n_active: int | None
    params: dict[str, int | float | str | bool | None]


@dataclass(frozen=True)
class Indexing(_Message):
    """The state of the last fit."""

    state: Literal["idle", "running", "failed"]
    message: str | None


@dataclass(frozen=True)
class TextInfo(_Message):
    """The fields of payloads that are indexed as text, and the tokenizer."""

    fields: list[str]
    tokenizer: str


@dataclass(frozen=True)
class Info(_Message):
    """A collection; ``index`` has the options of its index.

    Without ``has_items``, hits are ids and scores, and payloads and vectors cannot be read.
    """

    name: str
    count: int
    n_features: int | None
    hasher: HasherInfo | None
    index: dict[str, int | float | str | None]
    metadata: dict[str, Any]
    memory_bytes: int | None
    disk_bytes: int | None
    indexing: Indexing
    has_items: bool
    text: TextInfo | None

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """Build an `Info`, including nested objects, from a JSON response."""
        hasher = None if content["hasher"] is None else HasherInfo.from_json(content["hasher"])
        text = None if content["text"] is None else TextInfo.from_json(content["text"])
        indexing = Indexing.from_json(content["indexing"])
        return super().from_json(content | {"hasher": hasher, "indexing": indexing, "text": text})
