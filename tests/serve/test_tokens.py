"""Tokens for reading only, and files of tokens that are read again."""

from __future__ import annotations

import os
import signal
import time

import httpx
import pytest

from posh.cli import main
from posh.client import Client
from posh.errors import ServiceError
from posh.serve.tokens import Tokens, TokenSet, read_token_file
from tests.collection.implementations import DATA
from tests.serve.conftest import filled
from tests.serve.service import MemorySource, running, served
from tests.serve.test_openapi import OPERATIONS

READS = {"search", "search_radius", "get", "items", "count", "sample"}


@pytest.fixture(scope="module")
def reader():
    """A client that has the token for reading."""
    with (
        running(MemorySource(things=filled()), token="all", read_token="read") as address,
        httpx.Client(base_url=address, headers={"authorization": "Bearer read"}) as client,
    ):
        yield client


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_it_may_read_and_nothing_else(reader, method, path):
    answer = reader.request(method, path.format(name="things"), json={})
    reads = method == "get" or path.rpartition("/")[2] in READS
    is_refused = (answer.status_code, answer.headers["content-type"]) == (403, "application/problem+json")
    assert is_refused != reads
    if is_refused:
        assert answer.json()["type"] == "urn:posh:read-only-token"


def test_a_search_with_it_is_answered_and_a_write_is_an_error(reader):
    with Client(str(reader.base_url), token="read") as client:
        things = client.collection("things")
        assert things.search(DATA[:1], 1).ids.tolist() == [[0]]
        with pytest.raises(ServiceError, match="expected the token for everything, got the one for reading"):
            things.delete([0])
        assert things.count() == 200


def test_without_the_other_token_the_service_can_only_be_read():
    with running(MemorySource(things=filled()), read_token="read") as address:
        assert httpx.get(f"{address}/v1/collections").status_code == 401
        head = {"authorization": "Bearer read"}
        assert httpx.get(f"{address}/v1/collections", headers=head).status_code == 200
        assert httpx.delete(f"{address}/v1/collections/things", headers=head).status_code == 403


def status(address: str, token: str) -> int:
    return httpx.get(f"{address}/metrics", headers={"authorization": f"Bearer {token}"}).status_code


def test_sighup_reads_the_files_again(tmp_path):
    file, reads = tmp_path / "token", tmp_path / "reads"
    file.write_text("old\n")
    reads.write_text("looks\n")
    options = ("--token-file", str(file), "--read-token-file", str(reads))
    with served(tmp_path / "served", *options) as (process, address):
        assert [status(address, token) for token in ("old", "looks", "new")] == [200, 200, 401]
        file.write_text("new\nold\n")  # both, until all clients have the new one
        os.kill(process.pid, signal.SIGHUP)
        while status(address, "new") != 200:
            time.sleep(0.01)
        assert status(address, "old") == 200
        file.write_text("\n")
        os.kill(process.pid, signal.SIGHUP)
        while "not reloaded" not in process.stderr.readline():
            pass
        assert status(address, "new") == 200
        file.write_text("new\n")
        os.kill(process.pid, signal.SIGHUP)
        while status(address, "old") != 401:
            time.sleep(0.01)


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "expected a token, got an empty file"), ("é\n", "of visible ASCII characters, got another")],
)
def test_a_file_without_a_token_is_refused(tmp_path, capsys, content, message):
    file = tmp_path / "token"
    file.write_text(content)
    assert main(["serve", str(tmp_path / "new"), "--port", "0", "--token-file", str(file)]) == 2
    assert message in capsys.readouterr().err


def test_a_token_and_a_file_contradict_each_other(tmp_path, capsys, monkeypatch):
    (tmp_path / "token").write_text("a\n")
    options = ["--token-file", str(tmp_path / "token")]
    monkeypatch.setenv("POSH_TOKEN", "b")
    assert main(["serve", str(tmp_path / "new"), "--port", "0", *options]) == 2
    assert "expected a token or a file of tokens, got POSH_TOKEN and" in capsys.readouterr().err


def test_a_file_that_is_missing_is_said_so(tmp_path, capsys):
    assert main(["serve", str(tmp_path / "new"), "--port", "0", "--token-file", str(tmp_path / "no")]) == 1
    assert "No such file" in capsys.readouterr().err


def test_the_read_token_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("POSH_READ_TOKEN", "looks")
    with served(tmp_path, token="all") as (_, address):
        assert [status(address, token) for token in ("all", "looks", "other")] == [200, 200, 401]
        with Client(address, token="looks") as client, pytest.raises(ServiceError, match="for reading"):
            client.create("shop")


def test_tokens_that_cannot_be_loaded_stay(tmp_path):
    file = tmp_path / "token"
    file.write_text(" one \n\ntwo\n")
    tokens = Tokens(lambda: TokenSet(read_token_file(file), []))
    file.unlink()
    tokens.reload()
    assert [tokens.find_access(value) for value in (b"one", b"two", b"")] == ["all", "all", None]
