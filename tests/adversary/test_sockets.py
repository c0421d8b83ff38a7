"""Clients that send nothing, or without end, or do not read, while another one goes about its business.

``POSH_ADVERSARY=1`` makes them 1,000 for five minutes.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import socket
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path

import numpy as np

import posh
from tests.collection.implementations import DATA, SPARSE
from tests.serve.service import served

IS_LONG = "POSH_ADVERSARY" in os.environ
N_SOCKETS, SECONDS = (1000, 300.0) if IS_LONG else (100, 4.0)
TOKEN = "correct-horse"
MEGABYTE = 1 << 20

HEALTH = b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n"
POST = b"POST /v1/collections/shop/get HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
OURS = b"authorization: Bearer " + TOKEN.encode() + b"\r\n"
OURS_CHUNKED = POST + OURS + CHUNKED.removeprefix(POST)
PAGES = b"GET /openapi.json HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" * 50
KINDS = {  # what is sent first, what is sent every second, and whether answers are read
    "nothing": (b"", b"", True),
    "half a head": (HEALTH + b"a: b", b"", True),
    "a large half of a head": (HEALTH + b"a: b\r\n" * 98 + b"a: " + b"b" * 60_000, b"", True),
    "a head by drops": (HEALTH + b"a: ", b"b", True),
    "lines of a head by drops": (HEALTH, b"a: b\r\n", True),
    "a byte of a body": (HEALTH + b"content-length: 100\r\n\r\nx", b"", True),
    "a body by drops": (POST + OURS + b"content-length: 1000\r\n\r\n{", b" ", True),
    "a chunk after the 401": (CHUNKED + b"1\r\nx\r\n", b"", True),
    "chunks without end": (CHUNKED, b"1\r\nx\r\n" * 2000, True),
    "trailers without end": (CHUNKED + b"0\r\n", b"a: b\r\n" * 2000, True),
    "an extension without end": (CHUNKED + b"1;a=", b"b" * 16_000, True),
    "an extension without end, let in": (OURS_CHUNKED + b"1;a=", b"b" * 16_000, True),
    "answers that are not read": (PAGES, PAGES, False),
}


class Adversary:
    """One socket, which comes back when the service closes it."""

    def __init__(self, port: int, kind: tuple[bytes, bytes, bool]) -> None:
        self.port, self.n_connections = port, 0
        self.first, self.more, self.reads = kind
        self.socket: socket.socket | None = None

    def act(self) -> None:
        try:
            if self.socket is None:
                self.connect()
                self.socket.send(self.first)
            elif self.reads and self.socket.recv(65536) == b"":
                raise ConnectionError
            if self.more:
                self.socket.send(self.more)
        except BlockingIOError:
            with suppress(BlockingIOError, OSError):
                self.socket.send(self.more)
        except OSError:
            self.socket.close()
            self.socket = None

    def connect(self) -> None:
        self.n_connections += 1
        self.socket = socket.socket()
        if not self.reads:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(10)
        self.socket.connect(("127.0.0.1", self.port))
        self.socket.setblocking(False)


def attack(port: int, n_sockets: int, ready, stop) -> None:
    """Each socket does something once a second, in a process that leaves the cores to the others."""
    os.nice(10)
    allow_files(n_sockets + 100)
    kinds = list(KINDS.values())
    adversaries = [Adversary(port, kinds[i % len(kinds)]) for i in range(n_sockets)]
    for one in adversaries:
        one.act()
    ready.set()
    while not stop.is_set():
        start = time.monotonic()
        for i, one in enumerate(adversaries):
            one.act()
            time.sleep(max(0.0, start + (i + 1) / n_sockets - time.monotonic()))


@contextmanager
def attacked(port: int, n_sockets: int):
    """Adversaries in a process of their own."""
    context = multiprocessing.get_context("spawn")
    ready, stop = context.Event(), context.Event()
    process = context.Process(target=attack, args=(port, n_sockets, ready, stop), daemon=True)
    process.start()
    try:
        assert ready.wait(60)
        yield
        assert process.is_alive(), "the adversaries gave up"
    finally:
        stop.set()
        process.join(30)


def allow_files(n: int) -> None:
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if now < n:
        resource.setrlimit(resource.RLIMIT_NOFILE, (n, max(n, most)))


class GoodClient:
    """Asks, reads, and asks again; over a new connection when the service has closed the old one."""

    def __init__(self, port: int, pid: int) -> None:
        self.port, self.pid = port, pid
        self.connection = HTTPConnection("127.0.0.1", port, timeout=60)
        self.body = json.dumps({"vectors": DATA[:1].tolist(), "k": 3, "include": []})

    def ask(self) -> None:
        headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
        self.connection.request("POST", "/v1/collections/shop/search", self.body, headers)
        answer = self.connection.getresponse()
        content = answer.read()
        assert answer.status == 200, content

    def close(self) -> None:
        self.connection.close()

    def time(self, *, anew: bool) -> float:
        """Seconds to an answer."""
        start = time.perf_counter()
        if anew:
            self.connection.close()
        for _ in range(2):
            try:
                self.ask()
                break
            except ConnectionError:  # closed because it was idle for too long
                self.connection.close()
        else:
            self.ask()
        return time.perf_counter() - start


def measure(clients: list[GoodClient], seconds: float) -> tuple[list[float], list[int]]:
    """Of each client, the 99th percentile of its times and the most memory of its service, in bytes.

    They ask in turn, so that all of them meet the machine in the same state; often enough that the percentile
    is not that of the one request during which the machine was held up.
    """
    times: list[list[float]] = [[] for _ in clients]
    memory, end = [0] * len(clients), time.monotonic() + seconds
    while time.monotonic() < end or len(times[0]) < 150:
        is_tenth = len(times[0]) % 10 == 0  # others cannot come in only because they stay
        for i, client in enumerate(clients):
            times[i].append(client.time(anew=is_tenth))
            if is_tenth:
                memory[i] = max(memory[i], resident(client.pid))
            time.sleep(0.005)
    return [float(np.percentile(one, 99)) for one in times], memory


def resident(pid: int) -> int:
    """Bytes of memory of a process."""
    (line,) = [one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in one]
    return int(line.split()[1]) * 1024


def test_silent_and_endless_sockets_harm_nobody(tmp_path):
    """Nobody attacks a second service, which tells how long answers take on this machine at this time."""
    limits = ["--limit", f"connections={N_SOCKETS + 100}"]
    with ExitStack() as stack:
        clients = []
        for folder in (tmp_path / "attacked", tmp_path / "control"):
            posh.Collection(folder / "shop", SPARSE).upsert(list(range(100)), DATA[:100]).close()
            process, address = stack.enter_context(served(folder, *limits, token=TOKEN))
            port = int(address.rpartition(":")[2])
            clients.append(stack.enter_context(closing(GoodClient(port, process.pid))))
        (normal, _), (before, _) = measure(clients, 3.0 if IS_LONG else 1.5)
        with attacked(clients[0].port, N_SOCKETS):
            (under_attack, control), (after, _) = measure(clients, SECONDS)
        print(f"p99 {normal * 1e3:.1f} ms, under attack {under_attack * 1e3:.1f} ms, ", end="")
        print(f"of the control {control * 1e3:.1f} ms, ", end="")
        print(f"memory {before / MEGABYTE:.0f} MB, under attack {after / MEGABYTE:.0f} MB")
        assert after - before < 200 * MEGABYTE
        assert under_attack < max(3 * control, 0.05 if IS_LONG else 0.2)


def test_large_answers_that_nobody_reads_do_not_pile_up(tmp_path):
    """100 answers of 10 MB, of which 60 MB may be in work."""
    payloads = [{"text": "x" * 1_000_000}] * 10
    posh.Collection(tmp_path / "shop", SPARSE).upsert(list(range(10)), DATA[:10], payloads).close()
    body = b'{"ids": [0,1,2,3,4,5,6,7,8,9]}'
    request = POST + OURS + b"content-length: %d\r\n\r\n" % len(body) + body
    with ExitStack() as stack:
        limit = ["--limit", "answers_in_work=60000000"]
        process, address = stack.enter_context(served(tmp_path, *limit, token=TOKEN))
        port = int(address.rpartition(":")[2])
        client = stack.enter_context(closing(GoodClient(port, process.pid)))
        _, (before,) = measure([client], 1.0)
        hoarders = [Adversary(port, (request, b"", False)) for _ in range(100)]
        for one in hoarders:
            one.act()
            stack.enter_context(one.socket)
        _, (after,) = measure([client], SECONDS)
        print(f"memory {before / MEGABYTE:.0f} MB, under attack {after / MEGABYTE:.0f} MB")
        assert after - before < 400 * MEGABYTE
