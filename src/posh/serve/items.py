"""Writing items into answers, as many bytes as an answer may have."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import orjson

from posh.collection.base import BaseCollection, Id, Item
from posh.hashers.base import Hasher, SparseHasher
from posh.index.hits import Hit, Hits
from posh.preprocess import Float32
from posh.serve.problems import ProblemError

__all__ = ["LARGE", "NUMPY", "ItemWriter", "WrittenPage", "joined", "set_bits"]

NUMPY = orjson.OPT_SERIALIZE_NUMPY
LARGE = 1 << 20  # bytes of an answer from which on it needs a share of the memory for all of them
_AT_ONCE = 32  # items fetched in one go: bounds what is in memory beside the answer, payloads may be large


class WrittenFields(NamedTuple):
    """The fields of an item, and how many bytes they take in an answer."""

    fields: dict[str, Any]
    n_bytes: int


class WrittenPage(NamedTuple):
    """Items as JSON, the id of the last one, and whether there are no more."""

    items: list[bytes]
    last: Id | None
    is_complete: bool


class ItemWriter:
    """Turns items into the fields that a client asked for: ``include`` names payload, vector and code.

    ``n_active`` is the number of set bits of items, if not the hasher's. ``grow`` is called once, before the
    answer gets large; it may wait, or raise.
    """

    def __init__(
        self,
        collection: BaseCollection,
        include: Sequence[str],
        max_bytes: int,
        n_active: int | None = None,
        grow: Callable[[], object] = lambda: None,
    ) -> None:
        self._collection, self._include, self._max_bytes = collection, frozenset(include), max_bytes
        self._n_active, self._grow = n_active, grow
        self._hasher = collection.hasher if "code" in self._include else None
        self._room, self._is_large = max_bytes, False

    def write_results(self, hits: Hits, vectors: Float32, query_active: int | None) -> list[bytes]:
        """Return the results of queries (m, d) as JSON; hits have the fields that ``include`` names."""
        codes: list[bytes] | None = None
        if self._hasher is not None:
            codes = set_bits(self._hasher, vectors, query_active)
        results = []
        for i, row in enumerate(iterate_rows(hits)):
            parts = [{"id": hit.id, "score": hit.score} for hit in row]
            if self._include:
                items = [Item(hit.id, hit.vector, hit.payload) for hit in row]  # type: ignore[arg-type]
                for part, written in zip(parts, self._written(items), strict=True):
                    part.update(written.fields)
                    self.charge(written.n_bytes)
            code = {} if codes is None else {"code": orjson.Fragment(codes[i])}
            results.append(orjson.dumps({"hits": parts, **code}))
        return results

    def listed(self, ids: Sequence[Id]) -> list[bytes]:
        """Stored items as JSON, in this order; null for what is not there."""
        found = []
        for item, written in self._got(ids):
            found.append(b"null" if item is None else orjson.dumps({"id": item.id, **written.fields}))
            self.charge(written.n_bytes)
        return found

    def page(self, items: Iterator[Item], limit: int) -> WrittenPage:
        """Up to ``limit`` items, or until the answer is full, but at least one; take one more to look on."""
        found: list[bytes] = []
        last: Id | None = None
        while block := list(islice(items, _AT_ONCE)):
            for item, written in zip(block, self._written(block), strict=True):
                if len(found) == limit or self._room <= 0:
                    return WrittenPage(found, last, is_complete=False)
                found.append(orjson.dumps({"id": item.id, **written.fields}))
                last = item.id
                self._take(written.n_bytes)
        return WrittenPage(found, last, is_complete=True)

    def charge(self, n_bytes: int) -> None:
        """Count what is written, and refuse an answer that gets too large."""
        self._take(n_bytes)
        if self._room < 0:
            raise ProblemError(
                413,
                "too-large",
                f"expected an answer of at most {self._max_bytes} bytes of payloads, vectors and codes, "
                "got more: ask for less at once",
            )

    def _take(self, n_bytes: int) -> None:
        self._room -= n_bytes
        if not self._is_large and self._max_bytes - self._room > LARGE:
            self._is_large = True
            self._grow()

    def _got(self, ids: Sequence[Id]) -> Iterator[tuple[Item | None, WrittenFields]]:
        for start in range(0, len(ids), _AT_ONCE):
            got = self._collection.get(ids[start : start + _AT_ONCE])
            written = self._written([item for item in got if item is not None])
            for item in got:
                yield item, _NOTHING if item is None else next(written)

    def _written(self, items: list[Item]) -> Iterator[WrittenFields]:
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
            yield WrittenFields(fields, sum(map(len, parts.values())))

    def _codes(self, items: list[Item]) -> list[bytes]:
        if self._hasher is None or not items:
            return [b"null"] * len(items)
        return set_bits(self._hasher, np.stack([item.vector for item in items]), self._n_active)


_NOTHING = WrittenFields({}, 0)


def iterate_rows(hits: Hits) -> Iterator[list[Hit]]:
    """Yield the hits of each query."""
    nothing = itertools.repeat(None)
    for i in range(len(hits.ids)):
        pairs = zip(hits.ids[i].tolist(), hits.scores[i].tolist(), strict=True)
        payloads = nothing if hits.payloads is None else iter(hits.payloads[i])
        vectors = nothing if hits.vectors is None else iter(hits.vectors[i])
        yield [Hit(*pair, next(payloads), next(vectors)) for pair in pairs if pair[0] is not None]


def joined(before: bytes, parts: list[bytes], after: bytes) -> bytes:
    """An answer with a list of parts, all of them JSON: in memory once beside its parts.

    >>> joined(b'{"items":[', [b"1", b"2"], b"]}")
    b'{"items":[1,2]}'
    """
    everything = [b","] * (2 * len(parts) + 1)
    everything[1::2] = parts
    everything[0], everything[-1] = before, after if parts else before + after
    return b"".join(everything)


def set_bits(hasher: Hasher[Any], vectors: Float32, n_active: int | None) -> list[bytes]:
    """The numbers of the set bits of the codes of vectors (n, d), as JSON."""
    if isinstance(hasher, SparseHasher):
        return [orjson.dumps(row, option=NUMPY) for row in hasher.encode(vectors, n_active=n_active).active]
    return [orjson.dumps(np.flatnonzero(row), option=NUMPY) for row in hasher.encode(vectors).to_dense()]
