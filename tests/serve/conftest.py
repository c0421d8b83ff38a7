"""Services that the tests of a module share."""

from __future__ import annotations

import httpx
import pytest

from posh.serve.capacity import Limits
from tests.collection.implementations import DATA, SPARSE
from tests.collection.reference import ReferenceCollection
from tests.serve.browser import browser
from tests.serve.service import MemorySource, running

TOKEN = "correct horse"
SMALL = Limits(
    body_bytes=20_000,
    body_values=500,
    answer_bytes=2_000,
    bytes_in_work=30_000,
    items=20,
    page=50,
    queries=10,
    k=30,
    hits=60,
    oversample=8.0,
    n_probe=5,
    n_features=16,
    n_bits=64,
    sample=40,
    collections=3,
)


def payloads(n: int) -> list[dict]:
    return [{"label": i % 3, "name": f"item {i}"} for i in range(n)]


def filled(n: int = 200, hasher=SPARSE) -> ReferenceCollection:
    return ReferenceCollection(hasher, metadata={"title": "things"}).upsert(
        [*range(n - 1), "last"], DATA[:n], payloads(n)
    )


@pytest.fixture(scope="module")
def address():
    """A service with the collections ``things`` (which tests only read), ``other`` and ``empty``."""
    source = MemorySource(things=filled(), other=filled(50), empty=ReferenceCollection())
    with running(source) as address:
        yield address


@pytest.fixture(scope="module")
def http(address):
    # The service closes idle connections after 4 seconds: the client closes them first.
    with httpx.Client(base_url=address, limits=httpx.Limits(keepalive_expiry=3.0)) as client:
        yield client


@pytest.fixture(scope="module")
def driver(address):
    """A browser for the page at ``address``; it ends before the service does."""
    with browser() as driver:
        yield driver


@pytest.fixture
def ask(http):
    """Ask an operation of a collection: the status and the JSON of the answer."""

    def post(path: str, body, collection: str = "things"):
        answer = http.post(f"/v1/collections/{collection}/{path}", json=body)
        return answer.status_code, answer.json()

    return post


@pytest.fixture(scope="module")
def locked():
    """A service that needs a token, at its own limits."""
    with running(MemorySource(things=filled()), token=TOKEN) as address:
        yield address


@pytest.fixture
def new(http, ask):
    http.put("/v1/collections/new", json={})
    ask("upsert", {"ids": list(range(100)), "vectors": DATA[:100].tolist()}, "new")
    yield "new"
    http.delete("/v1/collections/new")
