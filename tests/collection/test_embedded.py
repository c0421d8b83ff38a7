"""What only the embedded collection has: snapshots, learning, moments, room on the disk."""

from __future__ import annotations

import logging
import shutil
import sqlite3
from contextlib import contextmanager

import numpy as np
import pytest

import posh
from posh.collection import building, moment, opening, snapshots
from posh.collection.reindexing import Reindexing
from posh.index.view import View
from tests.collection.implementations import DATA, OTHER, SPARSE
from tests.collection.reference import ReferenceCollection


def answers(collection, k=20) -> tuple:
    found = collection.search(DATA[:40], k)
    return found.ids.tolist(), found.scores.tolist(), found.kind


def reopened(collection, *, snapshot: bool = True) -> posh.Collection:
    collection.close()
    if not snapshot:
        for folder in collection.path.glob("snapshot-*"):
            shutil.rmtree(folder)
    return posh.Collection(collection.path)


def folders(collection) -> list[str]:
    return [path.name for path in collection.path.glob("snapshot-*")]


# Snapshots -------------------------------------------------------------------------------------------


def test_a_snapshot_spares_building_the_index(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(snapshots, "WORTH", 100)
    collection = posh.Collection(tmp_path, SPARSE).upsert(range(99), DATA[:99])
    assert folders(collection) == []
    collection.upsert(range(50, 200), DATA[50:200])
    assert len(folders(collection)) == 1
    collection.delete([3, 60])
    collection.upsert(["new"], DATA[:1])
    expected = answers(collection)
    added = []
    with monkeypatch.context() as patch:
        with_documents = View.with_documents
        patch.setattr(
            View, "with_documents", lambda *args: added.append(len(args[1])) or with_documents(*args)
        )
        collection = reopened(collection)
    assert sum(added) == 1
    assert answers(collection) == expected
    assert answers(reopened(collection, snapshot=False)) == expected
    assert not caplog.records
    collection.close()


@pytest.mark.parametrize("how", ["cut", "flipped", "emptied", "of another index", "of other items"])
def test_a_snapshot_that_cannot_be_used_is_not(tmp_path, caplog, how):
    collection = posh.Collection(tmp_path / "a", SPARSE).upsert(range(100), DATA[:100]).compact()
    expected = answers(collection)
    (name,) = folders(collection)
    collection.close()
    folder = tmp_path / "a" / name
    codes = next(folder.glob("data-*/codes.npy"))
    match how:
        case "cut":
            codes.write_bytes(codes.read_bytes()[:-5])
        case "flipped":
            codes.write_bytes(codes.read_bytes()[:-1] + b"\xaa")
        case "emptied":
            shutil.rmtree(folder)
            folder.mkdir()
        case "of another index":
            posh.Index(SPARSE, refine="vectors").add(DATA[:100], ids=np.arange(1, 101)).save(folder)
        case "of other items":
            posh.Index(SPARSE).add(DATA[:99], ids=np.arange(2, 101)).save(folder)
    with caplog.at_level(logging.WARNING), posh.Collection(tmp_path / "a") as collection:
        assert answers(collection) == expected
    assert "cannot be used" in caplog.text
    assert "the index is built again" in caplog.text


def test_numbers_of_items_are_not_used_again(tmp_path, monkeypatch, caplog):
    """Or an old snapshot would take a new item for one that was deleted."""
    collection = posh.Collection(tmp_path, SPARSE).upsert(range(10), DATA[:10]).compact()
    old = folders(collection)

    def fail(*args):
        raise OSError("no room")

    monkeypatch.setattr(snapshots, "write", fail)
    collection.delete([8, 9])
    collection.compact()
    assert "no snapshot of the index (no room): opening will take longer" in caplog.text
    collection = reopened(collection.upsert(["new"], DATA[50:51]))
    assert folders(collection) == old != []
    assert answers(collection) == answers(reopened(collection, snapshot=False))
    collection.close()


def test_a_write_does_not_fail_because_of_a_snapshot(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(snapshots, "WORTH", 5)
    monkeypatch.setattr(View, "save", lambda view, path: path.mkdir() or 1 // 0)
    with posh.Collection(tmp_path, SPARSE) as collection:
        collection.upsert(range(10), DATA[:10])
        assert collection.count() == 10
        assert folders(collection) == []
    assert "no snapshot of the index (integer division or modulo by zero)" in caplog.text


def test_leftovers_are_removed(tmp_path):
    collection = posh.Collection(tmp_path, SPARSE).upsert(range(10), DATA[:10]).compact()
    kept = folders(collection)
    collection.close()
    (tmp_path / "snapshot-left").mkdir()
    with sqlite3.connect(tmp_path / opening.DATABASE) as connection:
        connection.execute("INSERT INTO generations SELECT 7, hasher, NULL FROM generations")
        connection.execute("INSERT INTO codes SELECT 7, seq, code FROM codes")
    connection.close()
    with posh.Collection(tmp_path) as collection:
        assert folders(collection) == kept
        with collection._engine.database.reading() as connection:
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
    """Whatever it has learned from items that are gone, and in whatever batches they came."""
    monkeypatch.setattr(building, "BLOCK", 64)
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
    collection = reopened(collection, snapshot=False)
    assert answers(collection, 5) == expected
    collection.upsert(["more"], DATA[:1])
    assert answers(collection, 5) == answers(reopened(collection, snapshot=False), 5)
    collection.close()


def test_a_snapshot_of_before_an_index_learned_again_is_not_used(tmp_path):
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
    assert len(collection._engine.moment.view.state.structure.centroids) == 2
    assert collection._engine.moment.learned_from == 1501
    plain = ReferenceCollection(SPARSE).upsert([0], DATA[:1])
    plain.upsert([f"{start}/{i}" for start in range(0, 3000, 500) for i in range(500)], X)
    assert collection.search(X[:5], 3).scores.tolist() == plain.search(X[:5], 3).scores.tolist()
    collection.close()


@pytest.mark.parametrize(
    ("options", "learned_from", "n", "expected"),
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
def test_when_an_index_has_outgrown_what_it_learned(options, learned_from, n, expected):
    assert building.outgrown(building.empty_view(SPARSE, options), learned_from, n) is expected


def test_a_decoder_that_learned_from_one_item_learns_again(tmp_path):
    collection = posh.Collection(tmp_path, SPARSE, refine="decoder", oversample=30.0)
    for i in range(300):
        collection.upsert([i], DATA[i : i + 1])
    index = posh.Index(SPARSE, refine="decoder", oversample=30.0).add(DATA[:256])
    ours = np.mean([i in row for i, row in enumerate(collection.search(DATA[:250], 5).ids)])
    best = np.mean([i in row for i, row in enumerate(index.search(DATA[:250], 5).ids)])
    assert ours > best - 0.05
    collection.close()


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
    assert len(collection._engine.database._idle) <= 2
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
    database = collection._engine.database
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
    assert answers(collection) == answers(reopened(collection, snapshot=False))
    collection.close()


def test_reindexing_that_is_interrupted_after_its_commit_counts(tmp_path, monkeypatch):
    collection = posh.Collection(tmp_path, SPARSE).upsert(range(10), DATA[:10])
    finish = Reindexing.finish

    def finish_and_interrupt(work, connection, moment):
        finish(work, connection, moment)
        connection.execute("COMMIT")
        connection.execute("BEGIN")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Reindexing, "finish", finish_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            collection.reindex(OTHER)
    collection.delete([3])
    assert collection.hasher.encode(DATA) == OTHER.encode(DATA)
    assert answers(collection) == answers(reopened(collection, snapshot=False))
    collection.close()


@pytest.mark.parametrize("kind", [MemoryError, KeyboardInterrupt])
def test_a_write_that_fails_in_the_index_has_not_happened(tmp_path, monkeypatch, kind):
    collection = posh.Collection(tmp_path, SPARSE).upsert(range(10), DATA[:10], [{"a": 1}] * 10)
    expected = answers(collection)

    def fail(*args):
        raise kind

    with monkeypatch.context() as patch:
        patch.setattr(View, "with_documents", fail)
        with pytest.raises(kind):
            collection.upsert([0, "new"], DATA[20:22], [{"a": 2}] * 2)
    assert collection.count({"a": 2}) == 0
    assert answers(collection) == expected
    collection.upsert(["other"], DATA[30:31])
    assert answers(collection) == answers(reopened(collection, snapshot=False))
    collection.close()


def test_vectors_of_another_width_written_meanwhile(tmp_path):
    collection = posh.Collection(tmp_path).upsert([1], DATA[:1])
    with pytest.raises(
        ValueError, match="expected vectors with 8 columns, as others have written meanwhile, got 3"
    ):
        collection._upsert([2], DATA[:1, :3], [{}])
    assert collection.count() == 1
    collection.close()


# Reindexing ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"refine": "decoder"}, {"structure": "ivf", "n_lists": 3, "n_probe": 3}]
)
def test_writes_while_reindexing(tmp_path, monkeypatch, options):
    monkeypatch.setattr(building, "BLOCK", 32)
    collection = posh.Collection(tmp_path, SPARSE).upsert(range(100), DATA[:100], [{"a": 1}] * 100)
    plain = ReferenceCollection(OTHER).upsert(range(100), DATA[:100], [{"a": 1}] * 100)
    steps, n_steps = Reindexing.steps, 0

    def steps_and_writes(work):
        nonlocal n_steps
        for n, _ in enumerate(steps(work)):
            n_steps += 1
            if n < 5:
                for one in (collection, plain):
                    one.delete([n, 99 - n])  # one that has a new code already, one that has none yet
                    one.upsert([50 + n, f"new {n}"], DATA[200 + n : 202 + n], [{"a": 2}] * 2)
                assert collection.search(DATA[0], 3).kind == "overlap"
                assert collection.count({"a": 2}) == plain.count({"a": 2})
            yield

    monkeypatch.setattr(Reindexing, "steps", steps_and_writes)
    collection.reindex(OTHER, **options)
    assert n_steps >= 4
    assert [item.id for item in collection.items()] == [item.id for item in plain.items()]
    if options.get("refine") is None:
        assert collection.search(DATA[:9], 40).scores.tolist() == plain.search(DATA[:9], 40).scores.tolist()
    if not options:
        assert answers(collection) == answers(plain)
    assert answers(collection) == answers(reopened(collection, snapshot=False))
    collection.close()


def test_an_item_that_goes_while_its_new_code_is_made(tmp_path, monkeypatch):
    collection = posh.Collection(tmp_path, SPARSE).upsert(range(100), DATA[:100])
    encode = View.encode

    def delete_and_encode(view, X):
        collection.delete([7])
        return encode(view, X)

    with monkeypatch.context() as patch:
        patch.setattr(View, "encode", delete_and_encode)
        collection.reindex(OTHER)
    assert collection.count() == 99
    assert answers(collection) == answers(reopened(collection, snapshot=False))
    collection.close()


def test_reindexing_that_fails_leaves_the_old_codes_in_force(tmp_path, monkeypatch):
    monkeypatch.setattr(building, "BLOCK", 32)
    collection = posh.Collection(tmp_path, SPARSE).upsert(range(100), DATA[:100])
    expected = answers(collection)

    def fail(*args):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Reindexing, "finish", fail)
        with pytest.raises(MemoryError):
            collection.reindex(OTHER)
    assert answers(collection) == expected
    with collection._engine.database.reading() as connection:
        assert connection.execute("SELECT generation, count(*) FROM codes GROUP BY 1").fetchall() == [
            (1, 100)
        ]
    assert answers(collection.reindex(OTHER)) == answers(
        ReferenceCollection(OTHER).upsert(range(100), DATA[:100])
    )
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
    assert collection._engine.moment.directory.n_slots == 100
    assert answers(collection) == expected
    collection.close()


def test_items_that_are_replaced_all_the_time_do_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(moment, "_SPARE", 50)
    collection = posh.Collection(tmp_path, SPARSE)
    for start in range(30):
        collection.upsert(range(20), DATA[start : start + 20], [{"a": start}] * 20)
        assert collection.count({"a": start}) == 20
    assert collection._engine.moment.directory.n_slots < 100
    assert collection._engine.moment.view.state.ids.n == collection._engine.moment.directory.n_slots
    assert answers(collection) == answers(reopened(collection, snapshot=False))
    collection.close()
