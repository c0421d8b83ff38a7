"""``posh serve`` as a process: starting, stopping, refusing."""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import pytest

import posh
from posh.cli import main
from posh.client import Client
from posh.errors import find_install_command
from posh.serve.server import Server, bind, is_loopback
from tests.collection.implementations import DATA, SPARSE
from tests.serve.service import served


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_without_losing_anything(tmp_path, number):
    posh.Collection(tmp_path / "shop", SPARSE).close()
    with served(tmp_path) as (process, address), Client(address) as client:
        client.collection("shop").upsert([1, 2], DATA[:2])
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
        assert out == "stopped, all collections are closed\n"
    with posh.Collection(tmp_path / "shop") as collection:
        assert collection.count() == 2


def test_what_runs_is_finished_and_a_second_signal_harms_nothing(tmp_path):
    """A large write is under way when the first signal comes."""
    n = 3000
    many = np.tile(DATA, (n // len(DATA), 1))
    posh.Collection(tmp_path / "shop", SPARSE).close()
    outcome = []
    with served(tmp_path) as (process, address), Client(address) as client:
        payloads = [{"i": i, "text": "x" * 50} for i in range(n)]

        def write() -> None:
            outcome.append(client.collection("shop").upsert(list(range(n)), many, payloads))

        writer = threading.Thread(target=write)
        writer.start()
        while not (tmp_path / "shop" / "collection.sqlite3-wal").stat().st_size:
            time.sleep(0.001)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            process.send_signal(number)
        writer.join()
        _, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
    assert len(outcome) == 1
    with posh.Collection(tmp_path / "shop") as collection:
        assert collection.count() == n
        assert collection.search(DATA[:1], 1).ids.tolist() == [[0]]


def test_the_token_comes_from_the_environment(tmp_path):
    with served(tmp_path, token="from-environment") as (_, address):
        assert httpx.get(f"{address}/v1/collections").status_code == 401
        with Client(address, token="from-environment") as client:
            assert client.collections() == []


def test_limits_are_set_on_the_command_line(tmp_path):
    posh.Collection(tmp_path / "shop", SPARSE).upsert([1], DATA[:1]).close()
    with served(tmp_path, "--limit", "k=5", "--limit", "body_seconds=60.5", "--token", "t") as (_, address):
        with Client(address, token="t") as client:
            assert client.collection("shop").search(DATA[:1], 5).ids[0, 0] == 1
            with pytest.raises(ValueError, match="expected at most 5 for k, got 6"):
                client.collection("shop").search(DATA[:1], 6)
        schemas = httpx.get(f"{address}/openapi.json").json()["components"]["schemas"]
        assert schemas["Search"]["properties"]["k"]["maximum"] == 5


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--host", "0.0.0.0"], 2, "expected a token to serve others than this machine, got --host 0.0.0.0"),
        (["--host", "::"], 2, "expected a token to serve others than this machine"),
        (["--host", "no.such.host.invalid"], 2, "expected a token to serve others than this machine"),
        (["--token", ""], 2, "expected a token (--token or POSH_TOKEN) of visible ASCII characters"),
        (["--token", "é"], 2, "expected a token (--token or POSH_TOKEN) of visible ASCII characters"),
        (["--token", "a\nb"], 2, "expected a token (--token or POSH_TOKEN) of visible ASCII characters"),
        (["--port", "70000"], 2, "expected a port from 0 to 65535, got '70000'"),
        (["--limit", "k"], 2, "expected NAME=VALUE, got 'k'"),
        (["--limit", "x=1"], 2, "expected --limit of one of body_bytes"),
        (["--limit", "k=0"], 2, "expected --limit k to be a number above 0, got '0'"),
        (["--limit", "k=ten"], 2, "expected --limit k to be a number above 0, got 'ten'"),
        (
            ["--limit", "body_seconds=nan"],
            2,
            "expected --limit body_seconds to be a number above 0, got 'nan'",
        ),
        (["--host", "192.0.2.1", "--token", "t"], 1, "expected an address to listen at, got 192.0.2.1"),
    ],
)
def test_it_refuses_to_start(tmp_path, capsys, monkeypatch, arguments, code, message):
    monkeypatch.delenv("POSH_TOKEN", raising=False)
    assert main(["serve", str(tmp_path / "new"), "--port", "0", *arguments]) == code
    assert message in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_port_in_use_is_said_so(tmp_path, capsys):
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        port = str(taken.getsockname()[1])
        assert main(["serve", str(tmp_path / "new"), "--port", port]) == 1
    assert f"got 127.0.0.1 port {port} (Address already in use): choose another" in capsys.readouterr().err


