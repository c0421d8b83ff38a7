"""The SQLite file of a collection: connections, transactions, and what its errors mean.

One connection writes, under the collection's lock; readers borrow others, each within a transaction and so
at one moment of the file, and wait for nobody. A commit returns when the disk has it.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from posh.collection import schema
from posh.collection.place import Place
from posh.errors import FormatError, StorageError
from posh.store import sync_folder

__all__ = ["CLOSED", "NEW", "Connection", "DamageError", "Database", "create", "deadline", "understood"]

Connection = sqlite3.Connection

NEW = ".new"  # the end of the name of a database in the making
_IDLE_READERS = 8
_STEPS = 20_000  # of SQLite's machine, about a millisecond, after which a deadline is looked at

_ALWAYS = (
    "PRAGMA synchronous = FULL",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA cell_size_check = ON",
    "PRAGMA cache_size = -16384",
    "PRAGMA journal_size_limit = 67108864",
)


class DamageError(Exception):
    """What is stored cannot be what was written; :func:`understood` makes a FormatError of it."""


class Database:
    """The open file of a collection."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._closed = False
        with understood(path):
            self._writer = _connected(path, "rw")
            try:
                self._check()
                self._settle()
            except BaseException:
                self._writer.close()
                raise
        self._place, self._log = Place(path), Place(path.with_name(f"{path.name}-wal"))
        self._in_doubt = False

    def _check(self) -> None:
        if self._pragma("application_id") != schema.APPLICATION:
            raise FormatError(f"{self.path}: expected a POSH collection, found another database")
        version = self._pragma("user_version")
        if not 1 <= version <= schema.VERSION:
            raise FormatError(
                f"{self.path}: expected format version {schema.VERSION} or older, found {version}: "
                "upgrade posh-ann to read it"
            )
        if self._writer.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
            raise StorageError(
                f"{self.path}: expected a disk that allows a write-ahead log, got another: use one"
            )
        if version < schema.VERSION:
            schema.upgrade(self._writer)

    def _settle(self) -> None:
        """Write to the database what a process that was killed has left in the log.

        If its last sync failed, the log may be in the memory of the system only, and would count as synced.
        """
        with contextlib.suppress(sqlite3.Error):  # a full disk, a read-only folder: reading goes on
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _pragma(self, name: str) -> int:
        (value,) = self._writer.execute(f"PRAGMA {name}").fetchone()
        return int(value)

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction of the only writer: durable at the end, undone by an exception."""
        self.require_place("this call has changed nothing")
        if self._in_doubt:
            raise StorageError(f"{self.path}: an earlier write failed on its way to the disk: {_REOPEN}")
        with understood(self.path):
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
            except BaseException:
                self._roll_back()
                raise
            self._commit()
        self._log.require("this write, and what is written after it, may be lost")

    def require_place(self, consequence: str) -> None:
        """Raise if the files were deleted, moved or replaced while they are open."""
        self._place.require(consequence)

    def _commit(self) -> None:
        try:
            self._writer.execute("COMMIT")
        except (sqlite3.Error, MemoryError) as error:
            undone = self._writer.in_transaction or getattr(error, "sqlite_errorcode", None) in _INCOMPLETE
            self._roll_back()
            if undone:
                raise
            self._in_doubt = True
            raise StorageError(
                f"{self.path}: the disk failed at the end of a write ({error}). What was written before is "
                f"safe; this write may or may not be there after reopening: {_REOPEN}"
            ) from error
        except BaseException:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        if self._writer.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._writer.execute("ROLLBACK")

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that reads: all its statements see one moment."""
        with understood(self.path):
            connection = self._borrowed()
            try:
                connection.execute("BEGIN")
                yield connection
            finally:
                self._give_back(connection)

    def shrink(self, pages: int) -> bool:
        """Give up to ``pages`` free pages back to the disk; whether there may be more."""
        with understood(self.path):
            self._writer.executescript(f"PRAGMA incremental_vacuum({pages})")
            if self._pragma("freelist_count"):
                return True
            self._writer.execute("PRAGMA busy_timeout = 0")  # whoever reads just now is not waited for
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._writer.execute("PRAGMA busy_timeout = 5000")
            return False

    def close(self) -> None:
        """Close all connections; one that reads just now is closed by its reader."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in [*idle, self._writer]:
            connection.close()

    def _borrowed(self) -> Connection:
        with self._lock:
            if self._closed:
                raise sqlite3.ProgrammingError("the database is closed")
            if self._idle:
                return self._idle.pop()
        connection = _connected(self.path, "rw", "PRAGMA query_only = ON")
        try:
            self.require_place("this call has read nothing")  # and not another collection
        except BaseException:
            connection.close()
            raise
        return connection

    def _give_back(self, connection: Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            connection.close()
            return
        with self._lock:
            keep = not self._closed and len(self._idle) < _IDLE_READERS
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.close()


def create(path: Path, first: Callable[[Connection], None]) -> None:
    """Make a database with empty tables, and ``first`` done: all of it or none."""
    new = path.with_name(f"{path.name}{NEW}")
    with understood(path):
        connection = _connected(new, "rwc")
        try:
            for statement in (*schema.BEFORE, "BEGIN IMMEDIATE", *schema.TABLES):
                connection.execute(statement)
            first(connection)
            connection.execute("COMMIT")
        finally:
            connection.close()
    new.replace(path)
    for folder in (path.parent, path.parent.resolve().parent):
        sync_folder(folder)


def _connected(path: Path, mode: str, *more: str) -> Connection:
    connection = sqlite3.connect(
        f"{path.resolve().as_uri()}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False
    )
    try:
        for statement in (*_ALWAYS, *more):
            connection.execute(statement)
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def deadline(connection: Connection, seconds: float | None) -> Iterator[None]:
    """Interrupt what a connection does for longer than some seconds: a ``TimeoutError``."""
    if seconds is None:
        yield
        return
    end = time.monotonic() + seconds
    connection.set_progress_handler(lambda: time.monotonic() > end, _STEPS)
    try:
        yield
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_INTERRUPT:
            raise
        raise TimeoutError(f"expected an answer within {seconds} seconds, got none: ask for less") from error
    finally:
        connection.set_progress_handler(None, 0)


@contextlib.contextmanager
def understood(path: Path) -> Iterator[None]:
    """Turn the errors of SQLite into ours, which say what is the matter and what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise _meaning(error, path) from error
    except (DamageError, UnicodeDecodeError) as error:  # the latter of names in a damaged schema
        raise _damaged(error, path) from error


