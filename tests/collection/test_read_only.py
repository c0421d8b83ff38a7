"""Collections that are open read-only, while others write; and copies that are made meanwhile."""

from __future__ import annotations

import errno
import multiprocessing
import os
import pickle
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import posh
from posh.collection import maintenance
from posh.collection.maintenance import check_collection
from posh.collection.opening import DATABASE
from tests.collection.implementations import DATA, SPARSE
from tests.collection.opened import answers


def everything(collection) -> list:
    return [(item.id, item.vector.tolist(), item.payload) for item in collection.items()]


@pytest.fixture
def writer(tmp_path):
    with posh.create(tmp_path / "shop", SPARSE, metadata={"a": 1}) as collection:
        yield collection.upsert(range(300), DATA[:300], [{"n": i, "tens": i // 10} for i in range(300)])


def test_a_reader_sees_the_state_of_its_opening_until_it_refreshes(writer):
    with posh.open(writer.path, read_only=True) as reader:
        before, items = answers(writer), everything(writer)
        for number in range(5):
            writer.upsert(range(number, 400), DATA[: 400 - number], [{"n": -1}] * (400 - number))
            writer.delete(filter={"n": {"gte": 0}}, limit=1)
        writer.set_metadata({"a": 2})
        assert (answers(reader), everything(reader)) == (before, items)
        assert (len(reader), reader.count({"tens": 3}), reader.metadata) == (300, 10, {"a": 1})
        hits = reader.search(DATA[:3], 5, filter={"tens": {"lt": 2}}, payloads=True)
        assert all(hit.payload["tens"] < 2 for row in range(3) for hit in hits[row])
        assert reader.refresh() is reader
        assert (answers(reader), everything(reader)) == (answers(writer), everything(writer))
        assert (reader.metadata, reader.count({"tens": 3})) == ({"a": 2}, 0)
        assert "read-only" in repr(reader)
        assert writer.refresh() is writer


def test_masks_of_filters_do_not_outlive_a_refresh(writer):
    with posh.open(writer.path, read_only=True) as reader:
        assert reader.count({"tens": 3}) == 10
        writer.delete(range(0, 300, 2))
        writer.upsert(["new"], DATA[:1], [{"tens": 3}])
        assert reader.count({"tens": 3}) == 10
        assert reader.refresh().count({"tens": 3}) == 6
        items = reader.items({"tens": 3})
        first = next(items)
        writer.delete(filter={})
        reader.refresh()
        assert len([first, *items]) == 6  # an iteration goes on with the state it began with
        assert len(reader) == 0


WRITES = {
    "upsert": lambda c: c.upsert([1], DATA[:1]),
    "delete": lambda c: c.delete([1]),
    "delete by a filter": lambda c: c.delete(filter={}),
    "update_payload": lambda c: c.update_payload([1], [{}]),
    "set_metadata": lambda c: c.set_metadata({}),
    "reindex": lambda c: c.reindex(SPARSE),
    "fit": lambda c: c.fit(posh.LSH(8)),
    "compact": lambda c: c.compact(),
}


@pytest.mark.parametrize("call", list(WRITES))
def test_writes_are_refused(writer, call):
    with posh.open(writer.path, read_only=True) as reader:
        with pytest.raises(posh.StorageError, match="open for writing, got one that is open read-only"):
            WRITES[call](reader)
        assert everything(reader) == everything(writer)
    with pytest.raises(ValueError, match="expected an open collection, got a closed one"):
        WRITES[call](reader)


def test_a_reader_needs_a_collection_of_this_version(tmp_path, writer):
    with pytest.raises((FileNotFoundError, posh.StorageError)):
        posh.Collection(tmp_path / "nothing", read_only=True)
    assert not (tmp_path / "nothing").exists()
    with pytest.raises(ValueError, match="expected the metadata that this collection has"):
        posh.Collection(writer.path, metadata={"b": 1}, read_only=True)
    with posh.open(writer.path, read_only=True) as reader, pytest.raises(ValueError, match="read-only"):
        reader.filter_seconds = 1.0
    writer.close()
    with closing(sqlite3.connect(writer.path / DATABASE)) as connection:
        connection.execute("PRAGMA user_version = 2")
    with pytest.raises(
        posh.FormatError, match="of format version 4 or 5, found another: open it once for writing"
    ):
        posh.open(writer.path, read_only=True)


def test_a_closed_collection_is_read_and_nothing_in_it_changes(writer):
    writer.compact()
    writer.close()
    before = (writer.path / DATABASE).read_bytes()
    with posh.open(writer.path, read_only=True) as one, posh.open(writer.path, read_only=True) as two:
        assert everything(one) == everything(two)
        with posh.open(writer.path) as again:
            again.upsert(["new"], DATA[:1])
            assert (len(one), len(two.refresh())) == (300, 301)
    with posh.open(writer.path) as again:
        again.delete(["new"])
    assert len(before) == len((writer.path / DATABASE).read_bytes())
    assert check_collection(writer.path).problems == []


READ = """
import sys, posh
number = 0
for opened in range(2000):
    if opened >= 20 and number > 5:  # enough was written meanwhile
        break
    with posh.open(sys.argv[1], read_only=True) as reader:
        for _ in range(5):
            numbers = {item.payload["n"] for item in reader.items()}
            hits = reader.search([[0.5] * 8] * 3, 50, payloads=True)
            numbers |= {hit.payload["n"] for row in range(3) for hit in hits[row]}
            assert len(numbers) == 1, numbers
            number = numbers.pop()
            assert len(reader) == reader.count({"n": number}) == 200
            reader.refresh()
print("done")
"""


def test_other_processes_never_see_half_a_write(tmp_path):
    """Each write gives all items another number."""
    with posh.create(tmp_path / "shop", SPARSE) as writer:
        writer.upsert(range(200), DATA[:200], [{"n": 0}] * 200)
        command = [sys.executable, "-c", READ, str(writer.path)]
        readers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        number = 0
        while any(reader.poll() is None for reader in readers):
            number += 1
            writer.upsert(range(200), DATA[:200], [{"n": number}] * 200)
            if number % 10 == 0:
                writer.compact()
        assert [reader.communicate()[0] for reader in readers] == ["done\n"] * 2
        assert number > 5


def test_backups_of_a_collection_that_is_written_to(tmp_path):
    """Each is one state, passes the check, and searches like the original did."""
    with posh.create(tmp_path / "shop", SPARSE) as writer:
        writer.upsert(range(200), DATA[:200], [{"n": 0}] * 200)
        stop, written = threading.Event(), threading.Event()

        def write() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                writer.upsert(range(200), DATA[:200], [{"n": number}] * 200)
                written.set()

        thread = threading.Thread(target=write)
        thread.start()
        try:
            for i in range(8):
                writer.backup(tmp_path / f"backup-{i}")
                written.clear()
                assert written.wait(30)  # otherwise all backups may come before the first write
        finally:
            stop.set()
            thread.join()
        writer.backup(tmp_path / "last")
        seen = set()
        for i in range(8):
            assert check_collection(tmp_path / f"backup-{i}").problems == []
            with posh.open(tmp_path / f"backup-{i}") as copy:
                numbers = {item.payload["n"] for item in copy.items()}
                assert (len(numbers), len(copy)) == (1, 200)
                seen |= numbers
                copy.upsert(["new"], DATA[:1])
        assert len(seen) > 1
        with posh.open(tmp_path / "last", read_only=True) as copy:
            assert (answers(copy), everything(copy)) == (answers(writer), everything(writer))
            copy.backup(tmp_path / "copy of the copy")
        with posh.open(tmp_path / "copy of the copy") as copy:
            assert everything(copy) == everything(writer)


def test_a_backup_is_complete_or_not_there(writer, tmp_path, monkeypatch):
    (tmp_path / "taken").mkdir()
    for path in (tmp_path / "taken", writer.path):
        with pytest.raises(FileExistsError, match="expected a path that does not exist for the backup"):
            writer.backup(path)
    with pytest.raises(FileNotFoundError, match="no such folder, create it first"):
        writer.backup(tmp_path / "no" / "where")
    before = sorted(path.name for path in tmp_path.iterdir())

    def interrupted(folder) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(maintenance, "sync_folder", interrupted)
    with pytest.raises(KeyboardInterrupt):
        writer.backup(tmp_path / "backup")
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("owner", "call"),
    [
        (Path, "mkdir"),
        (Path, "exists"),
        (maintenance, "_copy_database"),
        (maintenance, "sync_folder"),
        (Path, "rename"),
        (os, "fsync"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EIO, errno.ENOENT, errno.ENOTEMPTY])
def test_a_disk_that_fails_during_a_backup(writer, tmp_path, monkeypatch, owner, call, number):
    """It was a plain OSError."""

    def fail(*args, **options):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(owner, call, fail)
        with pytest.raises(posh.StorageError, match=f"{os.strerror(number)}: free some space") as caught:
            writer.backup(tmp_path / "backup")
    assert caught.value.errno == number
    assert not (tmp_path / "backup").exists()
    writer.backup(tmp_path / "backup")


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch], ids=["folder", "file"])
def test_a_path_that_appears_during_a_backup(writer, tmp_path, monkeypatch, make):
    copy = maintenance._copy_database
    monkeypatch.setattr(maintenance, "_copy_database", lambda *args: (copy(*args), make(tmp_path / "backup")))
    with pytest.raises(FileExistsError, match="expected a path that does not exist for the backup"):
        writer.backup(tmp_path / "backup")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", writer.path.name]


def test_a_backup_is_on_the_disk_before_it_has_its_name(writer, tmp_path, monkeypatch):
    events = []

    def recorded(what, call):
        def record(argument):
            events.append((what, (tmp_path / "backup").exists()))
            return call(argument)

        return record

    monkeypatch.setattr(maintenance, "sync_folder", recorded("folder", maintenance.sync_folder))
    monkeypatch.setattr(os, "fsync", recorded("file", os.fsync))
    writer.backup(tmp_path / "backup")
    assert events[:2] == [("file", False), ("folder", False)]
    assert events[-2] == ("folder", True)  # of the folder with the new name
    assert events[-1] == ("file", True)  # the call of fsync in sync_folder


def search_in_child(collection) -> list:
    return collection.search(DATA[:2], 3).ids.tolist()


def test_pickling(writer):
    with pytest.raises(TypeError, match=r"expected a read-only collection to pickle, got Collection\(.*shop"):
        pickle.dumps(writer)
    with posh.open(writer.path, read_only=True) as reader:
        copy = pickle.loads(pickle.dumps(reader))
        assert everything(copy) == everything(reader)
        copy.close()
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.apply(search_in_child, (reader,)) == search_in_child(reader)
    index = posh.CodeIndex(SPARSE).add(DATA[:50])
    again = pickle.loads(pickle.dumps(index))
    np.testing.assert_array_equal(again.search(DATA[:5], 3).ids, index.search(DATA[:5], 3).ids)
    hits = pickle.loads(pickle.dumps(index.search(DATA[:5], 3)))
    assert hits.kind == "overlap"
