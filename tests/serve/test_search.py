"""Searching by vectors and by stored items."""

from __future__ import annotations

import threading

import httpx
import numpy as np
import pytest

import posh
from posh.client import Client
from posh.serve.capacity import Limits
from posh.serve.sources import Folder
from tests.collection.implementations import DATA, SPARSE
from tests.serve.conftest import filled, payloads
from tests.serve.service import running

PLAIN = filled()


def expected(vectors, k, **options):
    found = PLAIN.search(vectors, k, **options)
    return [
        [
            {"id": number, "score": score}
            for number, score in zip(ids, scores, strict=True)
            if number is not None
        ]
        for ids, scores in zip(found.ids.tolist(), found.scores.tolist(), strict=True)
    ]


def test_hits_are_those_of_the_collection(ask):
    status, found = ask("search", {"vectors": DATA[300:303].tolist(), "k": 7, "include": []})
    assert status == 200
    assert found["kind"] == "overlap"
    assert found["seconds"] > 0
    assert [result["hits"] for result in found["results"]] == expected(DATA[300:303], 7)
    assert "code" not in found["results"][0]


def test_by_default_ten_hits_with_their_payloads(ask):
    _, found = ask("search", {"vectors": DATA[300:301].tolist()})
    (result,) = found["results"]
    assert [{"id": hit["id"], "score": hit["score"]} for hit in result["hits"]] == expected(DATA[300], 10)[0]
    numbers = [199 if hit["id"] == "last" else hit["id"] for hit in result["hits"]]
    assert [hit["payload"] for hit in result["hits"]] == [payloads(200)[i] for i in numbers]


def test_vectors_and_codes_of_hits_and_the_code_of_the_query(ask):
    _, found = ask("search", {"vectors": DATA[300:301].tolist(), "k": 3, "include": ["vector", "code"]})
    (result,) = found["results"]
    assert result["code"] == SPARSE.encode(DATA[300:301]).active[0].tolist()
    for hit in result["hits"]:
        row = DATA[199 if hit["id"] == "last" else hit["id"]]
        np.testing.assert_array_equal(np.array(hit["vector"], np.float32), row)
        assert hit["code"] == SPARSE.encode(row[None]).active[0].tolist()
        assert hit["score"] == len(set(hit["code"]) & set(result["code"]))
        assert "payload" not in hit


def test_a_stored_item_is_not_its_own_neighbour(ask):
    status, found = ask("search", {"ids": [5, "last"], "k": 4, "include": []})
    assert status == 200
    for number, row, result in zip([5, "last"], [5, 199], found["results"], strict=True):
        everything = expected(DATA[row], 200)[0]
        assert result["hits"] == [hit for hit in everything if hit["id"] != number][:4]
    status, problem = ask("search", {"ids": [5, "5"]})
    assert (status, problem["type"]) == (404, "urn:posh:unknown-item")
    assert problem["detail"] == "expected ids of stored items, got '5', which is not there"


def test_filters_scoring_and_oversample_are_passed_on(ask, address):
    body = {"vectors": DATA[300:302].tolist(), "k": 5, "include": []}
    _, found = ask("search", {**body, "filter": {"label": 2}})
    assert [result["hits"] for result in found["results"]] == expected(DATA[300:302], 5, filter={"label": 2})
    _, found = ask("search", {**body, "filter": {"label": 9}})
    assert [result["hits"] for result in found["results"]] == [[], []]
    _, found = ask("search", {**body, "scoring": "asymmetric"})
    assert found["kind"] == "asymmetric"
    assert [r["hits"] for r in found["results"]] == expected(DATA[300:302], 5, scoring="asymmetric")
    assert ask("search", {**body, "oversample": 0.5})[0] == 422


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "expected either vectors or ids"),
        ({"vectors": [[1]], "ids": [1]}, "expected either vectors or ids"),
        ({"vectors": [[1, 2]]}, "expected vectors with 8 columns"),
        ({"vectors": DATA[:1].tolist(), "k": 0}, "expected k to be greater than or equal to 1, got 0"),
        ({"vectors": DATA[:1].tolist(), "k": 2.0}, "expected k to be a valid integer, got 2.0"),
        ({"vectors": DATA[:1].tolist(), "scoring": "magic"}, "scoring to be one of 'overlap', 'asymmetric'"),
        ({"vectors": DATA[:1].tolist(), "filter": {"a": {}}}, "expected at least one of eq, ne"),
        ({"vectors": DATA[:1].tolist(), "filter": [1]}, "expected filter to be an object, got [1]"),
    ],
)
def test_wrong_searches_are_named(ask, body, message):
    status, problem = ask("search", body)
    assert status == 422
    assert message in problem["detail"]


