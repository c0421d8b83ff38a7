"""One row of a collection's database: its bytes, its JSON and its checksum.

SQLite has no checksums. Each row of items, codes and settings has a CRC-32, which is written with the row and
compared whenever the row is read. The checksum covers the key of the row: a row in a wrong place is noticed.
The rows of ``fields`` have no checksum, because ``posh check`` can compare them with the payloads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

import numpy as np
import numpy.typing as npt

from posh.codes import Codes, PackedCodes
from posh.collection.base import Id, Item, Payload
from posh.collection.sqlite_errors import DamageError
from posh.hashers.base import Hasher, SparseHasher

__all__ = ["ItemRow", "StoredId", "checked_code", "checked_item", "checked_value", "code_checksum"]
__all__ += ["codes_from", "dump_payload", "id_checksum", "ids_checksum", "item_checksum", "item_from"]
__all__ += ["load_payload", "matrix", "meta_checksum", "rest_checksum", "row_bytes"]

T = TypeVar("T")


class ItemRow(NamedTuple):
    """An item as the database stores it."""

    seq: int
    id: Id
    payload: str
    vector: bytes


class StoredId(NamedTuple):
    """The seq and the id of a stored item."""

    seq: int
    id: Id


# Checksums -----------------------------------------------------------------------------------------------


def id_checksum(seq: int, item_id: Id) -> int:
    """The checksum of an id and its seq; ``1`` and ``"1"`` are two ids."""
    return crc32(f"{seq} {'text' if isinstance(item_id, str) else 'number'} {item_id}\n".encode())


def item_checksum(seq: int, item_id: Id, payload: str, vector: bytes) -> int:
    """The checksum of a stored item."""
    return rest_checksum(id_checksum(seq, item_id), payload, vector)


def rest_checksum(id_sum: int, payload: str, vector: bytes) -> int:
    """The checksum of a stored item whose id has the checksum ``id_sum``."""
    return crc32(vector, crc32(payload.encode(), id_sum))


def code_checksum(generation: int, seq: int, code: bytes) -> int:
    """The checksum of a stored code."""
    return crc32(code, crc32(f"{generation} {seq}\n".encode()))


def meta_checksum(key: str, value: Any) -> int:
    """The checksum of a row of ``meta``."""
    return crc32(f"{key} {type(value).__name__} {value}".encode())


def ids_checksum(before: int, added: int = 0, removed: int = 0) -> int:
    """The sum of the checksums of all ids, in 63 bits, after some were added and some removed."""
    return (before + added - removed) % (1 << 63)


def checked_item(seq: int, item_id: Id, payload: str, vector: bytes, checksum: int) -> ItemRow:
    """Return a stored item if its checksum matches."""
    row = ItemRow(seq, item_id, payload, vector)
    return _checked(row, checksum, f"item {seq}", item_checksum, *row)


def checked_code(generation: int, seq: int, code: bytes, checksum: int) -> bytes:
    """Return a stored code if its checksum matches."""
    return _checked(code, checksum, f"the code of item {seq}", code_checksum, generation, seq, code)


def checked_value(key: str, value: Any, checksum: int) -> Any:
    """Return a stored setting if its checksum matches."""
    return _checked(value, checksum, f"the value of {key}", meta_checksum, key, value)


def _checked(value: T, expected: int, what: str, checksum: Callable[..., int], *parts: Any) -> T:
    try:
        found = checksum(*parts)
    except (TypeError, AttributeError, ValueError):  # damage has changed the type of a part
        found = None
    if found != expected:
        raise DamageError(f"{what}: the checksum does not match")
    return value


# Content -------------------------------------------------------------------------------------------------

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def dump_payload(payload: Payload) -> str:
    """Return a payload as the database stores it."""
    return _ENCODER.encode(payload)


def load_payload(text: Any) -> Payload:
    """Return a payload that was stored."""
    try:
        payload = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise DamageError(f"a payload is not JSON: {error}") from error
    if not isinstance(payload, dict):
        raise DamageError("a payload is no object")
    return payload


def row_bytes(array: npt.NDArray[Any]) -> list[bytes]:
    """Return the bytes of each row of a matrix.

    One call converts the matrix, and slices give the rows. That is several times as fast as one call per row.
    """
    everything, width = array.tobytes(), array.shape[1] * array.itemsize
    return [everything[start : start + width] for start in range(0, len(everything), width)]


def matrix(rows: Sequence[Any], dtype: str, width: int) -> npt.NDArray[Any]:
    """Return the matrix (n, width) whose rows have these bytes."""
    size = width * np.dtype(dtype).itemsize
    if not all(isinstance(row, bytes) and len(row) == size for row in rows):
        raise DamageError(f"expected {size} bytes for each vector or code")
    return np.frombuffer(b"".join(rows), dtype).reshape(len(rows), width)


def item_from(row: ItemRow, n_features: int | None) -> Item:
    """Return the item of a row."""
    vector = matrix([row.vector], "<f4", n_features or 0)[0]
    return Item(row.id, vector.astype(np.float32), load_payload(row.payload))


def codes_from(rows: Sequence[bytes], hasher: Hasher[Any], n_active: int) -> Codes | PackedCodes:
    """Return the codes of a hasher, sparse ones with ``n_active`` set bits, that have these bytes."""
    try:
        if isinstance(hasher, SparseHasher):
            return Codes(matrix(rows, "<u2", n_active), hasher.n_bits)
        return PackedCodes(matrix(rows, "u1", -(-hasher.n_bits // 8)), hasher.n_bits)
    except ValueError as error:
        raise DamageError(f"stored codes: {error}") from error
