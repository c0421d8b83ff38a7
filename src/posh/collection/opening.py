"""Opening a collection: its folder, its database, its first snapshot, and the options of the caller."""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from posh import _validate, model_files
from posh._files import make_folder
from posh.collection import arguments, build_index, lock, rows, saved_index, tables
from posh.collection.base import Payload
from posh.collection.database import NEW, Connection, Database, create
from posh.collection.snapshot import CollectionSnapshot, SlotTable
from posh.collection.sqlite_errors import WRONG_CONTENT, DamageError
from posh.errors import FormatError, StorageError
from posh.hashers.base import Hasher
from posh.index.options import IndexOptions

__all__ = ["DATABASE", "OpenOptions", "are_equal", "checked_index_options", "open_database", "prepare_folder"]
__all__ += ["read_metadata", "read_snapshot"]

DATABASE = "collection.sqlite3"
_UNFINISHED = f"{DATABASE}{NEW}"
_UNSET: dict[str, Any] = {"structure": "exact", "scoring": "overlap", "n_probe": 1, "oversample": 1.0}
_UNSET |= {"random_state": 0, **dict.fromkeys(("refine", "document_active", "query_active", "n_lists"))}


class ReadableDatabase(Protocol):
    """A database that gives transactions that read."""

    def reading(self) -> AbstractContextManager[Connection]:
        """Give a transaction."""


@dataclass(frozen=True)
class OpenOptions:
    """What the caller opens a collection with: a fitted hasher, metadata, options of the index."""

    hasher: Hasher[Any] | None
    metadata: Payload | None
    index_options: dict[str, Any]
    is_new: bool = False  # an existing collection is an error

    @classmethod
    def checked(cls, hasher: Any, metadata: Any, index_options: Mapping[str, Any]) -> OpenOptions:
        """Return the options if they are valid, whatever the collection is."""
        own = checked_index_options(index_options)
        if hasher is not None:
            build_index.empty_index(arguments.fitted_hasher(hasher, None), own)
        elif own.get("metric") is not None:
            build_index.empty_index(None, build_index.with_defaults(own))
        return cls(hasher, None if metadata is None else arguments.json_object(metadata, "metadata"), own)

    def require_absence(self, path: Path) -> None:
        """Raise if there is a collection that must be new. Call it with the lock of the folder."""
        if self.is_new and (path / DATABASE).exists():
            raise FileExistsError(
                errno.EEXIST, "expected a path without a collection, found one: posh.open opens it", str(path)
            )

    def first_meta(self) -> dict[str, Any]:
        """Return the settings of a new collection."""
        texts = {
            "options": json.dumps(self.index_options),
            "metadata": rows.dump_payload(self.metadata or {}),
        }
        numbers = {"version": 0, "generation": 0, "last_seq": 0, "ids_sum": 0}
        return numbers | {"n_features": None, "snapshot": None} | texts

    def require_agreement(self, path: Path, snapshot: CollectionSnapshot, metadata: Payload) -> None:
        """Raise if an existing collection has something else: opening changes nothing."""
        if self.metadata is not None and self.metadata != metadata:
            raise ValueError(
                f"{path}: expected the metadata that this collection has, got {self.metadata!r:.80}: "
                "leave it out, and call set_metadata to change it"
            )
        if snapshot.index is None and self.hasher is not None:
            arguments.fitted_hasher(self.hasher, snapshot.n_features)
            return
        if (
            self.hasher is not None
            and snapshot.index is not None
            and not are_equal(self.hasher, snapshot.index.hasher)
        ):
            raise ValueError(
                f"{path}: expected the hasher that this collection has, got another "
                f"{type(self.hasher).__name__}: leave it out, and call reindex to change it"
            )
        merged = {**snapshot.options, **self.index_options}
        if snapshot.index is None:
            agrees = merged == snapshot.options
        else:
            index = build_index.empty_index(snapshot.index.hasher, merged)
            agrees = index.options == snapshot.index.options
        if not agrees:
            raise ValueError(
                f"{path}: expected the options that this collection has, {dict(snapshot.options)}, "
                f"got {self.index_options}: leave them out, and give them to fit or reindex to change them"
            )


