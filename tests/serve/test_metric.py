"""Collections with a metric in the service: filled and searched without a hasher."""

from __future__ import annotations

import httpx
import numpy as np
import pytest

import posh
from posh.client import Client
from posh.serve.capacity import Limits
from posh.serve.sources import Folder
from tests.serve.service import running

RNG = np.random.default_rng(5)
X = (RNG.standard_normal((100, 16))[RNG.integers(0, 100, 5300)] + RNG.standard_normal((5300, 16))).astype(
    np.float32
)
X, Q = X[:-300], X[-300:]
WORK = 100 * len(X) * X.shape[1]  # a hundred queries may be compared with all vectors


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    limits = Limits(work=WORK)
    with running(Folder(tmp_path_factory.mktemp("served")), limits=limits) as address:
        http = httpx.Client(base_url=address, timeout=60)
        body = {"index": {"metric": "cosine", "recall": 0.9, "optimize": "build"}}
        assert http.put("/v1/collections/near", json=body).status_code == 201
        assert http.put("/v1/collections/empty", json=body).status_code == 201
        for start in (0, 2500):
            part = slice(start, start + 2500)
            items = {"ids": list(range(start, start + 2500)), "vectors": X[part].tolist()}
            assert http.post("/v1/collections/near/upsert", json=items).status_code == 200
        http.close()
        yield address


@pytest.fixture
def http(address):
    with httpx.Client(base_url=address, timeout=60) as client:
        yield client


def measure_recall(Q, ids) -> float:
    """Return the share of ids that are as near by cosine as the tenth nearest."""
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (Q, X)]
    scores = unit[0] @ unit[1].T
    tenth = np.sort(scores, axis=1)[:, -10][:, None]
    return float(np.mean(np.take_along_axis(scores, ids, axis=1) >= tenth - 1e-5))


def searched(http, n=300, **body) -> tuple[int, dict]:
    body |= {"vectors": Q[:n].tolist(), "include": []}
    answer = http.post("/v1/collections/near/search", json=body)
    return answer.status_code, answer.json()


def share(http, n=300, **body) -> float:
    status, found = searched(http, n, **body)
    assert status == 200, found
    ids = np.array([[hit["id"] for hit in result["hits"]] for result in found["results"]])
    return measure_recall(Q[:n], ids)


def test_a_search_asks_for_a_recall(http):
    assert http.get("/v1/collections/near").json()["hasher"] is None
    assert share(http) >= 0.89
    assert share(http, recall=0.6) < share(http) < share(http, recall=0.99)
    assert share(http, recall=0.99) >= 0.98
    assert share(http, n_probe=1, slack=0.0) < share(http, n_probe=1, slack=3.0)
    assert share(http, 100, exact=True) == 1.0


@pytest.mark.parametrize("asked", [{"exact": True}, {"recall": 1.0}])
def test_comparing_all_vectors_is_bounded_by_the_work(http, asked):
    status, problem = searched(http, 101, **asked)
    assert (status, problem["type"]) == (422, "urn:posh:invalid-argument")
    assert (
        f"at most {WORK:,} operations, got 101 queries that are compared with all 5,000" in problem["detail"]
    )
    assert searched(http, 100, **asked)[0] == 200


@pytest.mark.parametrize(
    "wrong", [{"recall": 0}, {"recall": 1.1}, {"slack": -1}, {"exact": 1}, {"scoring": "overlap"}]
)
def test_wrong_options_are_refused(http, wrong):
    assert searched(http, 3, **wrong)[0] == 422


def test_before_the_first_item_nothing_is_found(http):
    answer = http.post("/v1/collections/empty/search", json={"vectors": [[1, 2]], "k": 3})
    assert (answer.status_code, answer.json()["results"]) == (200, [{"hits": []}])
    assert answer.json()["kind"] == "cosine"
    problem = http.get("/v1/collections/empty/report").json()
    assert "expected a collection with a metric and items to report on" in problem["detail"]


def test_the_client_has_the_same_words(address):
    with Client(address) as client:
        near = client.collection("near")
        report = near.report()
        assert (report.n_documents, report.asked, report.metric) == (5000, 0.9, "cosine")
        assert report.recall >= 0.9
        assert "asked for: 0.9" in str(report)
        ids = near.search(Q, 10, recall=0.99).ids.astype(np.int64)
        assert measure_recall(Q, ids) >= 0.98
        other = client.create("other", metric="euclidean").upsert([1, 2], X[:2])
        assert other.search(X[1], 1).ids.tolist() == [[2]]
        assert other.reindex(recall=0.5).index_options["recall"] == 0.5
        with pytest.raises(ValueError, match="expected a hasher or a metric, got 'cosine' and a hasher"):
            client.create("plain", posh.POSH(32, 4, random_state=0).fit(X), metric="cosine")
        client.delete("other")
        client.delete("plain")


def test_searches_are_calibrated_with_queries(address, http):
    with Client(address) as client:
        near = client.collection("near")
        near.calibrate(np.random.default_rng(0).normal(size=(2000, Q.shape[1])))
        report = near.report()
        assert (report.n_queries, report.n_given) == (500, 1500)  # a sample is sent
        with pytest.raises(ValueError, match="expected at least 50 different queries to calibrate with"):
            near.calibrate(Q[:3])
        with pytest.raises(ValueError, match="expected a collection with a metric and items to calibrate"):
            client.collection("empty").calibrate(Q)
        assert near.calibrate(None).report().n_given == 0
    problem = http.post("/v1/collections/near/calibrate", json={"queries": [[1.0]]}).json()
    assert problem["status"] == 422
