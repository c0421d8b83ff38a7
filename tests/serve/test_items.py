"""Writing, getting and browsing items."""

from __future__ import annotations

import base64
from dataclasses import replace
from functools import partial

import httpx
import numpy as np
import orjson
import pytest

from posh.client import Client
from posh.serve.capacity import Limits
from posh.serve.responses import ItemWriter
from posh.serve.sources import Folder
from tests.collection.implementations import DATA, DENSE, SPARSE
from tests.collection.reference import ReferenceCollection
from tests.serve.conftest import SMALL, filled, payloads
from tests.serve.service import MemorySource, running


@pytest.fixture
def new(http):
    """A collection of its own for a test that writes."""
    http.put("/v1/collections/new", json={})
    yield "new"
    http.delete("/v1/collections/new")


def test_what_is_written_is_there(ask, new):
    rows = [[0.5, -1.25, 3.0], [1.0, 2.0, 1e-3]]
    assert ask("upsert", {"ids": [7, "é"], "vectors": rows, "payloads": [{"a": [1, None]}, {}]}, new) == (
        200,
        {"upserted": 2},
    )
    status, found = ask("get", {"ids": ["é", 8, 7], "include": ["payload", "vector"]}, new)
    assert status == 200
    assert found["items"][1] is None
    assert found["items"][0] == {"id": "é", "payload": {}, "vector": [1.0, 2.0, 0.001]}
    assert found["items"][2] == {"id": 7, "payload": {"a": [1, None]}, "vector": rows[0]}


def test_packed_vectors_are_the_same_as_rows(ask, new):
    vectors = DATA[:3].astype("<f4")
    packed = {"shape": [3, 8], "float32": base64.b64encode(vectors.tobytes()).decode()}
    assert ask("upsert", {"ids": [1, 2, 3], "vectors": packed}, new)[0] == 200
    _, found = ask("get", {"ids": [1, 2, 3], "include": ["vector"]}, new)
    np.testing.assert_array_equal(np.array([i["vector"] for i in found["items"]], np.float32), vectors)
    assert "payload" not in found["items"][0]


@pytest.mark.parametrize(
    ("packed", "message"),
    [
        ({"shape": [1, 2], "float32": "AAA"}, "expected float32 to be base64"),
        ({"shape": [1, 2], "float32": "AAAA\n"}, "expected float32 to be base64"),
        ({"shape": [1, 2], "float32": "AAAA"}, r"expected 8 bytes for vectors of shape [1, 2], got 3"),
        ({"shape": [1, 0], "float32": ""}, "vectors has 0 feature(s)"),
        ({"shape": [1], "float32": "AAAA"}, "expected vectors.shape to have at least 2 items"),
        ({"shape": [-1, 2], "float32": "AAAA"}, "expected vectors.shape[0] to be greater than or equal to 0"),
        ({"float32": "AAAA"}, "expected the field vectors.shape, got none"),
        ([[1, 2], [3]], "expected vectors of equal length, got 1 to 2 numbers"),
        ([], "expected at least one vector, got none"),
        ([[1, "2"]], "expected vectors[0][1] to be a valid number, got '2'"),
        ([1, 2], "expected vectors[0] to be a valid array, got 1"),
        ("AAAA", "expected vectors to be a valid"),
    ],
)
def test_wrong_vectors_are_named(ask, packed, message):
    status, problem = ask("upsert", {"ids": [1], "vectors": packed}, "empty")
    assert status == 422
    assert message in problem["detail"]


def test_deleting(ask, new):
    ask("upsert", {"ids": [1, 2, "2"], "vectors": DATA[:3].tolist()}, new)
    assert ask("delete", {"ids": ["2", 7, 1]}, new) == (200, {"deleted": 2, "more": False})
    assert ask("count", {}, new) == (200, {"count": 1})


def test_counting(ask):
    assert ask("count", {}) == (200, {"count": 200})
    assert ask("count", {"filter": {"label": {"in": [0, 1]}}}) == (200, {"count": 134})


