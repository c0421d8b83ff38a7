"""The index of a collection: built from the database, rebuilt with other options, saved for the next opening.

The database stores the trained state of the index (a decoder, the centroids of lists, measurements). So a
rebuilt index returns the same results, for any order of its writes. One exception: after lists were split or
merged, a rebuilt index puts every document into the nearest list, which a few documents may not have been in.

A saved index is a folder next to the database. Reading it is faster than building the index. The database
names the saved index that counts, after it is complete. A saved index that is missing, damaged or not named
does no harm: the index is rebuilt. The file format says ``snapshot`` for it, in the name of the folder and as
a key of ``meta``.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from posh import _model_files
from posh._durable import remove_folder
from posh._runtime import track_progress
from posh.collection import tables
from posh.collection.base import NO_HASHER
from posh.collection.database import Connection, Database
from posh.collection.snapshot import CollectionSnapshot, Seqs, SlotTable
from posh.collection.tables import DamageError
from posh.errors import CancelledError, StorageError
from posh.hashers.base import Hasher
from posh.index import files
from posh.index.base import IndexSnapshot
from posh.index.codes.options import CodeOptions
from posh.index.codes.snapshot import CodeSnapshot
from posh.index.nearest.measuring import is_held_out
from posh.index.nearest.options import NearestOptions, NearestParams
from posh.index.nearest.queries import OwnQueries
from posh.index.nearest.snapshot import NearestSnapshot
from posh.index.open import load_snapshot
from posh.preprocess import Float32

__all__ = [
    "AT_ONCE",
    "BLOCK",
    "Reindexing",
    "add_block",
    "copy_hasher",
    "count_writes",
    "drop_unused_codes",
    "fill_index",
    "find_recall",
    "find_saved",
    "insert_generation",
    "is_saved_name",
    "is_worth_saving",
    "lacks_index",
    "make_index",
    "must_train_again",
    "read_index",
    "read_or_build",
    "remove_unused_saved",
    "require_metric",
    "require_none_unused",
    "resolve_index",
    "sample_seqs",
    "sample_vectors",
    "save_index",
    "train_index",
    "write_trained_state",
]

BLOCK = 8192  # items that are read and added together
AT_ONCE = 20_000  # items that are measured within a write; more are measured in the background
_TYPICAL_K = 10  # the number of hits whose recall is shown
_TRAINING = 20_000  # items that an index is trained on, if it does not need more


def copy_hasher(hasher: Hasher[Any]) -> Hasher[Any]:
    """Return a copy that no caller can change, equal to the one that is read from the database."""
    return Hasher.from_bytes(hasher.to_bytes(), "hasher")


def make_index(hasher: Hasher[Any] | None, options: Mapping[str, Any]) -> IndexSnapshot:
    """Return an index without documents that is not trained; raise if the options are wrong.

    Without a hasher it is an index by a metric.
    """
    if hasher is None:
        return NearestSnapshot(NearestOptions(**options))
    return CodeSnapshot(hasher, CodeOptions(**options).for_hasher(hasher))


def require_metric(index: IndexSnapshot | None) -> NearestSnapshot:
    """Return the index if it is one by a metric; raise ValueError otherwise."""
    if not isinstance(index, NearestSnapshot):
        raise ValueError("expected a collection with a metric and items to calibrate, got one without")
    return index


def find_recall(index: IndexSnapshot | None) -> float | None:
    """Return the measured recall of the 10 nearest; None by codes, and of too few items to measure."""
    if not isinstance(index, NearestSnapshot) or index.lists is None or not len(index):
        return None
    if index.compares_all(NearestParams(_TYPICAL_K)):
        return 1.0
    return next((row.recall for row in index.lists.measured_rows() if row.k == _TYPICAL_K), None)


def lacks_index(snapshot: CollectionSnapshot) -> bool:
    """Return whether there are items and a metric but no index, as after an upgrade of the format."""
    has_metric = snapshot.options.get("metric") is not None
    return snapshot.index is None and has_metric and snapshot.slot_table.n_live > 0


def insert_generation(connection: Connection, hasher: Hasher[Any] | None) -> int:
    """Insert a generation into the database, still without codes, and return its number."""
    (last,) = connection.execute("SELECT max(number) FROM generations").fetchone()
    number = int(last or 0) + 1
    content = None if hasher is None else hasher.to_bytes()
    connection.execute("INSERT INTO generations VALUES (?, ?, NULL)", (number, content))
    return number


def read_index(connection: Connection, generation: int) -> tuple[IndexSnapshot, int, int]:
    """Return the trained index of a generation, without documents, and two numbers.

    These are the number of items that it is trained on, and the largest seq when it was measured; 0 in files
    of older versions. The file format calls the trained state ``knowledge``.
    """
    row = connection.execute(
        "SELECT hasher, knowledge FROM generations WHERE number = ?", (generation,)
    ).fetchone()
    if row is None:
        raise DamageError(f"there is no generation {generation}")
    options = json.loads(tables.get_meta(connection, "options"))
    if (row[0] is None) == (options.get("metric") is None):
        raise DamageError("expected a generation with a hasher, or with a metric, found both or neither")
    index = make_index(None if row[0] is None else Hasher.from_bytes(row[0], "hasher"), options)
    if row[1] is None:
        return index, 0, 0
    model = _model_files.parse_model(row[1], "knowledge")
    trained = index.with_trained_state(model.arrays)
    return trained, int(model.params["n"]), int(model.params.get("seq", 0))


def write_trained_state(
    connection: Connection, generation: int, index: IndexSnapshot, n: int, last_seq: int
) -> None:
    """Write the state that was trained on n items and measured with all up to ``last_seq``.

    An index that was saved before becomes invalid.
    """
    content = _model_files.dump_model("Knowledge", {"n": n, "seq": last_seq}, index.trained_state())
    connection.execute("UPDATE generations SET knowledge = ? WHERE number = ?", (content, generation))
    tables.put_meta(connection, {"snapshot": None})


def fill_index(
    connection: Connection, generation: int, index: IndexSnapshot, table: SlotTable
) -> IndexSnapshot:
    """Add the items of a slot table that come after the documents of the index."""
    start = index.n_slots
    after = int(index.id_column.rows.rows[-1]) if start else 0
    if index.needs_training and not index.is_trained and table.n_slots:
        raise DamageError("the trained state of the index is missing")
    blocks = _read_missing_blocks(connection, generation, index, after)
    total = -(-(table.n_slots - start) // BLOCK)
    for block in track_progress(blocks, "building the index", "block", total):
        index = add_block(index, block)
    seqs = index.id_column.rows.rows
    if not np.array_equal(seqs, table.seqs.rows):
        raise DamageError(f"the documents of {len(seqs)} items instead of {table.n_slots}")
    return index


def _read_missing_blocks(
    connection: Connection, generation: int, index: IndexSnapshot, after: int
) -> Iterator[tables.Block]:
    """Yield the items above the seq ``after``, with the vectors or codes that the index needs."""
    if not isinstance(index, CodeSnapshot):
        return tables.read_blocks(connection, BLOCK, after=after, n_features=index.n_features)
    n_features = index.n_features if index.needs_vectors else None
    codes = (generation, index.hasher, index.options.document_active or 0)
    return tables.read_blocks(connection, BLOCK, after=after, n_features=n_features, codes=codes)


def add_block(index: IndexSnapshot, block: tables.Block) -> IndexSnapshot:
    """Add a block of items; the caller measures the index after the last block."""
    if isinstance(index, CodeSnapshot):
        return index.with_documents(block.seqs, block.vectors, block.codes)
    assert isinstance(index, NearestSnapshot)
    return index.with_documents(block.seqs, block.vectors, more_follow=True)


def count_writes(index: IndexSnapshot, table: SlotTable, measured_seq: int) -> IndexSnapshot:
    """Count the items that were written since the index was measured, which a rebuilt index lacks."""
    if not measured_seq:
        return index
    n_added = table.n_slots - int(np.searchsorted(table.seqs.rows, measured_seq, "right"))
    return index.with_writes(n_added, max(0, index.n_measured + n_added - table.n_live))


def must_train_again(index: IndexSnapshot, n_trained: int, n: int) -> bool:
    """Return whether an index that was trained on ``n_trained`` items should be trained again for ``n``.

    That is so if the number of items has doubled and more items would improve the result. A decoder has
    enough with 20,000 items. Lists never have enough, unless their number is given. The lists of an index
    by a metric with many items follow these without training.
    """
    if isinstance(index, NearestSnapshot) and n > AT_ONCE:
        return not index.is_trained
    enough = max(_TRAINING, index.training_size(sys.maxsize))
    return index.needs_training and n_trained < enough and n >= max(1, 2 * n_trained)


def train_index(connection: Connection, index: IndexSnapshot, table: SlotTable) -> IndexSnapshot:
    """Return the index without documents, trained on the items of a slot table."""
    n = table.n_live
    seqs = table.seqs.rows[table.live.rows]
    if isinstance(index, NearestSnapshot):  # the held-out items measure recall
        seqs = seqs[~is_held_out(np.arange(len(seqs)))]
    n_features = tables.get_meta(connection, "n_features")
    X = _read_some_vectors(connection, seqs, max(_TRAINING, index.training_size(n)), n_features)
    return index.train(X, n)


def sample_vectors(connection: Connection, table: SlotTable, n: int, n_features: int) -> Float32:
    """Return up to n vectors (m, d) of a slot table, drawn at random with a fixed seed."""
    return _read_some_vectors(connection, table.seqs.rows[table.live.rows], n, n_features)


def sample_seqs(table: SlotTable, n: int) -> Seqs:
    """Return the seqs of the vectors of :func:`sample_vectors`."""
    return _choose_some(table.seqs.rows[table.live.rows], n)


def _read_some_vectors(connection: Connection, seqs: Seqs, n: int, n_features: int) -> Float32:
    return tables.read_vectors(connection, _choose_some(seqs, n), n_features)


def _choose_some(seqs: Seqs, n: int) -> Seqs:
    return seqs[np.sort(np.random.default_rng(0).permutation(len(seqs))[:n])]


logger = logging.getLogger(__name__)

_SAVED_PREFIX = "snapshot-"
_SAVED_NAME = re.compile(f"{_SAVED_PREFIX}[0-9a-f]{{32}}")
WORTH = 5_000  # written items: adding fewer to an index is fast


def is_worth_saving(snapshot: CollectionSnapshot, n_written: int) -> bool:
    """Whether saving the index makes the next opening much faster: after many writes, of many items."""
    return snapshot.index is not None and n_written >= max(WORTH, snapshot.slot_table.n_live // 4)


def save_index(folder: Path, snapshot: CollectionSnapshot) -> str | None:
    """Save the index and return its name, which the caller writes into the database."""
    if snapshot.index is None or not snapshot.index.is_trained:
        return None
    name = f"{_SAVED_PREFIX}{uuid.uuid4().hex}"
    snapshot.index.save(folder / name)
    return name


def find_saved(connection: Connection) -> str | None:
    """Return the name of the current saved index."""
    name = tables.get_meta(connection, "snapshot")
    return name if isinstance(name, str) and is_saved_name(name) else None


def is_saved_name(name: str) -> bool:
    """Whether a folder of this name may be a saved index."""
    return _SAVED_NAME.fullmatch(name) is not None


def remove_unused_saved(folder: Path, database: Database) -> list[str]:
    """Remove all saved indexes but the current one; return the names of those that cannot be removed."""
    with database.reading() as connection:
        used = find_saved(connection)
    left = []
    for path in folder.iterdir():
        if is_saved_name(path.name) and path.name != used:
            try:
                remove_folder(path, files.FORMAT)
            except OSError:
                left.append(path.name)
    return left


def require_none_unused(folder: Path, database: Database) -> None:
    """Remove all saved indexes but the current one; raise if one remains: it may hold deleted items."""
    left = remove_unused_saved(folder, database)
    if left:
        raise StorageError(
            f"{folder}: expected saved indexes that can be removed, got {', '.join(left)}, which may hold "
            "deleted items: make the folder and its files writable, and compact again"
        )


def read_or_build(
    folder: Path, connection: Connection, generation: int, empty: IndexSnapshot, table: SlotTable
) -> tuple[IndexSnapshot, SlotTable, int]:
    """Return the index with all items of a slot table, the table in the order of its slots, and a number.

    The number is that of the items that the saved index lacks. ``empty`` is the trained index without
    documents.
    """
    name = find_saved(connection)
    if name is not None and (folder / name).exists():
        try:
            return _read_saved(folder / name, connection, generation, empty, table)
        except CancelledError:
            raise
        except Exception as error:
            logger.warning("%s cannot be used (%s): the index is rebuilt", folder / name, error)
    index = fill_index(connection, generation, empty, table)
    return index, table, max(1, table.n_live)  # an unusable saved index must be removed, even without items


def _read_saved(
    path: Path, connection: Connection, generation: int, empty: IndexSnapshot, table: SlotTable
) -> tuple[IndexSnapshot, SlotTable, int]:
    saved = load_snapshot(path, mmap=_CAN_MAP)
    if type(saved) is not type(empty) or saved.options != empty.options or not saved.is_trained:
        raise ValueError("it belongs to another index")
    seqs, live = saved.id_column.rows.rows, saved.live
    if not (np.diff(seqs) > 0).all():
        raise ValueError("its items are not in order")
    in_slots = table.rearrange(seqs)
    n_known = in_slots.n_live
    n_older = np.searchsorted(table.seqs.rows, in_slots.last_seq, "right")
    if n_known != n_older or not live[in_slots.live.rows].all():
        raise ValueError("it lacks items")
    deleted = np.flatnonzero(live & ~in_slots.live.rows)
    in_slots = table.rearrange(np.concatenate([seqs, table.seqs.rows[n_known:]]))
    index = fill_index(connection, generation, saved.without(deleted), in_slots)
    return index, in_slots, len(deleted) + table.n_live - n_known


_CAN_MAP = os.name != "nt"  # Windows does not remove files that are mapped into memory
_ROWS = 10_000  # codes removed in one transaction: other writes run in between

Reading = Callable[[], AbstractContextManager[tuple[CollectionSnapshot, Connection]]]
Writing = Callable[[], AbstractContextManager[Connection]]


class Reindexing:
    """A new generation of the index: call ``begin``, go through all ``steps``, then call ``finish``.

    An index by a metric is measured with ``queries`` of the user, if there are any.
    ``reading`` gives a snapshot and a connection that reads the same state; ``writing`` gives a transaction.
    The new generation takes effect when the transaction of ``finish`` is committed.
    """

    def __init__(
        self,
        hasher: Hasher[Any] | None,
        options: Mapping[str, Any],
        queries: OwnQueries | None,
        reading: Reading,
        writing: Writing,
    ) -> None:
        self.generation = 0  # until begin
        self._hasher, self._options, self._queries = hasher, options, queries
        self._index = make_index(hasher, options)
        self._reading, self._writing = reading, writing
        self._n_trained = 0
        self._after = 0  # the seq of the last item that has a new code

    def begin(self) -> int:
        """Enter the new generation in the database and return its number."""
        with self._writing() as connection:
            self.generation = insert_generation(connection, self._hasher)
        return self.generation

    def steps(self) -> Iterator[None]:
        """Encode the items block by block, until less than a block is left."""
        full = True
        while full:
            with self._reading() as (snapshot, connection):
                self._train_once(connection, snapshot.slot_table)
                block = next(self._read_blocks(connection, snapshot, BLOCK), None)
            if block is None:
                break
            block = self._encode(block)
            if block.codes is not None:
                with self._writing() as connection:
                    tables.insert_codes(connection, self.generation, block.seqs, block.codes)
            self._add(block)
            full = len(block.seqs) == BLOCK
            yield
        self._index = self._index.measure_if_due()

    def finish(self, connection: Connection, snapshot: CollectionSnapshot) -> CollectionSnapshot:
        """Encode the rest and return the snapshot that follows; within a transaction under the write lock."""
        self._train_once(connection, snapshot.slot_table)
        for block in map(self._encode, self._read_blocks(connection, snapshot)):
            if block.codes is not None:
                tables.insert_codes(connection, self.generation, block.seqs, block.codes)
            self._add(block)
        self._index = self._index.measure_if_due()  # again only after many concurrent writes
        if self._n_trained:
            args = (self.generation, self._index, self._n_trained, snapshot.last_seq)
            write_trained_state(connection, *args)
        n_features = snapshot.n_features if self._hasher is None else self._hasher.n_features_in_
        meta = {"generation": self.generation, "n_features": n_features, "options": json.dumps(self._options)}
        tables.put_meta(connection, meta | {"snapshot": None, "version": snapshot.version + 1})
        index, table = self._drop_deleted(snapshot.slot_table)
        return replace(
            snapshot,
            version=snapshot.version + 1,
            n_features=n_features,
            options=self._options,
            generation=self.generation,
            slot_table=table,
            index=index,
            n_trained=self._n_trained,
        )

    def _train_once(self, connection: Connection, table: SlotTable) -> None:
        if self._index.needs_training and not self._n_trained and table.n_live > 0:
            self._index = train_index(connection, self._index, table)
            if isinstance(self._index, NearestSnapshot):
                self._index = self._index.with_queries(self._queries)
            self._n_trained = table.n_live

    def _read_blocks(
        self, connection: Connection, snapshot: CollectionSnapshot, limit: int = -1
    ) -> Iterator[tables.Block]:
        d = snapshot.n_features
        return tables.read_blocks(connection, BLOCK, after=self._after, n_features=d, limit=limit)

    def _encode(self, block: tables.Block) -> tables.Block:
        if not isinstance(self._index, CodeSnapshot) or block.vectors is None:
            return block
        return block._replace(codes=self._index.encode(block.vectors))

    def _add(self, block: tables.Block) -> None:
        self._index = add_block(self._index, block)
        self._after = int(block.seqs[-1])

    def _drop_deleted(self, table: SlotTable) -> tuple[IndexSnapshot, SlotTable]:
        """Return the new index and its slot table, without concurrently deleted or replaced items."""
        in_slots = table.rearrange(self._index.id_column.rows.rows)
        return self._index.without(np.flatnonzero(~in_slots.live.rows)), in_slots


def resolve_index(
    present: Hasher[Any] | None,
    present_options: Mapping[str, Any],
    hasher: Hasher[Any] | None,
    options: Mapping[str, Any],
) -> tuple[Hasher[Any] | None, dict[str, Any]]:
    """Return the hasher, None for an index by a metric, and the options of the next index of a collection.

    Options that are left out keep their values, unless the kind of index changes. Raise ValueError if there
    is neither a hasher nor a metric.
    """
    had_metric = present_options.get("metric") is not None
    if hasher is not None:
        return copy_hasher(hasher), {**({} if had_metric else present_options), **options}
    if options.get("metric") is not None and not had_metric:
        return None, dict(options)
    if not had_metric and present is None:
        raise ValueError(NO_HASHER)
    return present, {**present_options, **options}


def drop_unused_codes(database: Database) -> bool:
    """Remove some codes of an unused generation; return whether there may be more."""
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
