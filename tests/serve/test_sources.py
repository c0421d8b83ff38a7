"""A folder of embedded collections."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import pytest

import posh
from posh.client import Client
from posh.errors import CollectionExistsError
from posh.serve import sources
from posh.serve.capacity import Limits
from posh.serve.middleware import Metrics
from posh.serve.registry import Registry
from posh.serve.server import Server, bind
from posh.serve.sources import Folder
from tests.collection.implementations import DATA, OTHER, SPARSE
from tests.serve.service import running


def test_sub_folders_that_are_collections_are_served(tmp_path, caplog):
    for name in ("b", "a", "No name"):
        posh.Collection(tmp_path / name, SPARSE).upsert([name], DATA[:1]).close()
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("hello")
    with running(Folder(tmp_path)) as address, Client(address) as client:
        assert [info.name for info in client.collections()] == ["a", "b"]
        assert client.collection("b").get(["b"])[0].id == "b"
    assert "No name is not served" in caplog.text


def test_what_was_written_is_there_when_the_service_is_started_again(tmp_path):
    with running(Folder(tmp_path / "new")) as address, Client(address) as client:
        made = client.create("shop", SPARSE, metadata={"a": 1}, scoring="asymmetric")
        made.upsert([1, "x"], DATA[:2], [{}, {"p": 1}])
    with running(Folder(tmp_path / "new")) as address, Client(address) as client:
        info = client.collection("shop").info()
        assert (info.count, info.metadata, info.index["scoring"]) == (2, {"a": 1}, "asymmetric")
        assert info.memory_bytes > 0
        assert info.disk_bytes > 10_000
        assert client.collection("shop").search(DATA[:1], 1).ids.tolist() == [[1]]
        client.delete("shop")
        assert client.create("shop").count() == 0
    with posh.Collection(tmp_path / "new" / "shop") as collection:
        assert collection.count() == 0


def test_options_at_the_beginning(tmp_path):
    with running(Folder(tmp_path)) as address:
        made = httpx.put(
            f"{address}/v1/collections/a", json={"index": {"refine": "vectors", "oversample": 3}}
        )
        assert made.status_code == 201
        assert made.json()["index"] == {"refine": "vectors", "oversample": 3.0}
        assert (made.json()["memory_bytes"], made.json()["hasher"]) == (0, None)


def test_other_folders_are_left_alone(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious").write_text("x")
    with (
        running(Folder(tmp_path)) as address,
        Client(address) as client,
        pytest.raises(CollectionExistsError, match="got 'other', which another folder has"),
    ):
        client.create("other")
    assert (tmp_path / "other" / "precious").read_text() == "x"


def test_what_an_interrupted_drop_left_is_removed(tmp_path):
    (tmp_path / ".dropped-1").mkdir()
    (tmp_path / ".dropped-1" / "file").write_text("x")
    assert Folder(tmp_path).names() == []
    assert list(tmp_path.iterdir()) == []


def test_a_collection_in_use_elsewhere_stops_the_start(tmp_path):
    with posh.Collection(tmp_path / "a"):
        registry = Registry(Folder(tmp_path), Limits(), Metrics())
        with pytest.raises(posh.StorageError, match="expected a collection that is not open elsewhere"):
            Server(registry, bind("127.0.0.1", 0)).run()
        registry.close()


def test_codes_have_the_bits_of_the_index(tmp_path):
    """Documents and queries may have other numbers of set bits than the hasher."""
    with running(Folder(tmp_path)) as address, Client(address) as client:
        made = client.create("a", OTHER, document_active=9, query_active=3).upsert([1, 2], DATA[:2])
        body = {"vectors": DATA[:1].tolist(), "k": 2, "include": ["code"]}
        (result,) = client.request("POST", "/v1/collections/a/search", body)["results"]
        assert result["code"] == OTHER.encode(DATA[:1], n_active=3).active[0].tolist()
        assert result["hits"][0]["code"] == OTHER.encode(DATA[:1], n_active=9).active[0].tolist()
        assert result["hits"][0]["score"] == made.search(DATA[:1], 1).scores[0, 0] == 3


def test_writing_and_searching_at_once(tmp_path):
    """Searches go on while items are written, replaced and deleted, and while the hasher is changed."""
    posh.Collection(tmp_path / "a", SPARSE).upsert(list(range(200)), DATA[:200]).close()
    with running(Folder(tmp_path)) as address, Client(address) as client:
        collection = client.collection("a")
        stop, errors, n_found = threading.Event(), [], []

        def search() -> None:
            try:
                while not stop.is_set():
                    _, scores = collection.search(
                        DATA[200:210], 5, filter={"gone": False} if n_found else None
                    )
                    n_found.append(int(np.isfinite(scores).sum()))
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=search) for _ in range(4)]
        for thread in threads:
            thread.start()
        for i in range(20):
            collection.upsert(
                [f"new {i}", i], DATA[300 + 2 * i : 302 + 2 * i], [{"gone": False}, {"gone": True}]
            )
            collection.delete([100 + i])
            if i in (5, 15):
                collection.reindex(OTHER if i == 5 else SPARSE)
        stop.set()
        for thread in threads:
            thread.join()
        assert errors == []
        assert max(n_found) == 50
        assert collection.count() == 200


@pytest.mark.parametrize("n_starts", [1, 2, 3])
def test_who_starts_may_remove_what_is_being_made(tmp_path, monkeypatch, n_starts):
    """Before it is locked, it looks like what a killed process has left: it is made again, twice at most."""
    source, locked, starts = Folder(tmp_path), sources._lock_folder, iter(range(n_starts))

    def start_first(path):
        if next(starts, None) is not None:
            with monkeypatch.context() as patch:
                patch.setattr(sources, "_lock_folder", locked)
                Folder(tmp_path)
        return locked(path)

    monkeypatch.setattr(sources, "_lock_folder", start_first)
    if n_starts == 3:
        with pytest.raises(posh.StorageError):
            source.create("a", {}, {})
    else:
        source.create("a", {"title": "A"}, {}).close()
        assert source.open("a").metadata == {"title": "A"}
    assert list(tmp_path.glob(".*")) == []


RACER = """
import sys, time
from pathlib import Path
from posh.errors import PoshError
from posh.serve.sources import Folder

