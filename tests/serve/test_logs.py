"""Lines of the log: lifecycle, refusals, slow requests, and every request if asked for."""

from __future__ import annotations

import json
import logging
import re
import signal
import time

import httpx
import pytest

import posh
from posh.client import Client
from posh.serve.capacity import Limits
from posh.serve.logs import JsonFormatter, LineBudget, TextFormatter, log_event, logging_to_stderr
from posh.serve.sources import Folder
from tests.collection.implementations import DATA, SPARSE
from tests.serve.conftest import filled
from tests.serve.service import MemorySource, running, served


@pytest.fixture
def lines(caplog):
    """The log as pairs of a message and its fields."""
    caplog.set_level(logging.INFO, "posh.serve")
    return lambda: [(record.message, getattr(record, "posh_fields", {})) for record in caplog.records]


def wait_for(lines, message: str) -> dict:
    """Return the fields of a line, which is written just after the client has its response."""
    for _ in range(3000):
        for text, fields in lines():
            if text == message:
                return fields
        time.sleep(0.01)
    raise AssertionError(lines())


def test_a_line_for_each_event_of_a_collection(tmp_path, lines):
    with (
        running(Folder(tmp_path / "served", backups=tmp_path / "backups")) as address,
        Client(address) as client,
    ):
        shop = client.create("shop")
        shop.upsert(range(50), DATA[:50])
        shop.fit(posh.LSH(8, random_state=0))
        shop.backup("copy")
        shop.restore("copy")
        client.delete("shop")
    messages = [text for text, _ in lines()]
    assert [text for text in messages if text != "opened"] == [
        "listening",
        "created",
        "backed up",
        "restored",
        "dropped",
        "stopping",
        "closed",
    ]
    assert wait_for(lines, "opened")["collection"] == "shop"
    assert wait_for(lines, "restored") == {"collection": "shop", "backup": "copy"}


def test_a_fit_in_the_service_is_logged(tmp_path, lines):
    with running(Folder(tmp_path)) as address, Client(address) as client:
        client.create("shop").upsert(range(50), DATA[:50])
        client.request("POST", "/v1/collections/shop/fit", {"method": "LSH", "params": {"n_bits": 8}})
        assert wait_for(lines, "fit started") == {"collection": "shop"}
        assert wait_for(lines, "fit finished")["collection"] == "shop"


def test_a_refusal_names_its_limit(lines):
    with running(MemorySource(things=filled()), limits=Limits(k=5)) as address:
        url = f"{address}/v1/collections/things/search"
        assert httpx.post(url, json={"ids": [0], "k": 6}).status_code == 422
        fields = wait_for(lines, "refused")
    assert (fields["limit"], fields["status"], fields["method"]) == ("k", 422, "POST")
    assert fields["detail"] == "expected at most 5 for k, got 6: ask for less at once"
    assert fields["path"] == "/v1/collections/things/search"


def test_a_wrong_token_is_logged_without_the_token(lines):
    with running(MemorySource(), token="secret") as address:
        assert httpx.get(f"{address}/metrics", headers={"authorization": "Bearer guess"}).status_code == 401
        fields = wait_for(lines, "refused")
    assert (fields["kind"], fields["client"]) == ("unauthorized", "127.0.0.1")
    assert "guess" not in str(lines())


def test_lines_about_refusals_are_limited(lines, monkeypatch):
    """The doctest of the budget has its numbers; here the first two lines are too many."""
    budget = iter([None, None, 2])
    monkeypatch.setattr(LineBudget, "take", lambda self, now: next(budget))
    with running(MemorySource(), token="secret") as address:
        for _ in range(3):
            assert httpx.get(f"{address}/metrics").status_code == 401
        assert wait_for(lines, "refused")["omitted"] == 2
    assert [text for text, _ in lines()].count("refused") == 1


def test_errors_of_clients_that_no_limit_explains_are_not_refusals(lines):
    with running(MemorySource(things=filled())) as address:
        assert httpx.get(f"{address}/v1/collections/nothing").status_code == 404
        assert httpx.post(f"{address}/v1/collections/things/count", json=[]).status_code == 422
    assert "refused" not in [text for text, _ in lines()]


