"""The SQLite database of a collection: its tables, connections, transactions and errors.

One connection writes, under the lock of the collection. Readers borrow other connections. Each reader has a
transaction, which sees one version of the database and never waits. A commit returns when the disk has the
data.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from posh._durable import rewrite_in_place, sync_folder
from posh.collection import tables
from posh.collection.filters import list_fields
from posh.collection.tables import WRONG_CONTENT, Connection, DamageError
from posh.errors import FormatError, StorageError
from posh.index.codes.options import CodeOptions
from posh.index.nearest.options import NearestOptions

__all__ = [
    "APPLICATION",
    "BEFORE",
    "CLOSED",
    "NEW",
    "TABLES",
    "VERSION",
    "WITHOUT_TEXT",
    "Connection",
    "Database",
    "OpenedFile",
    "connect",
    "create_database",
    "is_undone",
    "limit_time",
    "translate_sqlite_errors",
    "upgrade",
]

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


@contextlib.contextmanager
def translate_sqlite_errors(path: Path) -> Iterator[None]:
    """Convert errors of SQLite to errors of posh, which state the problem and a remedy."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translate(error, path) from error
    except (DamageError, UnicodeDecodeError, OverflowError) as error:
        # Names in a damaged schema may not be UTF-8, and numbers in a payload too large for the fields.
        raise _make_damage_error(error, path) from error


def _translate(error: sqlite3.Error, path: Path) -> Exception:
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
            f"{path}: could not be written or read ({error}). Earlier writes are safe and this call "
            f"changed nothing: {_REMEDIES[primary]}"
        )
    return _make_damage_error(error, path)


def _make_damage_error(error: Exception, path: Path) -> FormatError:
    return FormatError(f"{path}: the database is damaged ({error}): restore the folder from a copy")


def is_undone(error: Exception) -> bool:
    """Whether a commit that failed with this error has certainly written nothing.

    After these two errors the last page of the transaction is not in the log, so the transaction does not
    count. After other errors, above all a failed sync, the page may be in the log.
    """
    code = getattr(error, "sqlite_errorcode", None)
    return code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE)


logger = logging.getLogger(__name__)

# Only a collection with a text index has the newest version: earlier releases, which would not keep the text
# in step with the items, refuse it, and can read all others.
VERSION, WITHOUT_TEXT = 5, 4
APPLICATION = 0x504F5348  # "POSH", in the header of the file

BEFORE = (  # statements before the first table is made
    "PRAGMA encoding = 'UTF-8'",
    "PRAGMA page_size = 8192",
    "PRAGMA auto_vacuum = INCREMENTAL",
)
# The column ``knowledge`` holds the trained state of the index; the format keeps the old word.
_GENERATIONS = "CREATE TABLE generations (number INTEGER PRIMARY KEY, hasher BLOB, knowledge BLOB)"
_OLD = "old_generations"
TABLES = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value, sum INTEGER) WITHOUT ROWID",
    "CREATE TABLE items (seq INTEGER PRIMARY KEY AUTOINCREMENT, id NOT NULL, payload TEXT NOT NULL,"
    " vector BLOB NOT NULL, sum INTEGER)",
    "CREATE UNIQUE INDEX ids ON items (id)",
    "CREATE TABLE fields (name TEXT NOT NULL, type INTEGER NOT NULL, value NOT NULL, seq INTEGER NOT NULL,"
    " PRIMARY KEY (name, type, value, seq)) WITHOUT ROWID",
    _GENERATIONS,
    "CREATE TABLE codes (generation INTEGER NOT NULL, seq INTEGER NOT NULL, code BLOB NOT NULL, sum INTEGER,"
    " PRIMARY KEY (generation, seq)) WITHOUT ROWID",
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {WITHOUT_TEXT}",
)


