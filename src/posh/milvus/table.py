"""The items of a collection as one collection of Milvus, which belongs to one generation of codes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from posh.collection.types import Id, Payload
from posh.errors import FormatError
from posh.milvus.connection import Milvus
from posh.milvus.keys import MAX_KEY, among, id_of, key_of
from posh.milvus.sparse import SparseVector
from posh.preprocess import Float32

__all__ = ["MAX_HITS", "ItemTable", "Ranked", "Row"]

MAX_HITS = 16_384  # that Milvus gives for one query
_MAX_PAYLOAD = 65_536  # bytes of JSON
_PART_ROWS, _PART_BYTES = 2000, 8 << 20  # of one request that writes; Milvus takes up to 64 MB
_PAGE = 1000  # rows of one answer
_QUERIES, _ANSWERS = 20, 50_000  # queries of one request, and hits of one answer: bound the time of a call
_METRICS = {"cosine": "COSINE", "euclidean": "L2", "dot": "IP"}
_LEAST_WIDTH = 2  # of vectors in Milvus


class Row(NamedTuple):
    """An item as Milvus keeps it; ``payload`` and ``vector`` are None where nobody asked for them."""

    key: str
    seq: int
    payload: Payload | None = None
    vector: Float32 | None = None

    @property
    def id(self) -> Id:
        """The id of the item."""
        return id_of(self.key)


class Ranked(NamedTuple):
    """A hit of Milvus: the row, and Milvus's score."""

    row: Row
    score: float


