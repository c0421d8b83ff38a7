"""Parts of a large write, each small enough for one request to a service with the usual limits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from posh.collection.types import Payload

__all__ = ["MAX_ITEMS", "batches"]

MAX_ITEMS = 5_000
_BYTES = 8 << 20
_VALUES = 400_000  # separators in the JSON of payloads: services count them


def batches(payloads: Sequence[Payload], bytes_beside: int) -> Iterator[slice]:
    """Yield slices of items in order; each item has ``bytes_beside`` bytes in a request beside its payload.

    >>> list(batches([{}] * 12_000, 10))
    [slice(0, 5000, None), slice(5000, 10000, None), slice(10000, 12000, None)]
    """
    start = n_bytes = n_values = 0
    for i, payload in enumerate(payloads):
        text = json.dumps(payload)
        size = len(text) + bytes_beside
        values = sum(text.count(separator) for separator in ",[{")
        if i > start and (i - start >= MAX_ITEMS or n_bytes + size > _BYTES or n_values + values > _VALUES):
            yield slice(start, i)
            start, n_bytes, n_values = i, 0, 0
        n_bytes, n_values = n_bytes + size, n_values + values
    if len(payloads) > start:
        yield slice(start, len(payloads))
