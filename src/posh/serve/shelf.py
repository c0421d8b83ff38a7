"""The collections that are served, and the threads that work for them."""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from posh.collection.base import BaseCollection
from posh.errors import CollectionExistsError, UnknownCollectionError
from posh.serve import names
from posh.serve.coalesce import Coalescer
from posh.serve.costs import Memory
from posh.serve.indexing import Indexing
from posh.serve.limits import Limits
from posh.serve.metrics import Metrics
from posh.serve.pool import Lane, busy, new_executor
from posh.serve.problems import ProblemError

__all__ = ["Engine", "Served", "Shelf"]

_PATIENCE = 10.0  # seconds for all fits to notice that they are cancelled when the service stops


class Engine(ABC):
    """Where collections come from; names are checked before an engine sees them."""

    @abstractmethod
    def names(self) -> list[str]:
        """The names of all collections."""

    @abstractmethod
    def open(self, name: str) -> BaseCollection:
        """Open a collection."""

    @abstractmethod
    def create(self, name: str, metadata: dict[str, Any], options: dict[str, Any]) -> BaseCollection:
        """Make a new collection, with options of :class:`posh.Index`, and open it."""

    @abstractmethod
    def drop(self, name: str) -> None:
        """Delete a closed collection for ever."""

    @abstractmethod
    def disk_bytes(self, name: str) -> int | None:
        """Bytes that an open collection takes on the disk; None if the engine does not know."""


class Served:
    """A collection and what goes on with it.

    Searches run one batch at a time, two ``reads`` and two ``writes`` at once, and one ``long_work``.
    """

    def __init__(self, name: str, collection: BaseCollection, shelf: Shelf) -> None:
        self.name, self.collection = name, collection
        self.indexing = Indexing(name)
        executor, seconds = shelf.executor, shelf.limits.seconds
        self.coalescer = Coalescer(
            collection.search, executor, shelf.limits, shelf.metrics.batch_size.labels(name).observe
        )
        self.reads = Lane(executor, 2, seconds, seconds)
        self.writes = Lane(executor, 2, seconds, seconds, waits=True)
        self.long_work = Lane(executor, 1, seconds, None)
        self._shelf, self._n_users = shelf, 0

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the collection open meanwhile; on the event loop's thread."""
        self._n_users += 1
        try:
            yield
        finally:
            self._n_users -= 1

    def begin_request(self) -> None:
        """Keep the collection open until :meth:`end_request`, unless there are too many requests."""
        shelf, limits = self._shelf, self._shelf.limits
        if self._n_users >= limits.requests:
            raise busy(f"expected at most {limits.requests} requests to a collection at once, got more")
        if shelf.n_asked >= limits.all_requests:
            raise busy(f"expected at most {limits.all_requests} requests to collections at once, got more")
        shelf.n_asked += 1
        self._n_users += 1

    def end_request(self) -> None:
        """A request to the collection is answered."""
        self._shelf.n_asked -= 1
        self._n_users -= 1

    async def stopped(self) -> None:
        """Cancel fits, and wait until nobody uses the collection.

        Work may go on after its request was answered, because it took too long.
        """
        while self._n_users or self._works:
            self.indexing.cancel()
            await asyncio.sleep(0.01)

    @property
    def _works(self) -> bool:
        lanes = (self.reads, self.writes, self.long_work)
        return self.coalescer.busy or self.indexing.is_running or any(lane.n_running for lane in lanes)


class Shelf:
    """All collections of an engine, opened.

    Each has bounds of its own on what runs at once, so that none waits for the work of another. What concerns
    all of them, ``overviews`` and making and dropping collections, waits for none of them either.
    """

    def __init__(self, engine: Engine, limits: Limits, metrics: Metrics) -> None:
        self.engine, self.limits, self.metrics = engine, limits, metrics
        self.executor = new_executor()
        self.overviews = Lane(self.executor, 4, limits.seconds, limits.seconds)
        self.changes = Lane(self.executor, 4, limits.seconds, None)
        self.memory = Memory(limits.fit_bytes)
        self.n_asked = 0  # requests to collections that are not answered yet
        self._changing = threading.Lock()
        self._served: dict[str, Served] = {}
        self._dropping: set[str] = set()
        try:
            for name in sorted(name for name in engine.names() if names.is_name(name)):
                self._served[name] = Served(name, engine.open(name), self)
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._served)

    @contextmanager
    def all_in_use(self) -> Iterator[list[Served]]:
        """What is served, by name, and stays open meanwhile; on the event loop's thread."""
        with ExitStack() as stack:
            served = [self._served[name] for name in sorted(self._served)]
            for one in served:
                stack.enter_context(one.in_use())
            yield served

    def get(self, name: str) -> Served:
        """The collection of this name."""
        served = self._served.get(name)
        if served is None:
            raise UnknownCollectionError(
                f"expected the name of a collection, got {name!r:.80}: see /v1/collections"
            )
        return served

    def create(self, name: str, metadata: dict[str, Any], options: dict[str, Any]) -> Served:
        """Make a collection; in a thread."""
        names.checked(name)
        with self._changing:
            if name in self._served or name in self._dropping:
                raise CollectionExistsError(
                    f"expected a new name, got {name!r}, which is taken: drop it first"
                )
            if len(self._served) >= self.limits.collections:
                raise ValueError(
                    f"expected at most {self.limits.collections} collections, got one more: drop another"
                )
            served = Served(name, self.engine.create(name, metadata, options), self)
            self._served[name] = served
        return served

    async def drop(self, name: str) -> None:
        """Delete a collection, when those who use it are done; nobody new finds it from now on."""
        served = self._served.pop(self.get(name).name)
        self._dropping.add(name)
        try:
            await served.stopped()
            await self.changes.run(self._delete, served)
        except ProblemError:  # too busy: it stays
            self._served[name] = served
            raise
        finally:
            self._dropping.discard(name)

    def _delete(self, served: Served) -> None:
        served.collection.close()
        self.engine.drop(served.name)
        self.metrics.forget(served.name)

    def cancel(self) -> None:
        """Ask all fits to stop."""
        for served in self._served.values():
            served.indexing.cancel()

    def close(self) -> None:
        """Cancel fits, finish what else runs, and close all collections."""
        self.cancel()
        self.executor.shutdown()
        deadline = time.monotonic() + _PATIENCE
        for served in self._served.values():
            served.indexing.wait(deadline - time.monotonic())
            served.collection.close()