class ItemTable:
    """Rows of items: key, seq, payload and vector, and the code if the collection is searched by codes."""

    def __init__(self, milvus: Milvus, name: str, n_features: int, metric: str | None) -> None:
        self.milvus, self.name, self.n_features, self.metric = milvus, name, n_features, metric
        self._width = max(n_features, _LEAST_WIDTH)

    @property
    def field(self) -> str:
        """The field that is searched."""
        return "code" if self.metric is None else "vector"

    def create(self) -> None:
        """Make the collection of Milvus in place of one that an interrupted call has left."""
        from pymilvus import DataType

        if self.name in self.milvus.names():
            self._require_fields()
            self.drop()
        schema, indexes = self.milvus.new_schema(), self.milvus.new_index_params()
        schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=MAX_KEY)
        schema.add_field("seq", DataType.INT64)
        schema.add_field("payload", DataType.JSON)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=self._width)
        indexes.add_index("vector", index_type="FLAT", metric_type=_METRICS[self.metric or "euclidean"])
        if self.metric is None:
            # All weights are equal, so algorithms that skip documents by their largest weight skip none.
            params = {"inverted_index_algo": "TAAT_NAIVE"}
            schema.add_field("code", DataType.SPARSE_FLOAT_VECTOR)
            indexes.add_index("code", index_type="SPARSE_INVERTED_INDEX", metric_type="IP", params=params)
        self.milvus.create(self.name, schema, indexes, self.milvus.consistency)

    def open(self) -> None:
        """Compare the fields with what they should be, and load the rows."""
        if self.name not in self.milvus.names():
            raise FormatError(
                f"{self.milvus.uri}: expected the collection {self.name!r} in Milvus, found none: "
                "somebody has removed it, copy the items anew"
            )
        self._require_fields()
        self.milvus.call("load_collection", self.name)

    def _require_fields(self) -> None:
        described = self.milvus.call("describe_collection", self.name)
        expected = ["id", "payload", "seq", "vector"]
        found = {field["name"] for field in described["fields"]}
        if sorted(found - {"code"}) != expected:
            raise FormatError(
                f"{self.milvus.uri}: expected the collection {self.name!r} of Milvus to have the fields "
                f"{', '.join(expected)}, found {', '.join(sorted(found))}: choose another name"
            )

    def drop(self) -> None:
        """Remove the collection of Milvus, if it is there."""
        if self.name in self.milvus.names():
            self.milvus.call("drop_collection", self.name)

    def upsert(
        self, rows: Sequence[tuple[Id, int, Payload]], vectors: Float32, codes: list[SparseVector] | None
    ) -> None:
        """Write rows of ids, seqs and payloads, in parts: each part is written completely or not at all."""
        require_small(payload for _, _, payload in rows)
        wide = self.widened(vectors)
        size = 4 * self._width + (8 * len(codes[0]) if codes else 0) + 200
        step = max(1, min(_PART_ROWS, _PART_BYTES // (size + _largest(rows))))
        for start in range(0, len(rows), step):
            part = range(start, min(start + step, len(rows)))
            self.milvus.call("upsert", self.name, [self._written(rows[i], wide[i], codes, i) for i in part])

    def _written(
        self, row: tuple[Id, int, Payload], vector: Float32, codes: list[SparseVector] | None, i: int
    ) -> dict[str, Any]:
        item_id, seq, payload = row
        values = {"id": key_of(item_id), "seq": seq, "payload": payload, "vector": vector}
        return values if codes is None else values | {"code": codes[i]}

    def widened(self, vectors: Float32) -> Float32:
        """Vectors with as many columns as Milvus wants; zeros change no score."""
        wide = np.zeros((len(vectors), self._width), np.float32)
        wide[:, : self.n_features] = vectors
        return wide

    def delete(self, keys: Sequence[str]) -> None:
        """Delete rows."""
        for start in range(0, len(keys), _PAGE):
            self.milvus.call("delete", self.name, filter=among(keys[start : start + _PAGE]))

    def count(self) -> int:
        """The number of rows."""
        return int(self.milvus.read("query", self.name, filter="", output_fields=["count(*)"])[0]["count(*)"])

    def get(self, keys: Sequence[str], *fields: str) -> dict[str, Row]:
        """The rows with these keys, as far as there are any, with ``payload`` and ``vector`` on request."""
        found: dict[str, Row] = {}
        for start in range(0, len(keys), _PAGE):
            part = among(keys[start : start + _PAGE])
            answer = self.milvus.read("query", self.name, filter=part, output_fields=["id", "seq", *fields])
            found |= {values["id"]: self._row(values) for values in answer}
        return found

    def scan(self, expression: str, *fields: str) -> Iterator[Row]:
        """Yield all rows that an expression selects, in any order."""
        pages = self.milvus.pages(
            self.name, filter=expression, batch_size=_PAGE, output_fields=["id", "seq", *fields]
        )
        for page in pages:
            yield from map(self._row, page)

    def search(self, queries: Sequence[Any], limit: int, expression: str, *fields: str) -> list[list[Ranked]]:
        """The hits of queries among the rows that an expression selects, best first, up to ``limit``."""
        found: list[list[Ranked]] = []
        step = max(1, min(_QUERIES, _ANSWERS // limit))
        for start in range(0, len(queries), step):
            answers = self.milvus.read(
                "search",
                self.name,
                data=queries[start : start + step],
                anns_field=self.field,
                limit=limit,
                filter=expression,
                output_fields=["seq", *fields],
            )
            found += [[self._ranked(hit) for hit in answer] for answer in answers]
        return found

    def _ranked(self, hit: Any) -> Ranked:
        score = float(hit["distance"])
        return Ranked(
            self._row({"id": hit["id"], **hit["entity"]}), -score if self.metric == "euclidean" else score
        )

    def _row(self, values: Any) -> Row:
        vector, payload = values.get("vector"), values.get("payload")
        if vector is not None:
            vector = np.array(vector[: self.n_features], np.float32)
        return Row(values["id"], int(values["seq"]), payload, vector)


def require_small(payloads: Any) -> None:
    """Raise for a payload that Milvus would refuse."""
    for payload in payloads:
        n_bytes = len(json.dumps(payload, ensure_ascii=False).encode())
        if n_bytes > _MAX_PAYLOAD:
            raise ValueError(
                f"expected payloads of at most {_MAX_PAYLOAD:,} bytes as JSON, as Milvus has them, got "
                f"{n_bytes:,}: keep large texts elsewhere"
            )


def _largest(rows: Sequence[tuple[Id, int, Payload]]) -> int:
    return max((len(json.dumps(payload)) for _, _, payload in rows), default=0)
