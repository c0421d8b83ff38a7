"""Every operation at its limits: memory stays bounded, and other collections are answered meanwhile.

A service process has two collections. One is asked for as much as it may be, by several clients at once.
Small searches and reads of the other one are timed meanwhile, and the peak memory of the process is read.
By default collections are small and each operation is asked twice at once. ``POSH_ADVERSARY=1`` takes large
collections, the service's own limits and eight clients, and prints what it measured.
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np
import pytest

import posh
from posh.collection import filters
from posh.serve.capacity import Limits
from tests.adversary.prober import Prober, probing
from tests.serve.service import served

LONG = os.environ.get("POSH_ADVERSARY") == "1"
N, D, CLIENTS = (20_000, 512, 8) if LONG else (1_000, 64, 2)
MEMORY = 1 << 30
SECONDS = 1.0 if LONG else 30.0  # a busy machine is no reason to fail; what this is about took minutes
LIMITS = [] if LONG else ["body_bytes=4000000", "answer_bytes=4000000", "items=1000", "queries=100"]
RNG = np.random.default_rng(0)
JSON, FILE = {"content-type": "application/json"}, {"content-type": "application/octet-stream"}
HOT = "/v1/collections/hot"

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="memory is Linux's to tell"
)


class Service(NamedTuple):
    """The service: its process, a client, its memory when it has nothing to do, and somebody else."""

    pid: int
    http: httpx.Client
    idle: int
    prober: Prober


def memory(pid: int, key: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


@pytest.fixture(scope="module")
def service(tmp_path_factory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("served")
    X = RNG.normal(size=(N, D)).astype(np.float32)
    hasher = posh.FruitFly(1024, 32, random_state=0).fit(X[:1000])
    payloads = [{"label": i % 10, "price": i / 7, "text": "x" * 1000} for i in range(N)]
    with posh.Collection(folder / "hot", hasher, refine="vectors") as hot:
        hot.upsert(list(range(N)), X, payloads)
    with posh.Collection(folder / "cold", hasher) as cold:
        cold.upsert(list(range(1000)), X[:1000], payloads[:1000])
    with posh.Collection(folder / "near", metric="cosine", recall=1.0) as near:
        near.upsert(list(range(N)), X)
    arguments = [part for limit in LIMITS for part in ("--limit", limit)]
    arguments += ["--backups", str(folder / "backups")]
    with (
        served(folder, *arguments) as (process, address),
        client(address) as http,
        probing(str(address), D) as prober,
    ):
        prober.begin()
        time.sleep(1.0)
        prober.end()
        yield Service(process.pid, http, memory(process.pid, "VmRSS"), prober)


def client(address: object) -> httpx.Client:
    # The service closes idle connections after 4 seconds: the client closes them first.
    return httpx.Client(base_url=str(address), timeout=300, limits=httpx.Limits(keepalive_expiry=3.0))


# What each operation is asked for ---------------------------------------------------------------------------

Ask = Callable[[httpx.Client, int], httpx.Response]
CASES: dict[str, list[Ask]] = {}


def packed(n: int, d: int = D) -> dict:
    content = RNG.normal(size=(n, d)).astype("<f4").tobytes()
    return {"shape": [n, d], "float32": base64.b64encode(content).decode()}


def post(path: str, body: object) -> Ask:
    content = None if body is None else json.dumps(body).encode()
    return lambda http, i: http.post(path, content=content, headers=JSON)


OWN = Limits()
ITEMS, QUERIES, BYTES = (OWN.items, OWN.queries, OWN.body_bytes) if LONG else (1_000, 100, 4_000_000)
MANY = OWN.answer_bytes // (15 * D) if LONG else 300  # items with all that fill an answer nearly
ALL = ["payload", "vector", "code"]
N_CONDITIONS, N_VALUES = filters.FilterLimits().conditions, filters.FilterLimits().values
CONDITIONS = {"or": [{"price": {"gte": i / 2, "lt": i + 1}} for i in range(N_CONDITIONS // 2)]}
NESTED = b"[[[[]]]]," * (BYTES // 10)
LARGE = posh.FruitFly(16_384 if LONG else 1024, 32, random_state=0).fit(RNG.normal(size=(100, D))).to_bytes()
KEPT = {"ids": [f"{i:0>500}" for i in range(ITEMS)]} if LONG else {"ids": [str(i) for i in range(ITEMS)]}
ROOM = max(1, (BYTES - ITEMS * (6 * D + 500)) // ITEMS - 100)  # bytes for each payload of a full body

CASES["POST /v1/collections/{name}/search"] = [
    post("/v1/collections/near/search", {"vectors": packed(100), "k": 1000, "exact": True, "include": []}),
    post("/v1/collections/near/search", {"vectors": packed(100), "k": 100, "slack": 100, "n_probe": 1000}),
    post(f"{HOT}/search", {"vectors": packed(QUERIES), "k": 100_000 // QUERIES // 10, "include": ALL}),
    post(f"{HOT}/search", {"vectors": packed(QUERIES), "k": 10, "include": ["payload"]}),
    post(f"{HOT}/search", {"vectors": packed(QUERIES), "k": 100, "include": []}),
    post(f"{HOT}/search", {"vectors": packed(1), "k": 1_000, "oversample": 100.0}),
    post(f"{HOT}/search", {"vectors": packed(QUERIES // 50), "k": 1_000, "oversample": 100.0}),
    post(f"{HOT}/search", {"vectors": packed(QUERIES), "k": 10, "scoring": "asymmetric", "include": []}),
    post(f"{HOT}/search", {"ids": list(range(QUERIES)), "k": 10, "filter": CONDITIONS, "include": ["code"]}),
]
CASES["POST /v1/collections/{name}/upsert"] = [
    post(f"{HOT}/upsert", {**KEPT, "vectors": packed(ITEMS), "payloads": [{"text": "x" * ROOM}] * ITEMS}),
    post(
        f"{HOT}/upsert",
        {"ids": list(range(900_000 // D // 10)), "vectors": np.ones((900_000 // D // 10, D)).tolist()},
    ),
    post(f"{HOT}/upsert", {"ids": ["p"], "vectors": packed(1), "payloads": [{"a": [[]] * 300_000}]}),
]
CASES["POST /v1/collections/{name}/get"] = [
    post(f"{HOT}/get", {"ids": list(range(ITEMS)), "include": ALL}),
    post(f"{HOT}/get", {"ids": list(range(ITEMS // 10)) * 10, "include": ALL}),
    post(f"{HOT}/get", {"ids": list(range(MANY)), "include": ALL}),
]
CASES["POST /v1/collections/{name}/items"] = [
    post(f"{HOT}/items", {"limit": None, "include": ALL}),
    post(f"{HOT}/items", {"limit": None, "include": [], "filter": CONDITIONS}),
]
CASES["POST /v1/collections/{name}/count"] = [
    post(f"{HOT}/count", {"filter": CONDITIONS}),
    post(f"{HOT}/count", {"filter": {"price": {"in": list(range(N_VALUES))}}}),
    post(f"{HOT}/count", {"filter": {"text": "x" * 65_000}}),
    post(f"{HOT}/count", {"filter": {"text": "x" * (BYTES - 1000)}}),
]
CASES["POST /v1/collections/{name}/sample"] = [post(f"{HOT}/sample", {"n": OWN.sample})]
CASES["POST /v1/collections/{name}/payloads"] = [
    post(f"{HOT}/payloads", {"ids": list(range(ITEMS)), "payloads": [{"text": "x" * ROOM}] * ITEMS}),
    post(f"{HOT}/payloads", {"ids": list(range(MANY)), "payloads": [{"text": "y"}] * MANY, "replace": True}),
]
CASES["POST /v1/collections/{name}/delete"] = [
    post(f"{HOT}/delete", KEPT),
    post(f"{HOT}/delete", {"filter": CONDITIONS}),
]
CASES["GET /v1/collections/{name}/fields"] = [lambda http, i: http.get(f"{HOT}/fields")]
CASES["GET /v1/collections/{name}/map"] = [lambda http, i: http.get(f"{HOT}/map")]
CASES["POST /v1/collections/{name}/compact"] = [post(f"{HOT}/compact", None)]
CASES["POST /v1/collections/{name}/backup"] = [
    lambda http, i: http.post(f"{HOT}/backup", json={"name": f"copy-{i}"})
]
CASES["PUT /v1/collections/{name}/metadata"] = [
    lambda http, i: http.put(
        f"{HOT}/metadata", content=b'{"metadata": {"a": [' + b"[]," * 21_000 + b"0]}}", headers=JSON
    ),
    lambda http, i: http.put(
        f"{HOT}/metadata", content=b'{"metadata": {"a": [' + NESTED + b"0]}}", headers=JSON
    ),
]
CASES["PUT /v1/collections/{name}"] = [
    lambda http, i: http.put(f"/v1/collections/new-{i}", json={"metadata": {"a": "x" * 60_000}}),
    lambda http, i: http.put(f"/v1/collections/new-{i}", content=NESTED, headers=JSON),
]
CASES["GET /v1/collections/{name}"] = [lambda http, i: http.get(HOT)]
CASES["DELETE /v1/collections/{name}"] = [lambda http, i: http.delete(f"/v1/collections/new-{i}")]
CASES["GET /v1/collections"] = [lambda http, i: http.get("/v1/collections")]
CASES["GET /health"] = [lambda http, i: http.get("/health")]
CASES["GET /metrics"] = [lambda http, i: http.get("/metrics")]
CASES["GET /v1/collections/{name}/hasher"] = [lambda http, i: http.get(f"{HOT}/hasher")]
CASES["PUT /v1/collections/{name}/hasher"] = [
    lambda http, i: http.put(f"{HOT}/hasher", content=LARGE, headers=FILE),
    lambda http, i: http.put(
        f"{HOT}/hasher?index=" + json.dumps({"structure": "ivf", "n_lists": 65_536}),
        content=LARGE,
        headers=FILE,
    ),
    lambda http, i: http.put(f"{HOT}/hasher", content=b"x" * (BYTES - 1), headers=FILE),
]
CASES["POST /v1/collections/{name}/reindex"] = [
    post(f"{HOT}/reindex", {"index": {"structure": "ivf", "n_lists": 65_536}}),
    post("/v1/collections/near/reindex", {}),
]
CASES["GET /v1/collections/{name}/report"] = [lambda http, i: http.get("/v1/collections/near/report")]


CASES["POST /v1/collections/{name}/search_radius"] = [
    post(
        "/v1/collections/near/search_radius",
        {"vectors": packed(QUERIES), "min_score": -1.0, "limit": 100, "include": ["payload"]},
    ),
    post("/v1/collections/near/search_radius", {"vectors": packed(100), "min_score": -1.0, "exact": True}),
]
CASES["POST /v1/collections/{name}/calibrate"] = [
    post("/v1/collections/near/calibrate", {"queries": packed(ITEMS)})
]
CASES["PUT /v1/collections/{name}/restore"] = [
    lambda http, i: http.put("/v1/collections/restored/restore", json={"name": "copy-0"}),
    lambda http, i: http.put(f"/v1/collections/restored-{i}/restore", json={"name": "copy-0"}),
]
CASES["POST /v1/read"] = [
    lambda http, i: http.post("/v1/read?name=a.parquet", content=b"x" * (BYTES - 1), headers=FILE)
]
CASES["PUT /v1/collections/{name}/text"] = [
    lambda http, i: http.put(f"{HOT}/text", json={"fields": ["text"]})
]


def fit(method: str, **params: object) -> Ask:
    """Begin to fit, let it work for a while, and cancel it."""

    def ask(http: httpx.Client, i: int) -> httpx.Response:
        answer = http.post(f"{HOT}/fit", json={"method": method, "params": params})
        if answer.status_code == 202:
            time.sleep(5.0 if LONG else 0.5)
            assert http.delete(f"{HOT}/fit").status_code == 200
        return answer

    return ask


CASES["POST /v1/collections/{name}/fit"] = [
    fit("BOSL", n_bits=16_384, n_active=32),
    fit("BOSL", n_bits=480, n_active=32, n_epochs=3),  # nearly all of the memory of fits, for 20,000 items
    fit("POSH", n_bits=4096, n_active=32, n_epochs=10**12),
    fit("POSH", n_bits=4096, n_active=32, n_epochs=5),
    fit("KNNH", n_bits=512, n_epochs=2),
    fit("ITQ", n_bits=2048, n_epochs=5),
]
CASES["DELETE /v1/collections/{name}/fit"] = [lambda http, i: http.delete(f"{HOT}/fit")]


def test_every_operation_is_tried(service):
    paths = service.http.get("/openapi.json").json()["paths"]
    operations = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert operations == set(CASES)


@pytest.mark.parametrize("operation", list(CASES))
def test_at_its_limits(service, operation, capsys):
    wrong = []
    for number, ask in enumerate(CASES[operation]):
        statuses, peak, slowest, seconds = attacked(service, ask)
        grown = peak - service.idle
        told = f"{operation} {number}: {grown >> 20} MB, p99 {slowest:.2f} s, {seconds:.1f} s, {statuses}"
        if LONG:
            with capsys.disabled():
                print(f"\n{told}", end="")
        failed = {status for status in statuses if status >= 500} - {503, 504}
        if failed or grown >= MEMORY or slowest >= SECONDS:
            wrong.append(told)
    assert not wrong


def attacked(service: Service, ask: Ask) -> tuple[set[int], int, float, float]:
    """Ask many times at once: statuses, peak memory, 99th percentile of the others' seconds, and the time."""
    Path(f"/proc/{service.pid}/clear_refs").write_text("5")
    begun = time.perf_counter()
    service.prober.begin()
    try:
        with ThreadPoolExecutor(CLIENTS) as threads:
            asked = [threads.submit(ask, service.http, i) for i in range(CLIENTS)]
            statuses = {one.result().status_code for one in asked}
    finally:
        times = service.prober.end()
    seconds = time.perf_counter() - begun
    return statuses, memory(service.pid, "VmHWM"), float(np.quantile(times, 0.99)), seconds
