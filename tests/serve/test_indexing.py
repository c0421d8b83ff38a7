"""Fits that are cancelled, and fits that would cost too much."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import httpx
import numpy as np
import pytest

import posh
from posh.client import Client
from posh.serve.capacity import Limits
from posh.serve.handlers import CollectionOperations
from posh.serve.sources import Folder
from tests.collection.implementations import DATA, SPARSE
from tests.collection.reference import ReferenceCollection
from tests.serve.service import MemorySource, running
from tests.serve.test_hashers import SlowToIndex, finished

NO_BOUND = Limits(fit_operations=10**30)
FILE = {"content-type": "application/octet-stream"}
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


def test_a_description_with_the_old_hasher_does_not_say_that_the_fit_is_finished():
    """The fit ends while the collection is described, after its hasher was read."""
    indexing = SimpleNamespace(state="running", message=None)

    class Finishing(ReferenceCollection):
        @property
        def hasher(self):
            indexing.state = "idle"
            return SPARSE

    opened = SimpleNamespace(name="shop", collection=Finishing(SPARSE), indexing=indexing)
    registry = SimpleNamespace(source=SimpleNamespace(disk_bytes=lambda name: 0))
    described = CollectionOperations._describe(SimpleNamespace(_registry=registry), opened)
    assert described["indexing"]["state"] == "running"


def test_cancelling_nothing_is_no_error(http, new):
    assert http.delete(f"/v1/collections/{new}/fit").json() == {"state": "idle", "message": None}


def test_the_client_cancels_fits(endless):
    with Client(str(endless.base_url)) as client:
        assert client.collection("shop").cancel_fit().state == "failed"


def require_no_fits() -> None:
    """No fit goes on: one without end that was not cancelled would."""
    for thread in threading.enumerate():
        if thread.name == "posh-fit":
            thread.join(30)
            assert not thread.is_alive()


def test_a_collection_that_is_fitted_can_be_dropped(endless):
    assert endless.delete("/v1/collections/shop", timeout=60).status_code == 204
    require_no_fits()
    assert endless.get("/v1/collections").json() == {"collections": []}


def test_a_service_that_fits_stops_soon(tmp_path):
    """Three fits that would take for ever; each of them used to be waited for, 10 seconds long."""
    for name in "abc":
        posh.Collection(tmp_path / name, SPARSE).upsert(list(range(300)), DATA[:300]).close()
    with running(Folder(tmp_path), limits=NO_BOUND) as address:
        for name in "abc":
            assert httpx.post(f"{address}/v1/collections/{name}/fit", json=ENDLESS).status_code == 202
        begun = time.perf_counter()
    assert time.perf_counter() - begun < 25.0
    require_no_fits()
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
