"""A folder of collections: each of its sub-folders is one."""

from __future__ import annotations

import contextlib
import errno
import logging
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from posh._durable import make_folder, sync_folder
from posh._wire import is_name
from posh.collection.base import BaseCollection
from posh.collection.embedded import Collection
from posh.collection.opening import DATABASE, FolderLock
from posh.errors import CollectionExistsError, StorageError
from posh.serve.registry import CollectionSource

__all__ = ["Folder", "prepare"]

_DROPPED, _NEW = ".dropped-", ".new-"
_ATTEMPTS = 3  # to make a collection: each process that starts may be in the way once
_log = logging.getLogger("posh.serve")


def prepare(path: Path) -> None:
    """Make a folder for collections if it is not there; its parent must be."""
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "No such file or directory: create it first", str(path.parent))
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "expected a folder, got a file: name another", str(path))
    make_folder(path)


class Folder(CollectionSource):
    """Embedded collections, by the names of their folders; the folder is made if it is not there.

    Other processes may have collections of the same folder open, make some or drop some. ``filter_seconds``
    and ``payload_bytes`` are those of each collection. ``backups`` is the folder for copies of collections.
    """

    def __init__(
        self,
        path: Path,
        filter_seconds: float | None = None,
        payload_bytes: int | None = None,
        backups: Path | None = None,
    ) -> None:
        self._path, self._filter_seconds, self._payload_bytes = path, filter_seconds, payload_bytes
        self._backups = backups
        if backups is not None:
            prepare(backups)
        prepare(path)
        sync_folder(path)  # a collection that is half removed must not come back under its old name
        for leftover in path.glob(f"{_DROPPED}*"):  # of a process that was stopped while it dropped
            shutil.rmtree(leftover, ignore_errors=True)
        for leftover in path.glob(f"{_NEW}*"):  # of a process that was stopped while it created
            with contextlib.suppress(StorageError), _locked(leftover):  # or it still runs
                shutil.rmtree(leftover, ignore_errors=True)

    def names(self) -> list[str]:
        """The sub-folders that are collections."""
        found = [entry.parent.name for entry in self._path.glob(f"*/{DATABASE}")]
        own = [name for name in found if not name.startswith((_DROPPED, _NEW))]
        for name in own:
            if not is_name(name):
                _log.warning("%s is not served: it is no name for a collection, rename it", name)
        return [name for name in own if is_name(name)]

    def open(self, name: str) -> BaseCollection:
        """Open a collection."""
        collection = Collection(self._path / name)
        collection.filter_seconds = self._filter_seconds
        collection.payload_bytes = self._payload_bytes
        return collection

    def create(self, name: str, metadata: dict[str, Any], options: dict[str, Any]) -> BaseCollection:
        """Make a new collection, and open it.

        It is made under a name that nobody else uses, and renamed when it is complete. The rename fails if
        somebody else has put a collection there meanwhile. So this call removes only what it made itself.
        """
        path = self._path / name
        taken = CollectionExistsError(
            f"expected a new name, got {name!r}, which another folder has: choose another"
        )
        if path.exists():
            raise taken
        for attempt in range(_ATTEMPTS):
            try:
                self._make(path, metadata, options)
                break
            except (StorageError, FileNotFoundError):  # one that starts took it for a leftover
                if attempt + 1 == _ATTEMPTS:
                    raise
            except OSError as error:
                is_taken = error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
                raise taken if is_taken else error from None
        sync_folder(self._path)
        return self.open(name)

    def _make(self, path: Path, metadata: dict[str, Any], options: dict[str, Any]) -> None:
        new = self._path / f"{_NEW}{uuid.uuid4().hex}"
        try:
            Collection(new, metadata=metadata, **options).close()
            with _locked(new):  # keeps those away who remove leftovers
                new.rename(path)
        finally:
            shutil.rmtree(new, ignore_errors=True)

    def drop(self, name: str) -> None:
        """Delete a closed collection, also in the face of a power failure; its name is free at once."""
        gone = self._path / f"{_DROPPED}{uuid.uuid4().hex}"
        (self._path / name).rename(gone)
        sync_folder(self._path)
        shutil.rmtree(gone, ignore_errors=True)  # what is left is removed by the next start

    def disk_bytes(self, name: str) -> int:
        """Bytes of all files of a collection."""
        total = 0
        for file in (self._path / name).rglob("*"):
            with contextlib.suppress(OSError):  # a saved index may be replaced meanwhile
                total += file.stat().st_size
        return total

    def backup(self, collection: BaseCollection, name: str) -> None:
        """Copy a collection to a sub-folder of the folder for backups."""
        if self._backups is None:
            raise ValueError(
                "expected a service with a folder for backups, got one without: "
                "start it with 'posh serve FOLDER --backups OTHER'"
            )
        assert isinstance(collection, Collection)  # :meth:`open` makes no others
        try:
            collection.backup(self._backups / name)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
            raise CollectionExistsError(
                f"expected a new name for the backup, got {name!r}, which is taken: choose another"
            ) from None


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep others from opening or removing a folder meanwhile; one in use is a StorageError."""
    lock = FolderLock(folder)
    try:
        yield
    finally:
        lock.release()
