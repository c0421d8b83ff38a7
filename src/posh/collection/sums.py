"""Checksums of rows, which SQLite does not have: CRC-32, written with a row and compared whenever it is read.

They cover the key of a row, too: a row that turns up in another place is not taken for what belongs there.
The rows of ``fields`` have none, since they can be made again from the payloads: ``posh check`` does so.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

__all__ = ["continued", "of_code", "of_id", "of_item", "of_meta", "together"]


def of_id(seq: int, number: int | str) -> int:
    """Of an id and the number of its write; ``1`` and ``"1"`` are two ids."""
    return crc32(f"{seq} {'text' if isinstance(number, str) else 'number'} {number}\n".encode())


def of_item(seq: int, number: int | str, payload: str, vector: bytes) -> int:
    """Of an item as it is stored."""
    return continued(of_id(seq, number), payload, vector)


def continued(id_sum: int, payload: str, vector: bytes) -> int:
    """Of an item, from the checksum of its id."""
    return crc32(vector, crc32(payload.encode(), id_sum))


def of_code(generation: int, seq: int, code: bytes) -> int:
    """Of a code as it is stored."""
    return crc32(code, crc32(f"{generation} {seq}\n".encode()))


def of_meta(key: str, value: Any) -> int:
    """Of a row of ``meta``."""
    return crc32(f"{key} {type(value).__name__} {value}".encode())


def together(total: int, added: int = 0, removed: int = 0) -> int:
    """The sum of the checksums of all ids, in 63 bits, after some were added and removed."""
    return (total + added - removed) % (1 << 63)
