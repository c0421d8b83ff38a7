"""What a collection on Milvus is: options, metadata and hasher, in a small collection of Milvus of its own.

One row holds all but the hasher, and is written last. So a change counts completely or not at all. The hasher
is too large for a row: its rows carry the number of the generation that it belongs to, and one of them the
checksum.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from posh.collection.types import Payload
from posh.errors import FormatError
from posh.hashers.base import Hasher
from posh.milvus.connection import Milvus

__all__ = ["SUFFIX", "Settings", "SettingsTable", "items_name"]

SUFFIX = "__settings"
_FORMAT = 1
_PART = 60_000  # characters of a row; Milvus has up to 65,535 bytes
_ABOUT = "hasher-{}-about"
_AT_ONCE = 50  # rows of one request
_MAX_METADATA = 40_000  # bytes
_FIELDS = {"name", "value", "unused"}


def items_name(name: str, generation: int) -> str:
    """The name of the collection of Milvus with the items of a generation."""
    return f"{name}__items_{generation}"


@dataclass(frozen=True)
class Settings:
    """What a collection is; ``generation`` is 0 until there is something to write."""

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
        """Whether there are settings, and not something else under this name."""
        names = self._milvus.names()
        if self._name not in names:
            if self._collection in names:
                raise self._foreign("a collection of this name")
            return False
        described = self._milvus.call("describe_collection", self._name)
        found = {one["name"] for one in described["fields"]}
        if found != _FIELDS:
            raise self._foreign(f"the fields {', '.join(sorted(found))}")
        return True

    def create(self) -> None:
        """Make the collection of Milvus; the collection exists when its settings are written."""
        from pymilvus import DataType

        schema, indexes = self._milvus.new_schema(), self._milvus.new_index_params()
        schema.add_field("name", DataType.VARCHAR, is_primary=True, max_length=64)
        schema.add_field("value", DataType.VARCHAR, max_length=65_535)
        schema.add_field("unused", DataType.FLOAT_VECTOR, dim=2)  # Milvus wants a vector in every collection
        indexes.add_index("unused", index_type="FLAT", metric_type="L2")
        self._milvus.create(self._name, schema, indexes, "Strong")

    def write(self, settings: Settings, *, same_hasher: bool = False) -> None:
        """Write the settings in place of others; with ``same_hasher``, the hasher is there already."""
        rows = _rows(settings)
        values = [{"name": name, "value": value, "unused": [0.0, 0.0]} for name, value in rows]
        parts = [] if same_hasher else values[:-1]
        for start in range(0, len(parts), _AT_ONCE):
            self._milvus.call("upsert", self._name, parts[start : start + _AT_ONCE])
        self._milvus.call("upsert", self._name, values[-1:])

    def read(self) -> Settings | None:
        """The settings; None if a call that made a collection was interrupted before it wrote them."""
        self._milvus.call("load_collection", self._name)
        text = self._values(["main"]).get("main")
        if text is None:
            return None
        main = json.loads(text)
        if main.get("format") != _FORMAT:
            raise FormatError(
                f"{self._milvus.uri}: expected the collection {self._collection!r} in format {_FORMAT}, "
                f"found {main.get('format')!r}: use the version that wrote it, or a newer one"
            )
        hasher = self._hasher(main["generation"]) if main["has_hasher"] else None
        return Settings(main["options"], main["metadata"], main["n_features"], main["generation"], hasher)

    def drop(self) -> None:
        """Remove the settings: without them there is no collection."""
        self._milvus.call("drop_collection", self._name)

    def forget_hasher(self, generation: int) -> None:
        """Remove the hasher of a generation that does not count any more."""
        self._milvus.call("delete", self._name, filter=f'name like "hasher-{generation}-%"')

    def _hasher(self, generation: int) -> Hasher[Any]:
        about = json.loads(self._values([_ABOUT.format(generation)]).get(_ABOUT.format(generation), "{}"))
        names = [f"hasher-{generation}-{i}" for i in range(about.get("n_parts", 0))]
        values = self._values(names)
        content = base64.b64decode("".join(values.get(name, "") for name in names))
        if hashlib.sha256(content).hexdigest() != about.get("sha256"):
            raise FormatError(
                f"{self._milvus.uri}: the hasher of the collection {self._collection!r} is damaged: copy the "
                "collection anew"
            )
        return Hasher.from_bytes(content, "the hasher in Milvus")

    def _values(self, names: list[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for start in range(0, len(names), _AT_ONCE):
            listed = ", ".join(f'"{name}"' for name in names[start : start + _AT_ONCE])
            rows = self._milvus.call(
                "query",
                self._name,
                filter=f"name in [{listed}]",
                output_fields=["name", "value"],
                consistency_level="Strong",
            )
            found |= {row["name"]: row["value"] for row in rows}
        return found

    def _foreign(self, found: str) -> FormatError:
        return FormatError(
            f"{self._milvus.uri}: expected {self._collection!r} to be a new name or a collection that this "
            f"package has made, found {found} in Milvus: choose another name"
        )


def _rows(settings: Settings) -> list[tuple[str, str]]:
    """The rows of settings; the last one makes them count."""
    parts = []
    if settings.hasher is not None:
        content = settings.hasher.to_bytes()
        text = base64.b64encode(content).decode()
        pieces = [text[start : start + _PART] for start in range(0, len(text), _PART)]
        parts = [(f"hasher-{settings.generation}-{i}", piece) for i, piece in enumerate(pieces)]
        about = {"n_parts": len(pieces), "sha256": hashlib.sha256(content).hexdigest()}
        parts.append((_ABOUT.format(settings.generation), json.dumps(about)))
    main = {
        "format": _FORMAT,
        "options": settings.options,
        "metadata": settings.metadata,
        "n_features": settings.n_features,
        "generation": settings.generation,
        "has_hasher": settings.hasher is not None,
    }
    n_bytes = len(json.dumps(settings.metadata).encode())
    if n_bytes > _MAX_METADATA:
        raise ValueError(
            f"expected metadata of at most {_MAX_METADATA:,} bytes as JSON for Milvus, got {n_bytes:,}: "
            "shorten it"
        )
    return [*parts, ("main", json.dumps(main))]
