"""After ``compact``, no file holds deleted or replaced items."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

import posh
from posh.collection import database, indexing, opening
from tests.collection.implementations import DATA, SPARSE
from tests.leftovers import files_with, forms_of

METRIC = {"metric": "euclidean"}
OPTIONS = {
    "codes": {"hasher": SPARSE},
    "vectors": {"hasher": SPARSE, "refine": "vectors"},
    "lists": {"hasher": SPARSE, "structure": "ivf", "n_lists": 3},
    "float32": METRIC,
    "float16": {**METRIC, "store": "float16"},
    "dot": {"metric": "dot"},
    "cosine": {"metric": "cosine"},
    "int8": {**METRIC, "store": "int8"},
}


class Secrets:
    """Items with random ids, vectors and texts; it knows those that were deleted or replaced."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._items: dict[str, tuple[np.ndarray, dict]] = {}
        self.erased: list[bytes] = []

    def write(self, collection: posh.Collection, n: int, n_replaced: int) -> None:
        ids = [self._text(12) for _ in range(n)] + self._some(n_replaced)
        for item_id in ids[n:]:
            self._forget(item_id)
        payloads = [
            {"text": self._text(20), "list": [[self._text(5000)]] * (i == 0)} for i in range(len(ids))
        ]
        vectors = self._rng.standard_normal((len(ids), 8)).astype(np.float32)
        self._items |= dict(zip(ids, zip(vectors, payloads, strict=True), strict=True))
        collection.upsert(ids, vectors, payloads)

    def delete(self, collection: posh.Collection, n: int) -> None:
        ids = self._some(n)
        for item_id in ids:
            self.erased.append(item_id.encode())
            self._forget(item_id)
        collection.delete(ids)

    def _forget(self, item_id: str) -> None:
        vector, payload = self._items.pop(item_id)
        unit = vector / np.linalg.norm(vector)
        self.erased += [*forms_of(vector), *forms_of(unit), payload["text"].encode()]
        self.erased += [text.encode() for texts in payload["list"] for text in texts]

    def _some(self, n: int) -> list[str]:
        ids = list(self._items)
        return [ids[i] for i in self._rng.permutation(len(ids))[:n]]

    def _text(self, n_bytes: int) -> str:
        return self._rng.bytes(n_bytes).hex()


def changed(path: Path, **options) -> tuple[posh.Collection, Secrets]:
    """An open collection after many writes and deletions."""
    collection, secrets = posh.Collection(path, **options), Secrets(0)
    for _ in range(12):
        secrets.write(collection, 60, 15)
        secrets.delete(collection, 20)
    return collection, secrets


@pytest.fixture
def careless(monkeypatch):
    """SQLite as most systems have it: deleted rows stay in the file until something is written there."""
    pragmas = tuple(one.replace("secure_delete = ON", "secure_delete = OFF") for one in database._PRAGMAS)
    assert pragmas != database._PRAGMAS
    monkeypatch.setattr(database, "_PRAGMAS", pragmas)


def test_without_care_deleted_items_stay_until_compact(tmp_path, careless):
    """The other tests can fail; and compact erases what an SQLite without care has left."""
    collection, secrets = changed(tmp_path / "shop", metric="euclidean")
    collection.close()
    assert files_with(tmp_path / "shop", secrets.erased) == {opening.DATABASE}
    with posh.Collection(tmp_path / "shop") as collection:
        collection.backup(tmp_path / "early")
        assert files_with(tmp_path / "early", secrets.erased) == {opening.DATABASE}
        collection.compact()
        assert files_with(tmp_path, secrets.erased) == {opening.DATABASE}  # of the early backup
        assert files_with(tmp_path / "shop", secrets.erased) == set()


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_deleted_and_replaced_items_are_in_no_file_after_compact(tmp_path, options, monkeypatch):
    monkeypatch.setattr(indexing, "WORTH", 50)  # indexes are saved while there are deleted items
    collection, secrets = changed(tmp_path / "shop", **options)
    collection.compact()
    collection.backup(tmp_path / "backup")
    assert files_with(tmp_path, secrets.erased) == set()
    collection.close()
    assert files_with(tmp_path, secrets.erased) == set()
    with posh.Collection(tmp_path / "shop") as again:
        assert len(again.search(DATA[:1], 5).ids[0]) == 5


def test_a_saved_index_does_not_hold_deleted_items(tmp_path, monkeypatch):
    """Not even one that was saved before ``compact``."""
    monkeypatch.setattr(indexing, "WORTH", 10)
    collection, secrets = changed(tmp_path / "shop", metric="euclidean")
    (folder,) = (tmp_path / "shop").glob("snapshot-*")
    assert files_with(folder, secrets.erased) == set()
    collection.close()


def test_an_index_that_cannot_be_saved_is_removed(tmp_path, monkeypatch, caplog):
    collection, secrets = changed(tmp_path / "shop", metric="euclidean")
    collection.compact()
    assert list((tmp_path / "shop").glob("snapshot-*"))

    def fail(*args):
        raise OSError("no room")

    monkeypatch.setattr(indexing, "save_index", fail)
    secrets.delete(collection, 10)
    collection.compact()
    assert "the index is not saved (no room): opening will take longer" in caplog.text
    assert not list((tmp_path / "shop").glob("snapshot-*"))
    assert files_with(tmp_path, secrets.erased) == set()
    collection.close()


def test_a_saved_index_that_cannot_be_removed_is_an_error(tmp_path, monkeypatch):
    with posh.Collection(tmp_path, SPARSE) as collection:
        collection.upsert(range(20), DATA[:20]).compact()
        collection.delete([3])

        def fail(*args):
            raise PermissionError("no")

        monkeypatch.setattr(indexing, "remove_folder", fail)
        with pytest.raises(posh.StorageError, match=r"got snapshot-\w+, which may hold deleted items: make"):
            collection.compact()


def test_a_reader_keeps_the_log_until_it_is_closed(tmp_path, caplog):
    collection, secrets = changed(tmp_path / "shop", metric="euclidean")
    with posh.Collection(tmp_path / "shop", read_only=True) as reader:
        secrets.delete(collection, 10)
        with caplog.at_level(logging.WARNING):
            collection.compact()
        assert "a reader needs the log, which may hold deleted items" in caplog.text
        assert files_with(tmp_path, secrets.erased)
        assert len(reader) == len(collection) + 10
    collection.compact()
    assert files_with(tmp_path, secrets.erased) == set()
    collection.close()


def test_a_collection_whose_items_were_never_deleted_is_not_rewritten(tmp_path, monkeypatch):
    statements = []
    with posh.Collection(tmp_path, SPARSE) as collection:
        collection.upsert(range(20), DATA[:20])
        collection._store.database._writer.set_trace_callback(statements.append)
        collection.compact()
        assert "VACUUM" not in statements
        collection.upsert([3], DATA[:1]).compact()
        assert "VACUUM" in statements
