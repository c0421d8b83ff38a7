"""The index of a collection, built from the database.

The database keeps the trained state of the index (a decoder, the centroids of lists, what was measured). So
an index that is built again gives the same answers, whatever the order of its writes was.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from posh import model_files
from posh._progress import progress
from posh.collection import tables
from posh.collection.database import Connection
from posh.collection.snapshot import CollectionSnapshot, Seqs, SlotTable
from posh.collection.sqlite_errors import DamageError
from posh.hashers.base import Hasher
from posh.index.index import Index
from posh.index.samples import is_held_out
from posh.index.snapshot import IndexSnapshot
from posh.preprocess import Float32

__all__ = [
    "AT_ONCE",
    "count_writes",
    "empty_index",
    "fill",
    "lacks_index",
    "metric_hasher",
    "must_train_again",
    "new_generation",
]
__all__ += [
    "own_copy",
    "sample_seqs",
    "sample_vectors",
    "stored_index",
    "train",
    "with_defaults",
    "write_trained_state",
]

BLOCK = 8192  # items that are read and added together
AT_ONCE = 20_000  # items that are measured within a write; more are measured in the background
_DEFAULTS = {"structure": "ivf", "recall": 0.95}
_TRAINING = 20_000  # items that an index is trained on, if its structure does not need more


def own_copy(hasher: Hasher[Any]) -> Hasher[Any]:
    """Return a copy that nobody else can change, equal to the one that the database will give."""
    return Hasher.from_bytes(hasher.to_bytes(), "hasher")


def empty_index(hasher: Hasher[Any] | None, options: Any) -> IndexSnapshot:
    """Return an index without documents that is not trained; wrong options raise.

    Without a hasher, it has that of its metric, which is not fitted.
    """
    return Index(hasher, **options).snapshot()


def with_defaults(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options for an index with the hasher of its metric: without others, as ``Index.build``."""
    return (_DEFAULTS if options.get("metric") is not None else {}) | dict(options)


def metric_hasher(options: Any, vectors: Float32) -> Hasher[Any]:
    """Return the hasher of a metric, fitted on vectors (n, d)."""
    return own_copy(empty_index(None, options).with_fitted_hasher(vectors).hasher)


def lacks_index(snapshot: CollectionSnapshot) -> bool:
    """Whether there are items and a metric but no index: older versions waited for a hasher."""
    has_metric = snapshot.options.get("metric") is not None
    return snapshot.index is None and has_metric and snapshot.slot_table.n_live > 0


def new_generation(connection: Connection, hasher: Hasher[Any]) -> int:
    """Enter a generation that has no codes yet in the database, and return its number."""
    (last,) = connection.execute("SELECT max(number) FROM generations").fetchone()
    number = int(last or 0) + 1
    connection.execute("INSERT INTO generations VALUES (?, ?, NULL)", (number, hasher.to_bytes()))
    return number


def stored_index(connection: Connection, generation: int) -> tuple[IndexSnapshot, int, int]:
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
    index = empty_index(Hasher.from_bytes(row[0], "hasher"), options)
    if row[1] is None:
        return index, 0, 0
    model = model_files.parse_model(row[1], "knowledge")
    index = index.with_trained_state(model.arrays)
    return index, int(model.params["n"]), int(model.params.get("seq", 0))


def write_trained_state(
    connection: Connection, generation: int, index: IndexSnapshot, n: int, last_seq: int
) -> None:
    """Write the state that was trained on n items and measured with all up to ``last_seq``.

    An index that was saved before does not count any more.
    """
    content = model_files.dump_model("Knowledge", {"n": n, "seq": last_seq}, index.trained_state())
    connection.execute("UPDATE generations SET knowledge = ? WHERE number = ?", (content, generation))
    tables.put_meta(connection, {"snapshot": None})


def fill(connection: Connection, generation: int, index: IndexSnapshot, table: SlotTable) -> IndexSnapshot:
    """Add the items of a slot table that come after the documents of the index."""
    start = index.n_slots
    after = int(index.ids_by_slot[-1]) if start else 0
    if index.needs_training and index.documents is None and table.n_slots:
        raise DamageError("the trained state of the index is missing")
    n_features = index.hasher.n_features_in_ if index.needs_vectors else None
    codes = (generation, index.hasher, index.options.document_active or 0)
    blocks = tables.read_blocks(connection, BLOCK, after=after, n_features=n_features, codes=codes)
    total = -(-(table.n_slots - start) // BLOCK)
    for block in progress(blocks, "building the index", "block", total):
        index = index.with_documents(block.seqs, block.vectors, block.codes, more_follow=True)
    seqs = index.ids_by_slot
    if not np.array_equal(seqs, table.seqs.rows):
        raise DamageError(f"the codes of {len(seqs)} items instead of {table.n_slots}")
    return index


def count_writes(index: IndexSnapshot, table: SlotTable, measured_seq: int) -> IndexSnapshot:
    """Count the items that were written since the index was measured, which an index built again lacks."""
    if not measured_seq:
        return index
    n_added = table.n_slots - int(np.searchsorted(table.seqs.rows, measured_seq, "right"))
    return index.with_writes(n_added, max(0, index.n_measured + n_added - table.n_live))


def must_train_again(index: IndexSnapshot, n_trained: int, n: int) -> bool:
    """Whether an index that was trained on ``n_trained`` items should be trained again for ``n`` items.

    That is so if the number of items has doubled and more items would improve the result. A decoder has
    enough with 20,000 items. Lists never have enough, unless their number is given. An index with a metric
    and many items trains its lists by itself, in the background.
    """
    if index.options.metric is not None and n > AT_ONCE:
        return index.documents is None
    enough = max(_TRAINING, index.training_size(sys.maxsize))
    return index.needs_training and n_trained < enough and n >= max(1, 2 * n_trained)


def train(connection: Connection, index: IndexSnapshot, table: SlotTable) -> IndexSnapshot:
    """Return the index without documents, trained on the items of a slot table."""
    n = table.n_live
    n_sample = max(_TRAINING, index.training_size(n))
    seqs = table.seqs.rows[table.live.rows]
    if index.options.recall is not None:  # what searches find is measured with the others
        seqs = seqs[~is_held_out(np.arange(len(seqs)))]
    X = _some_vectors(connection, seqs, n_sample, index.hasher.n_features_in_)
    return IndexSnapshot(index.hasher, index.options).train(X, n)


def sample_vectors(connection: Connection, table: SlotTable, n: int, n_features: int) -> Float32:
    """Return up to n vectors (m, d) of a slot table, drawn at random with a fixed seed."""
    return _some_vectors(connection, table.seqs.rows[table.live.rows], n, n_features)


def sample_seqs(table: SlotTable, n: int) -> Seqs:
    """Return the seqs of the vectors of :func:`sample_vectors`."""
    return _some_seqs(table.seqs.rows[table.live.rows], n)


def _some_vectors(connection: Connection, seqs: Seqs, n: int, n_features: int) -> Float32:
    return tables.vectors_by_seq(connection, _some_seqs(seqs, n), n_features)


def _some_seqs(seqs: Seqs, n: int) -> Seqs:
    return seqs[np.sort(np.random.default_rng(0).permutation(len(seqs))[:n])]