def _meaning(error: sqlite3.Error, path: Path) -> Exception:
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    if code is None and isinstance(error, sqlite3.ProgrammingError):
        return ValueError(CLOSED)
    if primary == sqlite3.SQLITE_TOOBIG:
        return ValueError(
            f"expected items of less than a gigabyte, got more ({error}): make payloads smaller"
        )
    if primary in _REMEDIES:
        return StorageError(
            f"{path}: could not be written or read ({error}). What was written before is safe and this call "
            f"changed nothing: {_REMEDIES[primary]}"
        )
    return _damaged(error, path)


def _damaged(error: Exception, path: Path) -> FormatError:
    return FormatError(f"{path}: the database is damaged ({error}): restore the folder from a copy")


# After these errors of a commit, the last page of the transaction is not in the log, and so nothing has
# happened. After others, a failed sync above all, it may be there: SQLite goes on as if it were not, and the
# next write would take its place, unless the process is killed before. And the system may have dropped what
# it could not write, and call the next sync a success. So nothing more is written: opening again reads the
# log and writes all of it anew.
_INCOMPLETE = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE)
_REOPEN = "mend the disk, close this collection, open it again, and look which items it has"

CLOSED = "expected an open collection, got a closed one: open it again with posh.Collection(path)"

_REMEDIES = {
    sqlite3.SQLITE_FULL: "free some space on the disk and try again",
    sqlite3.SQLITE_IOERR: "free some space on the disk, or mend it, and try again",
    sqlite3.SQLITE_READONLY: "make the folder and its files writable and try again",
    sqlite3.SQLITE_PERM: "make the folder and its files writable and try again",
    sqlite3.SQLITE_CANTOPEN: "make the folder and its files writable and try again",
    sqlite3.SQLITE_BUSY: "close the other program that has this database open and try again",
    sqlite3.SQLITE_LOCKED: "close the other program that has this database open and try again",
}
