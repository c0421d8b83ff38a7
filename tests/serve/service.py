"""Services for the tests: in a thread over collections in memory, or as a process."""

from __future__ import annotations

import atexit
import itertools
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from posh.client import Client
from posh.collection.base import BaseCollection
from posh.serve.capacity import Limits
from posh.serve.metrics import Metrics
from posh.serve.registry import Registry
from posh.serve.server import Server, bind
from posh.serve.sources import CollectionSource, Folder
from posh.serve.tokens import Tokens
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

    def backup(self, collection: BaseCollection, name: str) -> None:
        raise ValueError("expected a folder for backups, got collections in memory")


@contextmanager
def running(
    source: CollectionSource,
    *,
    limits: Limits | None = None,
    token: str | None = None,
    read_token: str | None = None,
    slow_seconds: float = 1.0,
) -> Iterator[str]:
    """A service at a free port of this machine; its address."""
    registry = Registry(source, limits or Limits(), Metrics())
    ready = threading.Event()
    server = Server(
        registry,
        bind("127.0.0.1", 0),
        tokens=Tokens.of(token, read_token),
        listening=lambda address: ready.set(),
        slow_seconds=slow_seconds,
    )
    thread = threading.Thread(target=server.run, daemon=True)  # else the end of the process would wait for it
    thread.start()
    try:
        assert ready.wait(30), "the service did not start"
        yield server.address
    finally:
        server.stop()
        thread.join()
        registry.close()


# For the conformance suite: one service over embedded collections, as long as the tests last. It keeps the
# newest, so that the open files of hundreds do not add up.

_NAMES: dict[object, str] = {}
_NUMBERS = itertools.count()
_MOST = 30


@cache
def _shared_client() -> Client:
    stack = ExitStack()
    atexit.register(stack.close)
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    return stack.enter_context(Client(stack.enter_context(running(Folder(Path(folder))))))


def create_remote(
    path: object, hasher: Any = None, *, metadata: Any = None, **options: Any
) -> BaseCollection:
    """A new collection of the shared service."""
    while len(_NAMES) >= _MOST:
        _shared_client().delete(_NAMES.pop(next(iter(_NAMES))))
    _NAMES[path] = f"collection-{next(_NUMBERS)}"
    return _shared_client().create(_NAMES[path], hasher, metadata=metadata, **options)


def reopen_remote(path: object) -> BaseCollection:
    """The collection that was made for this path."""
    return _shared_client().collection(_NAMES[path])


class Slow(ReferenceCollection):
    """Counts when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.go, self.entered = threading.Event(), threading.Semaphore(0)

    def _count(self, tree):
        self.entered.release()
        self.go.wait(30)
        return super()._count(tree)


@contextmanager
def served(folder, *arguments, token=None, open_files=None):
    """A ``posh serve`` of its own, and its address; ``open_files`` is its soft limit.

    It logs errors only, unless it is told otherwise: a log that is not read would fill its pipe.
    """
    if "--log-level" not in arguments:
        arguments = ("--log-level", "error", *arguments)
    environment = {key: value for key, value in os.environ.items() if key != "POSH_TOKEN"}
    if token is not None:
        environment["POSH_TOKEN"] = token
    run = "import sys; from posh.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", run, "serve", str(folder), "--port", "0", *arguments]
    if open_files is not None:
        command = ["sh", "-c", f'ulimit -S -n {open_files}; exec "$@"', "sh", *command]
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        line = process.stdout.readline()
        match = re.fullmatch(r"serving (.*) at (http://127\.0\.0\.1:\d+)\n", line)
        assert match, (line, process.stderr.read() if process.poll() is not None else "")
        assert re.match(r"[\d,]+ collections?: |no collections yet: ", process.stdout.readline())
        yield process, match[2]
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
