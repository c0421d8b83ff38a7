"""``posh check`` for collections: reads everything in a folder, compares it, and writes nothing."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from posh import _system
from posh._progress import progress
from posh.collection import build_index, lock, rows, saved_index, schema, tables
from posh.collection.conditions import fields_of
from posh.collection.database import Connection
from posh.collection.opening import DATABASE
from posh.collection.sqlite_errors import WRONG_CONTENT, DamageError, translate_sqlite_errors
from posh.errors import FormatError, StorageError
from posh.index.index import Index

__all__ = ["Findings", "check_collection"]

_MOST = 20  # problems of one kind in a report


class Findings(NamedTuple):
    """How many things of each kind were checked, and the problems, one sentence each."""

    checked: dict[str, int]
    problems: list[str]


def check_collection(path: Path) -> Findings:
    """Check the folder of a collection; one that is open is a :class:`posh.StorageError`."""
    found = Findings({}, [])
    with _locked(path), contextlib.closing(_connect_read_only(path / DATABASE)) as connection:
        for check in (_structure, _meta, _items, _codes, _saved_index):
            try:
                with translate_sqlite_errors(path / DATABASE):
                    check(connection, path, found)
            except (OSError, *WRONG_CONTENT) as error:
                found.problems.append(str(error))
                if check is _structure:  # the other checks would read an unknown format
                    break
    return found


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep others from opening the folder meanwhile."""
    try:
        file = os.open(path / lock.NAME, os.O_RDONLY)
    except FileNotFoundError:  # the folder is a copy that was never opened
        yield
        return
    try:
        _system.lock(file, wait=False, shared=True)
        try:
            yield
        finally:
            _system.unlock(file)
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


def _structure(connection: Connection, path: Path, found: Findings) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != schema.APPLICATION:
        raise FormatError(f"{path}: expected a POSH collection, found another database")
    if version != schema.VERSION:
        raise FormatError(
            f"{path}: expected format version {schema.VERSION}, found {version}: "
            "open it once with posh.Collection if it is older, upgrade posh-ann if it is newer"
        )
    (found.checked["pages"],) = connection.execute("PRAGMA page_count").fetchone()
    for (problem,) in connection.execute(f"PRAGMA integrity_check({_MOST})"):
        if problem != "ok":
            found.problems.append(f"the structure of the database: {problem}")


def _meta(connection: Connection, path: Path, found: Findings) -> None:
    for key in tables.KEYS:
        tables.get_meta(connection, key)
    (found.checked["settings"],) = connection.execute("SELECT count(*) FROM meta").fetchone()
    for key in ("options", "metadata"):
        rows.load_payload(tables.get_meta(connection, key))
    if found.checked["settings"] != len(tables.KEYS):
        found.problems.append(f"{found.checked['settings']} settings instead of {len(tables.KEYS)}")


def _items(connection: Connection, path: Path, found: Findings) -> None:
    width = 4 * (tables.get_meta(connection, "n_features") or 0)
    last_seq = tables.get_meta(connection, "last_seq")
    problems = _FirstProblems(found, "items")
    n = n_fields = total = 0
    statement = "SELECT seq, id, payload, vector, sum FROM items NOT INDEXED ORDER BY seq"
    for seq, item_id, payload, vector, checksum in _with_progress(connection, statement, "items"):
        n += 1
        try:
            row = rows.checked_item(seq, item_id, payload, vector, checksum)
            fields = fields_of(rows.load_payload(row.payload))
        except DamageError as error:
            problems.add(str(error))
            continue
        total += rows.id_checksum(seq, item_id)
        n_fields += len(fields)
        if len(vector) != width or seq > last_seq:
            problems.add(f"item {seq}: expected {width} bytes of a vector and a seq up to {last_seq}")
        if not all(connection.execute(_FIELD, (*field, seq)).fetchone() for field in fields):
            problems.add(f"item {seq}: the table of fields lacks some of its fields")
    problems.end()
    tables.seqs_and_ids(connection)
    if not problems.n and rows.ids_checksum(0, total) != tables.get_meta(connection, "ids_sum"):
        found.problems.append("items: some are missing, or there are too many")
    (n_rows,) = connection.execute("SELECT count(*) FROM fields").fetchone()
    if n_rows != n_fields:
        found.problems.append(f"the table of fields has {n_rows} rows, the items have {n_fields} fields")
    found.checked.update(items=n, fields=n_rows)


def _codes(connection: Connection, path: Path, found: Findings) -> None:
    generation = tables.get_meta(connection, "generation")
    if generation:
        build_index.stored_index(connection, generation)  # reads the hasher, the options, the trained state
    problems = _FirstProblems(found, "codes")
    counts: Counter[int] = Counter()  # by generation
    statement = "SELECT generation, seq, code, sum FROM codes ORDER BY generation, seq"
    for number, seq, code, checksum in _with_progress(connection, statement, "codes"):
        counts[number] += 1
        if rows.code_checksum(number, seq, code) != checksum:
            problems.add(f"the code of item {seq}: the checksum does not match")
    problems.end()
    found.checked["codes"] = counts.total()
    (without,) = connection.execute(_WITHOUT_CODE, (generation,)).fetchone()
    if generation and (without or counts[generation] != found.checked.get("items")):
        found.problems.append(f"{without} items have no code; there are {counts[generation]} codes in use")


def _saved_index(connection: Connection, path: Path, found: Findings) -> None:
    name = saved_index.find_name(connection)
    if name is None or not (path / name).exists():
        return
    try:
        found.checked["items of the saved index"] = len(Index.load(path / name, verify=True))
    except Exception as error:
        found.problems.append(
            f"the saved index: {error} (nothing is lost: the next opening builds the index again)"
        )


def _with_progress(connection: Connection, statement: str, what: str) -> Iterable[Any]:
    (total,) = connection.execute(f"SELECT count(*) FROM {what}").fetchone()
    return progress(connection.execute(statement), f"checking {what}", what, total)


class _FirstProblems:
    """Adds the first problems of one kind, and at the end the number of the others."""

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