def test_a_folder_that_cannot_be_is_said_so(tmp_path, capsys):
    assert main(["serve", str(tmp_path / "no" / "folder"), "--port", "0"]) == 1
    assert "No such file or directory" in capsys.readouterr().err


def test_what_only_this_machine_can_reach():
    assert all(map(is_loopback, ["127.0.0.1", "127.9.9.9", "::1", "localhost"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "192.0.2.1", ""]))


def test_without_the_extra_the_pip_line_is_printed(tmp_path, capsys, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("posh.serve")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "starlette", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "starlette" else object())
    assert main(["serve", str(tmp_path)]) == 1
    line = f"posh.serve needs starlette: {find_install_command('serve')}"
    assert line in capsys.readouterr().err


def test_it_says_what_it_list_collections(tmp_path):
    from posh.cli._serve import _list_collections

    assert _list_collections(tmp_path, []).startswith(
        f"no collections yet: make one with 'posh import FILE {tmp_path}/NAME'"
    )
    assert _list_collections(tmp_path, ["b", "a"]) == "2 collections: a, b"
    assert _list_collections(tmp_path, ["a"]) == "1 collection: a"
    assert _list_collections(tmp_path, [f"c{i:02}" for i in range(12)]).endswith("c08, c09 …")


def test_a_folder_that_holds_no_collections(tmp_path, capsys):
    posh.Collection(tmp_path / "shop").close()
    assert main(["serve", str(tmp_path / "shop"), "--port", "0"]) == 2
    assert (
        f"got a collection: serve the folder that holds it, 'posh serve {tmp_path}'"
        in capsys.readouterr().err
    )
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "rows.npy").touch()
    assert main(["serve", str(tmp_path / "other"), "--port", "0"]) == 2
    assert (
        "got other files such as rows.npy: make one with 'posh import FILE FOLDER/NAME'"
        in capsys.readouterr().err
    )


def test_shards_in_a_folder_whose_name_is_no_name_of_a_collection(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Server, "run", lambda self: None)  # a service that starts ends at once
    (tmp_path / "My.Shards").mkdir()
    (tmp_path / "My.Shards" / "job.json").touch()
    assert main(["serve", str(tmp_path / "My.Shards"), "--port", "0"]) == 1
    assert (
        "expected a name of 1 to 64 of the characters a-z, 0-9, _ and -, no _ or - in front, "
        "got 'My.Shards', the folder of the shards: rename it" in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["{file}"],
            2,
            "{file}: expected a folder of collections, got a file: import it with "
            "'posh import {file} FOLDER/NAME', then 'posh serve FOLDER'",
        ),
        (["{folder}", "--backups", "{file}"], 1, "{file}: expected a folder, got a file: name another"),
    ],
    ids=["collections", "backups"],
)
def test_a_file_in_place_of_a_folder(tmp_path, capsys, monkeypatch, arguments, code, message):
    names = {"file": str(tmp_path / "rows.jsonl"), "folder": str(tmp_path / "new")}
    Path(names["file"]).touch()
    monkeypatch.setattr(Server, "run", lambda self: None)  # a service that starts ends at once
    assert main(["serve", *(text.format(**names) for text in arguments), "--port", "0"]) == code
    assert message.format(**names) in capsys.readouterr().err
