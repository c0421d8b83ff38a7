"""The shards of ``posh batch build`` as the only collection of a service."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

from posh._wire import validate_name
from posh.batch.serving import ShardedCollection
from posh.collection.base import BaseCollection
from posh.serve.registry import CollectionSource

__all__ = ["ShardSource"]


class ShardSource(CollectionSource):
    """One collection, which is called like its folder; no others can be made."""

    def __init__(self, folder: Path, n_processes: int | None) -> None:
        self._folder, self._n_processes = folder.absolute(), n_processes
        try:
            validate_name(self._folder.name)
        except ValueError as error:
            raise ValueError(f"{error}, the folder of the shards: rename it") from None

    def names(self) -> list[str]:
        """The name of the folder."""
        return [self._folder.name]

    def open(self, name: str) -> BaseCollection:
        """Start the processes of the shards, and wait for them."""
        collection = ShardedCollection(self._folder, n_processes=self._n_processes)
        try:
            return collection.wait()
        except BaseException:
            collection.close()
            raise

    def create(self, name: str, metadata: dict[str, Any], options: dict[str, Any]) -> NoReturn:
        """Refuse."""
        raise ValueError(
            f"expected no new collections beside shards, got {name!r}: serve another folder for them"
        )

    def drop(self, name: str) -> NoReturn:
        """Refuse."""
        raise ValueError(
            f"expected shards to stay, got a request to drop {name!r}: remove the folder by hand"
        )

    def disk_bytes(self, name: str) -> int:
        """Bytes of all files of the shards."""
        return sum(file.stat().st_size for file in self._folder.rglob("*") if file.is_file())

    def backup(self, collection: BaseCollection, name: str) -> NoReturn:
        """Refuse."""
        raise ValueError("expected a collection that changes for a backup, got shards: copy their folder")
