"""The open collections of a service, with the queues of calls to each of them."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from posh._runtime import cancel_on
from posh._wire import is_name, validate_name
from posh.collection.base import BaseCollection
from posh.errors import CancelledError, CollectionExistsError, UnknownCollectionError
from posh.serve.capacity import CallQueue, Limits, make_busy_problem, make_executor
from posh.serve.coalesce import Coalescer
from posh.serve.indexing import FitMemory, Indexer
from posh.serve.logs import log_event
from posh.serve.metrics import CollectionState, Metrics
from posh.serve.overview import CachedOverview, OverviewCache
from posh.serve.responses import LimitError, ProblemError
from posh.serve.sources import CollectionSource, StagedCollection

__all__ = ["OpenCollection", "Registry"]

_OVERVIEWS = 64  # cached fields and maps of all collections: a map may take 2 MB
_POLL_SECONDS = 0.01  # between two checks whether a collection is open
_PATIENCE = 10.0  # seconds for all fits to react to their cancellation when the service stops


_MAP_TIMES = 4  # the time of a request: the page does not wait for the map


class OpenCollection:
    """A collection, with the queues of its calls and the state of its indexing.

    One batch of searches, two ``reads``, two ``writes`` and one ``long_work`` run concurrently.
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
        self.fields = CachedOverview(registry.cache, self._overviews, self._get_version)
        self._maps = CallQueue(executor, 1, seconds, _MAP_TIMES * seconds)
        self.map = CachedOverview(registry.cache, self._maps, self._get_version)
        self._registry, self._n_users = registry, 0

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the collection open during a block; call it on the event loop's thread."""
        self._n_users += 1
        try:
            yield
        finally:
            self._n_users -= 1

    def begin_request(self) -> None:
        """Keep the collection open until :meth:`end_request`, unless there are too many requests."""
        registry, limits = self._registry, self._registry.limits
        if self._n_users >= limits.requests:
            raise make_busy_problem(
                f"expected at most {limits.requests} requests to a collection at once, got more", "requests"
            )
        if registry.n_requests >= limits.all_requests:
            raise make_busy_problem(
                f"expected at most {limits.all_requests} requests to collections at once, got more",
                "all_requests",
            )
        registry.n_requests += 1
        self._n_users += 1

    def end_request(self) -> None:
        """Undo :meth:`begin_request` when the request is answered."""
        self._registry.n_requests -= 1
        self._n_users -= 1

    async def wait_until_unused(self) -> None:
        """Cancel fits, and wait until no request uses the collection and no call runs.

        A call that timed out may run on after its request was answered.
        """
        while self._n_users or self._is_busy:
            self.indexing.cancel()
            await asyncio.sleep(0.01)

    @property
    def _is_busy(self) -> bool:
        queues = (self.reads, self.writes, self.long_work, self._overviews, self._maps)
        return self.coalescer.is_busy or self.indexing.is_running or any(queue.n_running for queue in queues)

    def describe_state(self, disk_bytes: int | None, last_backup: float | None) -> CollectionState:
        """Return the state for metrics; call it in a thread."""
        collection = self.collection
        has_metric = collection.index_options.get("metric") is not None
        return CollectionState(
            name=self.name,
            items=collection.count(),
            memory_bytes=collection.memory_usage(),
            disk_bytes=disk_bytes,
            recall=collection.measured_recall(),
            recall_asked=collection.index_options.get("recall") if has_metric else None,
            last_backup_timestamp_seconds=last_backup,
            waiting_queries=self.coalescer.n_waiting,
            calls={
                "search": int(self.coalescer.is_busy),
                "read": self.reads.n_running,
                "write": self.writes.n_running,
                "long": self.long_work.n_running,
            },
            indexing=self.indexing.state,
        )

    def _get_version(self) -> int:
        """Return a number that changes after every call that may have changed the collection."""
        return self.writes.n_finished + self.long_work.n_finished


