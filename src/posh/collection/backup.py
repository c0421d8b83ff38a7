"""A copy of a collection, made while others write."""

from __future__ import annotations

import contextlib
import errno
import shutil
import sqlite3
import uuid
from pathlib import Path

from posh._files import sync_folder
from posh._system import sync_file
from posh.collection.database import Connection
from posh.collection.opening import DATABASE
from posh.collection.sqlite_errors import translate_sqlite_errors
from posh.errors import StorageError

__all__ = ["write_backup"]

_PAGES = 1024  # copied in one go: other threads work in between


def write_backup(connection: Connection, path: Path) -> None:
    """Copy the state that a transaction reads to a new folder, completely or not at all.

    The copy is made beside ``path`` under another name, synced, and renamed. It has no saved index: opening
    it builds the index from the database. Errors of the disk are a :class:`StorageError`.
    """
    try:
        problem = _problem_of(path) or _write(connection, path)
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(
            error.errno,
            f"expected a disk that takes a backup, got {error.strerror}: free some space, make the folder "
            "writable, or choose another",
            str(path),
        ) from error
    if problem is not None:
        raise problem


def _problem_of(path: Path) -> OSError | None:
    """Return the error for a path that exists or whose parent does not, if it is one."""
    if path.is_symlink() or path.exists():
        return FileExistsError(
            errno.EEXIST, "expected a path that does not exist for the backup: choose another", str(path)
        )
    if not path.parent.is_dir():
        return FileNotFoundError(errno.ENOENT, "no such folder, create it first", str(path.parent))
    return None


def _write(connection: Connection, path: Path) -> OSError | None:
    """Write the backup, unless another process makes something at ``path``: return the error for that."""
    new = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        new.mkdir()
        with translate_sqlite_errors(new / DATABASE):
            _copy(connection, new / DATABASE)
        sync_folder(new)
        problem = _problem_of(path)
        if problem is not None:
            return problem
        new.rename(path)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    sync_folder(path.parent)
    return None


def _copy(connection: Connection, file: Path) -> None:
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as target:
        connection.backup(target, pages=_PAGES)
    sync_file(file)
