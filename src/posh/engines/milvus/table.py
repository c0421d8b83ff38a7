"""The tables of a collection in Milvus: its settings and its items.

The settings (options, metadata, hasher) are rows of a small table of their own. One row holds everything but
the hasher and is written last, so a change takes effect completely or not at all. The hasher is too large for
one row. Its rows carry the number of their generation, and one of them the checksum.

Items are rows of another table, which belongs to one generation of codes. Primary keys of Milvus are strings,
in which all characters of an id except letters, digits and ``_.-~`` are written as ``%`` and two hexadecimal
digits. A key therefore contains no quotes, backslashes or control characters to escape in expressions.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import numpy as np

from posh.collection.base import Id, Payload
from posh.engines.milvus.connection import Milvus
from posh.errors import FormatError
from posh.hashers.base import Hasher
from posh.preprocess import Float32

__all__ = ["MAX_HITS", "SUFFIX", "ItemTable", "NewRow", "Ranked", "Row", "Settings", "SettingsTable"]
__all__ += ["SparseVector", "build_key_filter", "decode_key", "encode_key", "format_table_name"]
__all__ += ["measure_payloads"]

SparseVector = dict[int, float]

# Settings
SUFFIX = "__settings"
_FORMAT = 1
_PIECE_SIZE = 60_000  # characters of a row; Milvus stores up to 65,535 bytes
_HASHER_INFO = "hasher-{}-about"
_SETTINGS_BATCH = 50  # rows of one request
_MAX_METADATA = 40_000  # bytes
_SETTINGS_FIELDS = {"name", "value", "unused"}

# Items
MAX_HITS = 16_384  # that Milvus returns for one query
_MAX_KEY = 8192  # bytes; an id of 512 characters takes up to 6,146
_MAX_PAYLOAD = 65_536  # bytes of JSON
_BATCH_ROWS, _BATCH_BYTES = 2000, 8 << 20  # of one write request; Milvus accepts up to 64 MB
_ROW_OVERHEAD = 200  # bytes of a row in a request in addition to vector, code and payload
_PAGE = 1000  # rows of one response
_MAX_QUERIES, _MAX_RESPONSE_HITS = 20, 50_000  # of one search request: they bound its time
_METRICS = {"cosine": "COSINE", "euclidean": "L2", "dot": "IP"}
_MIN_WIDTH = 2  # of vectors in Milvus
_ITEM_FIELDS = ["id", "payload", "seq", "vector"]


# Settings ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings:
    """Options, metadata and hasher of a collection; ``generation`` is 0 until it has a table of items."""

    options: dict[str, Any] = field(default_factory=dict)
    metadata: Payload = field(default_factory=dict)
    n_features: int | None = None
    generation: int = 0
    hasher: Hasher[Any] | None = None


class SettingsTable:
    """The settings of one collection in Milvus."""

    def __init__(self, milvus: Milvus, name: str) -> None:
        self._milvus, self._collection = milvus, name
        self._name = f"{name}{SUFFIX}"

    def exists(self) -> bool:
        """Return whether there is a table of settings; raise FormatError if the name has another use."""
        names = self._milvus.list_names()
        if self._name not in names:
            if self._collection in names:
                raise self._build_name_error("a collection of this name")
            return False
        fields = {field["name"] for field in self._milvus.call("describe_collection", self._name)["fields"]}
        if fields != _SETTINGS_FIELDS:
            raise self._build_name_error(f"the fields {', '.join(sorted(fields))}")
        return True

    def create(self) -> None:
        """Create the table; the collection exists once settings are written."""
        from pymilvus import DataType

        schema, indexes = self._milvus.create_schema(), self._milvus.create_index_params()
        schema.add_field("name", DataType.VARCHAR, is_primary=True, max_length=64)
        schema.add_field("value", DataType.VARCHAR, max_length=65_535)
        schema.add_field("unused", DataType.FLOAT_VECTOR, dim=2)  # Milvus requires a vector field
        indexes.add_index("unused", index_type="FLAT", metric_type="L2")
        self._milvus.create_collection(self._name, schema, indexes, "Strong")

    def write(self, settings: Settings, *, same_hasher: bool = False) -> None:
        """Replace the settings; ``same_hasher=True`` skips the rows of a hasher that is already stored."""
        rows = [] if same_hasher else _serialize_hasher(settings)
        main = _serialize_main(settings)
        for start in range(0, len(rows), _SETTINGS_BATCH):
            self._upsert(rows[start : start + _SETTINGS_BATCH])
        self._upsert([main])

    def _upsert(self, rows: Sequence[tuple[str, str]]) -> None:
        values = [{"name": name, "value": value, "unused": [0.0, 0.0]} for name, value in rows]
        self._milvus.call("upsert", self._name, values)

    def read(self) -> Settings | None:
        """Return the settings, or None if the creation of the collection was interrupted."""
        self._milvus.call("load_collection", self._name)
        text = self._read_values(["main"]).get("main")
        if text is None:
            return None
        main = json.loads(text)
        if main.get("format") != _FORMAT:
            raise FormatError(
                f"{self._milvus.uri}: expected the collection {self._collection!r} in format {_FORMAT}, "
                f"found {main.get('format')!r}: use the version that wrote it, or a newer one"
            )
        hasher = self._read_hasher(main["generation"]) if main["has_hasher"] else None
        return Settings(main["options"], main["metadata"], main["n_features"], main["generation"], hasher)

    def drop(self) -> None:
        """Remove the settings: without them there is no collection."""
        self._milvus.call("drop_collection", self._name)

    def delete_hasher(self, generation: int) -> None:
        """Delete the hasher of an earlier generation."""
        self._milvus.call("delete", self._name, filter=f'name like "hasher-{generation}-%"')

    def _read_hasher(self, generation: int) -> Hasher[Any]:
        info_name = _HASHER_INFO.format(generation)
        info = json.loads(self._read_values([info_name]).get(info_name, "{}"))
        names = [f"hasher-{generation}-{i}" for i in range(info.get("n_parts", 0))]
        values = self._read_values(names)
        content = base64.b64decode("".join(values.get(name, "") for name in names))
        if hashlib.sha256(content).hexdigest() != info.get("sha256"):
            raise FormatError(
                f"{self._milvus.uri}: the hasher of the collection {self._collection!r} is damaged: copy the "
                "collection again"
            )
        return Hasher.from_bytes(content, "the hasher in Milvus")

    def _read_values(self, names: list[str]) -> dict[str, str]:
        values: dict[str, str] = {}
        for start in range(0, len(names), _SETTINGS_BATCH):
            quoted = ", ".join(f'"{name}"' for name in names[start : start + _SETTINGS_BATCH])
            rows = self._milvus.call(
                "query",
                self._name,
                filter=f"name in [{quoted}]",
                output_fields=["name", "value"],
                consistency_level="Strong",
            )
            values |= {row["name"]: row["value"] for row in rows}
        return values

    def _build_name_error(self, found: str) -> FormatError:
        return FormatError(
            f"{self._milvus.uri}: expected {self._collection!r} to be a new name or a collection created by "
            f"this package, found {found} in Milvus: choose another name"
        )


def _serialize_hasher(settings: Settings) -> list[tuple[str, str]]:
    if settings.hasher is None:
        return []
    content = settings.hasher.to_bytes()
    text = base64.b64encode(content).decode()
    pieces = [text[start : start + _PIECE_SIZE] for start in range(0, len(text), _PIECE_SIZE)]
    rows = [(f"hasher-{settings.generation}-{i}", piece) for i, piece in enumerate(pieces)]
    info = {"n_parts": len(pieces), "sha256": hashlib.sha256(content).hexdigest()}
    return [*rows, (_HASHER_INFO.format(settings.generation), json.dumps(info))]


def _serialize_main(settings: Settings) -> tuple[str, str]:
    n_bytes = len(json.dumps(settings.metadata).encode())
    if n_bytes > _MAX_METADATA:
        raise ValueError(
            f"expected metadata of at most {_MAX_METADATA:,} bytes as JSON for Milvus, got {n_bytes:,}: "
            "shorten it"
        )
    main = {
        "format": _FORMAT,
        "options": settings.options,
        "metadata": settings.metadata,
        "n_features": settings.n_features,
        "generation": settings.generation,
        "has_hasher": settings.hasher is not None,
    }
    return "main", json.dumps(main)


# Keys --------------------------------------------------------------------------------------------------


def encode_key(item_id: Id) -> str:
    """Return the primary key of an id.

    >>> encode_key(-5), encode_key("-5"), encode_key("it's")
    ('i:-5', 's:-5', 's:it%27s')
    """
    return f"i:{item_id}" if isinstance(item_id, int) else f"s:{quote(item_id, safe='')}"


def decode_key(key: str) -> Id:
    """Return the id of a primary key.

    >>> decode_key("i:-5"), decode_key("s:it%27s")
    (-5, "it's")
    """
    return int(key[2:]) if key.startswith("i:") else unquote(key[2:])


def build_key_filter(keys: Iterable[str]) -> str:
    """Return the expression that selects the rows with these keys.

    >>> print(build_key_filter(["i:1", "s:a"]))
    id in ["i:1", "s:a"]
    """
    return "id in [" + ", ".join(f'"{key}"' for key in keys) + "]"


# Items -------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """A stored item; ``payload`` and ``vector`` are None unless they were requested."""

    key: str
    seq: int
    payload: Payload | None = None
    vector: Float32 | None = None

    @property
    def id(self) -> Id:
        """The id of the item."""
        return decode_key(self.key)


class Ranked(NamedTuple):
    """A hit of Milvus: the row and the score that Milvus computed."""

    row: Row
    score: float


class NewRow(NamedTuple):
    """An item to write: ``payload_size`` is the number of bytes of its payload as JSON."""

    id: Id
    seq: int
    payload: Payload
    payload_size: int


def format_table_name(name: str, generation: int) -> str:
    """Return the name of the table of items of one generation."""
    return f"{name}__items_{generation}"


class ItemTable:
    """Rows of items: key, sequence number, payload, vector, and the code if codes are searched."""

    def __init__(self, milvus: Milvus, name: str, n_features: int, metric: str | None) -> None:
        self.milvus, self.name, self.n_features, self.metric = milvus, name, n_features, metric
        self._width = max(n_features, _MIN_WIDTH)

    @property
    def search_field(self) -> str:
        """The name of the field that is searched."""
        return "code" if self.metric is None else "vector"

    def create(self) -> None:
        """Create the table, replacing one that an interrupted call has left."""
        from pymilvus import DataType

        if self.name in self.milvus.list_names():
            self._require_fields()
            self.drop()
        schema, indexes = self.milvus.create_schema(), self.milvus.create_index_params()
        schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=_MAX_KEY)
        schema.add_field("seq", DataType.INT64)
        schema.add_field("payload", DataType.JSON)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=self._width)
        indexes.add_index("vector", index_type="FLAT", metric_type=_METRICS[self.metric or "euclidean"])
        if self.metric is None:
            # All weights are equal, so algorithms that skip documents by their largest weight skip none.
            params = {"inverted_index_algo": "TAAT_NAIVE"}
            schema.add_field("code", DataType.SPARSE_FLOAT_VECTOR)
            indexes.add_index("code", index_type="SPARSE_INVERTED_INDEX", metric_type="IP", params=params)
        self.milvus.create_collection(self.name, schema, indexes, self.milvus.consistency)

    def open(self) -> None:
        """Validate the fields of the table and load its rows."""
        if self.name not in self.milvus.list_names():
            raise FormatError(
                f"{self.milvus.uri}: expected the collection {self.name!r} in Milvus, found none: "
                "another client has removed it, copy the items again"
            )
        self._require_fields()
        self.milvus.call("load_collection", self.name)

    def _require_fields(self) -> None:
        fields = {field["name"] for field in self.milvus.call("describe_collection", self.name)["fields"]}
        if sorted(fields - {"code"}) != _ITEM_FIELDS:
            raise FormatError(
                f"{self.milvus.uri}: expected the collection {self.name!r} of Milvus to have the fields "
                f"{', '.join(_ITEM_FIELDS)}, found {', '.join(sorted(fields))}: choose another name"
            )

    def drop(self) -> None:
        """Remove the table if it exists."""
        if self.name in self.milvus.list_names():
            self.milvus.call("drop_collection", self.name)

    def upsert(self, rows: Sequence[NewRow], vectors: Float32, codes: list[SparseVector] | None) -> None:
        """Write rows in batches, each of which is written completely or not at all."""
        padded = self.pad_vectors(vectors)
        size = 4 * self._width + (8 * len(codes[0]) if codes else 0) + _ROW_OVERHEAD
        largest = max((row.payload_size for row in rows), default=0)
        step = max(1, min(_BATCH_ROWS, _BATCH_BYTES // (size + largest)))
        for start in range(0, len(rows), step):
            batch = range(start, min(start + step, len(rows)))
            values = [_build_values(rows[i], padded[i], codes[i] if codes else None) for i in batch]
            self.milvus.call("upsert", self.name, values)

    def pad_vectors(self, vectors: Float32) -> Float32:
        """Pad vectors to the width that Milvus requires with zeros, which change no score."""
        padded = np.zeros((len(vectors), self._width), np.float32)
        padded[:, : self.n_features] = vectors
        return padded

    def delete(self, keys: Sequence[str]) -> None:
        """Delete rows by key."""
        for start in range(0, len(keys), _PAGE):
            self.milvus.call("delete", self.name, filter=build_key_filter(keys[start : start + _PAGE]))

    def count(self) -> int:
        """Return the number of rows."""
        return int(self.milvus.read("query", self.name, filter="", output_fields=["count(*)"])[0]["count(*)"])

    def get(self, keys: Sequence[str], *fields: str) -> dict[str, Row]:
        """Return the existing rows of these keys; ``fields`` are "payload" and "vector"."""
        rows: dict[str, Row] = {}
        for start in range(0, len(keys), _PAGE):
            selected = build_key_filter(keys[start : start + _PAGE])
            page = self.milvus.read("query", self.name, filter=selected, output_fields=["id", "seq", *fields])
            rows |= {values["id"]: self._parse_row(values) for values in page}
        return rows

    def scan(self, expression: str, *fields: str) -> Iterator[Row]:
        """Yield all rows that an expression selects, in any order."""
        pages = self.milvus.iterate_pages(
            self.name, filter=expression, batch_size=_PAGE, output_fields=["id", "seq", *fields]
        )
        for page in pages:
            yield from map(self._parse_row, page)

    def search(self, queries: Sequence[Any], limit: int, expression: str, *fields: str) -> list[list[Ranked]]:
        """Return up to ``limit`` hits for each query among the selected rows, best first."""
        results: list[list[Ranked]] = []
        step = max(1, min(_MAX_QUERIES, _MAX_RESPONSE_HITS // limit))
        for start in range(0, len(queries), step):
            response = self.milvus.read(
                "search",
                self.name,
                data=queries[start : start + step],
                anns_field=self.search_field,
                limit=limit,
                filter=expression,
                output_fields=["seq", *fields],
            )
            results += [[self._parse_hit(hit) for hit in hits] for hits in response]
        return results

    def _parse_hit(self, hit: Any) -> Ranked:
        row, score = self._parse_row({"id": hit["id"], **hit["entity"]}), float(hit["distance"])
        return Ranked(row, -score if self.metric == "euclidean" else score)

    def _parse_row(self, values: Any) -> Row:
        vector, payload = values.get("vector"), values.get("payload")
        if vector is not None:
            vector = np.array(vector[: self.n_features], np.float32)
        return Row(values["id"], int(values["seq"]), payload, vector)


def _build_values(row: NewRow, vector: Float32, code: SparseVector | None) -> dict[str, Any]:
    values = {"id": encode_key(row.id), "seq": row.seq, "payload": row.payload, "vector": vector}
    return values if code is None else values | {"code": code}


def measure_payloads(payloads: Iterable[Payload]) -> list[int]:
    """Return the number of bytes of each payload as JSON; raise ValueError if Milvus would refuse one.

    >>> measure_payloads([{"name": "été"}, {}])
    [17, 2]
    """
    sizes = [len(json.dumps(payload, ensure_ascii=False).encode()) for payload in payloads]
    largest = max(sizes, default=0)
    if largest > _MAX_PAYLOAD:
        raise ValueError(
            f"expected payloads of at most {_MAX_PAYLOAD:,} bytes as JSON, the limit of Milvus, got "
            f"{largest:,}: store large texts elsewhere"
        )
    return sizes
