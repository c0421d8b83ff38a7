"""Fitting, bringing and taking hashers."""

from __future__ import annotations

import threading
import time

import httpx
import pytest

import posh
from posh._runtime import track_progress
from tests.collection.implementations import DATA, DENSE, OTHER, SPARSE
from tests.collection.reference import ReferenceCollection
from tests.serve.service import MemorySource, running

FILE = {"content-type": "application/octet-stream"}


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
        for _ in track_progress(range(3000), "waiting"):
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
