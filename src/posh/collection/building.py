"""The index of a collection, made from what the database holds.

What an index learns from its items (a decoder, the centroids of lists) is kept in the database. So an index
that is built again, in whatever steps, gives the same answers.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from posh import store
from posh._progress import progress
from posh.collection import tables
from posh.collection.directory import Directory
from posh.collection.storage import Connection, DamageError
from posh.hashers.base import Hasher
from posh.index.index import Index
from posh.index.snapshot import IndexSnapshot
from posh.preprocess import Float32

__all__ = ["empty_index", "filled", "learned", "outgrown", "own_copy", "sample", "stored_index"]
__all__ += ["write_trained_state"]

BLOCK = 8192  # items read and added in one go
_TRAINING = 20_000  # items that an index is trained on, if its structure does not need more


def own_copy(hasher: Hasher[Any]) -> Hasher[Any]:
    """A copy that nobody else can change, as it will be read from the database."""
    return Hasher.from_bytes(hasher.to_bytes(), "hasher")


def empty_index(hasher: Hasher[Any], options: Any) -> IndexSnapshot:
    """An index without items that is not trained; options that make no sense raise."""
    return Index(hasher, **options).snapshot()


def stored_index(connection: Connection, generation: int) -> tuple[IndexSnapshot, int]:
    """The index of a generation, trained and without items, and on how many items it was trained."""
    row = connection.execute(
        "SELECT hasher, knowledge FROM generations WHERE number = ?", (generation,)
    ).fetchone()
    if row is None:
        raise DamageError(f"there is no generation {generation}")
    options = json.loads(tables.get_meta(connection, "options"))
    index = empty_index(Hasher.from_bytes(row[0], "hasher"), options)
    if row[1] is None:
        return index, 0
    trained = store.parse_model(row[1], "knowledge")
    return index.with_trained_state(trained.arrays), int(trained.params["n"])


def filled(
    connection: Connection, generation: int, index: IndexSnapshot, directory: Directory
) -> IndexSnapshot:
    """The index with the items of a directory that come after its own."""
    start = index.n_slots
    after = int(index.ids_by_slot[-1]) if start else 0
    if index.needs_training and index.documents is None and directory.n_slots:
        raise DamageError("what the index has learned is missing")
    n_features = index.hasher.n_features_in_ if index.needs_vectors else None
    codes = (generation, index.hasher, index.options.document_active or 0)
    parts = tables.blocks(connection, BLOCK, after=after, n_features=n_features, codes=codes)
    total = -(-(directory.n_slots - start) // BLOCK)
    for block in progress(parts, "building the index", "block", total):
        index = index.with_documents(block.seqs, block.vectors, block.codes)
    seqs = index.ids_by_slot
    if not np.array_equal(seqs, directory.seqs.rows):
        raise DamageError(f"the codes of {len(seqs)} items instead of {directory.n_slots}")
    return index


def outgrown(index: IndexSnapshot, learned_from: int, n: int) -> bool:
    """Whether an index that learns should do so again: its items have doubled, and more would teach it more.

    A decoder has learned enough from 20,000 items; lists, unless their number is given, never.
    """
    enough = max(_TRAINING, index.training_size(sys.maxsize))
    return index.needs_training and learned_from < enough and n >= max(1, 2 * learned_from)


def learned(connection: Connection, index: IndexSnapshot, directory: Directory) -> IndexSnapshot:
    """The index without items that has learned from those of a directory."""
    n = directory.n_live
    n_sample = max(_TRAINING, index.training_size(n))
    X = sample(connection, directory, n_sample, index.hasher.n_features_in_)
    return IndexSnapshot(index.hasher, index.options).train(X, n)


def write_trained_state(connection: Connection, generation: int, index: IndexSnapshot, n: int) -> None:
    """Write the trained state, of n items, down; a snapshot of the index before is of no use any more."""
    content = store.dump_model("Knowledge", {"n": n}, index.trained_state())
    connection.execute("UPDATE generations SET knowledge = ? WHERE number = ?", (content, generation))
    tables.put_meta(connection, {"snapshot": None})


def sample(connection: Connection, directory: Directory, n: int, n_features: int) -> Float32:
    """Up to n vectors (m, d) of the items of a directory, drawn at random with a fixed seed."""
    seqs = directory.seqs.rows[directory.live.rows]
    chosen = np.sort(np.random.default_rng(0).permutation(len(seqs))[:n])
    return tables.take_vectors(connection, seqs[chosen], n_features)
