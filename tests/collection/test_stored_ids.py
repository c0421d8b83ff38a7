"""Large collections open without reading their ids: these are read when they are needed."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing

import numpy as np
import pytest

import posh
from posh.collection import indexing, opening, snapshot
from posh.collection.opening import DATABASE
from tests.collection.implementations import DATA
from tests.collection.opened import answers

N = 300
IDS = [i if i % 3 else f"item {i}" for i in range(N)]


@pytest.fixture(autouse=True)
def _as_if_large(monkeypatch):
    monkeypatch.setattr(opening, "_AT_ONCE", 0)
    monkeypatch.setattr(indexing, "WORTH", 50)


@pytest.fixture
def shop(tmp_path):
    with posh.Collection(tmp_path / "shop", metric="cosine") as collection:
        collection.upsert(IDS, DATA[:N], [{"n": i} for i in range(N)])
        collection.delete(IDS[:20])
        expected = answers(collection)
    assert list((tmp_path / "shop").glob("snapshot-*"))
    return tmp_path / "shop", expected


def has_read_all(collection) -> bool:
    return collection._store.snapshot.slot_table.ids.reader._all is not None


@pytest.mark.parametrize("read_only", [False, True])
def test_a_few_ids_are_looked_up_and_all_are_read_after_some_searches(shop, read_only):
    path, expected = shop
    with posh.Collection(path, read_only=read_only) as collection:
        for _ in range(snapshot._LOOKUPS):
            hits = collection.search(DATA[:2], k=20)
            assert hits.ids.tolist() == expected[0][:2]
            assert not has_read_all(collection)
        assert collection.search(DATA[:2], k=20).ids.tolist() == expected[0][:2]
        assert has_read_all(collection)
        assert answers(collection) == expected


def test_many_ids_are_read_together(shop, monkeypatch):
    monkeypatch.setattr(snapshot, "_FEW_IDS", 100)
    path, expected = shop
    with posh.Collection(path) as collection:
        assert answers(collection) == expected
        assert has_read_all(collection)


def test_missing_hits_have_no_id(shop):
    path, _ = shop
    with posh.Collection(path) as collection:
        hits = collection.search(DATA[0], k=5, filter={"n": {"in": [40, 41]}})
        assert sorted(map(str, hits.ids[0][:2])) == ["40", "41"]
        assert hits.ids[0].tolist()[2:] == [None] * 3
        assert collection.search(DATA[0], k=N).ids[0].tolist()[N - 20 :] == [None] * 20


def test_writes_read_the_ids_first(shop):
    path, _ = shop
    with posh.Collection(path) as collection:
        before = collection._store.snapshot
        collection.delete(IDS[20:40])
        collection.upsert(["new"], DATA[:1], [{"n": "new"}])
        table = before.slot_table
        assert table.find_ids(table.find_slots(np.array([22, 300]))).tolist() == [IDS[21], IDS[299]]
        assert collection.search(DATA[0], k=1).ids[0, 0] == "new"
        assert collection.delete(filter={"n": {"lt": 50}}) == 10
        expected = answers(collection)
    with posh.Collection(path) as collection:  # the saved index lacks these writes
        assert answers(collection) == expected
        assert [item.id for item in collection.items()] == [*IDS[50:], "new"]
        assert answers(collection.compact()) == expected


def test_a_reader_that_refreshes_and_a_search_that_runs_on(shop):
    path, expected = shop
    with posh.Collection(path) as writer, posh.Collection(path, read_only=True) as reader:
        old = reader._store.snapshot.slot_table
        slots = old.find_slots(old.seqs.rows[-2:])
        writer.delete(IDS[-2:])
        assert answers(reader) == expected
        reader.refresh()
        assert old.find_ids(slots).tolist() == IDS[-2:]
        assert answers(reader) == answers(writer)


def test_searches_and_writes_at_once(shop):
    path, _ = shop
    with posh.Collection(path) as collection:
        problems: list[object] = []

        def search() -> None:
            for i in range(40):
                ids = collection.search(DATA[100 + i], k=3).ids[0].tolist()
                if None in ids:
                    problems.append(ids)

        threads = [threading.Thread(target=search) for _ in range(3)]
        for thread in threads:
            thread.start()
        for i in range(20):
            collection.delete([IDS[200 + i]])
        for thread in threads:
            thread.join()
        assert not problems


def test_damaged_ids_are_noticed_when_they_are_read(shop):
    path, _ = shop
    with closing(sqlite3.connect(path / DATABASE, isolation_level=None)) as connection:
        connection.execute("UPDATE items SET id = 'x' WHERE seq = 101")
    with posh.Collection(path) as collection:
        with pytest.raises(posh.FormatError, match="the checksum does not match"):
            collection.search(DATA[100], k=1)
        with pytest.raises(posh.FormatError, match="the index of ids: the checksum does not match"):
            collection.upsert(["new"], DATA[:1])
