"""``posh serve --engine milvus``."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

from posh import cli
from posh.client import Client
from posh.engines.milvus import Milvus, MilvusCollection
from posh.errors import CollectionExistsError, ServiceError
from posh.serve.sources import MilvusSource
from tests.collection.implementations import DATA, OTHER, SPARSE
from tests.collection.reference import ReferenceCollection
from tests.collection.test_operations import same_hits
from tests.engines.milvus import engine, fake
from tests.engines.milvus.test_copy import MAIN, URI
from tests.serve.service import running


def use(client: Client) -> None:
    """Do with a service what its clients do."""
    made = client.create("shop", SPARSE, metadata={"a": 1}, scoring="overlap")
    plain = ReferenceCollection(SPARSE)
    payloads = [{"n": i, "even": i % 2 == 0} for i in range(100)]
    for one in (made, plain):
        one.upsert(list(range(100)), DATA[:100], payloads)
        one.delete([3])
    for source in (None, {"n": {"lt": 20}}, {"not": {"even": True}}):
        same_hits(*(one.search(DATA[:5], 7, filter=source) for one in (made, plain)))
        assert made.count(source) == plain.count(source)
    assert made.info().disk_bytes is None
    assert [item.id for item in made.items(limit=4)] == [0, 1, 2, 4]
    np.testing.assert_array_equal(made.sample(9), plain.sample(9))
    made.reindex(OTHER)
    plain.reindex(OTHER)
    same_hits(*(one.search(DATA[:5], 7) for one in (made, plain)))


def test_a_service_over_milvus(monkeypatch):
    client_class = fake.install(monkeypatch)
    milvus = Milvus(URI)
    with running(MilvusSource(milvus)) as address, Client(address) as client:
        use(client)
        with pytest.raises(CollectionExistsError):
            client.create("shop")
        with pytest.raises(ValueError, match="expected a name of up to 200 letters, digits and '_'"):
            client.create("my-shop")
        client_class.failing["query"] = fake.MilvusException(1, "UNAVAILABLE")
        with pytest.raises(ServiceError, match="expected an engine that answers, got an error"):
            client.collection("shop").get([1])
        client_class.failing.clear()
    with running(MilvusSource(milvus)) as address, Client(address) as client:
        assert [(info.name, info.count) for info in client.collections()] == [("shop", 99)]
        client.delete("shop")
    assert client_class.databases[URI] == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engine", "milvus"], "expected --uri with --engine milvus, got none"),
        (
            ["--engine", "milvus", "--uri", URI, "folder"],
            "expected no FOLDER with --engine milvus, got folder",
        ),
        (["folder", "--uri", URI], f"expected no --uri with --engine embedded, got {URI}"),
        ([], "expected FOLDER with --engine embedded, got none"),
        (["--engine", "milvus", "--uri", URI, "--sample", "digits"], "--sample is for folders"),
        (["--engine", "other"], "invalid choice: 'other'"),
    ],
)
def test_wrong_usage(capsys, arguments, message):
    assert cli.main(["serve", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("how", ["environment", "file"])
def test_the_token_is_not_on_the_command_line(monkeypatch, tmp_path, capsys, how):
    client_class = fake.install(monkeypatch)
    client_class.failing["list_collections"] = fake.MilvusException(16, "auth check failure")
    (tmp_path / "token").write_text("user:file\n")
    if how == "environment":
        monkeypatch.setenv("POSH_MILVUS_TOKEN", "user:environment")
    options = ["--milvus-token-file", str(tmp_path / "token")] if how == "file" else []
    assert cli.main(["serve", "--engine", "milvus", "--uri", URI, "--port", "0", *options]) == 1
    assert "Milvus refuses the token (auth check failure): pass another one" in capsys.readouterr().err
    assert client_class.asked[-1][1]["token"] == f"user:{how}"


@engine.needs_milvus
def test_a_process_that_serves_a_server_of_milvus(tmp_path):
    MilvusCollection(engine.server(), "served_before", SPARSE).upsert([1], DATA[:1])
    command = [sys.executable, "-c", MAIN, "serve", "--engine", "milvus", "--uri", engine.server().uri]
    process = subprocess.Popen(
        [*command, "--port", "0"], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    try:
        line = process.stdout.readline()
        with Client(re.search(r"http://127\.0\.0\.1:\d+$", line.strip())[0]) as client:
            assert client.collection("served_before").count() == 1
            use(client)
            client.delete("shop")
            client.delete("served_before")
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert process.returncode == 0
