"""``posh info``: descriptions, and with ``--check`` sound and damaged files; nothing is written."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing

import pytest

import posh
from posh.cli import main
from posh.collection.opening import DATABASE
from tests.cli.running import run_json
from tests.collection.implementations import DATA, SPARSE


@pytest.fixture
def shop(tmp_path):
    with posh.Collection(tmp_path / "shop", SPARSE) as collection:
        collection.upsert(range(60), DATA[:60], [{"n": i, "text": "straße"} for i in range(60)])
        collection.compact()
    return tmp_path / "shop"


def check(capsys, path) -> dict:
    code = main(["info", "--check", "--json", str(path)])
    values = json.loads(capsys.readouterr().out)
    assert code == (1 if values["problems"] else 0)
    return values


def test_a_sound_collection(shop, capsys):
    before = {file: file.stat().st_mtime_ns for file in [shop, *shop.rglob("*")]}
    values = check(capsys, shop)
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
    assert main(["info", "--check", str(shop)]) == 0
    assert "collection, no damage\nchecked: " in capsys.readouterr().out


def test_a_description_of_a_collection(shop, capsys):
    with posh.Collection(shop) as collection:  # reading does not need the lock
        collection.set_metadata({"title": "Shop"})
        values = run_json(capsys, "info", str(shop))
        assert values["params"] == collection.index_options
        assert values["memory_bytes"] == collection.memory_usage()
    assert (values["kind"], values["n_items"], values["n_features"]) == ("collection", 60, DATA.shape[1])
    assert values["metadata"] == {"title": "Shop"}
    assert values["hasher"]["params"] == SPARSE.get_params()
    assert values["disk_bytes"] > 60 * DATA[0].nbytes
    assert main(["info", str(shop)]) == 0
    text = capsys.readouterr().out
    assert re.search(rf"^items: 60, vectors with {DATA.shape[1]} columns$", text, re.MULTILINE)
    assert "metadata: title='Shop'" in text


def test_a_description_of_an_empty_collection(tmp_path, capsys):
    posh.Collection(tmp_path / "new").close()
    values = run_json(capsys, "info", str(tmp_path / "new"))
    assert (values["n_items"], values["n_features"], values["hasher"]) == (0, None, None)
    assert main(["info", str(tmp_path / "new")]) == 0
    assert "parameters: none, as there is no index yet" in capsys.readouterr().out


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
        ("PRAGMA user_version = 1", "expected format version 4 or 5, found 1: open it once"),
    ],
)
def test_damaged_collections(shop, capsys, damage, problem):
    with closing(sqlite3.connect(shop / DATABASE, isolation_level=None)) as connection:
        connection.execute(damage)
    assert problem in "\n".join(check(capsys, shop)["problems"])


def test_a_damaged_saved_index_and_damaged_pages(shop, capsys):
    (large,) = shop.glob("snapshot-*/*/hasher*")
    large.write_bytes(large.read_bytes()[:-1] + b"x")
    assert "the saved index: " in check(capsys, shop)["problems"][0]
    content = bytearray((shop / DATABASE).read_bytes())
    content[8192 * 3 : 8192 * 3 + 100] = bytes(100)
    (shop / DATABASE).write_bytes(content)
    assert check(capsys, shop)["problems"]


def test_collections_in_use_and_those_of_killed_processes(shop, capsys):
    with posh.Collection(shop) as collection:
        assert main(["info", "--check", str(shop)]) == 1
        assert "expected a collection that is not open: close it first" in capsys.readouterr().err
        collection.upsert(["in the log"], DATA[:1])
        left = {file.name: file.read_bytes() for file in shop.glob(f"{DATABASE}*")}
    for name, content in left.items():
        (shop / name).write_bytes(content)
    assert check(capsys, shop)["checked"]["items"] == 61


def test_indexes_and_models(tmp_path, capsys):
    SPARSE.save(tmp_path / "model.safetensors")
    posh.CodeIndex(SPARSE).add(DATA).save(tmp_path / "index")
    assert check(capsys, tmp_path / "index")["checked"] == {"documents": 600}
    assert check(capsys, tmp_path / "model.safetensors")["problems"] == []
    assert check(capsys, tmp_path / "index")["n_documents"] == 600
    assert main(["info", "--check", str(tmp_path / "index")]) == 0
    text = capsys.readouterr().out
    assert "parameters: " in text
    assert "index, no damage\nchecked: 600 documents" in text
    for file in [tmp_path / "model.safetensors", *tmp_path.glob("index/*/*.npy")]:
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
    assert "the checksum does not match" in check(capsys, tmp_path / "index")["problems"][0]
    assert "the checksum does not match" in check(capsys, tmp_path / "model.safetensors")["problems"][0]
    assert main(["info", "--check", str(tmp_path / "nothing")]) == 1
    assert "No such file" in capsys.readouterr().err