class Registry:
    """All collections of a source. A thread opens them one after the other if the source allows that.

    Each has its own queues, so that none waits for calls of another. ``overviews``, ``changes`` (creating and
    dropping collections) and ``restores`` are the queues for calls that concern all of them.
    """

    def __init__(self, source: CollectionSource, limits: Limits, metrics: Metrics) -> None:
        self.source, self.limits, self.metrics = source, limits, metrics
        self.executor = make_executor()
        self.overviews = CallQueue(self.executor, 4, limits.seconds, limits.seconds)
        self.changes = CallQueue(self.executor, 4, limits.seconds, None)
        self.restores = CallQueue(self.executor, 1, limits.seconds, None)  # each builds an index
        self.memory = FitMemory(limits.fit_bytes)
        self.cache = OverviewCache(_OVERVIEWS)
        self.n_requests = 0  # requests to collections that are not answered yet
        self._changing = threading.Lock()
        self._opened: dict[str, OpenCollection] = {}
        self._dropping: set[str] = set()
        self._restoring: set[str] = set()
        self._replacing: set[str] = set()  # those whose backup is being put in place
        self._opening = sorted(name for name in source.names() if is_name(name))  # not open yet
        self.opening_error: BaseException | None = None
        self._stop_opening = threading.Event()
        self._opener: threading.Thread | None = None
        if source.opens_in_background:
            self._opener = threading.Thread(target=self._open_all, name="posh-opening", daemon=True)
            self._opener.start()
            return
        self._open_all()
        if self.opening_error is not None:
            self.close()
            raise self.opening_error

    def _open_all(self) -> None:
        try:
            with cancel_on(self._stop_opening):
                while self._opening and not self._stop_opening.is_set():
                    name = self._opening[0]
                    self._open(name)
                    self._opening.pop(0)
        except CancelledError:
            pass  # the service stops
        except BaseException as error:  # the server stops with this error
            self.opening_error = error

    @property
    def n_opening(self) -> int:
        """Collections that are not open yet."""
        return len(self._opening)

    def __len__(self) -> int:
        return len(self._opened)

    @contextmanager
    def all_in_use(self) -> Iterator[list[OpenCollection]]:
        """Yield all collections, sorted by name, and keep them open; call it on the event loop's thread."""
        with ExitStack() as stack:
            collections = [self._opened[name] for name in sorted(self._opened)]
            for opened in collections:
                stack.enter_context(opened.in_use())
            yield collections

    async def wait_until_open(self, name: str | None = None) -> None:
        """Wait until a collection is open, by default all of them; raise a problem if that takes long.

        It does nothing for a name without a collection.
        """
        deadline = time.monotonic() + self.limits.seconds
        while name in self._replacing or name in self._opening or (name is None and self._opening):
            if time.monotonic() > deadline:
                raise make_busy_problem("expected collections that are open, got some that are being opened")
            await asyncio.sleep(_POLL_SECONDS)

    def get(self, name: str) -> OpenCollection:
        """Return the collection of this name, or raise UnknownCollectionError."""
        opened = self._opened.get(name)
        if opened is None:
            raise UnknownCollectionError(
                f"expected the name of a collection, got {name!r:.80}: see /v1/collections"
            )
        return opened

    def create(self, name: str, metadata: dict[str, Any], options: dict[str, Any]) -> OpenCollection:
        """Create a collection; call it in a thread."""
        validate_name(name)
        with self._changing:
            if (
                name in self._opened
                or name in self._dropping
                or name in self._restoring
                or name in self._opening
            ):
                raise CollectionExistsError(
                    f"expected a new name, got {name!r}, which is taken: drop it first"
                )
            self._require_room()
            opened = OpenCollection(name, self.source.create(name, metadata, options), self)
            self._opened[name] = opened
        log_event(logging.INFO, "created", collection=name)
        return opened

    def _require_room(self) -> None:
        if len(self._opened) + len(self._opening) >= self.limits.collections:
            raise LimitError(
                "collections",
                f"expected at most {self.limits.collections} collections, got one more: drop another",
            )

    def _open(self, name: str) -> None:
        start = time.perf_counter()
        self._opened[name] = OpenCollection(name, self.source.open(name), self)
        log_event(logging.INFO, "opened", collection=name, seconds=time.perf_counter() - start)

    async def drop(self, name: str) -> None:
        """Delete a collection as soon as no request uses it; new requests no longer find it."""
        opened = self._opened.pop(self.get(name).name)
        self._dropping.add(name)
        try:
            await opened.wait_until_unused()
            await self.changes.run(self._delete, opened)
        except ProblemError:  # too busy: it stays
            self._opened[name] = opened
            raise
        finally:
            self._dropping.discard(name)
        log_event(logging.INFO, "dropped", collection=name)

    def _delete(self, opened: OpenCollection) -> None:
        self._close(opened)
        self.source.drop(opened.name)

    def _close(self, opened: OpenCollection) -> None:
        opened.fields.evict()
        opened.map.evict()
        opened.collection.close()
        self.metrics.remove(opened.name)

    async def restore(self, name: str, backup: str) -> OpenCollection:
        """Replace a collection by a backup, or create it from one.

        The backup is copied and indexed while the collection is in use. Then requests wait until those in
        progress have finished and the copy is in place.
        """
        validate_name(name)
        with self._changing:
            if name in self._dropping or name in self._restoring:
                raise make_busy_problem(f"expected {name!r} not to be dropped or restored, but it is")
            if name not in self._opened:
                self._require_room()
            self._restoring.add(name)
        try:
            staged = await self.restores.run(self.source.stage_backup, name, backup)
            try:
                await self._replace(name, staged)
            finally:
                await asyncio.to_thread(staged.discard)
        finally:
            self._restoring.discard(name)
        log_event(logging.INFO, "restored", collection=name, backup=backup)
        return self._opened[name]

    async def _replace(self, name: str, staged: StagedCollection) -> None:
        """Put a staged collection in place of the open one, as soon as no request uses that."""
        self._replacing.add(name)
        opened = self._opened.pop(name, None)
        try:
            if opened is not None:
                await opened.wait_until_unused()
            await self.changes.run(self._put_in_place, name, opened, staged)
        except ProblemError:  # too busy: it stays
            if opened is not None:
                self._opened[name] = opened
            raise
        finally:
            self._replacing.discard(name)

    def _put_in_place(self, name: str, opened: OpenCollection | None, staged: StagedCollection) -> None:
        if opened is not None:
            self._close(opened)
        try:
            staged.put_in_place()
        except BaseException:
            if opened is not None:
                self._open(name)  # the collection of before
            raise
        self._open(name)

    def cancel(self) -> None:
        """Cancel all fits."""
        for opened in list(self._opened.values()):
            opened.indexing.cancel()

    def close(self) -> None:
        """Cancel fits, finish other calls, and close all collections."""
        self._stop_opening.set()
        if self._opener is not None:
            self._opener.join()
        self.cancel()
        self.executor.shutdown()
        deadline = time.monotonic() + _PATIENCE
        for opened in self._opened.values():
            opened.indexing.shut_down(deadline - time.monotonic())
            opened.collection.close()
        log_event(logging.INFO, "closed", collections=len(self._opened))
