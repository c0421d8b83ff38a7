"""What goes wrong with a real Milvus Lite: nobody answers, somebody else has the file, other fields."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from posh import cli
from posh.engines.milvus import Milvus, MilvusCollection
from posh.errors import FormatError, ServiceError, StorageError
from tests.collection.implementations import DATA, SPARSE
from tests.engines.milvus import engine

pytestmark = engine.needs_milvus


def test_nobody_answers(tmp_path, capsys):
    process, uri = engine.start_server(tmp_path / "gone.db")
    try:
        collection = MilvusCollection(Milvus(uri, timeout=10), "authors", SPARSE).upsert([1], DATA[:1])
    finally:
        process.kill()
        process.wait()
    for call in (collection.count, lambda: collection.upsert([2], DATA[:1])):
        with pytest.raises(ServiceError, match=r"127\.0\.0\.1"):
            call()
    start = time.monotonic()
    with pytest.raises(ServiceError, match="expected a Milvus server that answers, got none"):
        Milvus(uri, timeout=2)
    assert time.monotonic() - start < 30
    assert cli.main(["export", f"milvus:{uri}#authors", str(tmp_path / "out.jsonl")]) == 1
    assert "start it, or correct the address" in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()


def test_a_file_that_another_process_has_open(tmp_path):
    file = tmp_path / "shop.db"
    code = (
        f"from posh.engines.milvus import Milvus; Milvus({str(file)!r}); print('open', flush=True); input()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout.readline() == "open\n"
        with pytest.raises(StorageError, match="expected a file that Milvus Lite can open"):
            Milvus(file)
    finally:
        other.communicate("\n")


def test_collections_that_are_not_ours_are_left_alone():
    milvus = engine.server()
    milvus.call("create_collection", "mine", dimension=4)
    milvus.call("create_collection", "yours__settings", dimension=4)
    for name in ("mine", "yours"):
        with pytest.raises(FormatError, match="choose another name"):
            MilvusCollection(milvus, name, SPARSE)
    assert {name for name in milvus.list_names() if name.startswith(("mine", "yours"))} == {
        "mine",
        "yours__settings",
    }
