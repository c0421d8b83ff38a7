"""Collections that the tests of several modules use."""

from __future__ import annotations

import pytest

import posh
from posh.collection.base import BaseCollection
from tests.collection.implementations import ALL, DATA, SPARSE, Implementation


@pytest.fixture(params=ALL, ids=str)
def implementation(request) -> Implementation:
    return request.param


@pytest.fixture
def make(implementation, tmp_path):
    """Makes collections, and closes them in the end."""
    made: list[BaseCollection] = []

    def factory(*args, **options) -> BaseCollection:
        made.append(implementation.create(tmp_path / f"collection-{len(made)}", *args, **options))
        return made[-1]

    yield factory
    for collection in made:
        collection.close()


@pytest.fixture
def path(tmp_path):
    """A collection of ten items that is closed."""
    with posh.Collection(tmp_path / "shop", SPARSE, metadata={"a": 1}) as collection:
        collection.upsert(range(10), DATA[:10], [{"n": i, "even": i % 2 == 0} for i in range(10)])
    return tmp_path / "shop"
