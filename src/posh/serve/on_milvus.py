"""The collections of a Milvus, to be served."""

from __future__ import annotations

from typing import Any

from posh.collection.base import BaseCollection
from posh.engines.milvus import Milvus, MilvusCollection
from posh.engines.milvus.opening import drop_collection, list_collections
from posh.serve.registry import CollectionSource

__all__ = ["MilvusSource"]


class MilvusSource(CollectionSource):
    """Collections on Milvus, by their names; those that this package has not made are not served."""

    def __init__(self, milvus: Milvus) -> None:
        self._milvus = milvus

    def names(self) -> list[str]:
        """The names of all collections."""
        return list_collections(self._milvus)

    def open(self, name: str) -> BaseCollection:
        """Open a collection."""
        return MilvusCollection.open(self._milvus, name)

    def create(self, name: str, metadata: dict[str, Any], options: dict[str, Any]) -> BaseCollection:
        """Make a new collection, and open it."""
        return MilvusCollection.create(self._milvus, name, metadata=metadata, **options)

    def drop(self, name: str) -> None:
        """Delete a closed collection for ever."""
        drop_collection(self._milvus, name)

    def disk_bytes(self, name: str) -> int | None:
        """None: Milvus does not tell."""
        return None

    def backup(self, collection: BaseCollection, name: str) -> None:
        """Refused: Milvus has backups of its own."""
        raise ValueError(
            "expected a service over a folder for a backup, got one over Milvus: "
            "copy the collection to a folder with 'posh copy', or back up Milvus itself"
        )
