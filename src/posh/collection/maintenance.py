"""Backups of a collection, concurrent with writes; restoring; the checks of ``posh info --check``."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sqlite3
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from posh._durable import lock_descriptor, sync_file, sync_folder, unlock_descriptor
from posh._runtime import track_progress
from posh.collection import database, indexing, opening, tables, text_index
from posh.collection.database import Connection, translate_sqlite_errors
from posh.collection.filters import list_fields
from posh.collection.opening import DATABASE
from posh.collection.tables import WRONG_CONTENT, DamageError
from posh.errors import FormatError, StorageError
from posh.index.codes.snapshot import CodeSnapshot
from posh.index.open import load_snapshot

__all__ = ["Findings", "check_collection", "restore_backup", "write_backup"]

_PAGES = 1024  # copied in one step: other threads work in between


def write_backup(connection: Connection, path: Path) -> None:
    """Copy the state that a transaction reads to a new folder, completely or not at all.

    The copy is made next to ``path`` under another name, synced, and renamed. It has no saved index: opening
    it builds the index from the database. Errors of the disk are a :class:`StorageError`.
    """
    try:
        problem = _find_problem(path) or _write_copy(connection, path)
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(
            error.errno,
            f"expected a disk with room for a backup, got {error.strerror}: free some space, make the folder "
            "writable, or choose another",
            str(path),
        ) from error
    if problem is not None:
        raise problem


def _find_problem(path: Path) -> OSError | None:
    """Return the error for a path that exists or whose parent does not; None if there is none."""
    if path.is_symlink() or path.exists():
        return FileExistsError(
            errno.EEXIST, "expected a path that does not exist for the backup: choose another", str(path)
        )
    if not path.parent.is_dir():
        return FileNotFoundError(errno.ENOENT, "no such folder, create it first", str(path.parent))
    return None


def _write_copy(connection: Connection, path: Path) -> OSError | None:
    """Write the backup; return the error if another process creates ``path`` first."""
    new = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        new.mkdir()
        with translate_sqlite_errors(new / DATABASE):
            _copy_database(connection, new / DATABASE)
        sync_folder(new)
        problem = _find_problem(path)
        if problem is not None:
            return problem
        new.rename(path)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    sync_folder(path.parent)
    return None


def _copy_database(connection: Connection, file: Path) -> None:
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as target:
        connection.backup(target, pages=_PAGES)
    sync_file(file)


def restore_backup(backup: Path, path: Path, *, replace: bool = False) -> None:
    """Check a backup and copy it to a new folder, completely or not at all; the backup stays.

    With ``replace`` it takes the place of a collection that no process has open for writing. After a crash
    the folder has either the old or the new items. Damage of the backup is a :class:`posh.FormatError`, and
    changes nothing.
    """
    if not (backup / DATABASE).exists():
        raise FileNotFoundError(errno.ENOENT, "expected the folder of a backup, found none", str(backup))
    problems = check_collection(backup).problems
    if problems:
        raise FormatError(
            f"{backup}: expected a backup without damage, found {len(problems)} problems, such as: "
            f"{problems[0]}"
        )
    with contextlib.closing(_connect_read_only(backup / DATABASE)) as connection:
        if replace and (path / DATABASE).exists():
            _replace_database(connection, path)
        else:
            write_backup(connection, path)


def _replace_database(connection: Connection, path: Path) -> None:
    """Copy the database of a connection over that of a folder; the commit point is a rename."""
    database_file = path / DATABASE
    new = path / f"{DATABASE}{database.NEW}"
    folder_lock = opening.FolderLock(path)
    try:
        with translate_sqlite_errors(new):
            _copy_database(connection, new)
        with (
            contextlib.suppress(sqlite3.Error),  # the old database may be damaged
            contextlib.closing(sqlite3.connect(database_file)) as old,
        ):
            old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        for suffix in ("-wal", "-shm"):  # the log of the old database does not belong to the new one
            database_file.with_name(f"{DATABASE}{suffix}").unlink(missing_ok=True)
        new.replace(database_file)
        sync_folder(path)
    finally:
        new.unlink(missing_ok=True)
        folder_lock.release()


_MOST = 20  # problems of one kind in a report


class Findings(NamedTuple):
    """The result of a check: counts by kind of object, and the problems, one sentence each."""

    checked: dict[str, int]
    problems: list[str]


def check_collection(path: Path) -> Findings:
    """Check the folder of a collection; raise :class:`posh.StorageError` if it is open."""
    found = Findings({}, [])
    with _lock_folder(path), contextlib.closing(_connect_read_only(path / DATABASE)) as connection:
        checks = (_check_structure, _check_meta, _check_items, _check_text, _check_codes, _check_saved_index)
        for check in checks:
            try:
                with translate_sqlite_errors(path / DATABASE):
                    check(connection, path, found)
            except (OSError, *WRONG_CONTENT) as error:
                found.problems.append(str(error))
                if check is _check_structure:  # the other checks would read an unknown format
                    break
    return found


@contextlib.contextmanager
def _lock_folder(path: Path) -> Iterator[None]:
    """Keep other processes from opening the folder."""
    try:
        file = os.open(path / opening.LOCK, os.O_RDONLY)
    except FileNotFoundError:  # the folder is a copy that was never opened
        yield
        return
    try:
        lock_descriptor(file, wait=False, shared=True)
        try:
            yield
        finally:
            unlock_descriptor(file)
    except BlockingIOError as error:
        raise StorageError(f"{path}: expected a collection that is not open: close it first") from error
    finally:
        os.close(file)


def _connect_read_only(path: Path) -> Connection:
    """Return a connection that cannot write. Without a log it is immutable, and SQLite makes no files."""
    log = path.with_name(f"{path.name}-wal")
    has_log = log.exists() and log.stat().st_size > 0
    options = "mode=ro" if has_log else "mode=ro&immutable=1"
    return sqlite3.connect(f"{path.resolve().as_uri()}?{options}", uri=True, isolation_level=None)


def _check_structure(connection: Connection, path: Path, found: Findings) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != database.APPLICATION:
        raise FormatError(f"{path}: expected a POSH collection, found another database")
    if version not in (database.WITHOUT_TEXT, database.VERSION):
        raise FormatError(
            f"{path}: expected format version {database.WITHOUT_TEXT} or {database.VERSION}, found "
            f"{version}: open it once with posh.Collection if it is older, upgrade posh-ann if it is newer"
        )
    (found.checked["pages"],) = connection.execute("PRAGMA page_count").fetchone()
    for (problem,) in connection.execute(f"PRAGMA integrity_check({_MOST})"):
        if problem != "ok":
            found.problems.append(f"the structure of the database: {problem}")


def _check_meta(connection: Connection, path: Path, found: Findings) -> None:
    for key in tables.KEYS:
        tables.get_meta(connection, key)
    (found.checked["settings"],) = connection.execute("SELECT count(*) FROM meta").fetchone()
    for key in ("options", "metadata"):
        tables.load_payload(tables.get_meta(connection, key))
    n_expected = len(tables.KEYS) + (text_index.read_options(connection) is not None)
    if found.checked["settings"] != n_expected:
        found.problems.append(f"{found.checked['settings']} settings instead of {n_expected}")


def _check_items(connection: Connection, path: Path, found: Findings) -> None:
    width = 4 * (tables.get_meta(connection, "n_features") or 0)
    last_seq = tables.get_meta(connection, "last_seq")
    problems = _FirstProblems(found, "items")
    n = n_fields = total = 0
    statement = "SELECT seq, id, payload, vector, sum FROM items NOT INDEXED ORDER BY seq"
    for seq, item_id, payload, vector, checksum in _read_with_progress(connection, statement, "items"):
        n += 1
        try:
            row = tables.verify_item(seq, item_id, payload, vector, checksum)
            fields = list_fields(tables.load_payload(row.payload))
        except DamageError as error:
            problems.add(str(error))
            continue
        total += tables.checksum_id(seq, item_id)
        n_fields += len(fields)
        if len(vector) != width or seq > last_seq:
            problems.add(f"item {seq}: expected {width} bytes of a vector and a seq up to {last_seq}")
        if not all(connection.execute(_FIELD, (*field, seq)).fetchone() for field in fields):
            problems.add(f"item {seq}: the table of fields lacks some of its fields")
    problems.end()
    tables.read_ids(connection)
    if not problems.n and tables.add_checksums(0, total) != tables.get_meta(connection, "ids_sum"):
        found.problems.append("items: some are missing, or there are too many")
    (n_rows,) = connection.execute("SELECT count(*) FROM fields").fetchone()
    if n_rows != n_fields:
        found.problems.append(f"the table of fields has {n_rows} rows, the items have {n_fields} fields")
    found.checked.update(items=n, fields=n_rows)


def _check_text(connection: Connection, path: Path, found: Findings) -> None:
    options = text_index.read_options(connection)
    if options is not None:
        found.checked["words"], problem = text_index.check(connection, options)
        if problem is not None:
            found.problems.append(problem)


def _check_codes(connection: Connection, path: Path, found: Findings) -> None:
    generation = tables.get_meta(connection, "generation")
    has_codes = False
    if generation:  # reading validates the hasher, the options and the trained state
        index, _, _ = indexing.read_index(connection, generation)
        has_codes = isinstance(index, CodeSnapshot)
    problems = _FirstProblems(found, "codes")
    counts: Counter[int] = Counter()  # by generation
    statement = "SELECT generation, seq, code, sum FROM codes ORDER BY generation, seq"
    for number, seq, code, checksum in _read_with_progress(connection, statement, "codes"):
        counts[number] += 1
        if tables.checksum_code(number, seq, code) != checksum:
            problems.add(f"the code of item {seq}: the checksum does not match")
    problems.end()
    found.checked["codes"] = counts.total()
    (without,) = connection.execute(_WITHOUT_CODE, (generation,)).fetchone()
    if has_codes and (without or counts[generation] != found.checked.get("items")):
        found.problems.append(f"{without} items have no code; there are {counts[generation]} codes in use")


def _check_saved_index(connection: Connection, path: Path, found: Findings) -> None:
    name = indexing.find_saved(connection)
    if name is None or not (path / name).exists():
        return
    try:
        found.checked["items of the saved index"] = len(load_snapshot(path / name, verify=True))
    except Exception as error:
        found.problems.append(
            f"the saved index: {error} (nothing is lost: the next opening rebuilds the index)"
        )


def _read_with_progress(connection: Connection, statement: str, what: str) -> Iterable[Any]:
    (total,) = connection.execute(f"SELECT count(*) FROM {what}").fetchone()
    return track_progress(connection.execute(statement), f"checking {what}", what, total)


class _FirstProblems:
    """Collects the first problems of one kind, and at the end the number of the rest."""

    def __init__(self, found: Findings, what: str) -> None:
        self._found, self._what = found, what
        self.n = 0

    def add(self, problem: str) -> None:
        self.n += 1
        if self.n <= _MOST:
            self._found.problems.append(problem)

    def end(self) -> None:
        if self.n > _MOST:
            self._found.problems.append(f"{self._what}: {self.n - _MOST} more")


_FIELD = "SELECT 1 FROM fields WHERE name = ? AND type = ? AND value = ? AND seq = ?"
_WITHOUT_CODE = (
    "SELECT count(*) FROM items NOT INDEXED WHERE seq NOT IN (SELECT seq FROM codes WHERE generation = ?)"
)
