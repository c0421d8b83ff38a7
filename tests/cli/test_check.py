"""``posh check``: sound and damaged collections, indexes and models; nothing is written."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

import posh
from posh.cli import main
from posh.collection.opening import DATABASE
from tests.collection.implementations import DATA, SPARSE


@pytest.fixture
def shop(tmp_path):
    with posh.Collection(tmp_path / "shop", SPARSE) as collection:
        collection.upsert(range(60), DATA[:60], [{"n": i, "text": "straße"} for i in range(60)])
        collection.compact()
    return tmp_path / "shop"


def told(capsys, path) -> dict:
    code = main(["check", "--json", str(path)])
    values = json.loads(capsys.readouterr().out)
    assert code == (1 if values["problems"] else 0)
    return values


def test_a_sound_collection(shop, capsys):
    before = {file: file.stat().st_mtime_ns for file in [shop, *shop.rglob("*")]}
    values = told(capsys, shop)
    assert values["problems"] == []
    assert {
        key: values["checked"][key] for key in ("items", "fields", "codes", "items of the saved index")
    } == {
        "items": 60,
        "fields": 120,
        "codes": 60,
        "items of the saved index": 60,
    }
    assert before == {file: file.stat().st_mtime_ns for file in [shop, *shop.rglob("*")]}
    assert main(["check", str(shop)]) == 0
    assert "collection, no damage\nchecked: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("UPDATE items SET vector = zeroblob(32) WHERE id = 3", "item 4: the checksum does not match"),
        ("UPDATE items SET payload = '{}' WHERE id < 40", "items: 20 more"),
        ("UPDATE items SET id = 'x' WHERE id = 3", "item 4: the checksum does not match"),
        (
            "UPDATE fields SET value = 99 WHERE value = 7",
            "item 8: the table of fields lacks some of its fields",
        ),
        (
            "INSERT INTO fields VALUES ('n', 2, 7, 9)",
            "the table of fields has 121 rows, the items have 120 fields",
        ),
        ("DELETE FROM codes WHERE seq = 9", "1 items have no code; there are 59 codes in use"),
        ("UPDATE codes SET code = zeroblob(8) WHERE seq = 9", "the code of item 9: the checksum does not"),
        ("UPDATE codes SET generation = 7", "60 items have no code"),
        ("UPDATE meta SET value = 0 WHERE key = 'generation'", "the value of generation: the checksum"),
        ("DELETE FROM meta WHERE key = 'snapshot'", "snapshot is missing"),
        ("DELETE FROM items WHERE seq = 9", "checksum does not match"),
        ("UPDATE generations SET hasher = x'00'", "hasher: not a readable POSH model"),
        ("PRAGMA user_version = 1", "expected format version 4, found 1: open it once"),
    ],
)
def test_damaged_collections(shop, capsys, damage, problem):
    with closing(sqlite3.connect(shop / DATABASE, isolation_level=None)) as connection:
        connection.execute(damage)
    assert problem in "\n".join(told(capsys, shop)["problems"])


def test_a_damaged_saved_index_and_damaged_pages(shop, capsys):
    (large,) = shop.glob("snapshot-*/*/hasher*")
    large.write_bytes(large.read_bytes()[:-1] + b"x")
    assert "the saved index: " in told(capsys, shop)["problems"][0]
    content = bytearray((shop / DATABASE).read_bytes())
    content[8192 * 3 : 8192 * 3 + 100] = bytes(100)
    (shop / DATABASE).write_bytes(content)
    assert told(capsys, shop)["problems"]


def test_collections_in_use_and_those_of_killed_processes(shop, capsys):
    with posh.Collection(shop) as collection:
        assert main(["check", str(shop)]) == 1
        assert "expected a collection that is not open: close it first" in capsys.readouterr().err
        collection.upsert(["in the log"], DATA[:1])
        left = {file.name: file.read_bytes() for file in shop.glob(f"{DATABASE}*")}
    for name, content in left.items():
        (shop / name).write_bytes(content)
    assert told(capsys, shop)["checked"]["items"] == 61


def test_indexes_and_models(tmp_path, capsys):
    SPARSE.save(tmp_path / "model.safetensors")
    posh.CodeIndex(SPARSE).add(DATA).save(tmp_path / "index")
    assert told(capsys, tmp_path / "index")["checked"] == {"documents": 600}
    assert told(capsys, tmp_path / "model.safetensors")["problems"] == []
    for file in [tmp_path / "model.safetensors", *tmp_path.glob("index/*/*.npy")]:
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
    assert "the checksum does not match" in told(capsys, tmp_path / "index")["problems"][0]
    assert "the checksum does not match" in told(capsys, tmp_path / "model.safetensors")["problems"][0]
    assert main(["check", str(tmp_path / "nothing")]) == 1
    assert "No such file" in capsys.readouterr().err
