"""Services that the tests of a module share."""

from __future__ import annotations

import httpx
import pytest

from tests.collection.implementations import DATA, SPARSE
from tests.collection.reference import ReferenceCollection
from tests.serve.service import MemorySource, running


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
    with httpx.Client(base_url=address) as client:
        yield client


@pytest.fixture
def ask(http):
    """Ask an operation of a collection: the status and the JSON of the answer."""

    def post(path: str, body, collection: str = "things"):
        answer = http.post(f"/v1/collections/{collection}/{path}", json=body)
        return answer.status_code, answer.json()

    return post
