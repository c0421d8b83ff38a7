"""An index that is built again, from a saved one or from the database, is the same index."""

from __future__ import annotations

import logging
import shutil
import sqlite3

import numpy as np
import pytest

import posh
from posh.collection import indexing, opening
from posh.index.codes.snapshot import CodeSnapshot
from tests.collection.implementations import DATA, SPARSE
from tests.collection.opened import answers, folders, reopened
from tests.collection.reference import ReferenceCollection

# Snapshots -------------------------------------------------------------------------------------------


def test_a_saved_index_spares_building_the_index(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(indexing, "WORTH", 100)
    collection = posh.Collection(tmp_path, SPARSE).upsert(range(99), DATA[:99])
    assert folders(collection) == []
    collection.upsert(range(50, 200), DATA[50:200])
    assert len(folders(collection)) == 1
    collection.delete([3, 60])
    collection.upsert(["new"], DATA[:1])
    expected = answers(collection)
    added = []
    with monkeypatch.context() as patch:
        with_documents = CodeSnapshot.with_documents
        patch.setattr(
            CodeSnapshot,
            "with_documents",
            lambda *args, **options: added.append(len(args[1])) or with_documents(*args, **options),
        )
        collection = reopened(collection)
    assert sum(added) == 1
    assert answers(collection) == expected
    assert answers(reopened(collection, saved_index=False)) == expected
    assert not caplog.records
    collection.close()


@pytest.mark.parametrize("how", ["cut", "flipped", "emptied", "of another index", "of other items"])
def test_a_saved_index_that_cannot_be_used_is_not(tmp_path, caplog, how):
    collection = posh.Collection(tmp_path / "a", SPARSE).upsert(range(100), DATA[:100]).compact()
    expected = answers(collection)
    (name,) = folders(collection)
    collection.close()
    folder = tmp_path / "a" / name
    codes = next(folder.glob("posh-data-*/codes.npy"))
    match how:
        case "cut":
            codes.write_bytes(codes.read_bytes()[:-5])
        case "flipped":
            codes.write_bytes(codes.read_bytes()[:-1] + b"\xaa")
        case "emptied":
            shutil.rmtree(folder)
            folder.mkdir()
        case "of another index":
            posh.CodeIndex(SPARSE, refine="vectors").add(DATA[:100], ids=np.arange(1, 101)).save(folder)
        case "of other items":
            posh.CodeIndex(SPARSE).add(DATA[:99], ids=np.arange(2, 101)).save(folder)
    with caplog.at_level(logging.WARNING), posh.Collection(tmp_path / "a") as collection:
        assert answers(collection) == expected
    assert "cannot be used" in caplog.text
    assert "the index is rebuilt" in caplog.text


def test_numbers_of_items_are_not_used_again(tmp_path):
    """Or an old saved index would take a new item for one that was deleted."""
    collection = posh.Collection(tmp_path, SPARSE).upsert(range(10), DATA[:10]).compact()
    old = folders(collection)
    collection.delete([8, 9])
    collection = reopened(collection.upsert(["new"], DATA[50:51]))
    assert folders(collection) == old != []
    assert answers(collection) == answers(reopened(collection, saved_index=False))
    collection.close()


def test_a_write_does_not_fail_because_of_a_saved_index(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(indexing, "WORTH", 5)
    monkeypatch.setattr(CodeSnapshot, "save", lambda snapshot, path: path.mkdir() or 1 // 0)
    with posh.Collection(tmp_path, SPARSE) as collection:
        collection.upsert(range(10), DATA[:10])
        assert collection.count() == 10
        assert folders(collection) == []
    assert "the index is not saved (integer division or modulo by zero)" in caplog.text


def test_leftovers_are_removed(tmp_path):
    collection = posh.Collection(tmp_path, SPARSE).upsert(range(10), DATA[:10]).compact()
    kept = folders(collection)
    collection.close()
    (tmp_path / f"snapshot-{'0' * 32}").mkdir()
    with sqlite3.connect(tmp_path / opening.DATABASE) as connection:
        connection.execute("INSERT INTO generations SELECT 7, hasher, NULL FROM generations")
        connection.execute("INSERT INTO codes SELECT 7, seq, code, sum FROM codes")
    connection.close()
    with posh.Collection(tmp_path) as collection:
        assert folders(collection) == kept
        with collection._store.database.reading() as connection:
            assert connection.execute("SELECT DISTINCT generation FROM codes").fetchall() == [(1,)]
            assert connection.execute("SELECT number FROM generations").fetchall() == [(1,)]


# Learning --------------------------------------------------------------------------------------------

LEARNERS = {
    "decoder": {"refine": "decoder", "oversample": 3.0},
    "ivf": {"structure": "ivf", "n_lists": 6, "n_probe": 2},
    "both": {"structure": "ivf", "n_lists": 4, "n_probe": 2, "refine": "sbiht"},
    "vectors": {"refine": "cosine", "document_active": 6},
}


@pytest.mark.parametrize("kind", list(LEARNERS))
def test_an_index_built_again_gives_the_same_answers(tmp_path, monkeypatch, kind):
    """Whatever deleted items it was trained on, and in whatever batches they came."""
    monkeypatch.setattr(indexing, "BLOCK", 64)
    collection = posh.Collection(tmp_path, SPARSE, **LEARNERS[kind])
    for start in range(0, 300, 23):
        collection.upsert(range(start, start + 23), DATA[start : start + 23])
        collection.delete(range(start, start + 9))
    expected = answers(collection, 5)
    collection = reopened(collection)
    assert answers(collection, 5) == expected
    collection = reopened(collection.compact())
    assert folders(collection)
    assert answers(collection, 5) == expected
    collection = reopened(collection, saved_index=False)
    assert answers(collection, 5) == expected
    collection.upsert(["more"], DATA[:1])
    assert answers(collection, 5) == answers(reopened(collection, saved_index=False), 5)
    collection.close()


def test_an_index_saved_before_it_was_trained_again_is_not_used(tmp_path):
    collection = posh.Collection(tmp_path, SPARSE, refine="decoder").upsert(range(10), DATA[:10]).compact()
    assert len(folders(collection)) == 1
    collection.upsert(range(10, 50), DATA[10:50])
    expected = answers(collection)
    collection = reopened(collection)
    assert answers(collection) == expected
    assert folders(collection) == []
    collection.close()


def test_lists_grow_with_the_collection(tmp_path, monkeypatch):
    collection = posh.Collection(tmp_path, SPARSE, structure="ivf", n_probe=100)
    collection.upsert([0], DATA[:1])
    X = np.random.default_rng(0).normal(size=(3000, 8)) + 3
    for start in range(0, 3000, 500):
        collection.upsert([f"{start}/{i}" for i in range(500)], X[start : start + 500])
    assert len(collection._store.snapshot.index.structure.lists.centroids) == 2
    assert collection._store.snapshot.n_trained == 1501
    plain = ReferenceCollection(SPARSE).upsert([0], DATA[:1])
    plain.upsert([f"{start}/{i}" for start in range(0, 3000, 500) for i in range(500)], X)
    assert collection.search(X[:5], 3).scores.tolist() == plain.search(X[:5], 3).scores.tolist()
    collection.close()


@pytest.mark.parametrize(
    ("options", "n_trained", "n", "expected"),
    [
        ({}, 0, 10, False),
        ({"refine": "vectors"}, 0, 10, False),
        ({"refine": "decoder"}, 0, 0, False),
        ({"refine": "decoder"}, 0, 1, True),
        ({"refine": "decoder"}, 10, 19, False),
        ({"refine": "decoder"}, 10, 20, True),
        ({"refine": "decoder"}, 20_000, 50_000, False),
        ({"structure": "ivf"}, 20_000, 50_000, True),
        ({"structure": "ivf", "n_lists": 1000}, 20_000, 50_000, True),
        ({"structure": "ivf", "n_lists": 1000}, 50_000, 100_000, False),
    ],
)
def test_when_an_index_must_be_trained_again(options, n_trained, n, expected):
    assert indexing.must_train_again(indexing.make_index(SPARSE, options), n_trained, n) is expected


def test_a_decoder_that_was_trained_on_one_item_is_trained_again(tmp_path):
    collection = posh.Collection(tmp_path, SPARSE, refine="decoder", oversample=30.0)
    for i in range(300):
        collection.upsert([i], DATA[i : i + 1])
    index = posh.CodeIndex(SPARSE, refine="decoder", oversample=30.0).add(DATA[:256])
    ours = np.mean([i in row for i, row in enumerate(collection.search(DATA[:250], 5).ids)])
    best = np.mean([i in row for i, row in enumerate(index.search(DATA[:250], 5).ids)])
    assert ours > best - 0.05
    collection.close()
