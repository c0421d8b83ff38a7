"""Copies of collections that clients ask for."""

from __future__ import annotations

import asyncio
import threading

import httpx
import pytest

import posh
from posh.cli import main
from posh.client import AsyncClient, Client
from posh.collection import maintenance
from posh.collection.maintenance import check_collection
from posh.errors import CollectionExistsError, UnknownCollectionError
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


def test_a_backup_can_be_awaited(client, backups):
    async def use():
        async with AsyncClient(str(client._http.base_url)) as other:
            await other.collection("shop").backup("copy")
            with pytest.raises(UnknownCollectionError):
                await other.collection("nothing").backup("copy")

    asyncio.run(use())
    assert check_collection(backups / "copy").problems == []


def test_backups_are_not_among_the_collections(tmp_path, capsys):
    assert main(["serve", str(tmp_path), "--backups", str(tmp_path / "a" / "..")]) == 2
    assert "expected another folder for --backups than that of the collections" in capsys.readouterr().err
