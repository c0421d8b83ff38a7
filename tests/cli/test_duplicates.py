"""``posh duplicates``: of vectors and of collections."""

from __future__ import annotations

import numpy as np
import pytest

import posh
from posh.cli import main
from tests.cli.running import one_error, run_json

X = np.random.default_rng(0).standard_normal((50, 8)).astype(np.float32)
X[10:13] = X[3]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)


def test_of_vectors(capsys):
    values = run_json(capsys, "duplicates", "x.npy", "--min-score", "0.999", "-o", "pairs.npz")
    assert values == {"pairs": 6, "is_cut": False, "groups": [[3, 10, 11, 12]]}
    with np.load("pairs.npz") as arrays:
        assert arrays["pairs"].shape == (6, 2)
        assert arrays["scores"].shape == (6,)
    assert main(["duplicates", "x.npy", "--min-score", "-0.1", "--metric", "euclidean", "--exact"]) == 0
    assert capsys.readouterr().out == "6 pairs, 1 groups of 4 vectors\n3, 10, 11, 12\n"


def test_much_is_shortened(capsys):
    np.save("same.npy", np.repeat(X[:30], 12, axis=0))
    assert main(["duplicates", "same.npy", "--min-score", "0.999", "--limit", "5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "pairs are missing" in lines[1]
    assert lines[2].endswith("… 4 more")
    assert lines[-1].startswith("… ")


def test_of_a_collection(capsys):
    with posh.create("shop", metric="cosine") as shop:
        shop.upsert([f"i{i}" for i in range(50)], X, [{"n": i} for i in range(50)])
    values = run_json(capsys, "duplicates", "shop", "--min-score", "0.999", "-o", "pairs.npz")
    assert values["groups"] == [["i3", "i10", "i11", "i12"]]
    with np.load("pairs.npz") as arrays:
        assert arrays["pairs"][0].tolist() == ["i3", "i10"]
    values = run_json(capsys, "duplicates", "shop", "--min-score", "0.999", "--filter", '{"n": {"lt": 12}}')
    assert values["groups"] == [["i3", "i10", "i11"]]
    assert run_json(capsys, "duplicates", "shop", "--min-score", "0.999", "--recall", "0.9")["pairs"] == 6


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["x.npy"], "--min-score"),
        (["x.npy", "--min-score", "0.9", "--filter", "{}"], "--filter is for collections"),
        (["x.npy", "--min-score", "nan"], "min_score"),
        (["x.npy", "--min-score", "0.9", "-o", "pairs.csv"], ".npz"),
    ],
)
def test_errors(capsys, options, words):
    assert main(["duplicates", *options]) != 0
    assert words in one_error(capsys)


def test_options_of_vectors_with_a_collection(capsys):
    posh.create("shop", metric="cosine").close()
    assert main(["duplicates", "shop", "--min-score", "0.9", "--metric", "dot"]) == 2
    assert "--metric is for vectors" in one_error(capsys)
