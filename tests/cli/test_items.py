"""``posh get``, ``delete``, ``backup``, ``restore`` and ``reindex``."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest

import posh
from posh.cli import main
from posh.collection.opening import DATABASE
from tests.cli.running import fails_in_one_line, run_json

N = 40
VECTORS = np.random.default_rng(0).normal(size=(N, 6)).astype(np.float32)
PAYLOADS = [{"year": 1990 + i, "title": f"Title {i}"} for i in range(N)]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("POSH_DEBUG", raising=False)
    with posh.create("c", metric="euclidean") as collection:
        collection.upsert(range(N), VECTORS, PAYLOADS)
    return tmp_path


def content(path):
    with posh.Collection(path, read_only=True) as collection:
        return [(item.id, item.vector.tolist(), item.payload) for item in collection.items()]


# Get and delete ------------------------------------------------------------------------------------------


def test_get_by_id(here, capsys):
    values = run_json(capsys, "get", "c", "3", "5", "--vectors")
    assert [item["id"] for item in values["items"]] == [3, 5]
    assert [item["payload"] for item in values["items"]] == [PAYLOADS[3], PAYLOADS[5]]
    assert values["items"][0]["vector"] == VECTORS[3].tolist()
    assert main(["get", "c", "3"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("3  [")
    assert "… 6 numbers]" in text
    assert "  title: 'Title 3'" in text


def test_get_by_filter_and_the_first_items(here, capsys):
    values = run_json(capsys, "get", "c", "--filter", '{"year": {"gte": 1995}}', "--limit", "2")
    assert [item["id"] for item in values["items"]] == [5, 6]
    assert [item["id"] for item in run_json(capsys, "get", "c")["items"]] == list(range(10))


def test_get_a_missing_id(here, capsys):
    assert main(["get", "c", "3", "nope", "--json"]) == 1
    captured = capsys.readouterr()
    assert captured.err == "posh: c: no item has the id 'nope'\n"
    values = json.loads(captured.out)
    assert (len(values["items"]), values["missing"]) == (1, ["nope"])
    fails_in_one_line(capsys, 2, ["get", "c", "3", "--limit", "1"], "--limit and ids contradict each other")


def test_delete(here, capsys):
    old = '{"year": {"lt": 1995}}'
    assert run_json(capsys, "delete", "c", "--filter", old, "--dry-run")["n_matching"] == 5
    assert len(content("c")) == N
    values = run_json(capsys, "delete", "c", "--filter", old)
    assert (values["n_deleted"], values["n_items"]) == (5, N - 5)
    values = run_json(capsys, "delete", "c", "7", "8", "nope")
    assert (values["n_deleted"], values["n_items"]) == (2, N - 7)
    assert [row[0] for row in content("c")] == [5, 6, *range(9, N)]
    fails_in_one_line(capsys, 2, ["delete", "c"], "expected ids or --filter, got neither")
    fails_in_one_line(capsys, 1, ["delete", "nope", "1"], "nope: expected a collection")


# Backup and restore --------------------------------------------------------------------------------------


def test_backup_and_restore(here, capsys):
    with posh.Collection("c"):  # a backup needs no lock
        assert run_json(capsys, "backup", "c", "b")["n_items"] == N
    assert run_json(capsys, "restore", "b", "again")["n_items"] == N
    assert content("again") == content("c")
    fails_in_one_line(capsys, 1, ["backup", "c", "b"], "expected a path that does not exist")
    fails_in_one_line(capsys, 1, ["restore", "b", "c"], "expected a path that does not exist")
    fails_in_one_line(capsys, 1, ["restore", "nope", "d"], "expected the folder of a backup, found none")


@pytest.mark.parametrize("is_damaged", [False, True])
def test_restore_in_place_of_a_collection(is_damaged, here, capsys):
    expected = content("c")
    run_json(capsys, "backup", "c", "b")
    with posh.Collection("c") as collection:
        collection.delete(range(20))
        collection.upsert(["new"], VECTORS[:1])
        collection.compact()
    if is_damaged:
        (here / "c" / DATABASE).write_bytes(b"x" * 20_000)
    assert run_json(capsys, "restore", "b", "c", "--replace")["n_items"] == N
    assert content("c") == expected
    assert run_json(capsys, "info", "--check", "c")["problems"] == []
    assert run_json(capsys, "restore", "b", "elsewhere", "--replace")["n_items"] == N


def test_restoring_ignores_the_log_of_the_replaced_database(here, capsys):
    run_json(capsys, "backup", "c", "b")
    with posh.Collection("c") as collection:
        collection.delete(range(20))
        left = {file.name: file.read_bytes() for file in (here / "c").glob(f"{DATABASE}*")}
    for name, content_before in left.items():  # as a killed process leaves them
        (here / "c" / name).write_bytes(content_before)
    assert run_json(capsys, "restore", "b", "c", "--replace")["n_items"] == N


def test_restore_refuses_damage_and_open_collections(here, capsys):
    run_json(capsys, "backup", "c", "b")
    with posh.Collection("c"):
        fails_in_one_line(capsys, 1, ["restore", "b", "c", "--replace"], "this process has it open")
    shutil.copytree("b", "damaged")
    with closing(sqlite3.connect(here / "damaged" / DATABASE, isolation_level=None)) as connection:
        connection.execute("UPDATE items SET vector = zeroblob(24) WHERE id = 3")
    before = content("c")
    message = "expected a backup without damage, found 2 problems, such as: item 4: the checksum"
    fails_in_one_line(capsys, 1, ["restore", "damaged", "c", "--replace"], message)
    assert content("c") == before


# Reindex -------------------------------------------------------------------------------------------------


def test_reindex(here, capsys):
    values = run_json(capsys, "reindex", "c", "--recall", "0.9", "--store", "float16")
    assert (values["params"]["recall"], values["params"]["store"]) == (0.9, "float16")
    assert run_json(capsys, "info", "c")["params"] == values["params"]
    assert run_json(capsys, "reindex", "c", "--metric", "dot")["params"]["metric"] == "dot"
    posh.POSH(32, 4, n_epochs=1, random_state=0).fit(VECTORS).save("m")
    run_json(capsys, "reindex", "c", "--model", "m", "--structure", "ivf", "--n-lists", "4")
    assert run_json(capsys, "info", "c")["hasher"]["class"] == "POSH"
    arguments = ["reindex", "c", "--model", "m", "--metric", "dot"]
    fails_in_one_line(capsys, 2, arguments, "--model and --metric contradict each other")
