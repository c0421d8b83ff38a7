"""The open collections of a service, and the queues of calls to each of them."""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from posh._wire import is_name, validate_name
from posh.collection.base import BaseCollection
from posh.errors import CollectionExistsError, UnknownCollectionError
from posh.serve.capacity import CallQueue, busy, new_executor
from posh.serve.coalesce import Coalescer
from posh.serve.costs import FitMemory
from posh.serve.indexing import Indexer
from posh.serve.limits import Limits
from posh.serve.metrics import Metrics
from posh.serve.problems import ProblemError
from posh.serve.remembered import AnswerCache, Remembered

__all__ = ["CollectionSource", "OpenCollection", "Registry"]

_OVERVIEWS = 64  # fields and maps that are remembered, of all collections: a map may take 2 MB
_PATIENCE = 10.0  # seconds for all fits to notice that they are cancelled when the service stops


class CollectionSource(ABC):
    """Opens, makes and drops collections by name. The registry has checked each name before."""

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

    @abstractmethod
    def backup(self, collection: BaseCollection, name: str) -> None:
        """Copy an open collection to a place for backups, under a new name."""


class OpenCollection:
    """A collection, with the queues of its calls and the state of its indexing.

    Searches run one batch at a time, two ``reads`` and two ``writes`` at once, and one ``long_work``.
    """

    def __init__(self, name: str, collection: BaseCollection, registry: Registry) -> None:
        self.name, self.collection = name, collection
        self.indexing = Indexer(name)
        executor, seconds = registry.executor, registry.limits.seconds
        self.coalescer = Coalescer(
            collection._search, executor, registry.limits, registry.metrics.batch_size.labels(name).observe
        )
        self.reads = CallQueue(executor, 2, seconds, seconds)
        self.writes = CallQueue(executor, 2, seconds, seconds, waits=True)
        self.long_work = CallQueue(executor, 1, seconds, None)
        self._overviews = CallQueue(executor, 1, seconds, seconds)
        self.fields = Remembered(registry.remembered, self._overviews, self._version)
        self.map = Remembered(registry.remembered, self._overviews, self._version)
        self._registry, self._n_users = registry, 0

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
        registry, limits = self._registry, self._registry.limits
        if self._n_users >= limits.requests:
            raise busy(f"expected at most {limits.requests} requests to a collection at once, got more")
        if registry.n_requests >= limits.all_requests:
            raise busy(f"expected at most {limits.all_requests} requests to collections at once, got more")
        registry.n_requests += 1
        self._n_users += 1

    def end_request(self) -> None:
        """A request to the collection is answered."""
        self._registry.n_requests -= 1
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
        queues = (self.reads, self.writes, self.long_work, self._overviews)
        return self.coalescer.busy or self.indexing.is_running or any(queue.n_running for queue in queues)

    def _version(self) -> int:
        """Another number after every call that may have changed the collection."""
        return self.writes.n_ended + self.long_work.n_ended


class Registry:
    """All collections of a source; all of them are open.

    Each has bounds of its own on what runs at once, so that none waits for the work of another. What concerns
    all of them, ``overviews`` and making and dropping collections, waits for none of them either.
    """

    def __init__(self, source: CollectionSource, limits: Limits, metrics: Metrics) -> None:
        self.source, self.limits, self.metrics = source, limits, metrics
        self.executor = new_executor()
        self.overviews = CallQueue(self.executor, 4, limits.seconds, limits.seconds)
        self.changes = CallQueue(self.executor, 4, limits.seconds, None)
        self.memory = FitMemory(limits.fit_bytes)
        self.remembered = AnswerCache(_OVERVIEWS)
        self.n_requests = 0  # requests to collections that are not answered yet
        self._changing = threading.Lock()
        self._opened: dict[str, OpenCollection] = {}
        self._dropping: set[str] = set()
        try:
            for name in sorted(name for name in source.names() if is_name(name)):
                self._opened[name] = OpenCollection(name, source.open(name), self)
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._opened)

    @contextmanager
    def all_in_use(self) -> Iterator[list[OpenCollection]]:
        """All collections, sorted by name. They stay open meanwhile. Call it on the event loop's thread."""
        with ExitStack() as stack:
            opened = [self._opened[name] for name in sorted(self._opened)]
            for one in opened:
                stack.enter_context(one.in_use())
            yield opened

    def get(self, name: str) -> OpenCollection:
        """The collection of this name."""
        opened = self._opened.get(name)
        if opened is None:
            raise UnknownCollectionError(
                f"expected the name of a collection, got {name!r:.80}: see /v1/collections"
            )
        return opened

    def create(self, name: str, metadata: dict[str, Any], options: dict[str, Any]) -> OpenCollection:
        """Make a collection; in a thread."""
        validate_name(name)
        with self._changing:
            if name in self._opened or name in self._dropping:
                raise CollectionExistsError(
                    f"expected a new name, got {name!r}, which is taken: drop it first"
                )
            if len(self._opened) >= self.limits.collections:
                raise ValueError(
                    f"expected at most {self.limits.collections} collections, got one more: drop another"
                )
            opened = OpenCollection(name, self.source.create(name, metadata, options), self)
            self._opened[name] = opened
        return opened

    async def drop(self, name: str) -> None:
        """Delete a collection, when those who use it are done; nobody new finds it from now on."""
        opened = self._opened.pop(self.get(name).name)
        self._dropping.add(name)
        try:
            await opened.stopped()
            await self.changes.run(self._delete, opened)
        except ProblemError:  # too busy: it stays
            self._opened[name] = opened
            raise
        finally:
            self._dropping.discard(name)

    def _delete(self, opened: OpenCollection) -> None:
        opened.fields.forget()
        opened.map.forget()
        opened.collection.close()
        self.source.drop(opened.name)
        self.metrics.forget(opened.name)

    def cancel(self) -> None:
        """Ask all fits to stop."""
        for opened in self._opened.values():
            opened.indexing.cancel()

    def close(self) -> None:
        """Cancel fits, finish what else runs, and close all collections."""
        self.cancel()
        self.executor.shutdown()
        deadline = time.monotonic() + _PATIENCE
        for opened in self._opened.values():
            opened.indexing.wait(deadline - time.monotonic())
            opened.collection.close()
