"""Opening a collection: its folder, what an interrupted process has left behind, and its first moment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from posh.collection import building, lock, snapshots, tables
from posh.collection.directory import Directory
from posh.collection.moment import Moment
from posh.collection.storage import NEW, Connection, DamageError, Database, create
from posh.errors import FormatError, StorageError
from posh.store import make_folder

__all__ = ["DATABASE", "drop_unused_codes", "open_database", "prepare_folder", "read_metadata"]
__all__ += ["read_moment"]

DATABASE = "collection.sqlite3"
_IN_MAKING = f"{DATABASE}{NEW}"
_ROWS = 10_000  # removed in one transaction: others may write in between


def prepare_folder(path: Path) -> None:
    """Make the folder if it is not there; refuse one that holds something else."""
    if path.is_file():
        raise NotADirectoryError(f"{path}: expected a folder, got a file: choose another name")
    try:
        make_folder(path)
        names = {entry.name for entry in path.iterdir()}
    except OSError as error:
        raise StorageError(
            f"{path}: expected a folder that can be made and read, got {error.strerror}: choose another"
        ) from error
    if DATABASE in names or all(name == lock.NAME or name.startswith(_IN_MAKING) for name in names):
        return
    if any(name.startswith((DATABASE, snapshots.PREFIX)) for name in names):
        raise FormatError(f"{path}: expected {DATABASE} beside the other files: restore it from a copy")
    raise FileExistsError(
        f"{path}: expected an empty folder or a collection, found other files: choose another"
    )


def open_database(path: Path, first_meta: Mapping[str, Any]) -> Database:
    """The database in a folder; a new one has ``first_meta`` written down."""
    if not (path / DATABASE).exists():
        for leftover in path.glob(f"{_IN_MAKING}*"):
            leftover.unlink()
        create(path / DATABASE, lambda connection: tables.put_meta(connection, first_meta))
    return Database(path / DATABASE)


def read_moment(folder: Path, database: Database, numbering: int = 0) -> tuple[Moment, int]:
    """The collection as the database has it, and how many of its items no snapshot has."""
    with database.reading() as connection:
        try:
            return _moment(folder, connection, numbering)
        except FormatError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise DamageError(str(error)) from error


def _moment(folder: Path, connection: Connection, numbering: int) -> tuple[Moment, int]:
    keys = ("version", "generation", "n_features", "options", "last_seq", "ids_sum")
    version, generation, n_features, options, last_seq, ids_sum = (
        tables.get_meta(connection, key) for key in keys
    )
    seqs, names = tables.ordered(connection)
    directory = Directory.of(seqs, names, np.ones(len(seqs), bool), numbering)
    index, learned_from, changes = None, 0, len(seqs)
    if generation:
        index, learned_from = building.stored_index(connection, generation)
        index, directory, changes = snapshots.opened(folder, connection, generation, index, directory)
    moment = Moment(
        version,
        n_features,
        json.loads(options),
        generation,
        directory,
        index,
        last_seq,
        ids_sum,
        learned_from,
    )
    return moment, changes


def drop_unused_codes(database: Database) -> bool:
    """Remove some codes of a generation that does not count; whether there may be more."""
    with database.writing() as connection:
        current = tables.get_meta(connection, "generation")
        unused = connection.execute(
            "SELECT number FROM generations WHERE number <> ? LIMIT 1", (current,)
        ).fetchone()
        if unused is None:
            return False
        last = connection.execute(
            "SELECT seq FROM codes WHERE generation = ? ORDER BY seq LIMIT 1 OFFSET ?", (*unused, _ROWS)
        ).fetchone()
        if last is None:
            connection.execute("DELETE FROM codes WHERE generation = ?", unused)
            connection.execute("DELETE FROM generations WHERE number = ?", unused)
        else:
            connection.execute("DELETE FROM codes WHERE generation = ? AND seq <= ?", (*unused, *last))
        return True


def read_metadata(database: Database) -> str:
    """The metadata as JSON."""
    with database.reading() as connection:
        text = tables.get_meta(connection, "metadata")
        tables.loads(text)
    return str(text)
