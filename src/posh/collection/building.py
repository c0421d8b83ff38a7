"""The index of a collection, made from what the database holds.

What an index learns from its items (a decoder, the centroids of lists) is kept in the database. So an index
that is built again, in whatever steps, gives the same answers.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from posh import store
from posh._progress import progress
from posh.collection import tables
from posh.collection.directory import Directory
from posh.collection.storage import Connection, DamageError
from posh.hashers.base import Hasher
from posh.index.index import Index
from posh.index.view import View
from posh.preprocess import Float32

__all__ = ["empty_view", "filled", "learned", "outgrown", "own_copy", "sample", "stored_view"]
__all__ += ["write_knowledge"]

BLOCK = 8192  # items read and added in one go
_TRAINING = 20_000  # items that are learned from, or 50 for each list


def own_copy(hasher: Hasher[Any]) -> Hasher[Any]:
    """A copy that nobody else can change, as it will be read from the database."""
    return Hasher.from_bytes(hasher.to_bytes(), "hasher")


def empty_view(hasher: Hasher[Any], options: Any) -> View:
    """An index without items and knowledge; options that make no sense raise."""
    return Index(hasher, **options).view()


def stored_view(connection: Connection, generation: int) -> tuple[View, int]:
    """The index of a generation, without items but knowing what it has learned, and from how many items."""
    row = connection.execute(
        "SELECT hasher, knowledge FROM generations WHERE number = ?", (generation,)
    ).fetchone()
    if row is None:
        raise DamageError(f"there is no generation {generation}")
    options = json.loads(tables.get_meta(connection, "options"))
    view = empty_view(Hasher.from_bytes(row[0], "hasher"), options)
    if row[1] is None:
        return view, 0
    knowledge = store.parse_model(row[1], "knowledge")
    return view.taught(knowledge.arrays), int(knowledge.params["n"])


def filled(connection: Connection, generation: int, view: View, directory: Directory) -> View:
    """The index with the items of a directory that come after its own."""
    start = 0 if view.state is None else view.state.ids.n
    after = 0 if view.state is None or not start else int(view.state.ids.rows[-1])
    if view.learns and view.state is None and directory.n_slots:
        raise DamageError("what the index has learned is missing")
    n_features = view.hasher.n_features_in_ if view.needs_vectors else None
    codes = (generation, view.hasher, view.options.document_active or 0)
    parts = tables.blocks(connection, BLOCK, after=after, n_features=n_features, codes=codes)
    total = -(-(directory.n_slots - start) // BLOCK)
    for block in progress(parts, "building the index", "block", total):
        view = view.with_documents(block.seqs, block.vectors, block.codes)
    seqs = np.empty(0, np.int64) if view.state is None else view.state.ids.rows
    if not np.array_equal(seqs, directory.seqs.rows):
        raise DamageError(f"the codes of {len(seqs)} items instead of {directory.n_slots}")
    return view


def outgrown(view: View, learned_from: int, n: int) -> bool:
    """Whether an index that learns should do so again: its items have doubled, and more would teach it more.

    A decoder has learned enough from 20,000 items; lists, unless their number is given, never.
    """
    enough: float = _TRAINING
    if view.options.structure == "ivf":
        enough = np.inf if view.options.n_lists is None else max(_TRAINING, 50 * view.options.n_lists)
    return view.learns and learned_from < enough and n >= max(1, 2 * learned_from)


def learned(connection: Connection, view: View, directory: Directory) -> View:
    """The index without items that has learned from those of a directory."""
    n = directory.n_live
    lists = (view.options.n_lists or n // 1000) if view.options.structure == "ivf" else 0
    X = sample(connection, directory, max(_TRAINING, 50 * lists), view.hasher.n_features_in_)
    return View(view.hasher, view.options).learned(X, n)


def write_knowledge(connection: Connection, generation: int, view: View, n: int) -> None:
    """Keep what an index has learned from n items; a snapshot of what it was before is of no use any more."""
    content = store.dump_model("Knowledge", {"n": n}, view.knowledge())
    connection.execute("UPDATE generations SET knowledge = ? WHERE number = ?", (content, generation))
    tables.put_meta(connection, {"snapshot": None})


def sample(connection: Connection, directory: Directory, n: int, n_features: int) -> Float32:
    """Up to n vectors (m, d) of the items of a directory, drawn at random with a fixed seed."""
    seqs = directory.seqs.rows[directory.live.rows]
    chosen = np.sort(np.random.default_rng(0).permutation(len(seqs))[:n])
    return tables.take_vectors(connection, seqs[chosen], n_features)
