"""A service in a thread, over collections in memory, for the tests."""

from __future__ import annotations

import atexit
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from posh.collection.base import BaseCollection
from posh.serve.client import Client
from posh.serve.folder import Folder
from posh.serve.limits import Limits
from posh.serve.metrics import Metrics
from posh.serve.registry import CollectionSource, Registry
from posh.serve.server import Server, bind
from tests.collection.reference import ReferenceCollection


class MemorySource(CollectionSource):
    """Collections that are gone with the process."""

    def __init__(self, **collections: BaseCollection) -> None:
        self.collections = collections

    def names(self) -> list[str]:
        return list(self.collections)

    def open(self, name: str) -> BaseCollection:
        return self.collections[name]

    def create(self, name: str, metadata: dict[str, Any], options: dict[str, Any]) -> BaseCollection:
        self.collections[name] = ReferenceCollection(metadata=metadata)
        return self.collections[name]

    def drop(self, name: str) -> None:
        del self.collections[name]

    def disk_bytes(self, name: str) -> int | None:
        return None


@contextmanager
def running(
    source: CollectionSource, *, limits: Limits | None = None, token: str | None = None
) -> Iterator[str]:
    """A service at a free port of this machine; its address."""
    registry = Registry(source, limits or Limits(), Metrics())
    ready = threading.Event()
    server = Server(registry, bind("127.0.0.1", 0), token=token, listening=lambda address: ready.set())
    thread = threading.Thread(target=server.run, daemon=True)  # else the end of the process would wait for it
    thread.start()
    try:
        assert ready.wait(30), "the service did not start"
        yield server.address
    finally:
        server.stop()
        thread.join()
        registry.close()


# For the conformance suite: one service over embedded collections, as long as the tests last.

_NAMES: dict[object, str] = {}


@cache
def _shared_client() -> Client:
    stack = ExitStack()
    atexit.register(stack.close)
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    return stack.enter_context(Client(stack.enter_context(running(Folder(Path(folder))))))


def create_remote(path: object, hasher: Any = None, *, metadata: Any = None) -> BaseCollection:
    """A new collection of the shared service."""
    _NAMES[path] = f"collection-{len(_NAMES)}"
    return _shared_client().create(_NAMES[path], hasher, metadata=metadata)


def reopen_remote(path: object) -> BaseCollection:
    """The collection that was made for this path."""
    return _shared_client().collection(_NAMES[path])
