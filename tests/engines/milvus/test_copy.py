"""``posh copy`` between a folder and Milvus: there, back, interrupted, and into the wrong target."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import numpy as np
import pytest

import posh
from posh import cli
from posh.collection import transfer
from posh.engines.milvus import MilvusCollection
from tests.collection.implementations import DATA, DENSE, SPARSE
from tests.collection.test_operations import same_hits, same_item
from tests.engines.milvus import engine, fake

URI = "http://127.0.0.1:19530"
MAIN = "import sys, posh.cli; sys.exit(posh.cli.main())"
ADDRESS = f"milvus:{URI}#shop"
IDS = [*range(-5, 200), *(f"it's {i}" for i in range(55))]
PAYLOADS = [{"n": i, "f": -0.0, "deep": [{"x": None}], "é\x00": True} for i in range(len(IDS))]


@pytest.fixture
def client(monkeypatch):
    monkeypatch.setattr(transfer, "COPY_BATCH", 50)
    return fake.install(monkeypatch)


def fill(path, hasher=None, **options) -> None:
    with posh.create(path, hasher, metadata={"title": "shop"}, **options) as collection:
        collection.upsert(IDS, DATA[: len(IDS)], PAYLOADS)
        collection.upsert([3], DATA[300:301], [{"replaced": True}])
        collection.delete([7])


def same(one, other) -> None:
    for found, expected in zip(one.items(), other.items(), strict=True):
        same_item(found, expected)
    assert one.metadata == other.metadata == {"title": "shop"}
    assert one.n_features == other.n_features
    assert (one.hasher is None) == (other.hasher is None)
    if one.hasher is not None:
        assert one.hasher.get_params() == other.hasher.get_params()
        np.testing.assert_array_equal(one.hasher.weights_, other.hasher.weights_)
    assert one.index_options == other.index_options


@pytest.mark.parametrize(
    ("hasher", "options"),
    [
        (SPARSE, {"scoring": "asymmetric"}),
        (SPARSE, {"refine": "vectors", "oversample": 3.0}),
        (DENSE, {}),
        (None, {"metric": "cosine", "recall": 0.9}),
        (None, {}),
    ],
    ids=str,
)
def test_there_and_back_it_is_the_same(client, tmp_path, capsys, hasher, options):
    fill(tmp_path / "shop", hasher, **options)
    assert cli.main(["copy", str(tmp_path / "shop"), ADDRESS]) == 0
    assert "259 items written" in capsys.readouterr().out
    assert cli.main(["copy", ADDRESS, str(tmp_path / "back"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["n_written"] == 259
    with posh.open(tmp_path / "shop") as one, posh.open(ADDRESS) as two, posh.open(tmp_path / "back") as back:
        same(two, one)
        same(back, one)
        if options or hasher:
            same_hits(*(each.search(DATA[:9], 7) for each in (back, one)))
        if "scoring" not in options and hasher:
            same_hits(*(each.search(DATA[:9], 7) for each in (two, one)))


@pytest.mark.parametrize("to_milvus", [True, False])
def test_an_interrupted_copy_goes_on(client, tmp_path, capsys, monkeypatch, to_milvus):
    fill(tmp_path / "shop", SPARSE)
    source, target = str(tmp_path / "shop"), ADDRESS
    if not to_milvus:
        cli.main(["copy", source, target])
        source, target = target, str(tmp_path / "back")
    write, times = transfer.Copier._write, []

    def interrupted(self, batch):
        if len(times) == 3:
            raise KeyboardInterrupt
        times.append(1)
        write(self, batch)

    monkeypatch.setattr(transfer.Copier, "_write", interrupted)
    assert cli.main(["copy", source, target]) == 130
    assert "150 items are in" in capsys.readouterr().err
    monkeypatch.setattr(transfer.Copier, "_write", write)
    with posh.open(target) as half:
        assert transfer.COPY in half.metadata
    with posh.open(source) as changed:  # meanwhile
        changed.delete([IDS[0]])
        changed.upsert([IDS[1]], DATA[:1], [{"new": 1}])
    assert cli.main(["copy", source, target]) == 0
    assert "110 items written" in capsys.readouterr().out
    with posh.open(source) as one, posh.open(target) as two:
        same(two, one)
    assert cli.main(["copy", source, target]) == 0  # it is complete: nothing to do
    assert "0 items written" in capsys.readouterr().out


def test_a_target_with_something_else_is_refused(client, tmp_path, capsys):
    fill(tmp_path / "shop", SPARSE)
    assert cli.main(["copy", str(tmp_path / "shop"), ADDRESS]) == 0
    with posh.open(ADDRESS) as target:
        target.upsert(["more"], DATA[:1])
    assert cli.main(["copy", str(tmp_path / "shop"), ADDRESS]) == 1
    assert "got a collection with 1 other items: choose another target" in capsys.readouterr().err
    with posh.open(ADDRESS) as target:
        assert "more" in target
        target.delete(["more", 1])
    assert cli.main(["copy", str(tmp_path / "shop"), ADDRESS]) == 1
    assert "without the item 1 of the source" in capsys.readouterr().err
    MilvusCollection(URI, "other", metadata={transfer.COPY: "elsewhere"}).close()
    assert cli.main(["copy", str(tmp_path / "shop"), f"milvus:{URI}#other"]) == 1
    assert "got one of elsewhere: choose another target" in capsys.readouterr().err
    assert cli.main(["copy", ADDRESS, ADDRESS]) == 2
    assert cli.main(["copy", str(tmp_path / "nothing"), ADDRESS]) == 1
    assert cli.main(["copy", "milvus:shop", str(tmp_path / "new")]) == 2
    assert "expected milvus:ADDRESS#NAME" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_what_milvus_cannot_have_is_refused_first(client, tmp_path, capsys):
    fill(tmp_path / "shop", SPARSE, refine="decoder")
    assert cli.main(["copy", str(tmp_path / "shop"), ADDRESS]) == 1
    assert "expected refine to be one of None, 'vectors', 'cosine' on Milvus" in capsys.readouterr().err
    assert client.databases[URI] == {}


def test_import_export_and_query_take_milvus(client, tmp_path, capsys):
    np.savez(tmp_path / "data.npz", vectors=DATA[:20], id=np.arange(20))
    assert cli.main(["import", str(tmp_path / "data.npz"), ADDRESS, "--metric", "dot", "--number-rows"]) == 0
    assert cli.main(["import", str(tmp_path / "data.npz"), ADDRESS, "--number-rows"]) == 0
    assert "20 already present" in capsys.readouterr().out
    assert cli.main(["export", ADDRESS, str(tmp_path / "out.jsonl")]) == 0
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 20
    capsys.readouterr()
    (tmp_path / "token").write_text("user:secret\n")
    options = ["--milvus-token-file", str(tmp_path / "token")]
    assert cli.main(["query", ADDRESS, "--like", "3", "-k", "2", "--json", *options]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "dot"
    assert client.asked[-1][0] != "connect"
    assert [asked["token"] for what, asked in client.asked if what == "connect"][-1] == "user:secret"
    (tmp_path / "token").write_text("")
    assert cli.main(["query", ADDRESS, "--like", "3", *options]) == 2
    assert "expected a token in one line, got none" in capsys.readouterr().err


def test_open_and_create(client):
    with pytest.raises(FileNotFoundError, match="expected the collection 'shop', found none"):
        posh.open(ADDRESS)
    with pytest.raises(ValueError, match="read_only=True is for folders"):
        posh.open(ADDRESS, read_only=True)
    with pytest.raises(ValueError, match=r"use posh.engines.milvus.MilvusCollection.create for Milvus"):
        posh.create(ADDRESS)


# Ends its own process, as kill -9 does, before or after a write that is chosen by its number.
KILLED = """
import os, signal, sys
import posh, posh.cli
from posh.collection import transfer
from posh.engines.milvus import Milvus