def test_pages(ask):
    status, page = ask("items", {"filter": {"label": 1}, "limit": 3})
    assert status == 200
    assert page == {
        "items": [{"id": i, "payload": {"label": 1, "name": f"item {i}"}} for i in (1, 4, 7)],
        "next": 7,
    }
    ids, after = [], None
    while True:
        _, page = ask("items", {"limit": 60, "after": after, "include": []})
        ids += [item["id"] for item in page["items"]]
        after = page["next"]
        if after is None:
            break
    assert ids == [*range(199), "last"]
    _, whole = ask("items", {"limit": 200, "include": []})
    assert whole["next"] is None
    assert len(ask("items", {})[1]["items"]) == 100
    assert len(ask("items", {"limit": None})[1]["items"]) == 200
    status, problem = ask("items", {"after": "x"})
    assert (status, problem["type"]) == (404, "urn:posh:unknown-item")
    assert problem["detail"] == "expected after to be the id of an item, got 'x', which is not there"


def test_codes_are_the_numbers_of_set_bits(ask):
    _, found = ask("get", {"ids": [3, 5], "include": ["code"]})
    assert [item["code"] for item in found["items"]] == SPARSE.encode(DATA[[3, 5]]).active.tolist()
    _, page = ask("items", {"limit": 2, "include": ["code"]})
    assert [item["code"] for item in page["items"]] == SPARSE.encode(DATA[:2]).active.tolist()


def test_codes_of_dense_hashers_and_without_a_hasher():
    def page(collection: ReferenceCollection) -> list:
        found = ItemWriter(collection, ["code"], 10_000).write_page(collection.items(limit=2), 2)
        assert found.is_complete
        return [orjson.loads(item) for item in found.items]

    expected = [np.flatnonzero(row).tolist() for row in DENSE.encode(DATA[:2]).to_dense()]
    assert [item["code"] for item in page(filled(10, DENSE))] == expected
    assert page(ReferenceCollection().upsert([1], DATA[:1])) == [{"id": 1, "code": None}]


WRONG = [
    ("upsert", {"ids": [1], "vectors": DATA[:2].tolist()}, "expected as many ids as vectors (2), got 1"),
    ("upsert", {"ids": [1, 1], "vectors": DATA[:2].tolist()}, "expected distinct ids, got 1 more than once"),
    ("upsert", {"ids": [True], "vectors": DATA[:1].tolist()}, "expected ids[0] to be a valid integer"),
    ("upsert", {"ids": [2**63], "vectors": DATA[:1].tolist()}, "expected ids[0] to be less than"),
    ("upsert", {"ids": [""], "vectors": DATA[:1].tolist()}, "expected ids[0] to"),
    ("upsert", {"ids": [1], "vectors": [[1.0]]}, "expected vectors with 8 columns"),
    ("upsert", {"ids": [1], "vectors": [[1e39] * 8]}, "vectors contains NaN or inf (inf at row 0, column 0)"),
    ("upsert", {"vectors": [[1.0]]}, "expected the field ids, got none"),
    ("upsert", {"ids": [1], "vectors": DATA[:1].tolist(), "payloads": [3]}, "expected payloads[0] to be"),
    ("upsert", {"ids": [1], "vectors": DATA[:1].tolist(), "payloads": []}, "as many payloads as vectors (1)"),
    ("delete", {"ids": [1, 1]}, "expected distinct ids"),
    ("get", {"ids": 3}, "expected ids to be a valid array, got 3"),
    ("get", {"ids": [3], "include": ["all"]}, "expected include[0] to be one of 'payload', 'vector', 'code'"),
    ("items", {"limit": 0}, "expected limit to be greater than or equal to 1, got 0"),
    ("items", {"offset": 3}, "unknown field offset: leave it out"),
    (
        "count",
        {"filter": {"a": {"like": 1}}},
        "expected one of eq, ne, in, nin, gt, gte, lt, lte, prefix, contains, any, exists in filter.a",
    ),
    ("count", [], "expected the body to be"),
]


@pytest.mark.parametrize(("path", "body", "message"), WRONG, ids=[f"{i}-{w[0]}" for i, w in enumerate(WRONG)])
def test_wrong_arguments_are_named(ask, path, body, message):
    status, problem = ask(path, body)
    assert (status, problem["status"]) == (422, 422)
    assert message in problem["detail"]
    assert ask("count", {})[1] == {"count": 200}


