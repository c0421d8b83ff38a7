"""Copies of collections that clients ask for."""

from __future__ import annotations

import asyncio
import errno
import shutil
import threading
from pathlib import Path

import httpx
import pytest

import posh
from posh.cli import main
from posh.client import AsyncClient, Client
from posh.collection import maintenance
from posh.collection.maintenance import check_collection
from posh.errors import CollectionExistsError, ServiceError, StorageError, UnknownCollectionError
from posh.serve.sources import Folder
from tests.collection.implementations import DATA, SPARSE
from tests.serve.service import running


@pytest.fixture
def backups(tmp_path):
    return tmp_path / "backups"


@pytest.fixture
def client(tmp_path, backups):
    with running(Folder(tmp_path / "served", backups=backups)) as address, Client(address) as client:
        client.create("shop", SPARSE, metadata={"a": 1}).upsert(range(300), DATA[:300])
        yield client


def test_a_backup_is_the_collection_of_one_moment(client, backups):
    """Each write replaces the payloads of all items; a copy has those of one write."""
    shop, stop = client.collection("shop"), threading.Event()

    def write():
        number = 0
        while not stop.is_set():
            number += 1
            shop.update_payload(range(300), [{"write": number}] * 300)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for name in ("first", "second"):
            shop.backup(name)
    finally:
        stop.set()
        writer.join()
    assert sorted(path.name for path in backups.iterdir()) == ["first", "second"]
    for path in backups.iterdir():
        assert check_collection(path).problems == []
        with posh.open(path) as copy:
            assert (len(copy), copy.metadata) == (300, {"a": 1})
            assert len({str(item.payload) for item in copy.items()}) == 1
            assert copy.search(DATA[:5], 3).ids.tolist() == shop.search(DATA[:5], 3).ids.tolist()
    assert [info.name for info in client.collections()] == ["shop"]  # copies are not served


def test_a_name_that_is_taken_is_an_error(client, backups):
    shop = client.collection("shop")
    shop.backup("copy")
    shop.delete(range(300))
    with pytest.raises(CollectionExistsError, match="expected a new name for the backup, got 'copy'"):
        shop.backup("copy")
    with posh.open(backups / "copy") as copy:
        assert len(copy) == 300


def test_a_name_that_is_taken_meanwhile_is_an_error(client, backups, monkeypatch):
    copy = maintenance._copy_database

    def slow(connection, file):
        copy(connection, file)
        (backups / "copy").mkdir()
        (backups / "copy" / "theirs").write_text("theirs")

    monkeypatch.setattr(maintenance, "_copy_database", slow)
    with pytest.raises(CollectionExistsError, match="'copy', which is taken: choose another"):
        client.collection("shop").backup("copy")
    assert [str(path.relative_to(backups)) for path in backups.rglob("*")] == ["copy", "copy/theirs"]


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../served/shop", "/x", "a/b", "a\\b", ".hidden", "A", "a\n", "x" * 65, 7, None]
)
def test_names_cannot_lead_elsewhere(client, backups, tmp_path, name):
    address = str(client._http.base_url)
    before = sorted(tmp_path.rglob("*"))
    answer = httpx.post(f"{address}/v1/collections/shop/backup", json={"name": name})
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:posh:invalid-argument")
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(ValueError, match="expected a name of 1 to 64"):
        client.collection("shop").backup(name)


def test_without_a_folder_for_backups_nobody_can_ask(tmp_path):
    with running(Folder(tmp_path)) as address, Client(address) as client:
        client.create("shop").upsert([1], DATA[:1])
        with pytest.raises(ValueError, match="start it with 'posh serve FOLDER --backups OTHER'"):
            client.collection("shop").backup("copy")


def test_restoring_replaces_the_collection(client, backups):
    shop, other = client.collection("shop"), client.create("other", SPARSE).upsert([1], DATA[:1])
    before = shop.search(DATA[:5], 3)
    shop.backup("copy")
    shop.delete(range(100))
    shop.set_metadata({"a": 2})
    shop.restore("copy")
    assert (shop.count(), shop.metadata, other.count()) == (300, {"a": 1}, 1)
    assert shop.search(DATA[:5], 3).ids.tolist() == before.ids.tolist()
    shop.upsert([1000], DATA[:1])
    assert check_collection(backups / "copy").problems == []
    with posh.open(backups / "copy", read_only=True) as copy:
        assert len(copy) == 300


