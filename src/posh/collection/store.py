"""The store of an embedded collection: the database, and the snapshot that searches see.

The store keeps both in step while threads write and search, and when a write is interrupted.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from posh._progress import cancellable, progress
from posh.collection import build_index, opening, reindexing, rows, saved_index, tables
from posh.collection.database import Connection, deadline
from posh.collection.filters import Tree
from posh.collection.lock import FolderLock
from posh.collection.masks import Masks, combined
from posh.collection.opening import OpenOptions
from posh.collection.snapshot import CollectionSnapshot, Mask
from posh.collection.sqlite_errors import CLOSED
from posh.errors import CancelledError, StorageError
from posh.hashers.base import Hasher
from posh.index.snapshot import IndexSnapshot

__all__ = ["Store"]

logger = logging.getLogger(__name__)

_TRIES = 100  # to read the database in the state of the newest snapshot, a millisecond apart


class Store:
    """An open folder.

    Every write replaces ``snapshot`` in one assignment, after the commit of its transaction. A search takes
    the snapshot once. Writes are done one after the other, under a lock. Long work has a lock of its own.
    """

    is_read_only = False

    def __init__(self, path: Path, options: OpenOptions) -> None:
        self._begin(path)
        self._open(options)

    def _begin(self, path: Path) -> None:
        self.path = path
        self.snapshot: CollectionSnapshot
        self._process = os.getpid()
        self._lock = threading.Lock()  # the lock of writes
        self._long_work = threading.Lock()  # of reindexing, compacting and saving; taken before the other
        self._masks = Masks()
        self.filter_seconds: float | None = None  # how long a filter may take; None: as long as it takes
        self.payload_bytes: int | None = None  # of a payload after an update; None: any number
        self._closed = False
        self._new_generation = 0  # the generation that reindexing makes, 0 if it does not run
        self._n_unsaved = 0  # items written since the index was saved
        self._measuring: threading.Thread | None = None
        self._stop_measuring = threading.Event()

    def _open(self, options: OpenOptions) -> None:
        path = self.path
        opening.prepare_folder(path)
        with contextlib.ExitStack() as undo:
            self._folder_lock = FolderLock(path)
            undo.callback(self._folder_lock.release)
            options.require_absence(path)
            self.database = opening.open_database(path, options.first_meta())
            undo.callback(self.database.close)
            self.snapshot, self._n_unsaved = opening.read_snapshot(path, self.database)
            self._drop_unused_codes()  # a process that was stopped while it reindexed has left some
            saved_index.remove_unused(path, self.database)
            metadata = rows.load_payload(opening.read_metadata(self.database))
            options.require_agreement(path, self.snapshot, metadata)
            if self.snapshot.index is None and options.hasher is not None:
                self.reindex(options.hasher, options.index_options)
            elif build_index.lacks_index(self.snapshot):
                self.reindex(None, {})
            undo.pop_all()
        self._measure_if_due()

    @property
    def is_closed(self) -> bool:
        """Whether the store is closed, or is being closed."""
        return self._closed

    def require_open(self) -> None:
        """Raise if the store is closed, or belongs to another process."""
        if self._closed:
            raise ValueError(CLOSED)
        if os.getpid() != self._process:
            raise ValueError(
                "expected a collection of this process, got one that was opened before a fork: "
                "open it in the process that uses it, after closing it in the other"
            )

    # Reading ---------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def reading(self) -> Iterator[tuple[CollectionSnapshot, Connection]]:
        """Give the snapshot, and a connection that reads the database in the same state."""
        for attempt in itertools.count(1):
            with self.database.reading() as connection:
                snapshot = self.snapshot
                if tables.get_meta(connection, "version") == snapshot.version:
                    yield snapshot, connection
                    return
            if attempt < _TRIES:
                time.sleep(0.001)  # a write is committed, and its snapshot is not published yet
            else:
                with self._lock:
                    self._read_again_if_interrupted()

    def filtered(self, tree: Tree) -> tuple[CollectionSnapshot, Mask]:
        """Return the snapshot, and which of its slots pass a filter.

        This reads the database only for conditions whose masks are not known.
        """
        known = self._masks.recall(tree)
        snapshot = self.snapshot  # after recall, which explains why
        mask = combined(tree, known, snapshot.slot_table)
        if mask is None:
            with self.reading() as (snapshot, connection), deadline(connection, self.filter_seconds):
                mask = self._masks.mask(tree, known, snapshot.slot_table, connection)
        return snapshot, mask

    def mask_of(self, tree: Tree, snapshot: CollectionSnapshot, connection: Connection) -> Mask:
        """Return which slots of a snapshot pass a filter; the connection reads the same state."""
        with deadline(connection, self.filter_seconds):
            return self._masks.mask(tree, self._masks.recall(tree), snapshot.slot_table, connection)

    @contextlib.contextmanager
    def reading_filtered(self, tree: Tree | None) -> Iterator[tuple[CollectionSnapshot, Mask, Connection]]:
        """Give the snapshot, which of its slots hold items that pass a filter, and a connection."""
        known = {} if tree is None else self._masks.recall(tree)
        with self.reading() as (snapshot, connection):
            mask = snapshot.slot_table.live.rows
            if tree is not None:
                with deadline(connection, self.filter_seconds):
                    mask = mask & self._masks.mask(tree, known, snapshot.slot_table, connection)
            yield snapshot, mask, connection

    # Writing ---------------------------------------------------------------------------------------

    def write(
        self, step: Callable[[Connection, CollectionSnapshot], CollectionSnapshot], n_items: int | None = None
    ) -> tuple[CollectionSnapshot, CollectionSnapshot]:
        """Commit a step, then publish its snapshot; return the snapshots before and after it.

        ``n_items`` counts the items that were written; None: as many as were deleted. If writes come faster
        than the index can be measured, they wait for the measurement.
        """
        if self.snapshot.index is not None and self.snapshot.index.is_overdue:
            self.wait_until_measured()
        return self._write(step, n_items)

    def _write(
        self, step: Callable[[Connection, CollectionSnapshot], CollectionSnapshot], n_items: int | None
    ) -> tuple[CollectionSnapshot, CollectionSnapshot]:
        with self._lock:
            self.require_open()
            self._read_again_if_interrupted()
            before = self.snapshot
            with self.database.writing() as connection:
                after = step(connection, before)
            self.snapshot = after
            deleted = before.slot_table.n_live - after.slot_table.n_live
            self._n_unsaved += deleted if n_items is None else n_items
            worth_saving = saved_index.is_worth_it(after, self._n_unsaved)
        self._measure_if_due()
        if worth_saving and self._long_work.acquire(blocking=False):
            try:
                self._save_index()
            finally:
                self._long_work.release()
        return before, after

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """Give a transaction that changes nothing that searches see."""
        with self._lock:
            self.require_open()
            with self.database.writing() as connection:
                yield connection

    @property
    def generations(self) -> list[int]:
        """The generations that have codes; a write changes the codes of all of them."""
        return [generation for generation in {self.snapshot.generation, self._new_generation} if generation]

    def _read_again_if_interrupted(self) -> None:
        """Read the snapshot from the database if a write was interrupted after its commit.

        The caller holds the lock of writes.
        """
        with self.database.reading() as connection:
            version = tables.get_meta(connection, "version")
        if version != self.snapshot.version:
            numbering = self.snapshot.slot_table.numbering + 1
            self.snapshot, self._n_unsaved = opening.read_snapshot(self.path, self.database, numbering)

    # Long work -------------------------------------------------------------------------------------

    def reindex(self, hasher: Hasher[Any] | None, options: Mapping[str, Any]) -> None:
        """Make codes with another hasher, and search by them."""
        with self._long_work:
            self.require_open()
            checked = opening.checked_index_options(options)
            merged: Mapping[str, Any] = {**self.snapshot.options, **checked}
            if hasher is not None:
                own = build_index.own_copy(hasher)
            elif self._set_options(merged):
                return  # the first items make the index
            else:
                with self.reading() as (snapshot, connection):
                    own, merged = reindexing.own_hasher(connection, snapshot, merged)
            work = reindexing.Reindexing(own, merged, self.reading, self.writing)
            self._new_generation = work.begin()
            try:
                n_items = self.snapshot.slot_table.n_live
                for _ in progress(work.steps(), "reindexing", "block", -(-n_items // build_index.BLOCK)):
                    pass
                _, after = self._write(work.finish, self.snapshot.slot_table.n_live)
            finally:
                self._new_generation = 0
                self._drop_unused_codes()
            if saved_index.is_worth_it(after, self._n_unsaved):
                self._save_index()

    def _set_options(self, options: Mapping[str, Any]) -> bool:
        """Set the options of a collection that never had an item; whether it was one."""

        def step(connection: Connection, snapshot: CollectionSnapshot) -> CollectionSnapshot:
            if snapshot.n_features is not None:
                return snapshot
            build_index.empty_index(None, build_index.with_defaults(options))  # raises if they are wrong
            version = snapshot.version + 1
            tables.put_meta(connection, {"options": json.dumps(options), "version": version})
            return replace(snapshot, options=options, version=version)

        return self._write(step, 0)[1].n_features is None

    def _drop_unused_codes(self) -> None:
        """Remove codes that are out of use; if that fails, the next opening does it."""
        try:
            more = True
            while more:
                with self._lock:
                    more = reindexing.drop_unused_codes(self.database)
        except StorageError as error:
            logger.warning("codes that are out of use stay until the next opening: %s", error)

    def _measure_if_due(self) -> None:
        """Measure the index in the background if its items have changed so much that this is due."""
        with self._lock:
            index = self.snapshot.index
            is_running = self._measuring is not None and self._measuring.is_alive()
            if index is None or not index.is_due or is_running or self._closed:
                return
            self._measuring = threading.Thread(target=self._measure, name="posh-measuring", daemon=True)
            self._measuring.start()

    def _measure(self) -> None:
        """Measure the newest snapshot, and give the measurements to the snapshot that is the newest then."""
        with self._long_work, cancellable(self._stop_measuring):
            before = self.snapshot
            try:
                if before.index is None or self._closed:
                    return
                measured = before.index.measured()
                with self._lock:
                    self._publish_measurements(before, measured)
            except CancelledError:
                pass  # the collection is being closed
            except Exception as error:  # the writes that caused it are done
                logger.warning("%s: the index was not measured again (%s)", self.path, error)

    def _publish_measurements(self, before: CollectionSnapshot, measured: IndexSnapshot) -> None:
        """Give measurements of an earlier snapshot to the newest one; the caller holds the lock of writes."""
        now = self.snapshot
        if (
            now.index is None
            or before.index is None
            or now.slot_table.numbering != before.slot_table.numbering
        ):
            return
        index = now.index.with_measurements(before.index, measured)
        if index is None:
            return
        with self.database.writing() as connection:
            args = (now.generation, index, now.n_trained, before.last_seq)
            build_index.write_trained_state(connection, *args)
        self.snapshot = replace(now, index=index)

    def wait_until_measured(self) -> None:
        """Wait for a measurement that is under way."""
        thread = self._measuring
        if thread is not None:
            thread.join()  # it takes the locks of writes and of long work: the caller has neither

    def compact(self) -> None:
        """Release the memory and the disk space of deleted items, erase their traces, and save the index."""
        with self._long_work:
            with self._lock:
                self.require_open()
                self._read_again_if_interrupted()
                before = self.snapshot
            after = before.compacted()  # without the lock: this may take long
            with self._lock:
                is_saved = after is before and not self._n_unsaved
                self.snapshot = after if self.snapshot is before else self.snapshot.compacted()
                was_deleted_from = self.snapshot.last_seq > self.snapshot.slot_table.n_live
                self.database.rewrite(even_if_full=was_deleted_from)
            if not is_saved and not self._save_index():
                with self.writing() as connection:  # the saved index may hold deleted items
                    tables.put_meta(connection, {"snapshot": None})
            saved_index.require_none_unused(self.path, self.database)
            with self._lock:
                self.database.empty_log()

    def _save_index(self) -> bool:
        """Save the index, under the lock of long work; return whether that worked, or opening builds it."""
        with self._lock:
            snapshot, self._n_unsaved = self.snapshot, 0
        try:
            self.database.require_same_file("the index is not saved")  # saving would make the folder again
            with contextlib.ExitStack() as afterwards:
                afterwards.callback(saved_index.remove_unused, self.path, self.database)
                name = saved_index.write(self.path, snapshot)
                with self._lock, self.database.writing() as connection:
                    now = self.snapshot
                    if now.training == snapshot.training:
                        tables.put_meta(connection, {"snapshot": name})
        except Exception as error:  # the write that caused the saving is done and must not fail
            logger.warning("%s: the index is not saved (%s): opening will take longer", self.path, error)
            with self._lock:
                self._n_unsaved += 1  # so that compact tries again
            return False
        return True

    def close(self) -> None:
        """Wait for work under way, save the index if it is worth it, and release the folder."""
        with self._lock:
            if self._closed or os.getpid() != self._process:
                return
            self._closed = True
        self._stop_measuring.set()
        with self._long_work:
            try:
                if saved_index.is_worth_it(self.snapshot, self._n_unsaved):
                    self._save_index()
            finally:
                with self._lock:
                    self.database.close()
                self._folder_lock.release()