def upgrade(connection: sqlite3.Connection) -> None:
    """Bring a database of an earlier version to this one, in one transaction.

    If the upgrade is interrupted, the database still has its old version, and the next opening upgrades it.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    logger.info("a database of version %d is upgraded", version)
    connection.create_function("item_sum", 4, tables.checksum_item)
    connection.create_function("code_sum", 3, tables.checksum_code)
    connection.create_function("meta_sum", 2, tables.checksum_meta)
    connection.execute("BEGIN IMMEDIATE")
    try:
        if version < 2:
            _add_checksums(connection)
        if version < 3:
            _add_fields(connection)
        _split_kinds(connection)
        connection.execute(f"PRAGMA user_version = {WITHOUT_TEXT}")
        connection.execute("COMMIT")
    except BaseException as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if isinstance(error, WRONG_CONTENT):
            raise DamageError(str(error)) from error
        raise


def _add_checksums(connection: sqlite3.Connection) -> None:
    """Upgrade to version 2: all rows have checksums.

    It would be faster to leave old rows without them, but then damage that removes one would go unnoticed.
    """
    for table in ("meta", "items", "codes"):
        connection.execute(f"ALTER TABLE {table} ADD COLUMN sum INTEGER")
    connection.execute("UPDATE items SET sum = item_sum(seq, id, payload, vector)")
    connection.execute("UPDATE codes SET sum = code_sum(generation, seq, code)")
    total = tables.add_checksums(0, sum(tables.checksum_id(*row) for row in connection.execute(_IDS)))
    connection.execute("INSERT INTO meta (key, value) VALUES ('ids_sum', ?)", (total,))
    connection.execute(f"INSERT INTO meta (key, value) VALUES ('last_seq', ({_LAST_SEQ}))")
    connection.execute("UPDATE meta SET sum = meta_sum(key, value)")


def _add_fields(connection: sqlite3.Connection) -> None:
    """Upgrade to version 3: values in lists and objects have rows of fields, too."""
    items = connection.execute("SELECT seq, payload FROM items NOT INDEXED")
    connection.executemany(
        "INSERT OR IGNORE INTO fields VALUES (?, ?, ?, ?)",
        ((*field, seq) for seq, text in items for field in list_fields(tables.load_payload(text))),
    )


def _split_kinds(connection: sqlite3.Connection) -> None:
    """Upgrade to version 4: an index is that of a metric, without codes and hasher, or that of a hasher.

    The first opening builds the index of a metric again.
    """
    connection.execute(f"ALTER TABLE generations RENAME TO {_OLD}")
    connection.execute(_GENERATIONS)
    connection.execute(f"INSERT INTO generations SELECT number, hasher, knowledge FROM {_OLD}")
    connection.execute(f"DROP TABLE {_OLD}")
    rows_of_meta = connection.execute("SELECT key, value, sum FROM meta")
    meta = {key: tables.verify_value(key, value, checksum) for key, value, checksum in rows_of_meta}
    options = {
        name: value for name, value in tables.load_payload(meta["options"]).items() if value is not None
    }
    if "metric" in options:
        if options.get("structure", "ivf") == "exact":
            options["n_lists"] = 1
        names = NearestOptions.names()
        connection.execute("DELETE FROM codes")
        connection.execute("DELETE FROM generations")
        connection.execute("UPDATE meta SET value = 0 WHERE key = 'generation'")
    else:
        names = CodeOptions.names()
    kept = json.dumps({name: value for name, value in options.items() if name in names})
    connection.execute("UPDATE meta SET value = ? WHERE key = 'options'", (kept,))
    connection.execute("UPDATE meta SET value = NULL WHERE key = 'snapshot'")
    connection.execute("UPDATE meta SET sum = meta_sum(key, value)")


_IDS = "SELECT seq, id FROM items NOT INDEXED"
_LAST_SEQ = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'items'"


logger = logging.getLogger(__name__)

_REOPEN = "repair the disk, close this collection, open it again, and look which items it has"
_NEEDED = "a reader needs the log, which may hold deleted items: close or refresh it, and compact again"
NEW = ".new"  # the name of a database ends so until it is complete
_IDLE_READERS = 8
_STEPS = 20_000  # steps of SQLite's machine between two looks at the clock, about a millisecond

_PRAGMAS = (
    "PRAGMA synchronous = FULL",
    "PRAGMA secure_delete = ON",  # zeros in place of deleted rows; see Database.rewrite for the rest
    "PRAGMA fullfsync = ON",  # macOS only: see sync_descriptor
    "PRAGMA checkpoint_fullfsync = ON",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA cell_size_check = ON",
    "PRAGMA cache_size = -16384",
    "PRAGMA journal_size_limit = 67108864",
)


class OpenedFile:
    """A file of an open collection, which must not be deleted, moved or replaced.

    Otherwise the open file would accept writes without an error, and lose them when it is closed. A file that
    does not exist at first is not watched.
    """

    def __init__(self, path: Path) -> None:
        self._path = str(path)  # stat is faster with a str, and every write calls it
        self._identity = _identify(self._path)

    def require_same(self, consequence: str) -> None:
        """Raise a :class:`StorageError` with the ``consequence`` if the path has another file now."""
        if self._identity is not None and _identify(self._path) != self._identity:
            raise StorageError(
                f"{self._path}: expected the file that was opened, but it was deleted, moved or replaced: "
                f"{consequence}. Put the folder back as it was, or close this collection and open another one"
            )


def _identify(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return found.st_dev, found.st_ino


class Database:
    """The open file of a collection."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._closed = False
        log = path.with_name(f"{path.name}-wal")
        self._in_doubt = not _write_log_again(log)  # whether the log may have pages that are not on the disk
        with translate_sqlite_errors(path):
            self._writer = connect(path, "rw")
            try:
                self._check()
                self._settle()
            except BaseException:
                self._writer.close()
                raise
        self._file, self._log = OpenedFile(path), OpenedFile(log)

    def _check(self) -> None:
        if self._pragma("application_id") != APPLICATION:
            raise FormatError(f"{self.path}: expected a POSH collection, found another database")
        version = self._pragma("user_version")
        if not 1 <= version <= VERSION:
            raise FormatError(
                f"{self.path}: expected format version {VERSION} or older, found {version}: "
                "upgrade posh-ann to read it"
            )
        if self._writer.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
            raise StorageError(
                f"{self.path}: expected a disk that allows a write-ahead log, got another: move it to one"
            )
        if version < WITHOUT_TEXT:
            upgrade(self._writer)

    def _settle(self) -> None:
        """Move the log of a killed process to the database."""
        with contextlib.suppress(sqlite3.Error):  # full disk or read-only folder: reading still works
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _pragma(self, name: str) -> int:
        (value,) = self._writer.execute(f"PRAGMA {name}").fetchone()
        return int(value)

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """Yield a transaction of the only writer, durable at the end; an exception rolls it back."""
        self._require_writable("this call has changed nothing")
        with translate_sqlite_errors(self.path):
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
            except BaseException:
                self._roll_back()
                raise
            self._commit()
        self._log.require_same("this write and later ones may be lost")

    def _require_writable(self, consequence: str) -> None:
        self.require_same_file(consequence)
        if self._in_doubt:
            raise StorageError(f"{self.path}: an earlier write failed on its way to the disk: {_REOPEN}")

    def require_same_file(self, consequence: str) -> None:
        """Raise if the database was deleted, moved or replaced since it was opened."""
        self._file.require_same(consequence)

    def _commit(self) -> None:
        try:
            self._writer.execute("COMMIT")
        except (sqlite3.Error, MemoryError) as error:
            undone = self._writer.in_transaction or is_undone(error)
            self._roll_back()
            if undone:
                raise
            # The transaction may be in the log. SQLite continues as if it were absent, and the next write
            # would overwrite it. The system may also have dropped the unwritten pages, and report the next
            # sync as a success. So further writes are refused. Reopening reads the log and writes it.
            raise self._mark_in_doubt(error) from error
        except BaseException:
            self._roll_back()
            raise

    def _mark_in_doubt(self, error: Exception) -> StorageError:
        """Refuse further writes, and return the error for the caller."""
        self._in_doubt = True
        return StorageError(
            f"{self.path}: the disk failed at the end of a write ({error}). Earlier writes are safe; "
            f"this write may or may not be there after reopening: {_REOPEN}"
        )

    def _roll_back(self) -> None:
        if self._writer.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._writer.execute("ROLLBACK")

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yield a read transaction; all its statements see the same version of the database."""
        with translate_sqlite_errors(self.path):
            connection = self._borrow()
            try:
                connection.execute("BEGIN")
                yield connection
            finally:
                self._return_connection(connection)

    def rewrite(self, *, even_if_full: bool) -> None:
        """Rewrite all pages, without free ones (if there are any) and without traces of deleted rows.

        ``secure_delete`` leaves traces: when SQLite moves rows from one page to another, copies stay in the
        unused part of the old page, which later deletions do not reach.
        """
        self._require_writable("the database is not rewritten")
        with translate_sqlite_errors(self.path):
            if not (even_if_full or self._pragma("freelist_count")):
                return
            try:
                self._writer.execute("VACUUM")
            except sqlite3.OperationalError as error:
                code = getattr(error, "sqlite_errorcode", 0)
                if code & 0xFF == sqlite3.SQLITE_IOERR and not is_undone(error):
                    raise self._mark_in_doubt(error) from error
                raise

    def empty_log(self) -> None:
        """Move the content of the log to the database; keep it, with a warning, if a reader needs it."""
        with translate_sqlite_errors(self.path):
            self._writer.execute("PRAGMA busy_timeout = 0")  # do not wait for readers
            try:
                is_busy, _, _ = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                self._writer.execute("PRAGMA busy_timeout = 5000")
        if is_busy:
            logger.warning("%s: %s", self.path, _NEEDED)

    def close(self) -> None:
        """Close all connections; an active reader closes its own when it has finished."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in [*idle, self._writer]:
            connection.close()

    def _borrow(self) -> Connection:
        with self._lock:
            if self._closed:
                raise sqlite3.ProgrammingError("the database is closed")
            if self._idle:
                return self._idle.pop()
        connection = connect(self.path, "rw", "PRAGMA query_only = ON")
        try:
            self.require_same_file("this call has read nothing")  # or it would read another collection
        except BaseException:
            connection.close()
            raise
        return connection

    def _return_connection(self, connection: Connection) -> None:
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


