"""Writing items into answers, as many bytes as an answer may have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import orjson

from posh.collection.base import BaseCollection, Id, Item
from posh.hashers.base import Hasher, SparseHasher
from posh.preprocess import Float32
from posh.serve.problems import ProblemError

__all__ = ["NUMPY", "ItemWriter", "set_bits"]

NUMPY = orjson.OPT_SERIALIZE_NUMPY
_AT_ONCE = 256  # items fetched and written in one go: bounds what is in memory beside the answer


class Written(NamedTuple):
    """The fields of an item, and how many bytes they take in an answer."""

    fields: dict[str, Any]
    n_bytes: int


class ItemWriter:
    """Turns items into the fields that a client asked for: ``include`` names payload, vector and code.

    ``n_active`` is the number of set bits of items, if not the hasher's.
    """

    def __init__(
        self, collection: BaseCollection, include: Sequence[str], max_bytes: int, n_active: int | None = None
    ) -> None:
        self._collection, self._include, self._max_bytes = collection, frozenset(include), max_bytes
        self._n_active = n_active
        self._hasher = collection.hasher if "code" in self._include else None
        self._room = max_bytes

    def by_id(self, ids: Sequence[Id]) -> dict[Id, Written]:
        """The fields of stored items; what is not there is left out."""
        found: dict[Id, Written] = {}
        for start in range(0, len(ids), _AT_ONCE):
            items = [item for item in self._collection.get(ids[start : start + _AT_ONCE]) if item is not None]
            for item, written in zip(items, self._written(items), strict=True):
                found[item.id] = written
                self.charge(written)
        return found

    def page(self, items: Iterator[Item]) -> tuple[list[dict[str, Any]], bool]:
        """Items with their fields, until the answer is full, but at least one; and whether these are all."""
        found: list[dict[str, Any]] = []
        while block := list(islice(items, _AT_ONCE)):
            for item, written in zip(block, self._written(block), strict=True):
                found.append({"id": item.id, **written.fields})
                self._room -= written.n_bytes
                if self._room <= 0:
                    return found, False
        return found, True

    def charge(self, written: Written) -> None:
        """Count what is written once more, and refuse an answer that gets too large."""
        self._room -= written.n_bytes
        if self._room < 0:
            raise ProblemError(
                413,
                "too-large",
                f"expected an answer of at most {self._max_bytes} bytes of payloads, vectors and codes, "
                "got more: ask for less at once",
            )

    def _written(self, items: list[Item]) -> Iterator[Written]:
        codes = self._codes(items)
        for i, item in enumerate(items):
            parts: dict[str, bytes] = {}
            if "payload" in self._include:
                parts["payload"] = orjson.dumps(item.payload)
            if "vector" in self._include:
                parts["vector"] = orjson.dumps(item.vector, option=NUMPY)
            if "code" in self._include:
                parts["code"] = codes[i]
            fields = {key: orjson.Fragment(value) for key, value in parts.items()}
            yield Written(fields, sum(map(len, parts.values())))

    def _codes(self, items: list[Item]) -> list[bytes]:
        if self._hasher is None or not items:
            return [b"null"] * len(items)
        return set_bits(self._hasher, np.stack([item.vector for item in items]), self._n_active)


def set_bits(hasher: Hasher[Any], vectors: Float32, n_active: int | None) -> list[bytes]:
    """The numbers of the set bits of the codes of vectors (n, d), as JSON."""
    if isinstance(hasher, SparseHasher):
        return [orjson.dumps(row, option=NUMPY) for row in hasher.encode(vectors, n_active=n_active).active]
    return [orjson.dumps(np.flatnonzero(row), option=NUMPY) for row in hasher.encode(vectors).to_dense()]
