"""Clients in a process of their own; each sends its next request as soon as it has the answer: see serve.py.

    python -m benchmarks.serve_load URL QUERIES.npz --clients 64 --seconds 60 [--growing]

Requests are prepared beforehand. Every answer is checked: its status, and that it has k hits. One answer in
100 is parsed, and its scores are compared with those of a direct search. ``--growing`` also accepts better
scores, for collections to which items are added at the same time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import uvloop

CHECKED_EVERY = 100


class Load:
    """Shared by all clients: the requests, the expected scores, and the results so far."""

    def __init__(
        self, url: str, queries: np.ndarray, scores: np.ndarray, until: float, growing: bool
    ) -> None:
        k = scores.shape[1]
        self.requests = [_request(url, query, k) for query in queries]
        self.scores, self.k, self.until, self.growing = scores, k, until, growing
        self.latencies: list[float] = []
        self.ends: list[float] = []
        self.errors: list[str] = []
        self.n_checked = 0

    def answered(self, number: int, status: bytes, body: bytes, seconds: float, now: float) -> None:
        """Count an answer, and check it."""
        self.latencies.append(seconds)
        self.ends.append(now)
        if status != b"200" or body.count(b'"id":') != self.k:
            self.errors.append(f"{status.decode()}: {body[:200].decode()}")
        elif len(self.latencies) % CHECKED_EVERY == 0:
            self.n_checked += 1
            (result,) = json.loads(body)["results"]
            found = np.array([hit["score"] for hit in result["hits"]])
            right = found >= self.scores[number] if self.growing else found == self.scores[number]
            if not right.all():
                self.errors.append(f"query {number}: {found} instead of {self.scores[number]}")


class Connection(asyncio.Protocol):
    """One client: a request, its answer, the next request."""

    def __init__(self, load: Load, first: int, step: int) -> None:
        self._load, self._next, self._step = load, first, step
        self._buffer = b""
        self._needed = 0
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        """Begin."""
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        self._number = self._next % len(self._load.requests)
        self._next += self._step
        self._begun = time.perf_counter()
        self._transport.write(self._load.requests[self._number])

    def data_received(self, data: bytes) -> None:
        """Take a part of an answer, and ask again when it is complete."""
        self._buffer += data
        if not self._needed:
            head = self._buffer.find(b"\r\n\r\n")
            if head < 0:
                return
            start = self._buffer.index(b"content-length: ") + 16
            self._needed = head + 4 + int(self._buffer[start : self._buffer.index(b"\r", start)])
        if len(self._buffer) < self._needed:
            return
        status, body = self._buffer[9:12], self._buffer[self._buffer.index(b"\r\n\r\n") + 4 :]
        self._buffer, self._needed = b"", 0
        now = time.perf_counter()
        self._load.answered(self._number, status, body, now - self._begun, now)
        if now < self._load.until:
            self._ask()
        else:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        """End."""
        if time.perf_counter() < self._load.until:
            self._load.errors.append(f"connection lost: {error}")
        self.done.set_result(None)


def _request(url: str, query: np.ndarray, k: int) -> bytes:
    body = json.dumps({"vectors": [query.round(6).tolist()], "k": k, "include": []}).encode()
    parts = urlsplit(url)
    head = f"POST {parts.path} HTTP/1.1\r\nhost: {parts.netloc}\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


async def run(arguments: argparse.Namespace) -> dict[str, object]:
    data = np.load(arguments.queries)
    begun = time.perf_counter()
    until = begun + arguments.seconds
    load = Load(arguments.url, data["queries"], data["scores"], until, arguments.growing)
    loop, parts = asyncio.get_running_loop(), urlsplit(arguments.url)
    connections = []
    for i in range(arguments.clients):
        _, connection = await loop.create_connection(
            lambda i=i: Connection(load, i * 37, 1 + i % 3), parts.hostname, parts.port
        )
        connections.append(connection.done)
    await asyncio.gather(*connections)
    return summary(load, arguments.seconds, begun)


def summary(load: Load, seconds: float, begun: float) -> dict[str, object]:
    times = np.array(load.latencies) * 1000
    each = np.bincount((np.array(load.ends) - begun).astype(int))[: int(seconds)]
    return {
        "requests": len(times),
        "requests_per_second": round(len(times) / seconds, 1),
        "slowest_second": int(each.min()) if len(each) else 0,
        "milliseconds": {f"p{p}": round(float(np.percentile(times, p)), 2) for p in (50, 95, 99, 100)},
        "errors": len(load.errors),
        "first_errors": load.errors[:3],
        "compared": load.n_checked,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("queries")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--growing", action="store_true")
    print(json.dumps(uvloop.run(run(parser.parse_args()))))


if __name__ == "__main__":
    main()
