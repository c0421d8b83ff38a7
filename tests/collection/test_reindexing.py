"""Reindexing an embedded collection: writes meanwhile, interruptions and failures."""

from __future__ import annotations

import pytest

import posh
from posh.collection import indexing
from posh.collection.indexing import Reindexing
from posh.index.codes.snapshot import CodeSnapshot
from tests.collection.implementations import DATA, OTHER, SPARSE
from tests.collection.opened import answers, reopened
from tests.collection.reference import ReferenceCollection


def test_reindexing_that_is_interrupted_after_its_commit_counts(tmp_path, monkeypatch):
    collection = posh.Collection(tmp_path, SPARSE).upsert(range(10), DATA[:10])
    finish = Reindexing.finish

    def finish_and_interrupt(work, connection, before):
        finish(work, connection, before)
        connection.execute("COMMIT")
        connection.execute("BEGIN")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Reindexing, "finish", finish_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            collection.reindex(OTHER)
    collection.delete([3])
    assert collection.hasher.encode(DATA) == OTHER.encode(DATA)
    assert answers(collection) == answers(reopened(collection, saved_index=False))
    collection.close()


@pytest.mark.parametrize(
    "options", [{}, {"refine": "decoder"}, {"structure": "ivf", "n_lists": 3, "n_probe": 3}]
)
def test_writes_while_reindexing(tmp_path, monkeypatch, options):
    monkeypatch.setattr(indexing, "BLOCK", 32)
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
    assert answers(collection) == answers(reopened(collection, saved_index=False))
    collection.close()


def test_an_item_that_goes_while_its_new_code_is_made(tmp_path, monkeypatch):
    collection = posh.Collection(tmp_path, SPARSE).upsert(range(100), DATA[:100])
    encode = CodeSnapshot.encode

    def delete_and_encode(view, X):
        collection.delete([7])
        return encode(view, X)

    with monkeypatch.context() as patch:
        patch.setattr(CodeSnapshot, "encode", delete_and_encode)
        collection.reindex(OTHER)
    assert collection.count() == 99
    assert answers(collection) == answers(reopened(collection, saved_index=False))
    collection.close()


def test_reindexing_that_fails_leaves_the_old_codes_in_force(tmp_path, monkeypatch):
    monkeypatch.setattr(indexing, "BLOCK", 32)
    collection = posh.Collection(tmp_path, SPARSE).upsert(range(100), DATA[:100])
    expected = answers(collection)

    def fail(*args):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Reindexing, "finish", fail)
        with pytest.raises(MemoryError):
            collection.reindex(OTHER)
    assert answers(collection) == expected
    with collection._store.database.reading() as connection:
        assert connection.execute("SELECT generation, count(*) FROM codes GROUP BY 1").fetchall() == [
            (1, 100)
        ]
    assert answers(collection.reindex(OTHER)) == answers(
        ReferenceCollection(OTHER).upsert(range(100), DATA[:100])
    )
    collection.close()
