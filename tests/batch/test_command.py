"""``posh batch``: the four commands, with workers of this process."""

from __future__ import annotations

import numpy as np
import pytest

import posh
from posh import batch
from tests.batch.doing import DIGITS, Here, equal, write_npy, write_parquet
from tests.cli.running import fails_in_one_line, run_json


@pytest.fixture(autouse=True)
def started(monkeypatch):
    """What the workers were asked to be."""
    calls = []

    def here(n=None, **options):
        calls.append({"n": n, **options})
        return Here()

    monkeypatch.setattr(batch, "Processes", here)
    return calls


def test_all_four(tmp_path, capsys, started):
    write_npy(tmp_path / "shards")
    np.save(tmp_path / "queries.npy", DIGITS.queries)
    shards, model = str(tmp_path / "shards" / "*.npy"), str(tmp_path / "model")
    hits, index = str(tmp_path / "hits"), str(tmp_path / "index")
    local = ["--local", "--n-workers", "3", "--n-threads", "2"]
    method = [
        "--n-bits",
        "128",
        "--n-active",
        "8",
        "--set",
        "n_epochs=2",
        "--n-sample",
        "900",
        "--random-state",
        "1",
    ]
    assert run_json(capsys, "batch", "fit", shards, "-o", model, *method, *local)["n_rows"] == 900
    codes = run_json(capsys, "batch", "encode", model, shards, "-o", str(tmp_path / "codes"), *local)
    assert (codes["n_parts"], codes["n_resumed"], codes["n_rows"]) == (4, 0, 1597)
    run_json(capsys, "batch", "build", shards, "--model", model, "-o", index, *local)
    command = ["batch", "search", index, str(tmp_path / "queries.npy"), "-o", hits, "-k", "4", *local]
    assert run_json(capsys, *command)["n_rows"] == 4 * len(DIGITS.queries)
    one = posh.CodeIndex(posh.Hasher.load(model)).add(DIGITS.base)
    equal(batch.read_hits(hits), one.search(DIGITS.queries, k=4))
    assert started == [{"n": 3, "n_threads": 2}] * 4
    from posh.cli import main

    assert main(command) == 0
    assert "nothing was left to do\n2 parts, 2 of them finished before" in capsys.readouterr().out


def test_a_metric_and_columns(tmp_path, capsys):
    write_parquet(tmp_path / "a.parquet", DIGITS.base[:900], np.arange(900) * 2)
    np.save(tmp_path / "queries.npy", DIGITS.queries[:20])
    index, hits = str(tmp_path / "index"), str(tmp_path / "hits")
    columns = ["--id", "number", "--vector", "vector", "--local"]
    run_json(
        capsys, "batch", "build", str(tmp_path / "a.parquet"), "-o", index, "--metric", "euclidean", *columns
    )
    queries = str(tmp_path / "queries.npy")
    run_json(capsys, "batch", "search", index, queries, "-o", hits, "--exact", "--local")
    one = posh.Index(metric="euclidean").add(DIGITS.base[:900], np.arange(900) * 2)
    np.testing.assert_array_equal(batch.read_hits(hits).ids, one.search(DIGITS.queries[:20], exact=True).ids)


def test_wrong_usage(tmp_path, capsys):
    write_npy(tmp_path / "shards")
    shards, out = str(tmp_path / "shards"), str(tmp_path / "out")
    both = ["batch", "build", shards, "-o", out, "--metric", "dot", "--local", "--address", "127.0.0.1:9"]
    fails_in_one_line(capsys, 2, both, "expected --local or --address, got both")
    fails_in_one_line(
        capsys, 2, ["batch", "build", shards, "-o", out, "--local"], "expected --model or --metric"
    )
    nowhere = str(tmp_path / "no" / "model")
    fails_in_one_line(
        capsys, 1, ["batch", "fit", shards, "-o", nowhere, "--local"], "expected an existing folder"
    )
    assert not (tmp_path / "out").exists()
