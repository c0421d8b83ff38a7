"""A collection that is opened read-only, while another process may write to it.

One transaction stays open and reads the state that the collection had when it was opened. SQLite keeps this
state in its log, whatever others write. So nothing is locked, and nothing is written.

SQLite needs two small files beside the database for this. Where it cannot make them, in a read-only folder or
on a full disk, the database is read without them. Then its lock keeps writers away.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from posh._durable import LockFile
from posh.collection import database, indexing, opening, tables
from posh.collection.database import Connection, connect, translate_sqlite_errors
from posh.collection.opening import DATABASE, OpenOptions, lock_out_writers
from posh.collection.snapshot import CollectionSnapshot
from posh.collection.store import Store
from posh.errors import FormatError, StorageError
from posh.hashers.base import Hasher

__all__ = ["PinnedDatabase", "ReadOnlyStore"]


class PinnedDatabase:
    """One state of a database. All threads share its connection, which SQLite allows in its usual build."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._n_readers = 0
        self._closed = False
        if sqlite3.threadsafety != 3:
            raise StorageError(
                "expected an SQLite whose connections threads can share, got another: open it for writing"
            )
        self._writers_lock: LockFile | None = None
        with translate_sqlite_errors(path):
            try:
                self._open("ro")
            except sqlite3.OperationalError as error:
                self._open_without_log(error)

    def _open(self, mode: str) -> None:
        self._connection = connect(self.path, mode)
        try:
            self._check()
        except BaseException:
            self._connection.close()
            raise

    def _open_without_log(self, error: sqlite3.OperationalError) -> None:
        """Open a database that has all of its content in its own file; raise ``error`` if it has not."""
        try:
            self._writers_lock = lock_out_writers(self.path.parent)
        except OSError:
            raise error from None
        try:
            log = self.path.with_name(f"{self.path.name}-wal")
            if log.exists() and log.stat().st_size:
                raise error
            self._open("ro&immutable=1")
        except BaseException:
            self._release()
            raise

    def _release(self) -> None:
        if self._writers_lock is not None:
            self._writers_lock.close()

    def _check(self) -> None:
        self._connection.execute("BEGIN")
        (application,) = self._connection.execute("PRAGMA application_id").fetchone()
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if (application, version) != (database.APPLICATION, database.VERSION):
            raise FormatError(
                f"{self.path}: expected a POSH collection of format version {database.VERSION}, found "
                "another: open it once for writing if it is older, upgrade posh-ann if it is newer"
            )

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Give the connection; its transaction stays open."""
        with self._lock:
            if self._closed:
                raise sqlite3.ProgrammingError("the database is closed")
            self._n_readers += 1
        try:
            with translate_sqlite_errors(self.path):
                yield self._connection
        finally:
            with self._lock:
                self._n_readers -= 1
                if self._closed and not self._n_readers:
                    self._shut()

    def close(self) -> None:
        """Close the connection, when those who read are done."""
        with self._lock:
            if not self._closed and not self._n_readers:
                self._shut()
            self._closed = True

    def _shut(self) -> None:
        self._connection.close()
        self._release()


class ReadOnlyStore(Store):
    """A folder that is open read-only: searches see one state until :meth:`refresh`."""

    is_read_only = True

    def __init__(self, path: Path, options: OpenOptions) -> None:
        self._begin(path)
        self.database: Any = PinnedDatabase(path / DATABASE)
        try:
            self.snapshot, _ = opening.read_snapshot(path, self.database)
            metadata = tables.load_payload(opening.read_metadata(self.database))
            options.require_agreement(path, self.snapshot, metadata)
            if indexing.lacks_index(self.snapshot):
                raise FormatError(
                    f"{path}: expected an index of the metric, found none, as older versions left it: "
                    "open it once for writing"
                )
        except BaseException:
            self.database.close()
            raise

    def refresh(self) -> None:
        """See the newest state from now on; those who read already go on with the old one."""
        with self._long_work:
            self.require_open()
            newest = PinnedDatabase(self.path / DATABASE)
            try:
                with newest.reading() as connection:
                    version = tables.get_meta(connection, "version")
                snapshot = self.snapshot
                if version != snapshot.version:
                    numbering = snapshot.slot_table.numbering + 1
                    snapshot, _ = opening.read_snapshot(self.path, newest, numbering)
            except BaseException:
                newest.close()
                raise
            old, self.snapshot, self.database = self.database, snapshot, newest
            old.close()

    def _read_again_if_interrupted(self) -> None:
        """Nothing is written here: a state that does not fit is one in the middle of a refresh."""

    def write(
        self, step: Callable[[Connection, CollectionSnapshot], CollectionSnapshot], n_items: int | None = None
    ) -> NoReturn:
        """Refuse."""
        self._refuse()

    def writing(self) -> NoReturn:
        """Refuse."""
        self._refuse()

    def reindex(self, hasher: Hasher[Any] | None, options: Mapping[str, Any]) -> None:
        """Refuse."""
        self._refuse()

    def compact(self) -> None:
        """Refuse."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        self.require_open()
        raise StorageError(
            f"{self.path}: expected a collection that is open for writing, got one that is open read-only: "
            "open it without read_only, in one process at a time"
        )

    def close(self) -> None:
        """Close the database."""
        with self._long_work:
            self._closed = True
            self.database.close()
