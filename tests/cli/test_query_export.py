"""``posh query`` and ``posh export``."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import posh
from posh.cli import main
from tests.cli.running import fails_in_one_line, one_error, run_json

GOLDEN = Path(__file__).parent.parent / "golden"
N = 60
VECTORS = np.random.default_rng(0).normal(size=(N, 6)).astype(np.float32)
PAYLOADS = [{"title": f"Title {i}", "year": 1990 + i, "tags": ["a", {"b": None}]} for i in range(N)]
PAYLOADS[3] = {}
PAYLOADS[4] = {"payload": {"payload": "{}"}, "id": True, "vector": 1.0, "text": "ü\n\u2028", "nothing": None}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("POSH_DEBUG", raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    with posh.Collection("c", metric="euclidean") as collection:
        collection.upsert(range(N), VECTORS, PAYLOADS)
    return tmp_path


def content(path):
    with posh.Collection(path) as collection:
        items = list(collection.items())
    return [(item.id, item.vector.tolist(), json.dumps(item.payload, sort_keys=True)) for item in items]


# Export --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["parquet", "jsonl", "npz"])
@pytest.mark.parametrize("kind", ["int", "str"])
def test_importing_an_export_gives_the_same_collection(suffix, kind, here, capsys, monkeypatch):
    monkeypatch.setattr("posh.files.formats._BATCH", 25)
    if kind == "str":
        with posh.Collection("s") as collection:
            collection.upsert([f"ü{i}" for i in range(N)], VECTORS, PAYLOADS)
    source = "c" if kind == "int" else "s"
    values = run_json(capsys, "export", source, f"a.{suffix}")
    assert (values["n_items"], values["metric"]) == (N, "euclidean" if kind == "int" else None)
    run_json(capsys, "import", f"a.{suffix}", "again")
    assert content("again") == content(source)


def test_fields_are_columns_of_parquet(here, capsys):
    parquet = pytest.importorskip("pyarrow.parquet")
    payloads = [
        {"title": f"T {i}", "n": i, "price": 0.5 if i else 3, "new": i > 3, "tags": ["a"], "mixed": i or "x"}
        for i in range(9)
    ]
    payloads[5] = {"n": None, "size": {"width": 3}, "ID": 7}
    with posh.Collection("d") as collection:
        collection.upsert(range(9), VECTORS[:9], payloads)
    run_json(capsys, "export", "d", "a.parquet")
    table = parquet.read_table("a.parquet")
    names = {
        "title": "string",
        "n": "int64",
        "price": "double",
        "new": "bool",
        "tags": "list<element: string>",
    }
    types = {field.name: str(field.type) for field in table.schema}
    assert {name: types[name] for name in names} == names
    assert set(types) == {"id", "vector", *names, "payload"}
    assert table["price"].to_pylist()[:2] == [3.0, 0.5]
    assert json.loads(table["payload"][5].as_py()) == payloads[5]
    assert json.loads(table["payload"][0].as_py()) == {"mixed": "x"}
    run_json(capsys, "import", "a.parquet", "again")
    assert [json.loads(row[2]) for row in content("again")] == payloads


def test_export_of_some_items(here, capsys):
    assert main(["export", "c", "a.jsonl", "--filter", '{"year": {"lt": 1992}}']) == 0
    assert "'posh import a.jsonl COLLECTION --metric euclidean' reads it" in capsys.readouterr().out
    rows = [json.loads(line) for line in (here / "a.jsonl").read_text().splitlines()]
    assert rows == [{"id": i, "vector": VECTORS[i].tolist(), "payload": PAYLOADS[i]} for i in range(2)]


@pytest.mark.parametrize("suffix", ["parquet", "jsonl", "npz"])
def test_export_of_nothing(suffix, here, capsys):
    values = run_json(capsys, "export", "c", f"a.{suffix}", "--filter", '{"year": 7}')
    assert values["n_items"] == 0
    assert main(["export", "c", f"a.{suffix}", "--filter", '{"year": 7}']) == 0
    assert "posh import" not in capsys.readouterr().out  # which would refuse it


def test_one_long_payload_takes_no_room_in_other_rows_of_an_npz_file(here, capsys):
    text = "x" * 1_000_000
    with posh.Collection("c") as collection:
        collection.upsert([7], VECTORS[7:8], [{"text": text}])
    tracemalloc.start()
    try:
        run_json(capsys, "export", "c", "a.npz")
        assert tracemalloc.get_traced_memory()[1] < 20 * len(text)  # of 60 rows
    finally:
        tracemalloc.stop()
    run_json(capsys, "import", "a.npz", "again")
    assert content("again") == content("c")


def test_npz_files_of_before_have_payloads_as_an_array_of_texts(here, capsys):
    payloads = np.array([json.dumps(payload).encode() for payload in PAYLOADS])
    np.savez_compressed("a.npz", id=np.arange(N), vector=VECTORS, payload=payloads)
    run_json(capsys, "import", "a.npz", "again")
    assert content("again") == content("c")


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        ([1, 3, 2], "the ends of payloads do not ascend"),
        ([-1, 2, 4], "the ends of payloads do not ascend"),
        ([2, 4, 99], "the payloads end before 99"),
        ([1.0, 2.0, 4.0], "expected a complete .npz file"),
        ([2, 4], "expected 3 rows in 'payload' as in 'vector', got 2"),
    ],
)
def test_an_npz_file_that_lies_about_the_ends_of_payloads(ends, message, here, capsys):
    payload = np.frombuffer(b"{}{}{}", np.uint8)
    np.savez("a.npz", id=range(3), vector=VECTORS[:3], payload=payload, payload_ends=ends)
    chosen = ["--vector", "vector", "--id", "id", "--payload", "payload"]
    fails_in_one_line(capsys, 1, ["import", "a.npz", "again", *chosen], message)


def test_importing_an_export_of_nothing(here, capsys):
    for suffix in ("parquet", "npz"):
        run_json(capsys, "export", "c", f"a.{suffix}", "--filter", '{"year": 7}')
        assert run_json(capsys, "import", f"a.{suffix}", "again")["n_rows"] == 0


def test_both_kinds_of_ids(here, capsys):
    with posh.Collection("c") as collection:
        collection.upsert(["a"], VECTORS[:1])
    for suffix in ("parquet", "npz"):
        assert main(["export", "c", f"a.{suffix}"]) == 1
        assert "expected ids that are all int, as the first one, got 'a': choose .jsonl" in one_error(capsys)
        assert [path.name for path in here.iterdir()] == ["c"]
    run_json(capsys, "export", "c", "a.jsonl")
    run_json(capsys, "import", "a.jsonl", "again")
    assert content("again") == content("c")


def test_wrong_exports(here, capsys):
    fails_in_one_line(capsys, 2, ["export", "c", "a.txt"], "expected FILE to end in one of .parquet .jsonl")
    fails_in_one_line(
        capsys, 1, ["export", "nope", "a.npz"], "nope: expected a collection, got another folder"
    )
    assert not (here / "nope").exists()
    fails_in_one_line(capsys, 1, ["export", ".", "a.npz"], "it has collections, such as c")


KILLED = """
import os, posh
collection = posh.Collection("c").upsert(["last"], [[0.5] * 6], [{"year": 7}])
os.kill(os.getpid(), 9)
"""


def test_a_collection_that_another_process_has_open(here, capsys):
    np.save("q.npy", VECTORS[:4])
    with posh.Collection("c") as writer:
        writer.upsert(["last"], [[0.5] * 6], [{"year": 7}])
        assert run_json(capsys, "export", "c", "a.jsonl")["n_items"] == N + 1
        (query,) = run_json(capsys, "query", "c", "--like", "last", "-k", "1")["queries"]
        assert query["query"] == "last"
        assert run_json(capsys, "tune", "q.npy", "--index", "c")["n_queries"] == 4
        assert run_json(capsys, "copy", "c", "again")["n_items"] == N + 1


def test_a_collection_whose_writer_was_killed_is_read_completely(here, capsys):
    assert subprocess.run([sys.executable, "-c", KILLED]).returncode == -9
    before = {path.name: path.read_bytes() for path in (here / "c").glob("collection.sqlite3")}
    run_json(capsys, "export", "c", "a.jsonl")
    last = json.loads((here / "a.jsonl").read_text().splitlines()[-1])
    assert last == {"id": "last", "vector": [0.5] * 6, "payload": {"year": 7}}
    (query,) = run_json(capsys, "query", "c", "--like", "last", "--filter", '{"year": 7}')["queries"]
    assert query == {"query": "last", "hits": []}
    assert before == {path.name: path.read_bytes() for path in (here / "c").glob("collection.sqlite3")}


def test_a_collection_of_an_older_version_is_upgraded(here, capsys):
    shutil.copytree(GOLDEN / "posh-collection-v1", "old")
    expected = json.loads((GOLDEN / "posh-collection-v1.json").read_text())["items"]
    run_json(capsys, "export", "old", "a.jsonl")
    rows = [json.loads(line) for line in (here / "a.jsonl").read_text().splitlines()]
    assert [[row["id"], row["vector"], row["payload"]] for row in rows] == expected


# Query ---------------------------------------------------------------------------------------------------


def nearest(query, rows, k):
    order = np.argsort(np.linalg.norm(VECTORS[rows] - query, axis=1))
    return np.array(rows)[order][:k].tolist()


def test_like(here, capsys):
    values = run_json(capsys, "query", "c", "--like", "7", "-k", "3")
    assert values["kind"] == "euclidean"
    (query,) = values["queries"]
    assert query["query"] == 7
    ids = [hit["id"] for hit in query["hits"]]
    assert ids == nearest(VECTORS[7], [i for i in range(N) if i != 7], 3)
    assert [hit["payload"] for hit in query["hits"]] == [PAYLOADS[i] for i in ids]
    scores = [hit["score"] for hit in query["hits"]]
    assert scores == sorted(scores, reverse=True)


def test_filter(here, capsys):
    arguments = ["--like", "7", "-k", "100", "--filter", '{"year": {"gte": 2040}}', "--exact"]
    (query,) = run_json(capsys, "query", "c", *arguments)["queries"]
    assert [hit["id"] for hit in query["hits"]] == nearest(VECTORS[7], list(range(50, N)), 100)


@pytest.mark.parametrize("name", ["q.npy", "q.jsonl"])
def test_vectors_of_a_file(name, here, capsys):
    if name == "q.npy":
        np.save(name, VECTORS[:8])
    else:
        (here / name).write_text("\n".join(json.dumps({"v": v.tolist(), "n": 1}) for v in VECTORS[:8]))
    queries = run_json(capsys, "query", "c", "--vectors", name, "-k", "1")["queries"]
    assert [(query["query"], query["hits"][0]["id"]) for query in queries] == [(i, i) for i in range(8)]
    assert main(["query", "c", "--vectors", name, "-k", "1"]) == 0
    assert "and 3 more queries: --json prints all" in capsys.readouterr().out


def test_the_key_chooses_a_column(here, capsys):
    np.savez("q.npz", a=VECTORS[:1], b=VECTORS[1:2])
    for key, expected in (("a", 0), ("b", 1)):
        (query,) = run_json(capsys, "query", "c", "--vectors", "q.npz", "--key", key, "-k", "1")["queries"]
        assert query["hits"][0]["id"] == expected
    rows = [{"a": VECTORS[0].tolist(), "b": VECTORS[1].tolist()}]
    (here / "q.jsonl").write_text(json.dumps(rows[0]))
    for key, expected in (("a", 0), ("b", 1)):
        (query,) = run_json(capsys, "query", "c", "--vectors", "q.jsonl", "--key", key, "-k", "1")["queries"]
        assert query["hits"][0]["id"] == expected


def test_the_table(here, capsys):
    assert main(["query", "c", "--like", "7", "-k", "2", "--filter", '{"year": {"gt": 2000}}']) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["euclidean", "id", "title", "year", "tags"]
    assert len(lines) == 2
    assert "Title" in lines[0]
    assert all(len(line) <= 100 for line in lines)
    assert main(["query", "c", "--like", "7", "--filter", '{"year": 7}']) == 0
    assert capsys.readouterr().out == "no hits\n"


def test_one_vector(here, capsys):
    vector = json.dumps(VECTORS[7].tolist())
    for text in (vector, vector.strip("[]").replace(",", " ").join("  ")):
        (query,) = run_json(capsys, "query", "c", "--vector", text, "-k", "3")["queries"]
        assert [hit["id"] for hit in query["hits"]] == nearest(VECTORS[7], list(range(N)), 3)
    assert main(["query", "c", "--vector", "[1, x]"]) == 2
    assert "expected numbers such as '[0.1, -2, 3]', got '[1, x]'" in one_error(capsys)


def test_the_lowest_score_and_the_recall(here, capsys):
    (query,) = run_json(capsys, "query", "c", "--like", "7", "-k", "9")["queries"]
    scores = [hit["score"] for hit in query["hits"]]
    arguments = ["--like", "7", "-k", "9", f"--min-score={scores[3]}", "--recall", "0.8"]
    (some,) = run_json(capsys, "query", "c", *arguments)["queries"]
    assert some["hits"] == query["hits"][:4]
    fails_in_one_line(
        capsys, 1, ["query", "c", "--like", "7", "--recall", "7"], "expected recall in (0, 1], got 7"
    )
    fails_in_one_line(
        capsys, 2, ["query", "c", "--text", "a", "--recall", "0.9"], "--recall is for vectors: leave it out"
    )


def test_more_results_than_items(here, capsys):
    for source in (["--like", "7"], ["--vectors", "q.npy"]):
        np.save("q.npy", VECTORS[7:8])
        (query,) = run_json(capsys, "query", "c", *source, "-k", "1000000000000")["queries"]
        assert len(query["hits"]) == N - (source[0] == "--like")
    with posh.Collection("empty", metric="cosine"):
        pass
    (query,) = run_json(capsys, "query", "empty", "--vectors", "q.npy", "-k", "1000000000000")["queries"]
    assert query["hits"] == []


def test_a_text_id_is_preferred_to_a_number(here, capsys):
    with posh.Collection("c") as collection:
        collection.upsert(["7"], VECTORS[20:21])
    (query,) = run_json(capsys, "query", "c", "--like", "7", "-k", "1")["queries"]
    assert (query["query"], query["hits"][0]["id"]) == ("7", 20)


def test_wrong_queries(here, capsys):
    like = ["query", "c", "--like", "7"]
    fails_in_one_line(
        capsys, 2, ["query", "c"], "expected one of --like, --vector, --vectors, --text and --fts5, got none"
    )
    fails_in_one_line(capsys, 2, ["query", "c", "--like", "nope"], "to be the id of an item, got 'nope'")
    fails_in_one_line(capsys, 2, ["query", "c", "--like=--7"], "to be the id of an item, got '--7'")
    fails_in_one_line(capsys, 2, [*like, "--key", "a"], "--key is for --vectors")
    fails_in_one_line(capsys, 2, [*like, "--filter", "{"], "expected --filter to be JSON, got '{'")
    fails_in_one_line(capsys, 2, [*like, "--filter", "[1]"], "expected --filter to be a JSON object")
    fails_in_one_line(capsys, 1, [*like, "--filter", '{"a": {"no": 1}}'], "no")
    fails_in_one_line(capsys, 1, ["query", "nope", "--like", "7"], "make one with 'posh import FILE nope'")
    with posh.Collection("bare") as collection:
        collection.upsert([7], VECTORS[:1])
    fails_in_one_line(
        capsys, 2, ["query", "bare", "--like", "7"], "if an import was interrupted, run it again"
    )