transfer.COPY_BATCH, left, after = 500, int(sys.argv.pop(1)), sys.argv.pop(1) == "after"

def dying(write):
    def call(self, *arguments, **options):
        global left
        is_write = arguments[0] == "upsert" if isinstance(self, Milvus) else True
        left -= is_write
        if is_write and left == 0 and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = write(self, *arguments, **options)
        if is_write and left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer
    return call

Milvus.call = dying(Milvus.call)
posh.Collection._upsert = dying(posh.Collection._upsert)
sys.exit(posh.cli.main())
"""


@engine.needs_milvus
@pytest.mark.parametrize("to_milvus", [True, False])
def test_a_killed_copy_goes_on(tmp_path, to_milvus):
    """The second run goes on after the first one was killed with kill -9, between and in writes."""
    with posh.create(tmp_path / "shop", SPARSE, metadata={"title": "shop"}) as collection:
        vectors = np.random.default_rng(0).normal(size=(3000, 8)).astype(np.float32)
        collection.upsert(range(3000), vectors, [{"n": i} for i in range(3000)])
    process, uri = engine.start_server(tmp_path / "served.db")
    try:
        source, target = str(tmp_path / "shop"), f"milvus:{uri}#shop"
        if not to_milvus:
            assert cli.main(["copy", source, target]) == 0
            source, target = target, str(tmp_path / "back")
        for number, moment in (("2", "after"), ("3", "before")):
            command = [sys.executable, "-c", KILLED, number, moment, "copy", source, target]
            assert subprocess.run(command, stderr=subprocess.PIPE).returncode == -signal.SIGKILL
        done = subprocess.run(
            [sys.executable, "-c", MAIN, "copy", source, target, "--json"], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert (report["n_items"], 0 < report["n_written"] < 3000) == (3000, True)
        with posh.open(source) as one, posh.open(target) as two:
            same(two, one)
            same_hits(*(each.search(DATA[:9], 7) for each in (two, one)))
    finally:
        process.kill()
        process.wait()
