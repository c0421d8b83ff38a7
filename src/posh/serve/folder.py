"""A folder of collections: each of its sub-folders is one."""

from __future__ import annotations

import contextlib
import logging
import shutil
import uuid
from pathlib import Path
from typing import Any

from posh.collection.base import BaseCollection
from posh.collection.embedded import Collection
from posh.collection.opening import DATABASE
from posh.errors import CollectionExistsError
from posh.serve import names
from posh.serve.shelf import Engine, Sizes

__all__ = ["Folder"]

_DROPPED = ".dropped-"
_log = logging.getLogger("posh.serve")


class Folder(Engine):
    """Embedded collections, by the names of their folders; the folder is made if it is not there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: dict[str, Collection] = {}
        path.mkdir(exist_ok=True)
        for leftover in path.glob(f"{_DROPPED}*"):  # of a process that was stopped while it dropped
            shutil.rmtree(leftover, ignore_errors=True)

    def names(self) -> list[str]:
        """The sub-folders that are collections."""
        found = [entry.parent.name for entry in self._path.glob(f"*/{DATABASE}")]
        for name in found:
            if not names.is_name(name):
                _log.warning("%s is not served: it is no name for a collection, rename it", name)
        return [name for name in found if names.is_name(name)]

    def open(self, name: str) -> BaseCollection:
        """Open a collection."""
        self._open[name] = Collection(self._path / name)
        return self._open[name]

    def create(self, name: str, metadata: dict[str, Any], options: dict[str, Any]) -> BaseCollection:
        """Make a new collection, and open it."""
        path = self._path / name
        if path.exists():
            raise CollectionExistsError(
                f"expected a new name, got {name!r}, which another folder has: choose another"
            )
        try:
            self._open[name] = Collection(path, metadata=metadata, **options)
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)  # nothing was there before
            raise
        return self._open[name]

    def drop(self, name: str) -> None:
        """Delete a closed collection; its name is free at once."""
        del self._open[name]
        gone = self._path / f"{_DROPPED}{uuid.uuid4().hex}"
        (self._path / name).rename(gone)
        shutil.rmtree(gone, ignore_errors=True)  # what is left is removed by the next start

    def index_options(self, name: str) -> dict[str, Any]:
        """How codes are searched."""
        return self._open[name].index_options

    def sizes(self, name: str) -> Sizes:
        """Bytes of the index in memory, and of all files."""
        disk = 0
        for file in (self._path / name).rglob("*"):
            with contextlib.suppress(OSError):  # a snapshot may be replaced meanwhile
                disk += file.stat().st_size
        return Sizes(self._open[name].memory_usage(), disk)
