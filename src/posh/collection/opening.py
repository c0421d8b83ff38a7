"""Opening a collection: the lock of its folder, its database, its first snapshot, and the caller's options.

One process at a time may hold the lock, until it ends. The lock file contains the process id of the holder
for error messages. A child that C code forks, without Python, keeps the lock until it ends or runs another
program.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from posh._durable import LockFile, make_folder
from posh._model_files import parse_model
from posh._runtime import is_process_alive
from posh.collection import base, indexing, tables, text_index
from posh.collection.base import Payload
from posh.collection.database import NEW, Connection, Database, create_database
from posh.collection.snapshot import CollectionSnapshot, IdReader, SlotTable
from posh.collection.tables import WRONG_CONTENT, DamageError
from posh.collection.text import TextOptions
from posh.errors import FormatError, StorageError
from posh.hashers.base import Hasher
from posh.index.codes.options import CodeOptions
from posh.index.codes.snapshot import CodeSnapshot
from posh.index.nearest.options import NearestOptions

__all__ = [
    "DATABASE",
    "LOCK",
    "FolderLock",
    "OpenOptions",
    "are_equal",
    "lock_out_writers",
    "open_database",
    "prepare_folder",
    "read_metadata",
    "read_snapshot",
    "validate_index_options",
]

LOCK = "lock"


class FolderLock:
    """The lock of a folder, taken by the constructor and held until ``release``.

    Raises :class:`StorageError` if the folder is in use.
    """

    def __init__(self, folder: Path) -> None:
        self._file: LockFile | None = None
        file = _open_lock_file(folder)
        try:
            _take_lock(file, folder)
        except BaseException:
            file.close()
            raise
        self._file = file
        with contextlib.suppress(OSError):  # a full disk: only error messages of other processes need the pid
            os.ftruncate(file.descriptor, os.write(file.descriptor, f"{os.getpid()}\n".encode()))

    def release(self) -> None:
        """Release the folder; a second call, and a call in a forked child, do nothing."""
        if self._file is not None:
            self._file.close()

    def __del__(self) -> None:
        self.release()


def lock_out_writers(folder: Path) -> LockFile | None:
    """Take a lock that other readers may share, and return it; raise BlockingIOError if there is a writer.

    Return None if there is no lock file, as in a copy that was never opened for writing.
    """
    try:
        file = LockFile(folder / LOCK, shared=True)
    except FileNotFoundError:
        return None
    try:
        file.lock(wait=False)
    except BaseException:
        file.close()
        raise
    return file


def _open_lock_file(folder: Path) -> LockFile:
    try:
        return LockFile(folder / LOCK, 0o644)
    except OSError as error:
        raise StorageError(
            f"{folder}: expected a folder that can be written to, got {error.strerror}: "
            "make it writable, or copy the collection to a writable folder"
        ) from error


def _take_lock(file: LockFile, folder: Path) -> None:
    try:
        file.lock(wait=False)
    except OSError as error:
        raise StorageError(
            f"{folder}: expected a collection that is not open elsewhere, but "
            f"{_describe_holder(file.descriptor)}"
        ) from error


def _describe_holder(file: int) -> str:
    pid = _read_pid(file)
    if pid is None or not is_process_alive(pid):
        time.sleep(0.05)  # a process that has just taken the lock may not have written its pid yet
        pid = _read_pid(file)
    if pid is None:
        return "another process has it open: close it there first"
    if pid == os.getpid():
        return "this process has it open: close it there first"
    if is_process_alive(pid):
        return f"process {pid} has it open: close it there first"
    return (
        f"another process has it open, not the one that opened it last ({pid}, which no longer "
        "runs): look for a process that it has started, or for one in another container, and end it"
    )


def _read_pid(file: int) -> int | None:
    os.lseek(file, 0, os.SEEK_SET)
    text = os.read(file, 20).decode("ascii", "replace").strip()
    return int(text) if text.isdigit() else None


_AT_ONCE = (
    20_000  # ids that are read, and whose checksum is compared, at opening; of more when they are needed
)
DATABASE = "collection.sqlite3"
_UNFINISHED = f"{DATABASE}{NEW}"


class ReadableDatabase(Protocol):
    """A database with read transactions."""

    def reading(self) -> AbstractContextManager[Connection]:
        """Yield a transaction."""


@dataclass(frozen=True)
class OpenOptions:
    """Arguments for opening a collection: a fitted hasher, metadata, options of the indexes."""

    hasher: Hasher[Any] | None
    metadata: Payload | None
    index_options: dict[str, Any]
    text: TextOptions | None = None
    is_new: bool = False  # an existing collection is an error

    @classmethod
    def validate(
        cls,
        hasher: Any,
        metadata: Any,
        index_options: Mapping[str, Any],
        text: Any = None,
        tokenizer: Any = None,
    ) -> OpenOptions:
        """Return the options; raise if they are invalid for every collection."""
        options = validate_index_options(index_options, has_hasher=hasher is not None)
        if hasher is not None:
            indexing.make_index(base.validate_fitted_hasher(hasher, None), options)
        elif options.get("metric") is not None:
            indexing.make_index(None, options)
        return cls(
            hasher,
            None if metadata is None else base.validate_json_object(metadata, "metadata"),
            options,
            TextOptions.validate(text, tokenizer),
        )

    def require_absence(self, path: Path) -> None:
        """Raise if there is a collection that must be new. Call it with the lock of the folder."""
        if self.is_new and (path / DATABASE).exists():
            raise FileExistsError(
                errno.EEXIST, "expected a path without a collection, found one: posh.open opens it", str(path)
            )

    def require_kind(self, path: Path) -> None:
        """Raise ValueError if a new collection would have options of a metric, but no metric."""
        options = self.index_options
        if self.hasher is not None or options.get("metric") is not None or (path / DATABASE).exists():
            return
        for name in options:
            if name not in ("metric", *CodeOptions.names()):
                raise ValueError(f"{name}={options[name]!r} needs a metric: metric='cosine', for example")

    def write_first(self, connection: Connection) -> None:
        """Write the settings of a new collection, and make its text index."""
        texts = {
            "options": json.dumps(self.index_options),
            "metadata": tables.dump_payload(self.metadata or {}),
        }
        numbers = {"version": 0, "generation": 0, "last_seq": 0, "ids_sum": 0}
        tables.put_meta(connection, numbers | {"n_features": None, "snapshot": None} | texts)
        if self.text is not None:
            text_index.create(connection, self.text)

    def require_agreement(self, path: Path, snapshot: CollectionSnapshot, metadata: Payload) -> None:
        """Raise if an existing collection has something else: opening changes nothing."""
        if self.metadata is not None and self.metadata != metadata:
            raise ValueError(
                f"{path}: expected the metadata that this collection has, got {self.metadata!r:.80}: "
                "leave it out, and call set_metadata to change it"
            )
        if self.text is not None and self.text != snapshot.text:
            raise ValueError(
                f"{path}: expected the text index that this collection has, {_describe_text(snapshot.text)}, "
                f"got {_describe_text(self.text)}: leave it out, and call index_text to change it"
            )
        if snapshot.index is None and self.hasher is not None and snapshot.options.get("metric") is None:
            base.validate_fitted_hasher(self.hasher, snapshot.n_features)
            return
        hasher = snapshot.index.hasher if isinstance(snapshot.index, CodeSnapshot) else None
        if self.hasher is not None and (hasher is None or not are_equal(self.hasher, hasher)):
            raise ValueError(
                f"{path}: expected the hasher that this collection has, got another "
                f"{type(self.hasher).__name__}: leave it out, and call reindex to change it"
            )
        merged = {**snapshot.options, **self.index_options}
        agrees = merged == snapshot.options
        if snapshot.index is not None and not agrees:
            own_metric, metric = snapshot.options.get("metric"), self.index_options.get("metric")
            agrees = metric in (None, own_metric)
            if agrees:
                validate_index_options(merged, has_hasher=hasher is not None)
                agrees = indexing.make_index(hasher, merged).options == snapshot.index.options
        if not agrees:
            raise ValueError(
                f"{path}: expected the options that this collection has, {dict(snapshot.options)}, "
                f"got {self.index_options}: leave them out, and give them to fit or reindex to change them"
            )


def _describe_text(text: TextOptions | None) -> str:
    return "none" if text is None else f"text={list(text.fields)!r:.200}, tokenizer={text.tokenizer!r:.80}"


def validate_index_options(options: Mapping[str, Any], *, has_hasher: bool = False) -> dict[str, Any]:
    """Return options of :class:`posh.Index` or of :class:`posh.CodeIndex` that JSON can hold.

    Only names are validated here; making the index validates the values.
    """
    has_metric = options.get("metric") is not None
    if has_hasher and has_metric:
        raise ValueError(
            f"expected a hasher or a metric, got {options['metric']!r} and a hasher: leave one of them out"
        )
    names = () if has_metric else CodeOptions.names()
    if not has_hasher:
        names = (*NearestOptions.names(), *names)
    for name in options:
        if name in ("text", "tokenizer"):
            raise ValueError(
                f"{name}={options[name]!r:.80} is for posh.create and index_text, of collections in folders: "
                "leave it out"
            )
        if name not in names:
            raise TypeError(f"expected options among {', '.join(dict.fromkeys(names))}, got {name!r}")
    return base.validate_json_object(options, "options")


def are_equal(one: Hasher[Any], other: Hasher[Any]) -> bool:
    """Whether two hashers have the same parameters and have learned the same."""
    a, b = (parse_model(hasher.to_bytes(), "hasher") for hasher in (one, other))
    if (a.name, a.params, a.columns, a.arrays.keys()) != (b.name, b.params, b.columns, b.arrays.keys()):
        return False
    return all(np.array_equal(a.arrays[name], b.arrays[name]) for name in a.arrays)


def prepare_folder(path: Path) -> None:
    """Create the folder if it does not exist; refuse a folder with other content."""
    if path.is_file():
        raise NotADirectoryError(f"{path}: expected a folder, got a file: choose another name")
    try:
        make_folder(path)
        names = {entry.name for entry in path.iterdir()}
    except OSError as error:
        raise StorageError(
            f"{path}: expected a folder that can be created and read, got {error.strerror}: choose another"
        ) from error
    if DATABASE in names or all(name == LOCK or name.startswith(_UNFINISHED) for name in names):
        return
    if any(name.startswith(DATABASE) or indexing.is_saved_name(name) for name in names):
        raise FormatError(f"{path}: expected {DATABASE} next to the other files: restore it from a copy")
    raise FileExistsError(
        f"{path}: expected an empty folder or a collection, found other files: choose another"
    )


def open_database(path: Path, options: OpenOptions) -> Database:
    """Open the database of a folder; create one with these options if there is none."""
    if not (path / DATABASE).exists():
        for leftover in path.glob(f"{_UNFINISHED}*"):
            leftover.unlink()
        create_database(path / DATABASE, options.write_first)
    return Database(path / DATABASE)


def read_snapshot(
    folder: Path, database: ReadableDatabase, numbering: int = 0
) -> tuple[CollectionSnapshot, int]:
    """Return the state of the database, and the number of items that the saved index lacks."""
    with database.reading() as connection:
        try:
            return _read_snapshot(folder, connection, numbering, IdReader(database.reading))
        except FormatError:
            raise
        except WRONG_CONTENT as error:
            raise DamageError(str(error)) from error


def _read_snapshot(
    folder: Path, connection: Connection, numbering: int, reader: IdReader
) -> tuple[CollectionSnapshot, int]:
    keys = ("version", "generation", "n_features", "options", "last_seq", "ids_sum")
    version, generation, n_features, options, last_seq, ids_sum = (
        tables.get_meta(connection, key) for key in keys
    )
    stored_options = _parse_options(options)
    tables.require_width(connection, n_features)
    seqs = tables.read_seqs(connection)
    table = SlotTable.stored(seqs, reader, numbering)
    if len(seqs) <= _AT_ONCE:
        seqs, ids = tables.read_ids(connection)
        table = SlotTable.of(seqs, ids, np.ones(len(seqs), bool), numbering)
    index, n_trained, n_unsaved = None, 0, len(seqs)
    if generation:
        empty, n_trained, measured_seq = indexing.read_index(connection, generation)
        if empty.n_features not in (None, n_features):
            raise DamageError(f"n_features is {n_features}, that of the index {empty.n_features}")
        index, table, n_unsaved = indexing.read_or_build(folder, connection, generation, empty, table)
        index = indexing.count_writes(index, table, measured_seq)
        if index.is_overdue:  # such as the index of an older version
            index = index.measure_if_due()
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
        text_index.read_options(connection),
    )
    return snapshot, n_unsaved


def _parse_options(text: str) -> dict[str, Any]:
    """Return the options in the database if their values are valid without regard to the hasher."""
    options = validate_index_options(tables.load_payload(text))
    kind: Any = NearestOptions if options.get("metric") is not None else CodeOptions
    kind(**{name: value for name, value in options.items() if name != "metric" or value is not None})
    return options


def read_metadata(database: ReadableDatabase) -> str:
    """Return the metadata as JSON."""
    with database.reading() as connection:
        text = tables.get_meta(connection, "metadata")
        tables.load_payload(text)
    return str(text)
