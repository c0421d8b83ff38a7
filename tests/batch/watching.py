"""What the tests of serving shards do to services and processes, and wait for."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.message import Message

from posh.errors import ServiceError
from tests.batch.doing import DIGITS


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True)
    return [int(child) for child in found.stdout.split()]


def asked(address: str, query: dict) -> tuple[int, dict, Message]:
    """The status, the content and the headers of the answer to a search."""
    request = urllib.request.Request(
        f"{address}/v1/collections/shards/search",
        json.dumps(query).encode(),
        {"content-type": "application/json"},
    )
    try:
        answer = urllib.request.urlopen(request)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        return answer.status, json.load(answer), answer.headers


def first_problem(address: str) -> dict:
    for _ in range(2000):
        status, answer, _ = asked(address, {"vectors": DIGITS.queries[:1].tolist(), "k": 1})
        if status != 200:
            return answer
    raise AssertionError("no shard was ever missing")


def wait_for(call) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            call()
            return
        except ServiceError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
