"""What only the embedded collection has: moments, interrupted writes, room on the disk."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from unittest import mock

import numpy as np
import pytest

import posh
from posh.collection import database, opening, snapshot
from posh.index.codes.snapshot import CodeSnapshot
from tests.collection.implementations import DATA, SPARSE
from tests.collection.opened import answers, reopened

# Moments ---------------------------------------------------------------------------------------------


def test_iteration_sees_the_moment_at_which_it_began(tmp_path):
    collection = posh.Collection(tmp_path, SPARSE).upsert(range(2000), np.resize(DATA, (2000, 8)))
    items = collection.items()
    first = next(items)
    collection.upsert(range(1000, 3000), np.resize(DATA, (2000, 8)), [{"new": True}] * 2000)
    collection.delete(range(500))
    rest = list(items)
    assert [item.id for item in (first, *rest)] == list(range(2000))
    assert not any(item.payload for item in rest)
    assert collection.count() == 2500
    collection.close()


def test_iterators_that_are_left_and_collections_that_are_closed_meanwhile(tmp_path):
    collection = posh.Collection(tmp_path, SPARSE).upsert(range(2000), np.resize(DATA, (2000, 8)))
    for _ in range(20):
        next(collection.items())
    assert len(collection._store.database._idle) <= 2
    items = collection.items()
    next(items)
    collection.close()
    with pytest.raises(ValueError, match="got a closed one"):
        list(items)
    posh.Collection(tmp_path).close()


def test_many_ids_in_one_call(tmp_path):
    X = np.resize(DATA, (1700, 8))
    collection = posh.Collection(tmp_path, SPARSE).upsert(range(1700), X)
    collection.upsert([*range(300, 1700), *map(str, range(300))], X, [{"i": i} for i in range(1700)])
    assert [item.payload for item in collection.get(range(300, 1700))] == [{"i": i} for i in range(1400)]
    assert collection.count() == 2000
    assert collection.delete(range(1700)) == 1700
    assert collection.count({"i": {"gte": 0}}) == 300
    collection.close()


@contextmanager
def interrupted_after_commit(collection, monkeypatch):
    """The user presses Ctrl-C after a commit, before the collection knows of it."""
    database = collection._store.database
    writing = database.writing

    @contextmanager
    def interrupted():
        with writing() as connection:
            yield connection
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(database, "writing", interrupted)
        yield


@pytest.mark.parametrize("then", ["search", "items", "write", "compact"])
def test_a_write_that_is_interrupted_after_its_commit_is_there(tmp_path, monkeypatch, then):
    collection = posh.Collection(tmp_path, SPARSE).upsert(range(10), DATA[:10], [{"a": 1}] * 10)
    collection.search(DATA[0], 20, filter={"a": 2})
    with interrupted_after_commit(collection, monkeypatch), pytest.raises(KeyboardInterrupt):
        collection.upsert([0, "new"], DATA[20:22], [{"a": 2}] * 2)
    if then == "search":
        assert set(collection.search(DATA[0], 20, filter={"b": 1}).ids.ravel()) == {None}
    elif then == "items":
        assert [item.id for item in collection.items({"a": 2})] == [0, "new"]
    elif then == "write":
        collection.delete(["nothing"])
    else:
        collection.compact()
    assert collection.count() == 11
    assert collection.count({"a": 2}) == 2
    assert answers(collection) == answers(reopened(collection, saved_index=False))
    collection.close()


@pytest.mark.parametrize("kind", [MemoryError, KeyboardInterrupt])
def test_a_write_that_fails_in_the_index_has_not_happened(tmp_path, monkeypatch, kind):
    collection = posh.Collection(tmp_path, SPARSE).upsert(range(10), DATA[:10], [{"a": 1}] * 10)
    expected = answers(collection)

    def fail(*args, **options):
        raise kind

    with monkeypatch.context() as patch:
        patch.setattr(CodeSnapshot, "with_documents", fail)
        with pytest.raises(kind):
            collection.upsert([0, "new"], DATA[20:22], [{"a": 2}] * 2)
    assert collection.count({"a": 2}) == 0
    assert answers(collection) == expected
    collection.upsert(["other"], DATA[30:31])
    assert answers(collection) == answers(reopened(collection, saved_index=False))
    collection.close()


def test_vectors_of_another_width_written_meanwhile(tmp_path):
    collection = posh.Collection(tmp_path).upsert([1], DATA[:1])
    with pytest.raises(
        ValueError, match="expected vectors with 8 columns, as a concurrent write has set, got 3"
    ):
        collection._upsert([2], DATA[:1, :3], [{}])
    assert collection.count() == 1
    collection.close()


def test_filters_that_take_too_long_are_interrupted(tmp_path):
    collection = posh.Collection(tmp_path, SPARSE)
    collection.upsert(range(6000), np.resize(DATA, (6000, 8)), [{"n": i} for i in range(6000)])
    assert collection.filter_seconds is None
    collection.filter_seconds = 0
    wide = {"n": {"gte": 0}}
    for call in (
        lambda: collection.count(wide),
        lambda: collection.search(DATA[0], 1, filter=wide),
        lambda: list(collection.items(wide)),
    ):
        with pytest.raises(TimeoutError, match=r"within 0.* seconds, got none: ask for less"):
            call()
    assert len(list(collection.items(limit=10))) == 10  # only filters have a deadline
    collection.filter_seconds = 60
    assert collection.count(wide) == 6000
    collection.close()


# Room ------------------------------------------------------------------------------------------------


def test_compaction_gives_room_back(tmp_path):
    collection = posh.Collection(tmp_path, SPARSE)
    collection.upsert(range(5000), np.resize(DATA, (5000, 8)), [{"text": "x" * 200}] * 5000)
    collection.delete(range(100, 5000))
    before = sum(file.stat().st_size for file in tmp_path.glob(f"{opening.DATABASE}*"))
    expected = answers(collection)
    collection.compact()
    assert sum(file.stat().st_size for file in tmp_path.glob(f"{opening.DATABASE}*")) < before / 5
    assert collection._store.snapshot.slot_table.n_slots == 100
    assert answers(collection) == expected
    collection.close()


def test_compaction_lets_others_write_and_search_in_between(tmp_path, monkeypatch):
    """Compacting the index does not hold others up; after that, the database is rewritten in one step."""
    collection = posh.Collection(tmp_path, SPARSE)
    collection.upsert(range(2000), np.resize(DATA, (2000, 8)), [{"text": ["x" * 20_000]}] * 2000)
    collection.delete(range(1900))
    compacted = snapshot.CollectionSnapshot.compact
    written = []

    def write(name):
        written.append(name)
        thread = threading.Thread(target=collection.upsert, args=([name], DATA[:1]))
        thread.start()
        thread.join()
        assert collection.search(DATA[0], 1).scores.tolist() == [[4.0]]

    def write_and_compact(self):
        write("while the index is compacted") if not written else None
        return compacted(self)

    monkeypatch.setattr(snapshot.CollectionSnapshot, "compact", write_and_compact)
    collection.compact()
    assert written
    assert all(name in collection for name in written)
    assert collection._store.snapshot.slot_table.n_slots < 200
    assert answers(collection) == answers(reopened(collection, saved_index=False))
    collection.close()


def test_items_that_are_replaced_all_the_time_do_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(snapshot, "_SPARE", 50)
    collection = posh.Collection(tmp_path, SPARSE)
    for start in range(30):
        collection.upsert(range(20), DATA[start : start + 20], [{"a": start}] * 20)
        assert collection.count({"a": start}) == 20
    assert collection._store.snapshot.slot_table.n_slots < 100
    assert collection._store.snapshot.index.n_slots == collection._store.snapshot.slot_table.n_slots
    assert answers(collection) == answers(reopened(collection, saved_index=False))
    collection.close()


def test_lists_to_visit_in_one_search(tmp_path):
    """All lists give the hits of an exact index, one list gives fewer; the option is the default."""
    exact = posh.CodeIndex(SPARSE).add(DATA).search(DATA[:20], 50)
    with posh.Collection(tmp_path, SPARSE, structure="ivf", n_lists=8, n_probe=2) as collection:
        collection.upsert(range(len(DATA)), DATA)
        everything = collection.search(DATA[:20], 50, n_probe=8)
        np.testing.assert_array_equal(everything.ids.astype(int), exact.ids)
        assert (collection.search(DATA[:20], 50, n_probe=1).scores < everything.scores).any()
        two = collection.search(DATA[:20], 50, n_probe=2)
        np.testing.assert_array_equal(collection.search(DATA[:20], 50).ids, two.ids)
        assert (two.ids != everything.ids).any()


def test_a_payload_does_not_grow_beyond_its_bound(path):
    with posh.Collection(path) as collection:
        collection.payload_bytes = 40
        assert collection.payload_bytes == 40
        collection.update_payload([1], [{"text": "x" * 10}])
        with pytest.raises(
            ValueError, match="expected payloads of at most 40 bytes, got 50 for 1: keep large"
        ):
            collection.update_payload([2, 1], [{"n": 7}, {"more": 1, "n": 10}])
        assert collection.get([2])[0].payload["n"] == 2
        collection.update_payload([1], [{"text": "é"}])
        collection.payload_bytes = None
        collection.update_payload([1], [{"text": "x" * 100}])
        with pytest.raises(ValueError, match="expected n_bytes at least 2, got 1"):
            collection.payload_bytes = 1


def test_a_filter_that_takes_too_long_deletes_nothing(path):
    with posh.Collection(path) as collection:
        collection.filter_seconds = 0.0
        with mock.patch.object(database, "_STEPS", 1), pytest.raises(TimeoutError):
            collection.delete(filter={"n": {"in": [1, 2, 3]}})
        assert len(collection) == 10
        collection.filter_seconds = None
        assert collection.delete(filter={"n": {"in": [1, 2, 3]}}) == 3