@pytest.mark.parametrize("text", [None, "red"])
def test_without_a_hasher_there_is_nothing_to_search_by(ask, text):
    status, problem = ask("search", {"vectors": [[1]], "text": text}, "empty")
    assert (status, problem["type"]) == (409, "urn:posh:no-hasher")
    assert problem["detail"].startswith("expected a collection with a hasher or a metric, got neither: call")


def test_many_clients_at_once_get_what_they_would_get_alone(ask):
    """Different k, filters, numbers of queries and mistakes, all at the same time."""
    bodies = []
    for i in range(60):
        rows = DATA[200 + 3 * i : 200 + 3 * i + 1 + i % 3]
        body = {"vectors": rows.tolist(), "k": 1 + i % 4, "include": []}
        if i % 5 == 0:
            body["filter"] = {"label": i % 3}
        if i % 7 == 0:
            body["vectors"] = [[1.0]]
        if i % 11 == 0:
            body["filter"] = {"label": {"like": 1}}
        bodies.append(body)
    alone = [_without_time(ask("search", body)) for body in bodies]
    together: dict[int, object] = {}

    def search(i: int) -> None:
        together[i] = _without_time(ask("search", bodies[i]))

    threads = [threading.Thread(target=search, args=(i,)) for i in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[i] for i in range(60)] == alone
    assert {status for status, _ in alone} == {200, 422}


def _without_time(answer):
    status, body = answer
    return status, {key: value for key, value in body.items() if key != "seconds"}


@pytest.mark.parametrize("refine", ["vectors", "sbiht"])
def test_a_search_with_too_many_candidates_is_refused(tmp_path, refine):
    """Items count, not what was asked for: of few items, all may be candidates."""
    posh.Collection(tmp_path / "few", SPARSE, refine=refine).upsert(list(range(100)), DATA[:100]).close()
    limits = Limits(work=100 * 8 * 10 if refine == "vectors" else 100 * 50 * SPARSE.n_bits * 8)
    with running(Folder(tmp_path), limits=limits) as address:
        url = f"{address}/v1/collections/few"
        body = {"vectors": DATA[:1].tolist(), "k": 1000, "oversample": 100.0, "include": []}
        assert httpx.post(f"{url}/search", json=body).status_code == 200
        many = {**body, "vectors": DATA[:2].tolist()}
        more = {"ids": [100], "vectors": DATA[100:101].tolist()}
        if refine == "sbiht":  # decodes each item once
            assert httpx.post(f"{url}/search", json=many).status_code == 200
            assert httpx.post(f"{url}/upsert", json=more).status_code == 200
        answer = httpx.post(f"{url}/search", json=many)
    assert answer.status_code == 422
    assert (
        f"expected a search of at most {limits.work:,} operations, got 2 queries" in answer.json()["detail"]
    )
    assert "lower k or oversample" in answer.json()["detail"]


def test_lists_to_visit_reach_the_collection(tmp_path):
    with posh.Collection(tmp_path / "shop", SPARSE, structure="ivf", n_lists=8, n_probe=2) as collection:
        collection.upsert(range(len(DATA)), DATA)
        wanted = {n: collection.search(DATA[:9], 50, n_probe=n) for n in (None, 1, 8)}
    with running(Folder(tmp_path)) as address, Client(address) as client:
        for n, expected in wanted.items():
            found = client.collection("shop").search(DATA[:9], 50, n_probe=n)
            np.testing.assert_array_equal(found.ids, expected.ids)
    assert (wanted[1].ids != wanted[8].ids).any()


def test_a_filter_that_cannot_pass_anything_is_explained(tmp_path):
    with posh.Collection(tmp_path / "shop", metric="cosine") as collection:
        collection.upsert(range(9), DATA[:9], payloads(9))
    search = {"vectors": DATA[:1].tolist(), "filter": {"lable": 3}}
    hint = 'no item has a field "lable"; did you mean "label"?'
    with running(Folder(tmp_path)) as address:

        def ask(operation, body):
            return httpx.post(f"{address}/v1/collections/shop/{operation}", json=body).json()

        found = ask("search", search)
        assert (found["results"], found["hint"]) == ([{"hits": []}], hint)
        assert ask("search_radius", search | {"min_score": 0.5})["hint"] == hint
        assert ask("count", {"filter": {"lable": 3}}) == {"count": 0, "hint": hint}
        assert ask("items", {"filter": {"lable": 3}}) == {"items": [], "next": None, "hint": hint}
        assert ask("delete", {"filter": {"lable": 3}}) == {"deleted": 0, "more": False, "hint": hint}
        for possible in ({"label": 77}, {"not": {"lable": 3}}):
            assert "hint" not in ask("search", search | {"filter": possible})