def checked_index_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of an index that JSON can hold; whoever has the hasher checks their values."""
    names = [field.name for field in fields(IndexOptions)]
    for name in options:
        if name not in names:
            raise TypeError(f"expected options among {', '.join(names)}, got {name!r}")
    return arguments.json_object(options, "options")


def are_equal(one: Hasher[Any], other: Hasher[Any]) -> bool:
    """Whether two hashers have the same parameters and have learned the same."""
    a, b = (model_files.parse_model(hasher.to_bytes(), "hasher") for hasher in (one, other))
    if (a.name, a.params, a.columns, a.arrays.keys()) != (b.name, b.params, b.columns, b.arrays.keys()):
        return False
    return all(np.array_equal(a.arrays[name], b.arrays[name]) for name in a.arrays)


def prepare_folder(path: Path) -> None:
    """Make the folder if it does not exist; refuse a folder that holds something else."""
    if path.is_file():
        raise NotADirectoryError(f"{path}: expected a folder, got a file: choose another name")
    try:
        make_folder(path)
        names = {entry.name for entry in path.iterdir()}
    except OSError as error:
        raise StorageError(
            f"{path}: expected a folder that can be made and read, got {error.strerror}: choose another"
        ) from error
    if DATABASE in names or all(name == lock.NAME or name.startswith(_UNFINISHED) for name in names):
        return
    if any(name.startswith(DATABASE) or saved_index.is_name(name) for name in names):
        raise FormatError(f"{path}: expected {DATABASE} beside the other files: restore it from a copy")
    raise FileExistsError(
        f"{path}: expected an empty folder or a collection, found other files: choose another"
    )


def open_database(path: Path, first_meta: Mapping[str, Any]) -> Database:
    """Open the database of a folder; make one with the settings ``first_meta`` if there is none."""
    if not (path / DATABASE).exists():
        for leftover in path.glob(f"{_UNFINISHED}*"):
            leftover.unlink()
        create(path / DATABASE, lambda connection: tables.put_meta(connection, first_meta))
    return Database(path / DATABASE)


def read_snapshot(
    folder: Path, database: ReadableDatabase, numbering: int = 0
) -> tuple[CollectionSnapshot, int]:
    """Return the state that the database has, and the number of items that the saved index lacks."""
    with database.reading() as connection:
        try:
            return _read_snapshot(folder, connection, numbering)
        except FormatError:
            raise
        except WRONG_CONTENT as error:
            raise DamageError(str(error)) from error


def _read_snapshot(folder: Path, connection: Connection, numbering: int) -> tuple[CollectionSnapshot, int]:
    keys = ("version", "generation", "n_features", "options", "last_seq", "ids_sum")
    version, generation, n_features, options, last_seq, ids_sum = (
        tables.get_meta(connection, key) for key in keys
    )
    stored_options = _stored_options(options)
    seqs, ids = tables.seqs_and_ids(connection)
    tables.require_width(connection, n_features)
    table = SlotTable.of(seqs, ids, np.ones(len(seqs), bool), numbering)
    index, n_trained, n_unsaved = None, 0, len(seqs)
    if generation:
        empty, n_trained, measured_seq = build_index.stored_index(connection, generation)
        if empty.hasher.n_features_in_ != n_features:
            raise DamageError(f"n_features is {n_features}, that of the hasher {empty.hasher.n_features_in_}")
        index, table, n_unsaved = saved_index.read_or_build(folder, connection, generation, empty, table)
        index = build_index.count_writes(index, table, measured_seq)
        if index.is_overdue:  # such as the index of an older version
            index = index.measured()
    snapshot = CollectionSnapshot(
        version,
        n_features,
        stored_options,
        generation,
        table,
        index,
        last_seq,
        ids_sum,
        n_trained,
    )
    return snapshot, n_unsaved


def _stored_options(text: str) -> dict[str, Any]:
    """Return the options in the database if their values are possible; the hasher decides about the rest."""
    options = checked_index_options(rows.load_payload(text))
    IndexOptions(**_UNSET | options)
    for name in ("document_active", "query_active"):
        if options.get(name) is not None:
            _validate.integer(name, options[name], 1)
    return options


def read_metadata(database: ReadableDatabase) -> str:
    """Return the metadata as JSON."""
    with database.reading() as connection:
        text = tables.get_meta(connection, "metadata")
        rows.load_payload(text)
    return str(text)