def test_requests_that_take_longer_are_logged(lines):
    with running(MemorySource(things=filled()), slow_seconds=0.0) as address:
        assert httpx.get(f"{address}/health").status_code == 200
        fields = wait_for(lines, "slow")
    assert (fields["path"], fields["status"]) == ("/health", 200)
    assert fields["seconds"] > 0.0


def test_usual_requests_are_not_logged(lines):
    with running(MemorySource(things=filled()), slow_seconds=60.0) as address:
        assert httpx.get(f"{address}/health").status_code == 200
    assert {text for text, _ in lines()} == {"opened", "listening", "stopping", "closed"}


def test_the_command_writes_json_and_every_request(tmp_path):
    posh.Collection(tmp_path / "shop", SPARSE).close()
    options = ("--log-level", "info", "--log-format", "json", "--access-log", "--slow-seconds", "0")
    with served(tmp_path, *options) as (process, address):
        assert httpx.get(f"{address}/v1/collections/shop").status_code == 200
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    records = [json.loads(line) for line in err.splitlines()]
    by_message = {record["message"]: record for record in records}
    assert list(by_message) == ["opened", "listening", "slow", "request", "stopping", "closed"]
    assert by_message["opened"]["collection"] == "shop"
    assert by_message["slow"]["level"] == "warning"
    request = by_message["request"]
    assert (request["method"], request["path"], request["status"]) == ("GET", "/v1/collections/shop", 200)
    assert request["logger"] == "posh.serve.access"


@pytest.mark.parametrize(("level", "messages"), [("info", ["opened"]), ("warning", [])])
def test_the_level_decides_what_is_written(tmp_path, level, messages):
    posh.Collection(tmp_path / "shop", SPARSE).close()
    with served(tmp_path, "--log-level", level) as (process, _):
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert re.findall(r"^\S+Z INFO (opened) collection=shop seconds=\S+$", err, re.MULTILINE) == messages


def test_values_of_clients_stay_in_their_line():
    record = logging.makeLogRecord({"msg": "refused", "levelname": "WARNING", "created": 0.0})
    record.posh_fields = {"path": '/a"\n2026 INFO opened', "n": 3}
    assert TextFormatter().format(record).splitlines() == [
        '1970-01-01T00:00:00.000Z WARNING refused path="/a\\"\\n2026 INFO opened" n=3'
    ]
    assert json.loads(JsonFormatter().format(record))["path"] == '/a"\n2026 INFO opened'


def test_errors_have_their_traceback(capsys):
    for form in ("text", "json"):
        with logging_to_stderr("info", form, with_access=False):
            try:
                raise OSError("the disk")
            except OSError:
                logging.getLogger("posh.serve").exception("it failed")
    text, _, last = capsys.readouterr().err.rpartition("OSError: the disk\n")
    assert text.startswith("20")
    assert " ERROR it failed\nTraceback" in text
    assert json.loads(last)["traceback"].endswith("OSError: the disk")


def test_the_log_of_the_library_is_included(capsys):
    with logging_to_stderr("warning", "text", with_access=False):
        logging.getLogger("posh.collection.store").warning("the disk is slow")
        log_event(logging.INFO, "hidden")
    logging.getLogger("posh.serve").error("afterwards")
    assert capsys.readouterr().err.endswith("Z WARNING the disk is slow\n")


def test_warnings_are_lines_of_the_log(tmp_path):
    """Calibrating with few queries warns."""
    posh.create(tmp_path / "shop", metric="cosine").upsert(range(len(DATA)), DATA).close()
    with served(tmp_path, "--log-level", "info") as (process, address), Client(address) as client:
        client.collection("shop").calibrate(DATA[:60])
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert all(re.match(r"\d{4}-\d\d-\d\dT\S+Z [A-Z]+ ", line) for line in err.splitlines()), err
