"""A service in a thread, over collections in memory, for the tests."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from posh.collection.base import BaseCollection
from posh.serve.client import Client
from posh.serve.limits import Limits
from posh.serve.metrics import Metrics
from posh.serve.server import Server
from posh.serve.shelf import Engine, Shelf, Sizes
from tests.collection.reference import ReferenceCollection


class MemoryEngine(Engine):
    """Collections that are gone with the process."""

    def __init__(self, **collections: BaseCollection) -> None:
        self.collections = collections

    def names(self) -> list[str]:
        return list(self.collections)

    def open(self, name: str) -> BaseCollection:
        return self.collections[name]

    def create(self, name: str, metadata: dict[str, Any]) -> BaseCollection:
        self.collections[name] = ReferenceCollection(metadata=metadata)
        return self.collections[name]

    def drop(self, name: str) -> None:
        del self.collections[name]

    def sizes(self, name: str, collection: BaseCollection) -> Sizes:
        return Sizes(None, None)


@contextmanager
def running(engine: Engine, *, limits: Limits | None = None, token: str | None = None) -> Iterator[str]:
    """A service at a free port of this machine; its address."""
    shelf = Shelf(engine, limits or Limits(), Metrics())
    ready = threading.Event()
    server = Server(shelf, token=token, listening=lambda address: ready.set())
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert ready.wait(30), "the service did not start"
        yield server.address
    finally:
        server.stop()
        thread.join()
        shelf.close()


_NUMBERS = itertools.count()


@cache
def shared_client() -> Client:
    """A client of a service that lives as long as the tests do."""
    shelf = Shelf(MemoryEngine(), Limits(), Metrics())
    ready = threading.Event()
    server = Server(shelf, listening=lambda address: ready.set())
    threading.Thread(target=server.run, daemon=True).start()
    assert ready.wait(30), "the service did not start"
    return Client(server.address)


def create_remote(path: object, hasher: Any = None, *, metadata: Any = None) -> BaseCollection:
    """A new collection of the shared service, for the conformance suite."""
    return shared_client().create(f"collection-{next(_NUMBERS)}", hasher, metadata=metadata)
