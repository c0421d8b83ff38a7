"""Every bound of what may be asked for and answered is kept, and named when it is not."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path

import httpx
import numpy as np
import pytest

import posh
from posh.serve.sources import Folder
from tests.collection.implementations import DATA, SPARSE
from tests.collection.reference import ReferenceCollection
from tests.serve.conftest import SMALL, filled
from tests.serve.service import MemorySource, Slow, running


@pytest.fixture(scope="module")
def address():
    with running(MemorySource(things=filled(), empty=ReferenceCollection()), limits=SMALL) as address:
        yield address


ROW = DATA[:1].tolist()
TOO_MUCH = {
    "items": ("upsert", {"ids": list(range(21)), "vectors": ROW * 21}, "at most 20 for ids, got 21"),
    "items of get": ("get", {"ids": list(range(21))}, "at most 20 for ids, got 21"),
    "items of delete": ("delete", {"ids": list(range(21))}, "at most 20 for ids, got 21"),
    "packed items": (
        "upsert",
        {"ids": [1], "vectors": {"shape": [21, 8], "float32": "A"}},
        "at most 20 for vectors, got 21",
    ),
    "page": ("items", {"limit": 51}, "at most 50 for limit, got 51"),
    "queries": ("search", {"vectors": ROW * 11}, "at most 10 for vectors, got 11"),
    "queries by id": ("search", {"ids": [1] * 11}, "at most 10 for ids, got 11"),
    "k": ("search", {"vectors": ROW, "k": 31}, "at most 30 for k, got 31"),
    "hits": ("search", {"vectors": ROW * 3, "k": 21}, "at most 60 hits of all queries, got 3 queries of 21"),
    "oversample": ("search", {"vectors": ROW, "oversample": 8.5}, "at most 8.0 for oversample, got 8.5"),
    "n_probe": ("search", {"vectors": ROW, "n_probe": 6}, "at most 5 for n_probe, got 6"),
    "n_features": (
        "upsert",
        {"ids": [1], "vectors": [[1] * 17]},
        "at most 16 columns in this service, got 17",
    ),
    "n_bits": (
        "fit",
        {"method": "LSH", "params": {"n_bits": 65}},
        "n_bits of at most 64 in this service, got 65",
    ),
    "sample": ("sample", {"n": 41}, "at most 40 for n, got 41"),
}


@pytest.mark.parametrize("limit", list(TOO_MUCH))
def test_too_much_is_refused(ask, limit):
    path, body, message = TOO_MUCH[limit]
    status, problem = ask(path, body)
    assert status == 422
    assert message in problem["detail"]
    assert ask("count", {})[1] == {"count": 200}


@pytest.mark.parametrize(
    ("option", "most", "shown"),
    [("oversample", 8.0, "8.0"), ("n_probe", 5, "5")],
    ids=["oversample", "n_probe"],
)
@pytest.mark.parametrize("operation", ["create", "fit", "put_hasher"])
def test_index_options_are_bounded_wherever_they_are_given(http, operation, option, most, shown):
    def ask(value):
        one, index = "/v1/collections/things", {option: value}
        if operation == "create":
            return http.put("/v1/collections/bounded", json={"index": index})
        if operation == "fit":
            return http.post(f"{one}/fit", json={"method": "LSH", "params": {"n_bits": 128}, "index": index})
        kind = {"content-type": "application/octet-stream"}
        return http.put(
            f"{one}/hasher", content=b"no hasher", headers=kind, params={"index": json.dumps(index)}
        )

    refused, allowed = ask(most + 1), ask(most)
    assert refused.status_code == 422
    assert f"expected at most {shown} for index.{option}, got {most + 1}" in refused.json()["detail"]
    assert option not in allowed.json().get("detail", "")
    http.delete("/v1/collections/bounded")


def test_just_enough_is_not(ask):
    assert ask("get", {"ids": list(range(20))})[0] == 200
    assert ask("search", {"vectors": ROW * 2, "k": 30, "include": []})[0] == 200
    most = {"k": 6, "oversample": 8.0, "n_probe": 5}
    assert ask("search", {"ids": list(range(10)), **most, "include": []})[0] == 200
    assert ask("items", {"limit": None})[1]["next"] is not None
    assert ask("sample", {"n": 40})[1]["shape"] == [40, 8]


def test_samples_keep_to_the_bytes_of_an_answer():
    wide = ReferenceCollection().upsert(list(range(200)), np.zeros((200, 16)))
    with running(MemorySource(wide=wide), limits=dataclasses.replace(SMALL, sample=1000)) as address:
        sample = httpx.post(f"{address}/v1/collections/wide/sample", json={"n": 150}).json()
    assert sample["shape"] == [2000 // (6 * 16), 16]
    assert len(sample["float32"]) < 2000


def test_collections_are_counted(http):
    assert http.put("/v1/collections/third", json={}).status_code == 201
    refused = http.put("/v1/collections/fourth", json={})
    assert refused.status_code == 422
    assert "expected at most 3 collections, got one more" in refused.json()["detail"]
    assert http.delete("/v1/collections/third").status_code == 204


@pytest.mark.parametrize("operation", ["count", "items", "search"])
def test_a_filter_has_a_bound_of_its_own(operation):
    body = {"vectors": ROW} if operation == "search" else {}
    with running(MemorySource(things=filled())) as address:
        url = f"{address}/v1/collections/things/{operation}"
        refused = httpx.post(url, json=body | {"filter": {"text": "x" * 70_000}})
        assert refused.status_code == (422 if operation == "search" else 413)
        assert "at most 65536 bytes" in refused.json()["detail"].replace(",", "")
        assert httpx.post(url, json=body | {"filter": {"text": "x" * 60_000}}).status_code == 200


@pytest.fixture
def impatient():
    """A service with a collection of 6,000 items in a folder, whose filters may take no time."""
    with tempfile.TemporaryDirectory() as folder:
        with posh.Collection(f"{folder}/things", SPARSE) as things:
            things.upsert(range(6000), np.resize(DATA, (6000, 8)), [{"n": i} for i in range(6000)])
        with running(Folder(Path(folder), 1e-6)) as address:
            yield address


@pytest.mark.parametrize("operation", ["count", "items", "search"])
def test_a_filter_that_takes_too_long_is_told_so(impatient, operation):
    body = {"vectors": ROW} if operation == "search" else {}
    url = f"{impatient}/v1/collections/things/{operation}"
    answer = httpx.post(url, json=body | {"filter": {"n": {"gte": 0}}})
    assert (answer.status_code, answer.json()["type"]) == (504, "urn:posh:too-long")
    assert answer.json()["detail"] == "expected an answer within 1e-06 seconds, got none: ask for less"
    assert httpx.post(url, json=body).status_code == 200


def test_answers_are_bounded(ask, http):
    http.put("/v1/collections/heavy", json={})
    payloads = [{"text": "x" * 900}] * 5
    vectors = DATA[:5].tolist()
    assert ask("upsert", {"ids": list(range(5)), "vectors": vectors, "payloads": payloads}, "heavy")[0] == 200
    status, problem = ask("get", {"ids": [0, 1, 2]}, "heavy")
    assert (status, problem["type"]) == (413, "urn:posh:too-large")
    assert "expected a response of at most 2000 bytes of payloads, vectors and codes" in problem["detail"]
    assert ask("get", {"ids": [0, 1]}, "heavy")[0] == 200
    ids, after = [], None
    for _ in range(4):  # pages are cut instead
        _, page = ask("items", {"after": after}, "heavy")
        ids += [item["id"] for item in page["items"]]
        after = page["next"]
        if after is None:
            break
    assert ids == [0, 1, 2, 3, 4]
    http.delete("/v1/collections/heavy")


def test_ids_that_are_the_same_count_each_time(http, ask):
    http.put("/v1/collections/heavy", json={})
    ask("upsert", {"ids": [1], "vectors": ROW, "payloads": [{"text": "x" * 900}]}, "heavy")
    status, found = ask("get", {"ids": [1, 2, 1]}, "heavy")
    assert (status, [item and item["id"] for item in found["items"]]) == (200, [1, None, 1])
    assert ask("get", {"ids": [1, 1, 1]}, "heavy")[0] == 413
    http.delete("/v1/collections/heavy")


def test_hits_that_are_the_same_item_count_each_time(http, ask):
    """One large payload in the hits of many queries must not become a large answer."""
    http.put("/v1/collections/heavy", json={})
    ask("upsert", {"ids": [1], "vectors": ROW, "payloads": [{"text": "x" * 900}]}, "heavy")
    ask("upsert", {"ids": [2], "vectors": DATA[1:2].tolist()}, "heavy")
    sent = http.put(
        "/v1/collections/heavy/hasher",
        content=SPARSE.to_bytes(),
        headers={"content-type": "application/octet-stream"},
    )
    assert sent.status_code == 204
    assert ask("search", {"vectors": ROW, "k": 1}, "heavy")[0] == 200
    assert ask("search", {"vectors": ROW * 5, "k": 1}, "heavy")[0] == 413
    http.delete("/v1/collections/heavy")


def test_requests_to_a_collection_are_bounded():
    slow = Slow()
    with running(MemorySource(slow=slow), limits=dataclasses.replace(SMALL, requests=3)) as address:
        url = f"{address}/v1/collections/slow/count"
        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(httpx.post, url, json={}, timeout=60) for _ in range(4)]
            for _ in range(2):  # two run at once, a third waits for its turn; whichever comes last is refused
                assert slow.entered.acquire(timeout=30)
            refused, _ = wait(asked, timeout=30, return_when=FIRST_COMPLETED)
            slow.go.set()
    answers = [one.result() for one in asked]
    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 503]
    [first] = [one.result() for one in refused]
    assert "expected at most 3 requests to a collection at once, got more" in first.json()["detail"]