def _write_log_again(log: Path) -> bool:
    """Write the log that a killed process has left to the disk; return False if the disk fails.

    If the last sync of that process failed, the end of the log may be only in the memory of the system, and
    SQLite's sync of it would succeed without writing it. Then the database would have pages from the end of
    the log while the disk has its beginning, from which a power failure would restore older pages.
    """
    try:
        rewrite_in_place(log)
    except OSError as error:  # there is no log, or SQLite reports why it cannot be written
        return error.errno in (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS)
    return True


def create_database(path: Path, first: Callable[[Connection], None]) -> None:
    """Create a database with empty tables and call ``first`` on it, completely or not at all."""
    new = path.with_name(f"{path.name}{NEW}")
    with translate_sqlite_errors(path):
        connection = connect(new, "rwc")
        try:
            for statement in (*BEFORE, "BEGIN IMMEDIATE", *TABLES):
                connection.execute(statement)
            first(connection)
            connection.execute("COMMIT")
        finally:
            connection.close()
    try:
        new.replace(path)
        for folder in (path.parent, path.parent.resolve().parent):
            sync_folder(folder)
    except OSError as error:
        raise StorageError(
            f"{path}: expected a disk that takes a new file, got {error.strerror}: "
            "free some space on it, or mend it, and try again"
        ) from error


def connect(path: Path, mode: str, *more: str) -> Connection:
    """Return a new connection; ``mode`` is that of SQLite, ``more`` are further pragmas."""
    connection = sqlite3.connect(
        f"{path.resolve().as_uri()}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False
    )
    try:
        for statement in (*_PRAGMAS, *more):
            connection.execute(statement)
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def limit_time(connection: Connection, seconds: float | None) -> Iterator[None]:
    """Raise a ``TimeoutError`` if the statements of a connection take longer than ``seconds``."""
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
