"""``posh tune --index`` with files of queries: recall of the true neighbours, without labels."""

from __future__ import annotations

import json

import numpy as np
import pytest

import posh
from posh.cli import main
from tests.cli.conftest import DIGITS
from tests.cli.running import fails_in_one_line, run_json

QUERIES = DIGITS.queries[:40]
TEN = ["-k", "10"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    np.save(folder / "queries.npy", QUERIES)
    (folder / "queries.jsonl").write_text("\n".join(json.dumps({"q": q.tolist()}) for q in QUERIES))
    np.save(folder / "base.npy", DIGITS.base)
    with posh.Collection(folder / "metric", metric="cosine") as collection:
        collection.upsert([f"i{i}" for i in range(len(DIGITS.base))], DIGITS.base)
    hasher = posh.POSH(64, 4, n_epochs=1, random_state=0).fit(DIGITS.base)
    with posh.Collection(folder / "codes", hasher) as collection:
        collection.upsert(range(len(DIGITS.base)), DIGITS.base)
    posh.Index.build(DIGITS.base, metric="euclidean").save(folder / "index")
    posh.CodeIndex(hasher).add(DIGITS.base).save(folder / "codes-index")
    return folder


@pytest.fixture(autouse=True)
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.delenv("POSH_DEBUG", raising=False)


def recall(ids, metric, k):
    """The plain reference: the share of the true neighbours by comparing all, without a care for ties."""
    base, queries = DIGITS.base.astype(float), QUERIES.astype(float)
    if metric == "cosine":
        base, queries = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (base, queries))
    true = np.argsort(((queries[:, None] - base) ** 2).sum(2), axis=1)[:, :k]
    return np.mean([len({*own} & {*near}) / k for own, near in zip(ids, true, strict=True)])


def test_a_collection_with_a_metric(capsys):
    values = run_json(
        capsys, "tune", "queries.npy", "--index", "metric", "--n-neighbors", "5", "-k", "5", "--recall", "0.5"
    )
    assert (values["by"], values["n_queries"]) == ("cosine", 40)
    with posh.Collection("metric") as collection:
        ids = collection.search(QUERIES, 5, recall=0.5).ids
    expected = recall([[int(name[1:]) for name in own] for own in ids], "cosine", 5)
    assert values["results"]["recall 5@5"]["mean"] == pytest.approx(expected, abs=0.01)
    exact = run_json(capsys, "tune", "queries.npy", "--index", "metric", "--exact")
    assert exact["results"]["recall 10@10"]["mean"] == 1.0


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_a_collection_with_a_hasher(metric, capsys):
    arguments = ["--metric", metric, "-k", "30", "--n-neighbors", "10"]
    values = run_json(capsys, "tune", "queries.jsonl", "--index", "codes", *arguments)
    with posh.Collection("codes") as collection:
        ids = collection.search(QUERIES, 30).ids
    assert 0.1 < values["results"]["recall 10@10"]["mean"] < 1
    expected = [recall(ids[:, :10], metric, 10), recall(ids, metric, 10)]
    found = [values["results"][f"recall 10@{at}"]["mean"] for at in (10, 30)]
    assert found == pytest.approx(expected, abs=0.01)


def test_an_index_with_a_metric(capsys):
    values = run_json(capsys, "tune", "queries.npy", "--index", "index", "--n-queries", "7")
    assert (values["by"], values["n_queries"]) == ("euclidean", 7)
    assert values["results"]["recall 10@10"]["mean"] > 0.9
    assert main(["tune", "queries.npy", "--index", "index"]) == 0
    assert "queries.npy, 40 queries, by euclidean" in capsys.readouterr().out


def test_an_index_of_codes_with_its_vectors(capsys):
    values = run_json(
        capsys, "tune", "queries.npy", "--index", "codes-index", "--base", "base.npy", "-k", "10"
    )
    index = posh.CodeIndex.load("codes-index")
    expected = recall(index.search(QUERIES, 10).ids, "euclidean", 10)
    assert values["results"]["recall 10@10"]["mean"] == pytest.approx(expected, abs=0.01)


def test_the_key_chooses_the_queries(capsys):
    np.savez("two.npz", a=QUERIES[:3], b=QUERIES[:8])
    for key, n in (("a", 3), ("b", 8)):
        assert run_json(capsys, "tune", "two.npz", "--index", "metric", "--key", key)["n_queries"] == n


@pytest.mark.parametrize(
    ("code", "arguments", "message"),
    [
        (2, ["codes-index", "queries.npy"], "got one that keeps codes only: give the file of its vectors"),
        (
            2,
            ["metric", "queries.npy", "--metric", "euclidean"],
            "expected --metric cosine, by which it searches",
        ),
        (
            2,
            ["metric", "queries.npy", "--n-neighbors", "9", "-k", "8"],
            "expected --n-neighbors of at most 8",
        ),
        (2, ["metric", "queries.npy", "-k", "99999"], "of at most 1597, the number of vectors, got 99999"),
        (2, ["index", "digits", "--key", "a"], "--key is for files of queries"),
        (1, ["metric", "nope.npy"], "nope.npy: no such file"),
    ],
)
def test_errors(code, arguments, message, capsys):
    index, data, *options = arguments
    fails_in_one_line(capsys, code, ["tune", data, "--index", index, *options], message)
