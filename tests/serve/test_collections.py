"""The service and its collections."""

from __future__ import annotations

from importlib.metadata import version

from tests.collection.implementations import DATA


def test_health(http):
    answer = http.get("/health")
    assert answer.status_code == 200
    assert answer.json() == {"status": "ok", "version": version("posh-ann"), "collections": 3, "opening": 0}


def test_a_collection_says_what_it_is(http):
    info = http.get("/v1/collections/things").json()
    assert info["name"] == "things"
    assert info["count"] == 200
    assert info["n_features"] == 8
    assert info["hasher"]["method"] == "POSH"
    assert (info["hasher"]["n_bits"], info["hasher"]["n_active"]) == (32, 4)
    assert info["hasher"]["params"]["random_state"] == 0
    assert info["metadata"] == {"title": "things"}
    assert info["indexing"] == {"state": "idle", "message": None}
    empty = http.get("/v1/collections/empty").json()
    assert (empty["count"], empty["n_features"], empty["hasher"]) == (0, None, None)


def test_all_collections_by_name(http):
    listed = http.get("/v1/collections").json()["collections"]
    assert [info["name"] for info in listed] == ["empty", "other", "things"]
    assert listed[2] == http.get("/v1/collections/things").json()


def test_made_and_dropped(http):
    made = http.put("/v1/collections/new-1", json={"metadata": {"a": [1]}})
    assert made.status_code == 201
    assert made.json()["metadata"] == {"a": [1]}
    assert made.json() == http.get("/v1/collections/new-1").json()
    again = http.put("/v1/collections/new-1", json={})
    assert again.status_code == 409
    assert again.json() == {
        "type": "urn:posh:collection-exists",
        "title": "The collection already exists",
        "status": 409,
        "detail": "expected a new name, got 'new-1', which is taken: drop it first",
    }
    assert http.delete("/v1/collections/new-1").status_code == 204
    assert http.get("/v1/collections/new-1").status_code == 404
    assert http.delete("/v1/collections/new-1").status_code == 404
    assert http.put("/v1/collections/new-1", json={}).json()["metadata"] == {}
    assert http.delete("/v1/collections/new-1").status_code == 204


def test_metadata_is_replaced(http):
    http.put("/v1/collections/new-2", json={"metadata": {"a": 1}})
    assert http.put("/v1/collections/new-2/metadata", json={"metadata": {"b": 2}}).status_code == 204
    assert http.get("/v1/collections/new-2").json()["metadata"] == {"b": 2}
    http.delete("/v1/collections/new-2")


def test_compaction_is_passed_on(http, ask):
    http.put("/v1/collections/new-3", json={})
    ask("upsert", {"ids": [1, 2], "vectors": DATA[:2].tolist()}, "new-3")
    assert http.post("/v1/collections/new-3/compact").status_code == 204
    assert ask("count", {}, "new-3") == (200, {"count": 2})
    http.delete("/v1/collections/new-3")


def test_metrics_count_requests_batches_and_items(http, ask):
    ask("search", {"vectors": DATA[:5].tolist(), "include": []})
    ask("search", {"vectors": [[1]]})
    answer = http.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = set(answer.text.splitlines())
    route = 'route="/v1/collections/{name}/search"'
    assert f'posh_requests_total{{method="POST",{route},status="200"}} 1.0' in lines
    assert f'posh_requests_total{{method="POST",{route},status="422"}} 1.0' in lines
    assert f'posh_request_seconds_count{{method="POST",{route}}} 2.0' in lines
    assert 'posh_search_batch_queries_sum{collection="things"} 5.0' in lines
    assert 'posh_collection_items{collection="things"} 200.0' in lines


def test_an_unknown_collection_is_named(http, ask):
    status, problem = ask("search", {"vectors": [[1]]}, "nothing")
    assert status == 404
    assert problem["type"] == "urn:posh:unknown-collection"
    assert problem["detail"] == "expected the name of a collection, got 'nothing': see /v1/collections"
