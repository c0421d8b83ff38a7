"""Files that are taken away while they are open, and disks that fail at the end of a write."""

from __future__ import annotations

import errno
import shutil
import sqlite3

import numpy as np
import pytest

import posh
from posh import _durable
from posh.collection import database, opening
from tests.collection.implementations import DATA, SPARSE


@pytest.fixture
def collection(tmp_path):
    with posh.Collection(tmp_path / "shop", SPARSE) as opened:
        opened.upsert(range(10), DATA[:10], [{"n": i} for i in range(10)])
        yield opened


def test_new_parent_folders_are_synced(tmp_path, monkeypatch):
    synced = []
    sync = _durable.sync_folder
    monkeypatch.setattr(_durable, "sync_folder", lambda folder: (synced.append(folder), sync(folder)))
    posh.Collection(tmp_path / "a" / "b" / "c").close()
    assert {tmp_path, tmp_path / "a", tmp_path / "a" / "b"} <= set(synced)


def require_no_writes(collection: posh.Collection) -> None:
    for call in (
        lambda: collection.upsert(["new"], DATA[:1]),
        lambda: collection.delete([3]),
        lambda: collection.set_metadata({"a": 1}),
        lambda: collection.reindex(SPARSE),
    ):
        with pytest.raises(posh.StorageError, match="was deleted, moved or replaced: this call has changed"):
            call()
    assert collection.search(DATA[3], 1).ids.tolist() == [[3]]


def test_a_folder_that_is_deleted_while_open(collection):
    shutil.rmtree(collection.path)
    require_no_writes(collection)
    collection._store._n_unsaved = 10**6  # worth saving the index
    collection.close()
    assert not collection.path.exists()


def test_a_folder_that_is_moved_while_open_and_put_back(collection, tmp_path):
    collection.path.rename(tmp_path / "elsewhere")
    require_no_writes(collection)
    (tmp_path / "elsewhere").rename(collection.path)
    collection.upsert(["new"], DATA[:1])
    collection.close()
    with posh.Collection(collection.path) as again:
        assert again.count() == 11


def test_a_folder_that_is_replaced_by_another_collection(collection, tmp_path):
    with posh.Collection(tmp_path / "other", SPARSE) as other:
        other.upsert(range(10), DATA[:10], [{"other": True}] * 10)
    collection.path.rename(tmp_path / "elsewhere")
    (tmp_path / "other").rename(collection.path)
    require_no_writes(collection)
    iterators = [collection.items() for _ in range(20)]  # more than there are idle connections
    with pytest.raises(posh.StorageError, match="this call has read nothing"):
        assert {next(items).payload["n"] for items in iterators} == {0}


def test_a_database_that_is_deleted_while_open(collection):
    (collection.path / opening.DATABASE).unlink()
    require_no_writes(collection)


def test_a_log_that_is_deleted_while_open(collection):
    (collection.path / f"{opening.DATABASE}-wal").unlink()
    for name in ("new", "newer"):
        with pytest.raises(posh.StorageError, match="this write and later ones may be lost"):
            collection.upsert([name], DATA[:1])


def test_a_folder_that_goes_during_a_write(collection, monkeypatch):
    insert = opening.tables.insert_items

    def insert_and_remove(*args):
        shutil.rmtree(collection.path)
        return insert(*args)

    monkeypatch.setattr(opening.tables, "insert_items", insert_and_remove)
    with pytest.raises(posh.StorageError, match="this write and later ones may be lost"):
        collection.upsert(["new"], DATA[:1])


class FailingDisk:
    """A connection whose commits fail with a code of SQLite; ``kept`` says whether the log has them."""

    def __init__(self, connection: sqlite3.Connection, code: int, *, kept: bool) -> None:
        self._connection, self._code, self._kept = connection, code, kept

    def execute(self, statement: str, *values):
        if statement != "COMMIT":
            return self._connection.execute(statement, *values)
        self._connection.execute("COMMIT" if self._kept else "ROLLBACK")
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = self._code
        raise error

    def __getattr__(self, name: str):
        return getattr(self._connection, name)


@pytest.mark.parametrize("kept", [False, True])
def test_a_sync_that_fails_leaves_the_write_in_doubt(collection, kept):
    """It said "this call changed nothing", though the item may be there after reopening."""
    database = collection._store.database
    working = database._writer
    database._writer = FailingDisk(working, sqlite3.SQLITE_IOERR_FSYNC, kept=kept)
    with pytest.raises(posh.StorageError, match="may or may not be there after reopening: repair the disk"):
        collection.upsert(["new"], DATA[:1])
    database._writer = working  # the disk seems to be well again
    for call in (lambda: collection.upsert([1], DATA[:1]), lambda: collection.delete([1])):
        with pytest.raises(posh.StorageError, match=r"an earlier write failed .* close this collection"):
            call()
    assert collection.search(DATA[3], 1).ids.tolist() == [[3]]
    collection.close()
    with posh.Collection(collection.path) as again:
        assert again.count() == 10 + kept
        again.upsert(["later"], DATA[:1])


@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE])
def test_a_page_that_is_not_written_leaves_no_doubt(collection, code):
    database = collection._store.database
    working = database._writer
    database._writer = FailingDisk(working, code, kept=False)
    with pytest.raises(posh.StorageError, match="this call changed nothing: free some space"):
        collection.upsert(["new"], DATA[:1])
    database._writer = working
    collection.upsert(["later"], np.zeros((1, 8)))
    assert collection.count() == 11


@pytest.fixture
def left(collection, tmp_path):
    """A folder as a killed process leaves it: with a log."""
    collection.delete([3])
    return shutil.copytree(collection.path, tmp_path / "left")


def test_a_log_that_is_left_is_written_again_before_it_is_used(left, monkeypatch):
    written = []
    log, rewrite_in_place = left / f"{opening.DATABASE}-wal", database.rewrite_in_place
    content = log.read_bytes()
    monkeypatch.setattr(
        database, "rewrite_in_place", lambda path: (rewrite_in_place(path), written.append(path))
    )
    connect = database.connect
    monkeypatch.setattr(
        database, "connect", lambda *how: (written.append(log.read_bytes()), connect(*how))[1]
    )
    with posh.Collection(left) as opened:
        assert 3 not in opened
    assert content
    assert written[:2] == [log, content]


def test_a_log_that_cannot_be_written_again_lets_nothing_be_written(left, monkeypatch):
    def failing(path):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(database, "rewrite_in_place", failing)
        with posh.Collection(left) as opened:
            assert len(opened) == 9
            with pytest.raises(posh.StorageError, match="close this collection, open it again"):
                opened.delete([4])
    with posh.Collection(left) as opened:
        assert opened.delete([4]) == 1


@pytest.mark.parametrize("size", [0, 10, 1000, 1001, 2500])
def test_a_file_that_is_written_again_is_the_same(size, tmp_path, monkeypatch):
    content = np.random.default_rng(size).bytes(size)
    (tmp_path / "file").write_bytes(content)
    monkeypatch.setattr(_durable, "_BLOCK", 1000)
    _durable.rewrite_in_place(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == content
