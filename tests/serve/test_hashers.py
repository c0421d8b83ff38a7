"""Fitting, bringing and taking hashers."""

from __future__ import annotations

import threading
import time

import httpx
import numpy as np
import pytest

import posh
from posh._progress import progress
from posh.serve.client import Client
from posh.serve.folder import Folder
from posh.serve.limits import Limits
from tests.collection.implementations import DATA, DENSE, OTHER, SPARSE
from tests.collection.reference import ReferenceCollection
from tests.serve.service import MemorySource, running

NO_BOUND = Limits(fit_operations=10**30)
FILE = {"content-type": "application/octet-stream"}


@pytest.fixture
def new(http, ask):
    http.put("/v1/collections/new", json={})
    ask("upsert", {"ids": list(range(100)), "vectors": DATA[:100].tolist()}, "new")
    yield "new"
    http.delete("/v1/collections/new")


def finished(http, name: str) -> dict:
    for _ in range(3000):
        info = http.get(f"/v1/collections/{name}").json()
        if info["indexing"]["state"] != "running":
            return info
        time.sleep(0.01)
    raise AssertionError("fitting does not end")


def test_fitted_in_the_background(http, ask, new):
    params = {"n_bits": 16, "n_active": 2, "n_epochs": 1, "random_state": 0}
    status, state = ask("fit", {"method": "POSH", "params": params, "index": {"scoring": "asymmetric"}}, new)
    assert status == 202
    assert state["state"] in ("running", "idle")
    info = finished(http, new)
    assert info["indexing"] == {"state": "idle", "message": None}
    assert info["hasher"]["params"]["n_bits"] == 16
    expected = posh.POSH(**params).fit(DATA[:100])
    content = http.get(f"/v1/collections/{new}/hasher").content
    assert posh.POSH.from_bytes(content, "sent").encode(DATA) == expected.encode(DATA)
    _, found = ask("search", {"vectors": DATA[:1].tolist(), "k": 1}, new)
    assert found["kind"] == "asymmetric"


def test_a_fit_that_fails_says_why(http, ask, new):
    params = {"n_bits": 8, "n_active": 2, "n_inputs": 9}
    assert ask("fit", {"method": "OSL", "params": params}, new)[0] == 202
    assert finished(http, new)["indexing"] == {
        "state": "failed",
        "message": "expected n_inputs between 1 and 8 (the number of features), got 9",
    }
    assert ask("fit", {"method": "LSH", "params": {"n_bits": 8, "random_state": 0}}, new)[0] == 202
    assert finished(http, new)["indexing"] == {"state": "idle", "message": None}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"method": "Magic"}, "expected method to be one of "),
        ({"method": "Hasher"}, "expected method to be one of "),
        ({"method": "POSH", "params": {"colour": 1}}, "expected params among batch_size, lag, n_active"),
        (
            {"method": "POSH", "params": {"n_bits": 8, "n_active": 9}},
            "n_active between 1 and 8",
        ),
        ({"method": "POSH", "params": {"n_bits": [1]}}, "expected params.n_bits to be a valid"),
        ({"method": "POSH", "index": {"colour": 1}}, "unknown field index.colour: leave it out"),
        ({"method": "POSH", "index": {"refine": "magic"}}, "expected index.refine to be one of 'decoder'"),
        ({}, "expected the field method, got none"),
    ],
)
def test_wrong_methods_are_named(ask, body, message):
    status, problem = ask("fit", body)
    assert status == 422
    assert message in problem["detail"]


