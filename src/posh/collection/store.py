"""The store of an embedded collection: the database, and the snapshot that searches see.

The store keeps both in step while threads write and search, and when a write is interrupted. A write changes
the database and makes the next snapshot within one transaction, before its commit. If one of them fails,
nothing has changed.

:class:`ReadOnlyStore` is a folder that is open read-only, while another process may write to it. One
transaction stays open and reads the state that the collection had when it was opened. SQLite keeps this state
in its log while other processes write, so reading neither locks nor writes anything. SQLite needs two small
files next to the database for this. If it cannot create them, in a read-only folder or on a full disk, the
database is read without them. Then its lock keeps writers out.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from posh._durable import LockFile
from posh._runtime import cancel_on, track_progress
from posh.collection import database, indexing, opening, tables, text_index
from posh.collection.base import Id, Item, Payload
from posh.collection.database import CLOSED, Connection, connect, limit_time, translate_sqlite_errors
from posh.collection.filters import Tree
from posh.collection.masks import Masks, combine_masks
from posh.collection.opening import DATABASE, FolderLock, OpenOptions, lock_out_writers
from posh.collection.snapshot import CollectionSnapshot, Mask, Seqs, Slots
from posh.collection.tables import StoredId
from posh.collection.text import NO_TEXT, TextOptions
from posh.errors import CancelledError, FormatError, StorageError
from posh.hashers.base import Hasher
from posh.index.base import IndexSnapshot
from posh.index.codes.snapshot import CodeSnapshot
from posh.index.nearest.queries import OwnQueries
from posh.index.nearest.snapshot import NearestSnapshot
from posh.preprocess import Float32

__all__ = ["PinnedDatabase", "ReadOnlyStore", "Store", "delete", "update_payload", "upsert"]

_NEVER = threading.Event()  # is never set
_READ_TOGETHER = 32  # items that are read together to be changed
_PART_BYTES = 1 << 24  # of changed items that are in memory together


def upsert(
    connection: Connection,
    snapshot: CollectionSnapshot,
    generations: Sequence[int],
    ids: list[Id],
    vectors: Float32,
    payloads: list[Payload],
) -> CollectionSnapshot:
    """Write items in place of those with the same ids; ``generations`` are those that have codes."""
    if snapshot.n_features not in (None, vectors.shape[1]):
        raise ValueError(
            f"expected vectors with {snapshot.n_features} columns, as a concurrent write has set, "
            f"got {vectors.shape[1]}"
        )
    if snapshot.index is None and snapshot.options.get("metric") is not None:
        snapshot = _start_index(connection, snapshot)
    if snapshot.text is not None:
        text_index.remove(connection, snapshot.text, ids)
    replaced = tables.delete_items(connection, ids, generations)
    slots = _find_slots(snapshot, replaced)
    seqs = np.arange(snapshot.last_seq + 1, snapshot.last_seq + 1 + len(ids))
    added_sum = tables.insert_items(connection, seqs, ids, payloads, vectors)
    if snapshot.text is not None:
        text_index.insert(connection, snapshot.text, zip(seqs.tolist(), payloads, strict=True))
    if snapshot.n_features is None:
        tables.put_meta(connection, {"n_features": vectors.shape[1]})
    ids_array = np.empty(len(ids), object)
    ids_array[:] = ids
    following = replace(
        snapshot,
        n_features=vectors.shape[1],
        slot_table=snapshot.slot_table.without(slots).with_items(seqs, ids_array),
        last_seq=int(seqs[-1]),
    )
    if snapshot.index is not None:
        following = _add_documents(connection, following, snapshot.index.without(slots), seqs, vectors)
    return _count_write(connection, following, replaced, added_sum)


def delete(
    connection: Connection, snapshot: CollectionSnapshot, generations: Sequence[int], ids: list[Id]
) -> CollectionSnapshot:
    """Delete the items with these ids that exist."""
    if snapshot.text is not None:
        text_index.remove(connection, snapshot.text, ids)
    deleted = tables.delete_items(connection, ids, generations)
    if not deleted:
        return snapshot
    slots = _find_slots(snapshot, deleted)
    following = replace(snapshot, slot_table=snapshot.slot_table.without(slots))
    if snapshot.index is not None:
        with cancel_on(_NEVER):
            following = _measure_if_small(connection, following, snapshot.index.without(slots))
    return _count_write(connection, following, deleted, 0)


def update_payload(
    connection: Connection,
    snapshot: CollectionSnapshot,
    generations: Sequence[int],
    updates: Mapping[Id, Payload],
    replace: bool,
    max_bytes: int | None,
) -> CollectionSnapshot:
    """Write items again with other payloads, in parts: together, their payloads may be large."""
    items: list[Item] = []
    n_bytes = 0
    for item in tables.read_items_in_parts(connection, list(updates), _READ_TOGETHER):
        own = {} if replace else item.payload
        payload = own | updates[item.id]
        size = len(tables.dump_payload(payload).encode())
        if max_bytes is not None and size > max_bytes:
            raise ValueError(
                f"expected payloads of at most {max_bytes:,} bytes, got {size:,} for {item.id!r:.80}: "
                "keep large content elsewhere"
            )
        items.append(item._replace(payload=payload))
        n_bytes += size + item.vector.nbytes
        if n_bytes > _PART_BYTES:
            snapshot, items, n_bytes = _write_again(connection, snapshot, generations, items), [], 0
    return _write_again(connection, snapshot, generations, items) if items else snapshot


def _write_again(
    connection: Connection, snapshot: CollectionSnapshot, generations: Sequence[int], items: list[Item]
) -> CollectionSnapshot:
    ids, vectors, payloads = zip(*items, strict=True)
    return upsert(connection, snapshot, generations, list(ids), np.stack(vectors), list(payloads))


def _find_slots(snapshot: CollectionSnapshot, items: list[StoredId]) -> Slots:
    return snapshot.slot_table.find_slots(np.array([item.seq for item in items], np.int64))


def _start_index(connection: Connection, snapshot: CollectionSnapshot) -> CollectionSnapshot:
    """Start the first generation of an empty collection with a metric."""
    generation = indexing.insert_generation(connection, None)
    tables.put_meta(connection, {"generation": generation})
    return replace(snapshot, generation=generation, index=indexing.make_index(None, snapshot.options))


def _add_documents(
    connection: Connection, snapshot: CollectionSnapshot, index: IndexSnapshot, seqs: Seqs, vectors: Float32
) -> CollectionSnapshot:
    """Add new items to the index, and train it again first if it needs that.

    Training is not cancelled: the next write would have to restart it, and could be cancelled as well.
    """
    block = tables.Block(seqs, vectors, None)
    if isinstance(index, CodeSnapshot):
        codes = index.encode(vectors)
        tables.insert_codes(connection, snapshot.generation, seqs, codes)
        block = block._replace(codes=codes)
    with cancel_on(_NEVER):
        if indexing.must_train_again(index, snapshot.n_trained, snapshot.slot_table.n_live):
            return _train_again(connection, snapshot, index)
        return _measure_if_small(connection, snapshot, indexing.add_block(index, block))


def _measure_if_small(
    connection: Connection, snapshot: CollectionSnapshot, index: IndexSnapshot
) -> CollectionSnapshot:
    """Measure an index within the write that changed it, if it is small or if one write changed most of it.

    Otherwise the store does so in the background.
    """
    was_due = snapshot.index is not None and snapshot.index.is_due
    if index.is_due and (len(index) <= indexing.AT_ONCE or (index.is_overdue and not was_due)):
        before, index = index, index.measure_if_due()
        if not index.has_measurements_of(
            before
        ):  # otherwise its graph was extended, which is not stored here
            args = (snapshot.generation, index, snapshot.n_trained, snapshot.last_seq)
            indexing.write_trained_state(connection, *args)
    return replace(snapshot, index=index)


def _train_again(
    connection: Connection, snapshot: CollectionSnapshot, index: IndexSnapshot
) -> CollectionSnapshot:
    """Train the index on all items, and rebuild it."""
    table = snapshot.slot_table.compact()
    trained = indexing.train_index(connection, index, table)
    filled = indexing.fill_index(connection, snapshot.generation, trained, table).measure_if_due()
    indexing.write_trained_state(connection, snapshot.generation, filled, table.n_live, snapshot.last_seq)
    return replace(snapshot, slot_table=table, index=filled, n_trained=table.n_live)


def _count_write(
    connection: Connection, snapshot: CollectionSnapshot, deleted: list[StoredId], added_sum: int
) -> CollectionSnapshot:
    """Count the write, in the database and in the snapshot."""
    deleted_sum = sum(tables.checksum_id(item.seq, item.id) for item in deleted)
    following = replace(
        snapshot,
        version=snapshot.version + 1,
        ids_sum=tables.add_checksums(snapshot.ids_sum, added_sum, deleted_sum),
    )
    tables.put_meta(
        connection,
        {"version": following.version, "last_seq": following.last_seq, "ids_sum": following.ids_sum},
    )
    return following.compact_if_half_empty()


logger = logging.getLogger(__name__)

_TRIES = 100  # to read the database in the state of the newest snapshot, a millisecond apart


class Store:
    """An open folder.

    Every write replaces ``snapshot`` in one assignment, after the commit of its transaction. A search takes
    the snapshot once. Writes run one after the other, under a lock. Long work has a separate lock.
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
        self.filter_seconds: float | None = None  # limit for a filter; None: no limit
        self.payload_bytes: int | None = None  # of a payload after an update; None: any number
        self._closed = False
        self._new_generation = 0  # the generation that reindexing makes, 0 if it does not run
        self._n_unsaved = 0  # items written since the index was saved
        self._measuring: threading.Thread | None = None
        self._stop_measuring = threading.Event()

    def _open(self, options: OpenOptions) -> None:
        path = self.path
        options.require_kind(path)
        opening.prepare_folder(path)
        with contextlib.ExitStack() as undo:
            self._folder_lock = FolderLock(path)
            undo.callback(self._folder_lock.release)
            options.require_absence(path)
            self.database = opening.open_database(path, options)
            undo.callback(self.database.close)
            self.snapshot, self._n_unsaved = opening.read_snapshot(path, self.database)
            self._drop_unused_codes()  # a process that was stopped while it reindexed has left some
            indexing.remove_unused_saved(path, self.database)
            metadata = tables.load_payload(opening.read_metadata(self.database))
            options.require_agreement(path, self.snapshot, metadata)
            if self.snapshot.index is None and options.hasher is not None:
                self.reindex(options.hasher, options.index_options)
            elif indexing.lacks_index(self.snapshot):
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
        """Yield the snapshot, and a connection that reads the database in the same state."""
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

    def evaluate_filter(self, tree: Tree) -> tuple[CollectionSnapshot, Mask]:
        """Return the snapshot, and the mask of its slots that pass a filter.

        This reads the database only for conditions whose masks are not known.
        """
        known = self._masks.recall(tree)
        snapshot = self.snapshot  # after recall, which explains why
        mask = combine_masks(tree, known, snapshot.slot_table)
        if mask is None:
            with self.reading() as (snapshot, connection), limit_time(connection, self.filter_seconds):
                mask = self._masks.make_mask(tree, known, snapshot.slot_table, connection)
        return snapshot, mask

    def make_mask(self, tree: Tree, snapshot: CollectionSnapshot, connection: Connection) -> Mask:
        """Return the mask of slots that pass a filter; the connection reads the state of the snapshot."""
        with limit_time(connection, self.filter_seconds):
            return self._masks.make_mask(tree, self._masks.recall(tree), snapshot.slot_table, connection)

    @contextlib.contextmanager
    def reading_filtered(self, tree: Tree | None) -> Iterator[tuple[CollectionSnapshot, Mask, Connection]]:
        """Yield the snapshot, the mask of live slots that pass a filter, and a connection."""
        known = {} if tree is None else self._masks.recall(tree)
        with self.reading() as (snapshot, connection):
            mask = snapshot.slot_table.live.rows
            if tree is not None:
                with limit_time(connection, self.filter_seconds):
                    mask = mask & self._masks.make_mask(tree, known, snapshot.slot_table, connection)
            yield snapshot, mask, connection

    # Writing ---------------------------------------------------------------------------------------

    def write(
        self, step: Callable[[Connection, CollectionSnapshot], CollectionSnapshot], n_items: int | None = None
    ) -> tuple[CollectionSnapshot, CollectionSnapshot]:
        """Commit a step, then publish its snapshot; return the snapshots before and after it.

        ``n_items`` counts the written items; None counts the deleted ones. If writes come faster
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
            before.slot_table.load_ids()
            with self.database.writing() as connection:
                after = step(connection, before)
            self.snapshot = after
            deleted = before.slot_table.n_live - after.slot_table.n_live
            self._n_unsaved += deleted if n_items is None else n_items
            worth_saving = indexing.is_worth_saving(after, self._n_unsaved)
        self._measure_if_due()
        if worth_saving and self._long_work.acquire(blocking=False):
            try:
                self._save_index()
            finally:
                self._long_work.release()
        return before, after

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """Yield a transaction that does not affect searches."""
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
        """Build another index for all items, and search it from then on."""
        with self._long_work:
            self.require_open()
            valid = opening.validate_index_options(options, has_hasher=hasher is not None)
            index = self.snapshot.index
            present = index.hasher if isinstance(index, CodeSnapshot) else None
            own, merged = indexing.resolve_index(present, self.snapshot.options, hasher, valid)
            opening.validate_index_options(merged, has_hasher=own is not None)
            if own is None and self._set_options(merged):
                return  # the first items make the index
            queries = index.queries if isinstance(index, NearestSnapshot) else None
            work = indexing.Reindexing(own, merged, queries, self.reading, self.writing)
            self._new_generation = work.begin()
            try:
                n_items = self.snapshot.slot_table.n_live
                for _ in track_progress(work.steps(), "reindexing", "block", -(-n_items // indexing.BLOCK)):
                    pass
                _, after = self._write(work.finish, self.snapshot.slot_table.n_live)
            finally:
                self._new_generation = 0
                self._drop_unused_codes()
            if indexing.is_worth_saving(after, self._n_unsaved):
                self._save_index()

    def _set_options(self, options: Mapping[str, Any]) -> bool:
        """Set the options of a collection that never had an item; return whether it is one."""

        def step(connection: Connection, snapshot: CollectionSnapshot) -> CollectionSnapshot:
            if snapshot.n_features is not None:
                return snapshot
            indexing.make_index(None, options)  # raises if the options are wrong
            version = snapshot.version + 1
            tables.put_meta(connection, {"options": json.dumps(options), "version": version})
            return replace(snapshot, options=options, version=version)

        return self._write(step, 0)[1].n_features is None

    def index_text(self, options: TextOptions | None) -> None:
        """Build the text index again, with other options unless they are None."""

        def step(connection: Connection, snapshot: CollectionSnapshot) -> CollectionSnapshot:
            following = replace(snapshot, text=options or snapshot.text, version=snapshot.version + 1)
            if following.text is None:
                raise ValueError(NO_TEXT)
            text_index.rebuild(connection, snapshot.text, following.text)
            tables.put_meta(connection, {"version": following.version})
            return following

        self._write(step, 0)

    def calibrate(self, queries: OwnQueries | None) -> None:
        """Calibrate searches by a metric with queries, while searches and writes continue."""
        with self._long_work:
            self.require_open()
            before = self.snapshot
            measured = indexing.require_metric(before.index).calibrate(queries)

            def step(connection: Connection, now: CollectionSnapshot) -> CollectionSnapshot:
                present, index = indexing.require_metric(now.index), None
                measured_seq = before.last_seq
                if now.slot_table.numbering == before.slot_table.numbering:
                    index = present.with_measurements(indexing.require_metric(before.index), measured)
                if index is None:  # a concurrent write has measured as well, or compacted
                    index, measured_seq = present.calibrate(queries), now.last_seq
                args = (now.generation, index, now.n_trained, measured_seq)
                indexing.write_trained_state(connection, *args)
                tables.put_meta(connection, {"version": now.version + 1})
                return replace(now, index=index, version=now.version + 1)

            _, after = self._write(step, 0)
            if indexing.is_worth_saving(after, after.slot_table.n_live):
                self._save_index()
        lists = indexing.require_metric(after.index).lists
        if lists is not None:
            lists.warn_if_uncertain(stacklevel=5)

    def _drop_unused_codes(self) -> None:
        """Remove unused codes; if that fails, the next opening does it."""
        try:
            more = True
            while more:
                with self._lock:
                    more = indexing.drop_unused_codes(self.database)
        except StorageError as error:
            logger.warning("unused codes remain until the next opening: %s", error)

    def _measure_if_due(self) -> None:
        """Measure the index in the background if enough items have changed."""
        with self._lock:
            index = self.snapshot.index
            is_running = self._measuring is not None and self._measuring.is_alive()
            if index is None or not index.is_due or is_running or self._closed:
                return
            self._measuring = threading.Thread(target=self._measure, name="posh-measuring", daemon=True)
            self._measuring.start()

    def _measure(self) -> None:
        """Measure the newest snapshot, and hand the measurements to its latest successor."""
        with self._long_work, cancel_on(self._stop_measuring):
            before = self.snapshot
            try:
                if before.index is None or self._closed:
                    return
                measured = before.index.measure_if_due()
                with self._lock:
                    self._publish_measurements(before, measured)
            except CancelledError:
                pass  # the collection is being closed
            except Exception as error:  # the writes that caused it are done
                logger.warning("%s: the index was not measured again (%s)", self.path, error)

    def _publish_measurements(self, before: CollectionSnapshot, measured: IndexSnapshot) -> None:
        """Hand measurements of an earlier snapshot to the newest one; the caller holds the lock of writes."""
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
        if not index.has_measurements_of(now.index):
            with self.database.writing() as connection:
                args = (now.generation, index, now.n_trained, before.last_seq)
                indexing.write_trained_state(connection, *args)
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
            after = before.compact()  # without the lock: this may take long
            with self._lock:
                is_saved = after is before and not self._n_unsaved
                self.snapshot = after if self.snapshot is before else self.snapshot.compact()
                was_deleted_from = self.snapshot.last_seq > self.snapshot.slot_table.n_live
                if was_deleted_from and self.snapshot.text is not None:
                    with self.database.writing() as connection:
                        text_index.optimize(connection)
                self.database.rewrite(even_if_full=was_deleted_from)
            if not is_saved and not self._save_index():
                with self.writing() as connection:  # the saved index may hold deleted items
                    tables.put_meta(connection, {"snapshot": None})
            indexing.require_none_unused(self.path, self.database)
            with self._lock:
                self.database.empty_log()

    def _save_index(self) -> bool:
        """Save the index, under the lock of long work; return whether that succeeded."""
        with self._lock:
            snapshot, self._n_unsaved = self.snapshot, 0
        try:
            self.database.require_same_file("the index is not saved")  # saving would recreate the folder
            with contextlib.ExitStack() as afterwards:
                afterwards.callback(indexing.remove_unused_saved, self.path, self.database)
                name = indexing.save_index(self.path, snapshot)
                with self._lock, self.database.writing() as connection:
                    now = self.snapshot
                    if now.training == snapshot.training:
                        tables.put_meta(connection, {"snapshot": name})
        except Exception as error:  # the write that caused the saving is done and must not fail
            logger.warning("%s: the index is not saved (%s): opening will take longer", self.path, error)
            with self._lock:
                self._n_unsaved += 1  # so that compact retries
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
                if indexing.is_worth_saving(self.snapshot, self._n_unsaved):
                    self._save_index()
            finally:
                with self._lock:
                    self.database.close()
                self._folder_lock.release()


class PinnedDatabase:
    """A consistent state of a database. All threads share its connection: SQLite's usual build allows it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._n_readers = 0
        self._closed = False
        if sqlite3.threadsafety != 3:
            raise StorageError(
                "expected an SQLite whose connections threads can share, got another: open it for writing"
            )
        self._writers_lock: LockFile | None = None
        with translate_sqlite_errors(path):
            try:
                self._open("ro")
            except sqlite3.OperationalError as error:
                self._open_without_log(error)

    def _open(self, mode: str) -> None:
        self._connection = connect(self.path, mode)
        try:
            self._check()
        except BaseException:
            self._connection.close()
            raise

    def _open_without_log(self, error: sqlite3.OperationalError) -> None:
        """Open a database whose log is missing or empty; raise ``error`` otherwise."""
        try:
            self._writers_lock = lock_out_writers(self.path.parent)
        except OSError:
            raise error from None
        try:
            log = self.path.with_name(f"{self.path.name}-wal")
            if log.exists() and log.stat().st_size:
                raise error
            self._open("ro&immutable=1")
        except BaseException:
            self._release()
            raise

    def _release(self) -> None:
        if self._writers_lock is not None:
            self._writers_lock.close()

    def _check(self) -> None:
        self._connection.execute("BEGIN")
        (application,) = self._connection.execute("PRAGMA application_id").fetchone()
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        versions = database.WITHOUT_TEXT, database.VERSION
        if application != database.APPLICATION or version not in versions:
            raise FormatError(
                f"{self.path}: expected a POSH collection of format version {versions[0]} or {versions[1]}, "
                "found another: open it once for writing if it is older, upgrade posh-ann if it is newer"
            )

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yield the connection; its transaction stays open."""
        with self._lock:
            if self._closed:
                raise sqlite3.ProgrammingError("the database is closed")
            self._n_readers += 1
        try:
            with translate_sqlite_errors(self.path):
                yield self._connection
        finally:
            with self._lock:
                self._n_readers -= 1
                if self._closed and not self._n_readers:
                    self._shut()

    def close(self) -> None:
        """Close the connection after the last reader has finished."""
        with self._lock:
            if not self._closed and not self._n_readers:
                self._shut()
            self._closed = True

    def _shut(self) -> None:
        self._connection.close()
        self._release()


class ReadOnlyStore(Store):
    """A folder that is open read-only: searches see the same state until :meth:`refresh`."""

    is_read_only = True

    def __init__(self, path: Path, options: OpenOptions) -> None:
        self._begin(path)
        self.database: Any = PinnedDatabase(path / DATABASE)
        try:
            self.snapshot, _ = opening.read_snapshot(path, self.database)
            metadata = tables.load_payload(opening.read_metadata(self.database))
            options.require_agreement(path, self.snapshot, metadata)
            if indexing.lacks_index(self.snapshot):
                raise FormatError(
                    f"{path}: expected an index of the metric, found none, as older versions left it: "
                    "open it once for writing"
                )
        except BaseException:
            self.database.close()
            raise

    def refresh(self) -> None:
        """Switch to the newest state; readers that have begun finish with the old one."""
        with self._long_work:
            self.require_open()
            newest = PinnedDatabase(self.path / DATABASE)
            try:
                with newest.reading() as connection:
                    version = tables.get_meta(connection, "version")
                snapshot = self.snapshot
                if version != snapshot.version:
                    numbering = snapshot.slot_table.numbering + 1
                    snapshot, _ = opening.read_snapshot(self.path, newest, numbering)
            except BaseException:
                newest.close()
                raise
            self.snapshot.slot_table.load_ids()  # searches of the old snapshot cannot read them any more
            old, self.snapshot, self.database = self.database, snapshot, newest
            old.close()

    def _read_again_if_interrupted(self) -> None:
        """Do nothing: nothing is written here, and a mismatch means that a refresh is under way."""

    def write(
        self, step: Callable[[Connection, CollectionSnapshot], CollectionSnapshot], n_items: int | None = None
    ) -> NoReturn:
        """Refuse."""
        self._refuse()

    def writing(self) -> NoReturn:
        """Refuse."""
        self._refuse()

    def reindex(self, hasher: Hasher[Any] | None, options: Mapping[str, Any]) -> None:
        """Refuse."""
        self._refuse()

    def index_text(self, options: TextOptions | None) -> None:
        """Refuse."""
        self._refuse()

    def calibrate(self, queries: OwnQueries | None) -> None:
        """Refuse."""
        self._refuse()

    def compact(self) -> None:
        """Refuse."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        self.require_open()
        raise StorageError(
            f"{self.path}: expected a collection that is open for writing, got one that is open read-only: "
            "open it without read_only, in one process at a time"
        )

    def close(self) -> None:
        """Close the database."""
        with self._long_work:
            self._closed = True
            self.database.close()