folder, number = Path(sys.argv[1]), int(sys.argv[2])
source, won = Folder(folder), []
print("ready", flush=True)
start = float(input())
for i in range(20):
    while time.time() < start + 0.05 * i:
        pass
    try:
        made = source.create(f"c{i}", {"by": number}, {})
    except PoshError:
        continue
    made.upsert([number], [[1.0, 2.0]])
    won.append(i)
time.sleep(max(0.0, start + 1.5 - time.time()))  # stay open until the other has lost all its races
print(won)
"""


def test_who_loses_a_race_to_create_removes_nothing(tmp_path):
    """Two processes create the same names at the same time: what one of them has written stays."""
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(tmp_path), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in (1, 2)
    ]
    assert [racer.stdout.readline() for racer in racers] == ["ready\n"] * 2
    start = time.time() + 0.2
    for racer in racers:
        racer.stdin.write(f"{start}\n")
        racer.stdin.flush()
    won = [json.loads(racer.communicate(timeout=60)[0]) for racer in racers]
    assert all(racer.returncode == 0 for racer in racers)
    assert sorted(won[0] + won[1]) == list(range(20))
    for number, names in zip((1, 2), won, strict=True):
        for name in names:
            with posh.Collection(tmp_path / f"c{name}") as collection:
                assert collection.metadata == {"by": number}
                assert [item.id for item in collection.items()] == [number]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"c{i}" for i in range(20))


def test_a_collection_that_somebody_else_opens_meanwhile_is_not_removed(tmp_path, monkeypatch):
    """Another process opens the folder after this one has looked whether the name is free."""
    folder, other = Folder(tmp_path), []
    exists = Path.exists

    def look(path: Path) -> bool:
        found = exists(path)
        if path.name == "a" and not other:
            other.append(None)  # opening it looks there again
            other[0] = posh.Collection(path).upsert([1], DATA[:1])
        return found

    monkeypatch.setattr(Path, "exists", look)
    with pytest.raises(CollectionExistsError, match="got 'a', which another folder has"):
        folder.create("a", {}, {})
    assert other[0].count() == 1
    other[0].close()
    with posh.Collection(tmp_path / "a") as collection:
        assert collection.count() == 1


def test_what_cannot_be_created_leaves_nothing(tmp_path):
    folder = Folder(tmp_path)
    with pytest.raises(ValueError, match="metadata"):
        folder.create("a", {"x": float("nan")}, {})
    assert list(tmp_path.iterdir()) == []


def test_what_an_interrupted_create_left_is_removed_unless_it_goes_on(tmp_path):
    posh.Collection(tmp_path / ".new-1").close()
    with posh.Collection(tmp_path / ".new-2"):
        assert Folder(tmp_path).names() == []
        assert [path.name for path in tmp_path.iterdir()] == [".new-2"]


def test_names_are_on_the_disk_before_the_answer(tmp_path, monkeypatch):
    """The folder is synced after each of its names was made, and before the files of a dropped one go."""
    synced = []

    def sync(folder: Path) -> None:
        synced.append((folder, sorted(path.name[:8] for path in folder.iterdir())))

    monkeypatch.setattr("posh._durable.sync_folder", sync)
    monkeypatch.setattr(sources, "sync_folder", sync)
    folder = Folder(tmp_path / "new")
    assert synced[-2:] == [(tmp_path, ["new"]), (tmp_path / "new", [])]
    made = folder.create("shop", {}, {})
    assert synced[-1] == (tmp_path / "new", ["shop"])
    made.close()
    folder.drop("shop")
    assert synced[-1] == (tmp_path / "new", [".dropped"])
    assert list((tmp_path / "new").iterdir()) == []
