"""Whether all that a collection's folder holds is what was written; nothing is opened for writing."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from posh._progress import progress
from posh.collection import building, lock, schema, snapshots, sums, tables
from posh.collection.conditions import fields_of
from posh.collection.opening import DATABASE
from posh.collection.storage import Connection, DamageError, understood
from posh.errors import FormatError, StorageError
from posh.index.index import Index

__all__ = ["Findings", "check_collection"]

_MOST = 20  # problems of a kind that are listed


class Findings(NamedTuple):
    """What was looked at, with numbers, and what is wrong with it, one sentence each."""

    checked: dict[str, int]
    problems: list[str]


def check_collection(path: Path) -> Findings:
    """Read everything in the folder of a collection that is not open, and compare it.

    A folder that is open is a :class:`posh.StorageError`.
    """
    found = Findings({}, [])
    with _locked(path), contextlib.closing(_connected(path / DATABASE)) as connection:
        for look in (_structure, _meta, _items, _codes, _snapshot):
            try:
                with understood(path / DATABASE):
                    look(connection, path, found)
            except (ValueError, OSError, TypeError) as error:
                found.problems.append(str(error))
                if look is _structure:  # what follows would read an unknown format
                    break
    return found


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep others from opening the folder for as long as it is read."""
    try:
        file = os.open(path / lock.NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # a copy that was never opened
        yield
        return
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise StorageError(f"{path}: expected a collection that is not open: close it first") from error
    finally:
        os.close(file)


def _connected(path: Path) -> Connection:
    """A connection that cannot write. Without a log there is nothing to recover, and no file is made."""
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
        tables.loads(tables.get_meta(connection, key))
    if found.checked["settings"] != len(tables.KEYS):
        found.problems.append(f"{found.checked['settings']} settings instead of {len(tables.KEYS)}")


def _items(connection: Connection, path: Path, found: Findings) -> None:
    width = 4 * (tables.get_meta(connection, "n_features") or 0)
    last_seq = tables.get_meta(connection, "last_seq")
    problems = _Some(found, "items")
    n = n_fields = total = 0
    statement = "SELECT seq, id, payload, vector, sum FROM items NOT INDEXED ORDER BY seq"
    for seq, number, payload, vector, kept in _shown(connection, statement, "items"):
        n += 1
        try:
            row = tables.sound_item(seq, number, payload, vector, kept)
            fields = fields_of(tables.loads(row.payload))
        except DamageError as error:
            problems.add(str(error))
            continue
        total += sums.of_id(seq, number)
        n_fields += len(fields)
        if len(vector) != width or seq > last_seq:
            problems.add(f"item {seq}: expected {width} bytes of a vector and a number up to {last_seq}")
        if not all(connection.execute(_FIELD, (*field, seq)).fetchone() for field in fields):
            problems.add(f"item {seq}: filters do not know all of its fields")
    problems.end()
    tables.ordered(connection)
    if not problems.n and sums.together(0, total) != tables.get_meta(connection, "ids_sum"):
        found.problems.append("items: some are missing, or there are too many")
    (rows,) = connection.execute("SELECT count(*) FROM fields").fetchone()
    if rows != n_fields:
        found.problems.append(f"filters know {rows} fields of items, which have {n_fields}")
    found.checked.update(items=n, fields=rows)


def _codes(connection: Connection, path: Path, found: Findings) -> None:
    generation = tables.get_meta(connection, "generation")
    if generation:
        building.stored_index(connection, generation)  # the hasher, the options, what the index has learned
    problems = _Some(found, "codes")
    numbers: Counter[int] = Counter()
    statement = "SELECT generation, seq, code, sum FROM codes ORDER BY generation, seq"
    for one, seq, code, kept in _shown(connection, statement, "codes"):
        numbers[one] += 1
        if sums.of_code(one, seq, code) != kept:
            problems.add(f"the code of item {seq}: the checksum does not match")
    problems.end()
    found.checked["codes"] = numbers.total()
    (without,) = connection.execute(_WITHOUT_CODE, (generation,)).fetchone()
    if generation and (without or numbers[generation] != found.checked.get("items")):
        found.problems.append(f"{without} items have no code; there are {numbers[generation]} codes in use")


def _snapshot(connection: Connection, path: Path, found: Findings) -> None:
    name = snapshots.named(connection)
    if name is None or not (path / name).exists():
        return
    try:
        found.checked["items of the snapshot"] = len(Index.load(path / name, verify=True))
    except Exception as error:
        found.problems.append(
            f"the snapshot: {error} (nothing is lost: the next opening builds the index again)"
        )


def _shown(connection: Connection, statement: str, what: str) -> Iterable[Any]:
    (total,) = connection.execute(f"SELECT count(*) FROM {what}").fetchone()
    return progress(connection.execute(statement), f"checking {what}", what, total)


class _Some:
    """Adds the first problems of a kind, and in the end how many more there are."""

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
