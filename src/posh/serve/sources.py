"""Sources of collections: a folder, a Milvus, or the shards of ``posh batch build``."""

from __future__ import annotations

import contextlib
import errno
import logging
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from posh._durable import make_folder, sync_folder
from posh._wire import is_name, validate_name
from posh.collection.base import BaseCollection
from posh.collection.embedded import Collection
from posh.collection.opening import DATABASE, FolderLock
from posh.errors import CollectionExistsError, StorageError

__all__ = ["CollectionSource", "Folder", "MilvusSource", "ShardSource", "prepare_folder"]

if TYPE_CHECKING:
    from posh.engines.milvus import Milvus

_DROPPED, _NEW = ".dropped-", ".new-"
_ATTEMPTS = 3  # to create a collection: each process that starts may interfere once
_log = logging.getLogger("posh.serve")


class CollectionSource(ABC):
    """Opens, creates and drops collections by name. The registry has validated each name."""

    opens_in_background: ClassVar[bool] = False
    """Whether a service may answer before all collections are open, because opening may rebuild an index."""

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of all collections."""

    @abstractmethod
    def open(self, name: str) -> BaseCollection:
        """Open a collection."""

    @abstractmethod
    def create(self, name: str, metadata: dict[str, Any], options: dict[str, Any]) -> BaseCollection:
        """Create a collection, with options of :class:`posh.Index`, and open it."""

    @abstractmethod
    def drop(self, name: str) -> None:
        """Delete a closed collection permanently."""

    @abstractmethod
    def disk_bytes(self, name: str) -> int | None:
        """Return the bytes of an open collection on disk; None if the engine does not know."""

    @abstractmethod
    def backup(self, collection: BaseCollection, name: str) -> None:
        """Copy an open collection to the folder of backups, under a new name."""


def prepare_folder(path: Path) -> None:
    """Create a folder for collections if it does not exist; its parent must exist."""
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "No such file or directory: create it first", str(path.parent))
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "expected a folder, got a file: name another", str(path))
    make_folder(path)


class Folder(CollectionSource):
    """Embedded collections: each sub-folder is one. The folder is created if it does not exist.

    Other processes may open, create and drop collections of the same folder. ``filter_seconds`` and
    ``payload_bytes`` are set on each collection. ``backups`` is the folder for copies of collections.
    """

    opens_in_background = True

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
            prepare_folder(backups)
        prepare_folder(path)
        sync_folder(path)  # a partly removed collection must not reappear under its old name
        for leftover in path.glob(f"{_DROPPED}*"):  # of a process that stopped while it dropped
            shutil.rmtree(leftover, ignore_errors=True)
        for leftover in path.glob(f"{_NEW}*"):  # of a process that stopped while it created
            with contextlib.suppress(StorageError), _lock_folder(leftover):  # or that still runs
                shutil.rmtree(leftover, ignore_errors=True)

    def names(self) -> list[str]:
        """Return the names of sub-folders that are collections."""
        folders = [entry.parent.name for entry in self._path.glob(f"*/{DATABASE}")]
        names = [name for name in folders if not name.startswith((_DROPPED, _NEW))]
        for name in names:
            if not is_name(name):
                _log.warning("%s is not served: it is not a name for a collection, rename it", name)
        return [name for name in names if is_name(name)]

    def open(self, name: str) -> BaseCollection:
        """Open a collection."""
        collection = Collection(self._path / name)
        collection.filter_seconds = self._filter_seconds
        collection.payload_bytes = self._payload_bytes
        return collection

    def create(self, name: str, metadata: dict[str, Any], options: dict[str, Any]) -> BaseCollection:
        """Create a collection, and open it.

        It is created under a unique name, and renamed when it is complete. The rename fails if another
        process has concurrently created a collection of this name. So this call removes only its own files.
        """
        path = self._path / name
        taken = CollectionExistsError(
            f"expected a new name, got {name!r}, which another folder has: choose another"
        )
        if path.exists():
            raise taken
        for attempt in range(_ATTEMPTS):
            try:
                self._create_at(path, metadata, options)
                break
            except (StorageError, FileNotFoundError):  # a starting process removed it as a leftover
                if attempt + 1 == _ATTEMPTS:
                    raise
            except OSError as error:
                is_taken = error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
                raise taken if is_taken else error from None
        sync_folder(self._path)
        return self.open(name)

    def _create_at(self, path: Path, metadata: dict[str, Any], options: dict[str, Any]) -> None:
        new = self._path / f"{_NEW}{uuid.uuid4().hex}"
        try:
            Collection(new, metadata=metadata, **options).close()
            with _lock_folder(new):  # other processes must not remove it as a leftover
                new.rename(path)
        finally:
            shutil.rmtree(new, ignore_errors=True)

    def drop(self, name: str) -> None:
        """Delete a closed collection durably; its name is free immediately."""
        dropped = self._path / f"{_DROPPED}{uuid.uuid4().hex}"
        (self._path / name).rename(dropped)
        sync_folder(self._path)
        shutil.rmtree(dropped, ignore_errors=True)  # the next start removes leftovers

    def disk_bytes(self, name: str) -> int:
        """Return the bytes of all files of a collection."""
        total = 0
        for file in (self._path / name).rglob("*"):
            with contextlib.suppress(OSError):  # a saved index may be replaced concurrently
                total += file.stat().st_size
        return total

    def backup(self, collection: BaseCollection, name: str) -> None:
        """Copy a collection to a sub-folder of the folder for backups."""
        if self._backups is None:
            raise ValueError(
                "expected a service with a folder for backups, got one without: "
                "start it with 'posh serve FOLDER --backups OTHER'"
            )
        assert isinstance(collection, Collection)  # as :meth:`open` returns
        try:
            collection.backup(self._backups / name)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
            raise CollectionExistsError(
                f"expected a new name for the backup, got {name!r}, which is taken: choose another"
            ) from None


@contextlib.contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Keep other processes from opening or removing a folder; raise a StorageError if one has it open."""
    lock = FolderLock(folder)
    try:
        yield
    finally:
        lock.release()


