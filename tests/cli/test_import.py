"""``posh import``: what gets into the collection, again and after an interruption."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import posh
from posh.cli import main
from posh.collection import transfer
from posh.collection.maintenance import check_collection
from tests.cli.running import run_json
from tests.files.writing import FULL, IDS, ONLY_VECTORS, TITLES, VECTORS, YEARS, N


def content(path):
    with posh.Collection(path) as collection:
        return [(item.id, item.vector.tolist(), item.payload) for item in collection.items()]


ROWS = [
    (item_id, vector, {"title": title, "year": year})
    for item_id, vector, title, year in zip(IDS, VECTORS.tolist(), TITLES, YEARS, strict=True)
]


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """The rows as JSON Lines, and small batches."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(transfer, "IMPORT_BATCH", 10)
    FULL["JSON Lines"][1](tmp_path / "rows.jsonl")
    return tmp_path


@pytest.mark.parametrize("kind", FULL)
def test_every_kind_of_file(kind, tmp_path, capsys):
    name, write = FULL[kind]
    write(tmp_path / name)
    values = run_json(capsys, "import", str(tmp_path / name), str(tmp_path / "c"))
    assert (values["n_rows"], values["n_written"], values["n_items"]) == (N, N, N)
    assert content(tmp_path / "c") == ROWS
    assert check_collection(tmp_path / "c").problems == []


@pytest.mark.parametrize("kind", ONLY_VECTORS)
def test_rows_of_all_files_are_numbered_through(kind, tmp_path, capsys):
    name, write = ONLY_VECTORS[kind]
    write(tmp_path / name)
    run_json(capsys, "import", *[str(tmp_path / name)] * 2, str(tmp_path / "c"))
    assert content(tmp_path / "c") == [(i, VECTORS[i % N].tolist(), {}) for i in range(2 * N)]


def test_a_search_finds_what_was_imported(rows, capsys):
    for metric, kind in [(None, "cosine"), ("euclidean", "euclidean")]:
        options = [] if metric is None else ["--metric", metric]
        assert main(["import", "rows.jsonl", kind, *options]) == 0
        with posh.Collection(kind) as collection:
            matches = collection.search(VECTORS[7], 1, filter={"year": 1907})
            assert (matches.ids.item(), matches.kind) == ("item-7", kind)


def test_guesses_are_told(rows, capsys):
    assert main(["import", "rows.jsonl", "c"]) == 0
    captured = capsys.readouterr()
    assert captured.err.splitlines() == [
        "rows.jsonl: vector: 'vector', the only candidate",
        "rows.jsonl: id: 'id'",
        "rows.jsonl: payload: 'title', 'year'",
    ]
    assert captured.out.startswith(f"c: {N} rows written in ")
    assert main(["import", "rows.jsonl", "c", "--vector", "vector", "--id", "id", "--payload", "title"]) == 1
    assert "vector: " not in capsys.readouterr().err


def test_options_choose_columns(rows, capsys):
    run_json(capsys, "import", "rows.jsonl", "a", "--payload", "t*")
    assert content("a") == [(i, v, {"title": p["title"]}) for i, v, p in ROWS]
    run_json(capsys, "import", "rows.jsonl", "b", "--no-payload", "--id", "year")
    assert content("b") == [(p["year"], v, {}) for _, v, p in ROWS]
    run_json(capsys, "import", "rows.jsonl", "d", "--number-rows")
    assert content("d") == [(i, v, p | {"id": name}) for i, (name, v, p) in enumerate(ROWS)]


def test_dry_run_writes_nothing(rows, capsys):
    values = run_json(capsys, "import", "rows.jsonl", "c", "--dry-run")
    (file,) = values["files"]
    assert file == {
        "file": "rows.jsonl",
        "n_rows": N,
        "columns": {"id": "text", "vector": "number[4]", "title": "text", "year": "integer"},
        "vector": ["vector"],
        "id": "id",
        "payload": ["title", "year"],
        "first": {"id": IDS[0], "vector": VECTORS[0].tolist(), "payload": ROWS[0][2]},
    }
    assert main(["import", "rows.jsonl", "c", "--dry-run"]) == 0
    assert f"rows.jsonl: {N} rows" in capsys.readouterr().out
    assert not (rows / "c").exists()


def test_a_second_run_writes_nothing(rows, capsys):
    run_json(capsys, "import", "rows.jsonl", "c")
    values = run_json(capsys, "import", "rows.jsonl", "c")
    assert (values["n_written"], values["n_present"]) == (0, N)
    assert content("c") == ROWS


