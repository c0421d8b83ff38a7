"""``posh import --text`` and ``posh query --text``."""

from __future__ import annotations

import json

import numpy as np
import pytest

import posh
from posh.cli import main
from posh.collection.text import TextOptions
from tests.cli.running import fails_in_one_line, run_json

VECTORS = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
ROWS = [
    {
        "id": i,
        "vector": VECTORS[i].tolist(),
        "title": f"{'Red' if i % 3 else 'Blue'} scarf {i}",
        "tags": ["wool"],
    }
    for i in range(30)
]


@pytest.fixture
def shop(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    np.save("queries.npy", VECTORS[:2])
    run_json(capsys, "import", "rows.jsonl", "shop", "--text", "title,tags")
    run_json(capsys, "import", "rows.jsonl", "plain")


def test_words_and_expressions(shop, capsys):
    values = run_json(capsys, "query", "shop", "--text", "scarf 17", "-k", "2")
    assert values["kind"] == "bm25"
    assert values["queries"][0]["query"] == "scarf 17"
    assert values["queries"][0]["hits"][0]["id"] == 17
    values = run_json(capsys, "query", "shop", "--fts5", "title : blue NOT 3", "-k", "30")
    assert {hit["id"] for hit in values["queries"][0]["hits"]} == {i for i in range(0, 30, 3) if i != 3}
    values = run_json(capsys, "query", "shop", "--text", "wool", "--filter", '{"title": "Red scarf 5"}')
    assert [hit["id"] for hit in values["queries"][0]["hits"]] == [5]
    assert main(["query", "shop", "--text", "17"]) == 0
    assert "Red scarf 17" in capsys.readouterr().out


def test_vectors_and_words(shop, capsys):
    values = run_json(
        capsys, "query", "shop", "--vectors", "queries.npy", "--text", "17", "-k", "3", "--exact"
    )
    with posh.open("shop") as collection:
        expected = collection.search(VECTORS[:2], 3, text=["17", "17"], exact=True)
    assert values["kind"] == "rrf"
    assert [[hit["id"] for hit in query["hits"]] for query in values["queries"]] == expected.ids.tolist()
    first = values["queries"][0]["hits"][0]
    assert (first["vector_score"], first["text_score"]) == expected[0][0][4:]


def test_info_and_copy_keep_the_text_index(shop, capsys):
    run_json(capsys, "copy", "shop", "copy")
    values = run_json(capsys, "info", "copy")
    assert (values["version"], values["text"]["fields"]) == (5, ["title", "tags"])
    values = run_json(capsys, "info", "plain")
    assert (values["version"], values["text"]) == (4, None)
    assert run_json(capsys, "query", "copy", "--text", "17")["queries"][0]["hits"][0]["id"] == 17
    assert main(["info", "copy", "--check"]) == 0
    assert "words" in capsys.readouterr().out
    run_json(capsys, "import", "rows.jsonl", "other", "--text", "title", "--tokenizer", "porter")
    with posh.open("other") as collection:
        assert collection.text == TextOptions(("title",), "porter")


@pytest.mark.parametrize(
    ("code", "arguments", "message"),
    [
        (2, ["query", "shop"], "expected one of --like, --vector, --vectors, --text and --fts5, got none"),
        (2, ["query", "shop", "--like", "3", "--text", "x"], "--like finds neighbours by vector only"),
        (2, ["query", "shop", "--exact", "--text", "x"], "--exact is for vectors: leave it out"),
        (1, ["query", "shop", "--fts5", "x AND ("], "expected an expression of FTS5, got 'x AND ('"),
        (1, ["query", "plain", "--text", "x"], "create it with posh.create(path, text="),
        (2, ["import", "rows.jsonl", "c", "--tokenizer", "porter"], "--tokenizer is for --text"),
        (
            2,
            ["import", "rows.jsonl", "c", "--no-payload", "--text", "a"],
            "--no-payload and --text contradict",
        ),
        (1, ["import", "rows.jsonl", "c", "--text", "title", "--tokenizer", "x"], "no such tokenizer: x"),
        (
            1,
            ["import", "rows.jsonl", "plain", "--text", "title"],
            "expected the text index that this collection",
        ),
    ],
)
def test_errors(shop, capsys, code, arguments, message):
    capsys.readouterr()
    if arguments[0] == "import":
        arguments = [*arguments, "--id", "id"]
        assert main(arguments) == code
        assert message in capsys.readouterr().err
    else:
        fails_in_one_line(capsys, code, arguments, message)