class MilvusSource(CollectionSource):
    """Collections on Milvus that this package has created, by their names."""

    def __init__(self, milvus: Milvus) -> None:
        self._milvus = milvus

    def names(self) -> list[str]:
        """Return the names of all collections."""
        from posh.engines.milvus.opening import list_collections

        return list_collections(self._milvus)

    def open(self, name: str) -> BaseCollection:
        """Open a collection."""
        from posh.engines.milvus import MilvusCollection

        return MilvusCollection.open(self._milvus, name)

    def create(self, name: str, metadata: dict[str, Any], options: dict[str, Any]) -> BaseCollection:
        """Create a collection, and open it."""
        from posh.engines.milvus import MilvusCollection

        return MilvusCollection.create(self._milvus, name, metadata=metadata, **options)

    def drop(self, name: str) -> None:
        """Delete a closed collection permanently."""
        from posh.engines.milvus.opening import drop_collection

        drop_collection(self._milvus, name)

    def disk_bytes(self, name: str) -> None:
        """Return None: Milvus does not report it."""

    def backup(self, collection: BaseCollection, name: str) -> NoReturn:
        """Raise a ValueError: Milvus has its own backups."""
        raise ValueError(
            "expected a service over a folder for a backup, got one over Milvus: "
            "copy the collection to a folder with 'posh copy', or back up Milvus itself"
        )


class ShardSource(CollectionSource):
    """One collection with the name of its folder; no others can be created."""

    def __init__(self, folder: Path, n_processes: int | None) -> None:
        self._folder, self._n_processes = folder.absolute(), n_processes
        try:
            validate_name(self._folder.name)
        except ValueError as error:
            raise ValueError(f"{error}, the folder of the shards: rename it") from None

    def names(self) -> list[str]:
        """Return the name of the folder."""
        return [self._folder.name]

    def open(self, name: str) -> BaseCollection:
        """Start the processes of the shards, and wait for them."""
        from posh.batch.serving import ShardedCollection

        collection = ShardedCollection(self._folder, n_processes=self._n_processes)
        try:
            return collection.wait()
        except BaseException:
            collection.close()
            raise

    def create(self, name: str, metadata: dict[str, Any], options: dict[str, Any]) -> NoReturn:
        """Raise a ValueError: shards are the only collection."""
        raise ValueError(
            f"expected no new collections next to shards, got {name!r}: serve another folder for them"
        )

    def drop(self, name: str) -> NoReturn:
        """Raise a ValueError: shards cannot be dropped."""
        raise ValueError(
            f"expected shards to stay, got a request to drop {name!r}: remove the folder by hand"
        )

    def disk_bytes(self, name: str) -> int:
        """Return the bytes of all files of the shards."""
        return sum(file.stat().st_size for file in self._folder.rglob("*") if file.is_file())

    def backup(self, collection: BaseCollection, name: str) -> NoReturn:
        """Raise a ValueError: shards do not change."""
        raise ValueError("expected a collection that changes for a backup, got shards: copy their folder")
