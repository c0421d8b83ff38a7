"""What keeps the database and the moment that searches see in step, whoever writes, searches or is killed."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from posh._progress import progress
from posh.collection import building, opening, snapshots, tables
from posh.collection.directory import Mask
from posh.collection.filters import Filter
from posh.collection.given import Given, checked_options
from posh.collection.lock import FolderLock
from posh.collection.masks import Masks, combined
from posh.collection.moment import Moment
from posh.collection.reindexing import Reindexing
from posh.collection.storage import CLOSED, Connection, deadline
from posh.errors import StorageError
from posh.hashers.base import Hasher

__all__ = ["Engine"]

logger = logging.getLogger(__name__)

_TRIES = 100  # to read the database at the moment that was published last, a millisecond apart
_PAGES = 200  # given back to the disk in one go: others may write in between


class Engine:
    """An open folder.

    ``moment`` is replaced by every write in one assignment, after its transaction was committed; who searches
    takes it once. Writes are done one after the other, under a lock, and so is long work, under another one.
    """

    def __init__(self, path: Path, given: Given) -> None:
        self.path = path
        self.moment: Moment
        self._process = os.getpid()
        self._lock = threading.Lock()  # of whoever writes
        self._long_work = threading.Lock()  # of whoever reindexes, compacts or saves: taken before the other
        self._masks = Masks()
        self.filter_seconds: float | None = None  # how long a filter may take; None: as long as it takes
        self._closed = False
        self._in_making = 0  # the generation of codes that reindexing makes
        self._changes = 0  # items written since the last snapshot
        opening.prepare_folder(path)
        with contextlib.ExitStack() as undo:
            self._folder_lock = FolderLock(path)
            undo.callback(self._folder_lock.release)
            self.database = opening.open_database(path, given.first_meta())
            undo.callback(self.database.close)
            self.moment, self._changes = opening.read_moment(path, self.database)
            self._drop_unused_codes()  # of a process that was stopped in the middle of reindexing
            snapshots.remove_unused(path, self.database)
            given.require_agreement(path, self.moment, tables.loads(opening.read_metadata(self.database)))
            if self.moment.index is None and given.hasher is not None:
                self.reindex(given.hasher, given.options)
            undo.pop_all()

    @property
    def is_closed(self) -> bool:
        """Whether it is closed, or being closed."""
        return self._closed

    def require_open(self) -> None:
        """Raise if it cannot be used any more, or not in this process."""
        if self._closed:
            raise ValueError(CLOSED)
        if os.getpid() != self._process:
            raise ValueError(
                "expected a collection of this process, got one that was opened before a fork: "
                "open it in the process that uses it, after closing it in the other"
            )

    # Reading ---------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def one_moment(self) -> Iterator[tuple[Moment, Connection]]:
        """The moment, and a connection that reads the database as it was then."""
        for attempt in itertools.count(1):
            with self.database.reading() as connection:
                moment = self.moment
                if tables.get_meta(connection, "version") == moment.version:
                    yield moment, connection
                    return
            if attempt < _TRIES:
                time.sleep(0.001)  # a write was committed just now, and is not published yet
            else:
                with self._lock:
                    self._agree()

    def filtered(self, tree: Filter) -> tuple[Moment, Mask]:
        """The moment, and which of its slots pass a filter: without the database if that is known."""
        known = self._masks.recall(tree)
        moment = self.moment  # taken after what is known: see there
        mask = combined(tree, known, moment.directory)
        if mask is None:
            with self.one_moment() as (moment, connection), deadline(connection, self.filter_seconds):
                mask = self._masks.mask(tree, known, moment.directory, connection)
        return moment, mask

    @contextlib.contextmanager
    def chosen(self, tree: Filter | None) -> Iterator[tuple[Moment, Mask, Connection]]:
        """The moment, which of its slots hold items that pass a filter, and a connection that reads them."""
        known = {} if tree is None else self._masks.recall(tree)
        with self.one_moment() as (moment, connection):
            mask = moment.directory.live.rows
            if tree is not None:
                with deadline(connection, self.filter_seconds):
                    mask = mask & self._masks.mask(tree, known, moment.directory, connection)
            yield moment, mask, connection

    # Writing ---------------------------------------------------------------------------------------

    def change(self, step: Callable[[Connection, Moment], Moment], n_items: int) -> tuple[Moment, Moment]:
        """Do a write, in the database first and then for searches; the moments before and after it."""
        with self._lock:
            self.require_open()
            self._agree()
            before = self.moment
            with self.database.writing() as connection:
                after = step(connection, before)
            self.moment = after
            self._changes += n_items
            worth = snapshots.is_worth_it(after, self._changes)
        if worth and self._long_work.acquire(blocking=False):
            try:
                self._write_snapshot()
            finally:
                self._long_work.release()
        return before, after

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that changes nothing of what searches see."""
        with self._lock:
            self.require_open()
            with self.database.writing() as connection:
                yield connection

    @property
    def generations(self) -> list[int]:
        """Those that have codes, for whoever writes."""
        return [number for number in {self.moment.generation, self._in_making} if number]

    def _agree(self) -> None:
        """Read the moment again if a write was interrupted after its commit. Called under the lock."""
        with self.database.reading() as connection:
            version = tables.get_meta(connection, "version")
        if version != self.moment.version:
            numbering = self.moment.directory.numbering + 1
            self.moment, self._changes = opening.read_moment(self.path, self.database, numbering)

    # Long work -------------------------------------------------------------------------------------

    def reindex(self, hasher: Hasher[Any], options: Mapping[str, Any]) -> None:
        """Make codes by another hasher and search by them."""
        with self._long_work:
            self.require_open()
            merged = {**self.moment.options, **checked_options(options)}
            work = Reindexing(building.own_copy(hasher), merged, self.one_moment, self.writing)
            self._in_making = work.begin()
            try:
                total = -(-self.moment.directory.n_live // building.BLOCK)
                for _ in progress(work.steps(), "reindexing", "block", total):
                    pass
                _, after = self.change(work.finish, self.moment.directory.n_live)
            finally:
                self._in_making = 0
                self._drop_unused_codes()
            if snapshots.is_worth_it(after, self._changes):
                self._write_snapshot()

    def _drop_unused_codes(self) -> None:
        """Remove codes that are out of use; if that fails, the next opening does it."""
        try:
            more = True
            while more:
                with self._lock:
                    more = opening.drop_unused_codes(self.database)
        except StorageError as error:
            logger.warning("codes that are out of use stay until the next opening: %s", error)

    def compact(self) -> None:
        """Give back memory and room on the disk, and write a snapshot."""
        with self._long_work:
            with self._lock:
                self.require_open()
                self._agree()
                before = self.moment
            after = before.compacted()  # may take long: others write meanwhile
            with self._lock:
                self.moment = after if self.moment is before else self.moment.compacted()
            more = True
            while more:
                with self._lock:
                    self.database.require_place("nothing more is given back")
                    more = self.database.shrink(_PAGES)
                time.sleep(0)  # whoever waits for the lock gets it
            if self._changes:
                self._write_snapshot()

    def _write_snapshot(self) -> None:
        """Write the index down; if that fails, it can be built again. Called under the lock of long work."""
        with self._lock:
            moment, self._changes = self.moment, 0
        try:
            self.database.require_place("no snapshot is written")  # which would make the folder anew
            with contextlib.ExitStack() as afterwards:
                afterwards.callback(snapshots.remove_unused, self.path, self.database)
                name = snapshots.write(self.path, moment)
                with self._lock, self.database.writing() as connection:
                    now = self.moment
                    if (now.generation, now.learned_from) == (moment.generation, moment.learned_from):
                        tables.put_meta(connection, {"snapshot": name})
        except Exception as error:  # a write that is done must not fail because of it
            logger.warning("%s: no snapshot of the index (%s): opening will take longer", self.path, error)

    def close(self) -> None:
        """Wait for whoever works, write a snapshot if it is worth it, and let go of the folder."""
        with self._lock:
            if self._closed or os.getpid() != self._process:
                return
            self._closed = True
        with self._long_work:
            try:
                if snapshots.is_worth_it(self.moment, self._changes):
                    self._write_snapshot()
            finally:
                with self._lock:
                    self.database.close()
                self._folder_lock.release()