class SlowToIndex(ReferenceCollection):
    """Reindexes when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go = threading.Event(), threading.Event()

    def _reindex(self, hasher, options):
        self.begun.set()
        for _ in progress(range(3000), "waiting"):
            if self.go.wait(0.01):
                break
        super()._reindex(hasher, options)


def test_one_at_a_time_and_searches_go_on():
    slow = SlowToIndex()
    slow.upsert([1, 2, 3], DATA[:3])
    with running(MemorySource(slow=slow)) as address:
        url = f"{address}/v1/collections/slow"
        fit = {"method": "LSH", "params": {"n_bits": 8, "random_state": 0}}
        assert httpx.post(f"{url}/fit", json=fit).json() == {"state": "running", "message": None}
        assert slow.begun.wait(30)
        assert httpx.get(url).json()["indexing"] == {"state": "running", "message": None}
        for answer in (
            httpx.post(f"{url}/fit", json=fit),
            httpx.put(f"{url}/hasher", content=SPARSE.to_bytes(), headers=FILE),
        ):
            assert answer.status_code == 409
            assert answer.json()["detail"].startswith(
                "expected 'slow' not to be indexed at present, but it is"
            )
            assert answer.headers["retry-after"] == "1"
        assert httpx.post(f"{url}/count", json={}).json() == {"count": 3}
        slow.go.set()
        with httpx.Client() as client:
            client.base_url = address
            assert finished(client, "slow")["hasher"]["method"] == "LSH"
        assert httpx.delete(url).status_code == 204


def test_brought_and_taken(http, ask, new):
    url = f"/v1/collections/{new}/hasher"
    assert http.get(url).status_code == 404
    assert http.get(url).json()["type"] == "urn:posh:no-hasher"
    for hasher in (OTHER, DENSE, SPARSE):
        assert http.put(url, content=hasher.to_bytes(), headers=FILE).status_code == 204
        answer = http.get(url)
        assert answer.headers["content-type"] == "application/octet-stream"
        assert posh.Hasher.from_bytes(answer.content, "sent").encode(DATA) == hasher.encode(DATA)
    options = {"index": '{"scoring": "asymmetric"}'}
    assert http.put(url, content=SPARSE.to_bytes(), headers=FILE, params=options).status_code == 204
    assert ask("search", {"ids": [1]}, new)[1]["kind"] == "asymmetric"


def test_what_is_no_hasher_is_refused(http, new):
    url = f"/v1/collections/{new}/hasher"
    damaged = bytearray(SPARSE.to_bytes())
    damaged[-1] ^= 1
    for content in (b"", b"POSH", bytes(damaged), SPARSE.to_bytes()[:-1]):
        answer = http.put(url, content=content, headers=FILE)
        assert answer.status_code == 422
        assert answer.json()["type"] == "urn:posh:not-a-hasher"
        assert answer.json()["detail"].startswith("the hasher: ")
    other_width = posh.LSH(4, random_state=0).fit(DATA[:, :5])
    answer = http.put(url, content=other_width.to_bytes(), headers=FILE)
    assert answer.status_code == 422
    assert "expected a hasher of vectors with 8 columns" in answer.json()["detail"]
    assert http.put(url, content=SPARSE.to_bytes(), headers={"content-type": "text/plain"}).status_code == 415
    wrong = {"index": "{"}
    assert http.put(url, content=SPARSE.to_bytes(), headers=FILE, params=wrong).status_code == 400
    assert http.get(url).status_code == 404


def test_samples_are_packed_vectors(ask, new):
    status, sample = ask("sample", {"n": 10}, new)
    assert status == 200
    assert sample["shape"] == [10, 8]
    assert ask("sample", {"n": 10}, new)[1] == sample
    assert ask("sample", {"n": 3}, "empty")[1] == {"shape": [0, 0], "float32": ""}


ENDLESS = {"method": "POSH", "params": {"n_bits": 16, "n_active": 2, "n_epochs": 10**12}}


@pytest.fixture
def endless(tmp_path):
    """An embedded collection whose fit would take for ever, and the address of its service."""
    posh.Collection(tmp_path / "shop", SPARSE).upsert(list(range(300)), DATA[:300]).close()
    with running(Folder(tmp_path), limits=NO_BOUND) as address, httpx.Client(base_url=address) as client:
        assert client.post("/v1/collections/shop/fit", json=ENDLESS).status_code == 202
        yield client


def test_a_fit_is_cancelled_and_the_collection_stays_as_it_is(endless):
    url = "/v1/collections/shop"
    before = endless.post(f"{url}/search", json={"vectors": DATA[:3].tolist()}).json()["results"]
    cancelled = endless.delete(f"{url}/fit")
    assert cancelled.status_code == 200
    assert cancelled.json()["state"] == "failed"
    assert "the work was cancelled: nothing was changed" in cancelled.json()["message"]
    assert endless.get(url).json()["hasher"]["method"] == type(SPARSE).__name__
    assert endless.post(f"{url}/search", json={"vectors": DATA[:3].tolist()}).json()["results"] == before
    short = {"method": "LSH", "params": {"n_bits": 8, "random_state": 0}}
    assert endless.post(f"{url}/fit", json=short).status_code == 202
    assert finished(endless, "shop")["hasher"]["method"] == "LSH"


def test_cancelling_nothing_is_no_error(http, new):
    assert http.delete(f"/v1/collections/{new}/fit").json() == {"state": "idle", "message": None}


def test_the_client_cancels_fits(endless):
    with Client(str(endless.base_url)) as client:
        assert client.collection("shop").cancel_fit().state == "failed"


def test_a_collection_that_is_fitted_can_be_dropped(endless):
    begun = time.perf_counter()
    assert endless.delete("/v1/collections/shop", timeout=60).status_code == 204
    assert time.perf_counter() - begun < 8.0
    assert endless.get("/v1/collections").json() == {"collections": []}


def test_a_service_that_fits_stops_soon(tmp_path):
    """Three fits that would take for ever; each of them used to be waited for, 10 seconds long."""
    for name in "abc":
        posh.Collection(tmp_path / name, SPARSE).upsert(list(range(300)), DATA[:300]).close()
    with running(Folder(tmp_path), limits=NO_BOUND) as address:
        for name in "abc":
            assert httpx.post(f"{address}/v1/collections/{name}/fit", json=ENDLESS).status_code == 202
        begun = time.perf_counter()
    assert time.perf_counter() - begun < 8.0
    for name in "abc":
        with posh.Collection(tmp_path / name) as collection:
            assert type(collection.hasher) is type(SPARSE)


def test_bringing_a_hasher_is_cancelled_too():
    slow = SlowToIndex()
    slow.upsert([1, 2, 3], DATA[:3])
    with running(MemorySource(slow=slow)) as address:
        url, answers = f"{address}/v1/collections/slow", []

        def bring() -> None:
            answers.append(httpx.put(f"{url}/hasher", content=SPARSE.to_bytes(), headers=FILE, timeout=60))

        bringing = threading.Thread(target=bring)
        bringing.start()
        assert slow.begun.wait(30)
        assert httpx.delete(f"{url}/fit", timeout=60).json()["state"] == "idle"
        bringing.join()
        assert (answers[0].status_code, answers[0].json()["type"]) == (503, "urn:posh:cancelled")
        assert slow.hasher is None


TOO_COSTLY = {
    "memory": ({"method": "BOSL", "params": {"n_bits": 16_384}}, "a fit of at most 900,000,000 bytes"),
    "time": (ENDLESS, "a fit of at most 3,000,000,000,000 operations"),
    "steps": (
        {"method": "BOSL", "params": {"n_bits": 16, "n_active": 2, "n_steps": 10**12}},
        "a fit of at most 3,000,000,000,000 operations",
    ),
    "decoder": (
        {"method": "FruitFly", "params": {"n_bits": 16_384}, "index": {"refine": "decoder"}},
        "an index of at most 900,000,000 bytes",
    ),
    "lists": (
        {
            "method": "FruitFly",
            "params": {"n_bits": 16_384},
            "index": {"structure": "ivf", "n_lists": 65_536},
        },
        "an index of at most 900,000,000 bytes",
    ),
}


@pytest.mark.parametrize("case", list(TOO_COSTLY))
def test_a_fit_that_costs_too_much_is_refused(tmp_path, case):
    body, message = TOO_COSTLY[case]
    posh.Collection(tmp_path / "shop").upsert(list(range(1000)), np.tile(DATA, (10, 1))[:1000]).close()
    with running(Folder(tmp_path)) as address:
        answer = httpx.post(f"{address}/v1/collections/shop/fit", json=body, timeout=30)
        httpx.delete(f"{address}/v1/collections/shop/fit", timeout=60)
    assert answer.status_code == 422
    assert f"expected {message}, got one of about " in answer.json()["detail"]
    assert "or set the service's limit fit_" in answer.json()["detail"]


def test_a_hasher_whose_index_is_too_large_is_refused(http, new):
    large = posh.FruitFly(16_384, 2, random_state=0).fit(DATA)
    url = f"/v1/collections/{new}/hasher"
    answer = http.put(url, content=large.to_bytes(), headers=FILE, params={"index": '{"refine": "decoder"}'})
    assert answer.status_code == 422
    assert "expected an index of at most 900,000,000 bytes" in answer.json()["detail"]


def test_all_fits_together_are_bounded():
    slow, other = SlowToIndex(), ReferenceCollection().upsert([1, 2, 3], DATA[:3])
    slow.upsert([1, 2, 3], DATA[:3])
    fit = {"method": "LSH", "params": {"n_bits": 8, "random_state": 0}}
    n_bytes = posh.LSH(8).estimate_fit(3, 8).bytes + 4 * 3 * 8
    source = MemorySource(slow=slow, other=other)
    with running(source, limits=Limits(fit_bytes=int(1.5 * n_bytes))) as address:
        url = f"{address}/v1/collections"
        assert httpx.post(f"{url}/slow/fit", json=fit).status_code == 202
        assert slow.begun.wait(30)
        refused = httpx.post(f"{url}/other/fit", json=fit)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert f"{n_bytes:,} in use and {n_bytes:,} more" in refused.json()["detail"]
        slow.go.set()
        with httpx.Client(base_url=address) as client:
            finished(client, "slow")
        assert httpx.post(f"{url}/other/fit", json=fit).status_code == 202