def test_payloads_of_the_fixture(ask):
    assert ask("get", {"ids": [0, "last"]})[1]["items"] == [
        {"id": 0, "payload": payloads(200)[0]},
        {"id": "last", "payload": payloads(200)[199]},
    ]


def test_items_are_deleted_by_a_filter_as_many_as_a_request_may(tmp_path):
    with running(MemorySource(things=filled()), limits=replace(SMALL, page=50)) as address:
        post = partial(httpx.post, f"{address}/v1/collections/things/delete")
        for expected in ({"deleted": 20, "more": True}, {"deleted": 20, "more": True}):
            assert post(json={"filter": {"label": 1}}).json() == expected
        assert post(json={"filter": {"label": 1}, "limit": 5}).json() == {"deleted": 5, "more": True}
        assert post(json={"filter": {"label": 1}, "limit": 5}).json() == {"deleted": 5, "more": True}
        assert post(json={"filter": {"label": 1}}).json() == {"deleted": 17, "more": False}
        assert post(json={"filter": {"label": 2}, "limit": 21}).json() == {"deleted": 20, "more": True}
        assert post(json={"ids": [0, 1]}).json() == {"deleted": 1, "more": False}
        for body, message in [
            ({}, "expected either ids or a filter"),
            ({"ids": [1], "filter": {}}, "expected either ids or a filter"),
            ({"ids": [1], "limit": 1}, "limit is for a filter"),
            ({"filter": {"a": "x" * 70_000}}, "20000 bytes"),
        ]:
            answer = post(json=body)
            assert message in answer.json()["detail"]
            assert answer.headers["content-type"] == "application/problem+json"
        with Client(address) as client:
            things = client.collection("things")
            assert things.delete(filter={"label": 0}, limit=33) == 33
            assert things.delete(filter={}) == 200 - 67 - 20 - 1 - 33


def test_payloads_are_changed(ask, new):
    ask("upsert", {"ids": [7, "é"], "vectors": [[0.5, 1.0]] * 2, "payloads": [{"a": 1}, {"b": 2}]}, new)
    assert ask("payloads", {"ids": [7, "é"], "payloads": [{"c": [3]}, {"b": None}]}, new) == (
        200,
        {"updated": 2},
    )
    _, found = ask("get", {"ids": [7, "é"]}, new)
    assert [item["payload"] for item in found["items"]] == [{"a": 1, "c": [3]}, {"b": None}]
    ask("payloads", {"ids": [7], "payloads": [{}], "replace": True}, new)
    assert ask("get", {"ids": [7]}, new)[1]["items"][0]["payload"] == {}
    status, problem = ask("payloads", {"ids": [7, 8], "payloads": [{"x": 1}, {}]}, new)
    assert (status, problem["type"]) == (404, "urn:posh:unknown-item")
    assert ask("get", {"ids": [7]}, new)[1]["items"][0]["payload"] == {}


def test_an_update_of_payloads_has_bounds(tmp_path):
    """It writes vectors again that came in many requests, and payloads must not grow little by little."""
    limits = Limits(items=50, body_bytes=1200, payload_bytes=300)
    with running(Folder(tmp_path, payload_bytes=limits.payload_bytes), limits=limits) as address:
        http = httpx.Client(base_url=f"{address}/v1/collections/wide")
        assert httpx.put(f"{address}/v1/collections/wide", json={}).status_code == 201
        for i in range(40):
            assert http.post("/upsert", json={"ids": [i], "vectors": [[i] * 10]}).status_code == 200
        answer = http.post("/payloads", json={"ids": list(range(31)), "payloads": [{}] * 31})
        assert "expected items with at most 300 numbers in their vectors, got 310" in answer.json()["detail"]
        assert http.post("/payloads", json={"ids": list(range(30)), "payloads": [{}] * 30}).status_code == 200
        for name, status in [("a", 200), ("b", 200), ("c", 422)]:
            answer = http.post("/payloads", json={"ids": [0], "payloads": [{name: "x" * 120}]})
            assert answer.status_code == status
        assert "expected payloads of at most 300 bytes" in answer.json()["detail"]
        answer = http.post("/payloads", json={"ids": [1], "payloads": [{"a": "x" * 300}]})
        assert "expected payloads of at most 300 bytes, got 308 for payloads[0]" in answer.json()["detail"]
        http.close()