def test_a_backup_can_be_restored_under_another_name(client, tmp_path):
    client.collection("shop").backup("copy")
    client.collection("twin").restore("copy")
    client.delete("shop")
    client.collection("shop").restore("copy")
    assert [info.name for info in client.collections()] == ["shop", "twin"]
    assert client.collection("twin").count() == client.collection("shop").count() == 300
    assert sorted(path.name for path in (tmp_path / "served").iterdir()) == ["shop", "twin"]


def test_backups_that_are_missing_open_or_damaged_change_nothing(client, backups, tmp_path):
    shop = client.collection("shop")
    with pytest.raises(UnknownCollectionError, match="expected the name of a backup, got 'copy'"):
        shop.restore("copy")
    shop.backup("copy")
    with posh.open(backups / "copy"), pytest.raises(StorageError):
        shop.restore("copy")
    for file in (backups / "copy").glob("snapshot-*"):
        shutil.rmtree(file)
    database = backups / "copy" / "collection.sqlite3"
    database.write_bytes(database.read_bytes()[:5000])
    with pytest.raises(ServiceError):
        shop.restore("copy")
    assert shop.count() == 300
    assert [path.name for path in (tmp_path / "served").iterdir()] == ["shop"]


def test_searches_are_answered_until_the_copy_is_ready(client, monkeypatch):
    """Then they wait: requests in between get a 503, which the client tries again."""
    shop, stop, wrong = client.collection("shop"), threading.Event(), []
    shop.backup("copy")

    def search():
        while not stop.is_set():
            ids = shop.search(DATA[:1], 1).ids.tolist()
            if ids != [[0]]:
                wrong.append(ids)

    searchers = [threading.Thread(target=search) for _ in range(2)]
    for searcher in searchers:
        searcher.start()
    try:
        for _ in range(3):
            shop.restore("copy")
    finally:
        stop.set()
        for searcher in searchers:
            searcher.join()
    assert wrong == []


def test_a_restore_that_fails_keeps_the_collection(client, monkeypatch, tmp_path):
    shop = client.collection("shop")
    shop.backup("copy")
    shop.delete([1])

    def fail(path, target):
        if path.name == ".restored-shop" and target.name == "shop":
            raise OSError(errno.EIO, "a disk that fails")
        return rename(path, target)

    rename = Path.rename
    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(StorageError, match="expected a disk that works"):
        shop.restore("copy")
    monkeypatch.undo()
    assert shop.count() == 299
    assert [path.name for path in (tmp_path / "served").iterdir()] == ["shop"]


@pytest.mark.parametrize("is_old_moved", [False, True])
def test_a_restore_that_was_interrupted_is_completed_at_the_start(tmp_path, is_old_moved):
    folder = tmp_path / "served"
    posh.Collection(folder / "shop", SPARSE).upsert([1], DATA[:1]).close()
    posh.Collection(folder / ".restored-shop", SPARSE).upsert([1, 2], DATA[:2]).close()
    if is_old_moved:
        (folder / "shop").rename(folder / ".dropped-1")
    with running(Folder(folder)) as address, Client(address) as client:
        assert client.collection("shop").count() == 2
    assert [path.name for path in folder.iterdir()] == ["shop"]


def test_without_backups_nothing_can_be_restored(tmp_path):
    with running(Folder(tmp_path)) as address, Client(address) as client:
        with pytest.raises(ValueError, match="expected a service over a folder with backups to restore"):
            client.collection("shop").restore("copy")
        assert client.collections() == []


def test_a_backup_can_be_awaited(client, backups):
    async def use():
        async with AsyncClient(str(client._http.base_url)) as other:
            await other.collection("shop").backup("copy")
            await other.collection("twin").restore("copy")
            with pytest.raises(UnknownCollectionError):
                await other.collection("nothing").backup("copy")

    asyncio.run(use())
    assert check_collection(backups / "copy").problems == []


def test_backups_are_not_among_the_collections(tmp_path, capsys):
    assert main(["serve", str(tmp_path), "--port", "0", "--backups", str(tmp_path / "a" / "..")]) == 2
    assert "expected another folder for --backups than that of the collections" in capsys.readouterr().err