def test_uuids_are_ids(tmp_path, capsys):
    ids = [uuid.UUID(int=i) for i in range(3)]
    table = {"id": pa.array([item_id.bytes for item_id in ids], pa.uuid()), "v": [[1.0, 2.0]] * 3}
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    (file,) = run_json(capsys, "import", str(tmp_path / "a.parquet"), "c", "--dry-run")["files"]
    assert file["first"] == {"id": str(ids[0]), "vector": [1.0, 2.0], "payload": {}}
    run_json(capsys, "import", str(tmp_path / "a.parquet"), str(tmp_path / "c"))
    assert content(tmp_path / "c") == [(str(item_id), [1.0, 2.0], {}) for item_id in ids]


def test_replace(rows, capsys):
    run_json(capsys, "import", "rows.jsonl", "c")
    lines = (rows / "rows.jsonl").read_text().split("\n\n")
    changed = json.loads(lines[12]) | {"year": 2000}
    new = {"id": "new", "vector": [1, 2, 3, 4]}
    (rows / "other.jsonl").write_text("\n".join([*lines[:12], json.dumps(changed), json.dumps(new)]))
    assert main(["import", "other.jsonl", "c"]) == 1
    assert (
        "row 12: the collection has another item with the id 'item-12': --replace" in capsys.readouterr().err
    )
    assert content("c") == ROWS
    values = run_json(capsys, "import", "other.jsonl", "c", "--replace")
    assert (values["n_written"], values["n_replaced"], values["n_items"]) == (2, 1, N + 1)
    assert content("c")[-2:] == [
        ("item-12", ROWS[12][1], ROWS[12][2] | {"year": 2000}),
        ("new", [1, 2, 3, 4], {}),
    ]


def test_contradictions(rows, capsys):
    run_json(capsys, "import", "rows.jsonl", "c")
    for arguments, message in [
        (["--id", "id", "--number-rows"], "--number-rows and --id contradict each other"),
        (["--payload", "year", "--no-payload"], "--no-payload and --payload contradict each other"),
        (["--metric", "dot"], "expected --metric cosine, as this collection has, got dot"),
    ]:
        assert main(["import", "rows.jsonl", "c", *arguments]) == 2
        assert message in capsys.readouterr().err
    assert main(["import", "rows.jsonl", "rows.jsonl"]) == 2
    assert "expected a folder for the collection as the last argument" in capsys.readouterr().err


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM], ids=lambda s: s.name)
def test_interrupted_and_run_again(stop, tmp_path):
    """Nothing is lost and nothing is doubled, wherever the process was stopped."""
    n = 3000
    vectors = np.random.default_rng(0).normal(size=(n, 8)).astype(np.float32)
    np.savez(tmp_path / "rows.npz", id=[f"id {i}" for i in range(n)], vector=vectors, number=range(n))
    expected = [(f"id {i}", vectors[i].tolist(), {"number": i}) for i in range(n)]
    command = [sys.executable, "-c", _SLOW, "import", "rows.npz", "c"]
    present = []
    for _ in range(2):
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(3):  # batches
            process.stdout.readline()
        time.sleep(0.02 * len(present))
        process.send_signal(stop)
        _, error = process.communicate(timeout=60)
        assert process.returncode in (-signal.SIGKILL, 130, 143)
        if stop == signal.SIGINT:
            assert b"repeat the command to resume\nposh: interrupted\n" in error
        found = content(tmp_path / "c")
        assert found == expected[: len(found)]
        present.append(len(found))
    assert present == sorted(present)
    assert 0 < present[0] < n
    assert main(["import", str(tmp_path / "rows.npz"), str(tmp_path / "c")]) == 0
    assert content(tmp_path / "c") == expected
    assert check_collection(tmp_path / "c").problems == []
    with posh.Collection(tmp_path / "c") as collection:
        assert collection.search(vectors[5], 1).ids.item() == "id 5"


# Small batches, each told when it is on the disk, with time to be killed in: the eleventh waits for that.
_SLOW = """
import sys, time
from posh.cli import main
from posh.collection import transfer

transfer.IMPORT_BATCH, steps = 100, transfer.Importer.steps
def slow(self, file, roles):
    for number, step in enumerate(steps(self, file, roles)):
        print(step, flush=True)
        time.sleep(0.005 if number < 10 else 60)
        yield step
transfer.Importer.steps = slow
sys.exit(main())
"""
