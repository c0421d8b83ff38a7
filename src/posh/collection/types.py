"""What collections are made of: ids, payloads, items."""

from __future__ import annotations

from typing import Any, NamedTuple

from posh.preprocess import Float32

__all__ = ["Id", "Include", "Item", "Payload"]

Id = int | str
Payload = dict[str, Any]


class Item(NamedTuple):
    """One item of a collection: its id, its vector (d,), float32, and its payload."""

    id: Id
    vector: Float32
    payload: Payload


class Include(NamedTuple):
    """What a search adds to its hits."""

    payloads: bool = False
    vectors: bool = False
