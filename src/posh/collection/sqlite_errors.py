"""What the errors of SQLite mean for a collection, and what its user can do about them."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from posh.errors import FormatError, StorageError

__all__ = ["CLOSED", "WRONG_CONTENT", "DamageError", "is_undone", "translate_sqlite_errors"]

CLOSED = "expected an open collection, got a closed one: open it again with posh.Collection(path)"

WRONG_CONTENT = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What reading raises if somebody has put content into a database that no collection writes."""

_REMEDIES = {
    sqlite3.SQLITE_FULL: "free some space on the disk and try again",
    sqlite3.SQLITE_IOERR: "free some space on the disk, or mend it, and try again",
    sqlite3.SQLITE_READONLY: "make the folder and its files writable and try again",
    sqlite3.SQLITE_PERM: "make the folder and its files writable and try again",
    sqlite3.SQLITE_CANTOPEN: "make the folder and its files writable and try again",
    sqlite3.SQLITE_BUSY: "close the other program that has this database open and try again",
    sqlite3.SQLITE_LOCKED: "close the other program that has this database open and try again",
}


class DamageError(Exception):
    """The database holds what nobody wrote; :func:`translate_sqlite_errors` makes a FormatError of it."""


@contextlib.contextmanager
def translate_sqlite_errors(path: Path) -> Iterator[None]:
    """Turn the errors of SQLite into ours, which say what is wrong and what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translated(error, path) from error
    except (DamageError, UnicodeDecodeError, OverflowError) as error:
        # Names in a damaged schema may not be UTF-8, and numbers in a payload too large for the fields.
        raise _damaged(error, path) from error


def _translated(error: sqlite3.Error, path: Path) -> Exception:
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


def is_undone(error: Exception) -> bool:
    """Whether a commit that failed with this error has certainly written nothing.

    After these two errors the last page of the transaction is not in the log, so the transaction does not
    count. After other errors, above all a failed sync, the page may be in the log.
    """
    code = getattr(error, "sqlite_errorcode", None)
    return code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE)
