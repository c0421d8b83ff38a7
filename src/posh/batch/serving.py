"""The shards of ``build`` as one collection to search: processes of this machine, one merge."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from multiprocessing import connection
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

from posh import _validate
from posh._threads import cores, limit_cores
from posh.batch.joined import search_all
from posh.batch.merging import merged
from posh.batch.parts import read_job, read_manifest
from posh.batch.steps import INDEX, TEMPLATE, finished_parts
from posh.batch.workers import process_context
from posh.collection.base import BaseCollection
from posh.collection.filters import Filter
from posh.collection.types import Id, Include, Item, Payload
from posh.errors import MissingShardsError
from posh.hashers.base import Hasher
from posh.index.hits import Hits
from posh.index.index import Index
from posh.index.params import SearchParams
from posh.index.report import IndexReport
from posh.preprocess import Float32

__all__ = ["ShardedCollection"]

_PATIENCE = 60.0  # seconds after which a process that does not answer is killed
_LONGEST = 30.0  # seconds between two attempts to start a process that always dies
_log = logging.getLogger("posh.batch")


class ShardProcess:
    """A process that has some shards open, mapped from their files; it is started again when it dies."""

    def __init__(self, parts: Sequence[Path], n_threads: int) -> None:
        self.names = [part.name for part in parts]
        self._paths, self._n_threads = [part / "index" for part in parts], n_threads
        self._process: Any = None
        self._pipe: Any = None
        self.is_ready = threading.Event()
        self._guard, self._closed = threading.Lock(), threading.Event()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()

    @property
    def pid(self) -> int | None:
        """The number of the process, if one is ready."""
        return self._process.pid if self.is_ready.is_set() else None

    def ask(self, question: object) -> Any:
        """Send a question; return the pipe for the answer, or None if nobody is there."""
        pipe = self._pipe
        if not self.is_ready.is_set():
            return None
        try:
            pipe.send(question)
        except OSError:
            self._lost(pipe)
            return None
        return pipe

    def answer(self, pipe: Any) -> Any:
        """Return the answer, or None if the process that was asked died or took too long."""
        try:
            if pipe.poll(_PATIENCE):
                return pipe.recv()
        except (EOFError, OSError):
            self._lost(pipe)
            return None
        _log.error("%s: no answer within %.0f s, the process is killed", ", ".join(self.names), _PATIENCE)
        self._process.kill()
        self._lost(pipe)
        return None

    def _lost(self, pipe: Any) -> None:
        """Wait for the next process, unless it is there already."""
        with self._guard:
            if pipe is self._pipe:
                self.is_ready.clear()

    def close(self) -> None:
        """End the process."""
        self._closed.set()
        if self._process is not None:
            self._process.kill()
        self._keeper.join()

    def _keep(self) -> None:
        """Start the process, wait until it dies, and begin again."""
        wait = 0.0
        while not self._closed.wait(wait):
            started = time.monotonic()
            self._start()
            if self._closed.is_set():
                self._process.kill()
            self._process.join()
            self.is_ready.clear()
            self._pipe.close()
            lived = time.monotonic() - started
            wait = 0.0 if lived > _LONGEST else min(_LONGEST, max(0.1, 2 * wait))
            if not self._closed.is_set():
                _log.warning("the process of %s died and is started again", ", ".join(self.names))

    def _start(self) -> None:
        context = process_context()
        own, other = context.Pipe()
        self._process = context.Process(
            target=_answer, args=(other, self._paths, self._n_threads), daemon=True
        )
        self._process.start()
        other.close()
        with self._guard:
            self._pipe = own
        if connection.wait([own, self._process.sentinel])[0] is own and _received(own) == "ready":
            self.is_ready.set()


def _received(pipe: Any) -> Any:
    try:
        return pipe.recv()
    except (EOFError, OSError):
        return None


def _answer(pipe: Any, paths: Sequence[Path], n_threads: int) -> None:
    """Open indexes and answer questions until nobody can ask any more; runs in a process of its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the service closes the pipe when it is done
    limit_cores(n_threads)
    snapshots = [Index.load(path, mmap=True).snapshot() for path in paths]
    pipe.send("ready")
    while True:
        try:
            vectors, params = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer: Any = search_all(snapshots, vectors, params)
        except Exception as error:
            answer = error
        pipe.send(answer)


def _best(results: Iterator[Hits], k: int) -> Hits:
    best = next(results)
    for hits in results:
        best = Hits(*merged((best.ids, best.scores), (hits.ids, hits.scores), k), best.kind)
    return best


class ShardedCollection(BaseCollection):
    """The shards that :func:`posh.batch.build` has indexed, as a collection that can be searched.

    ``n_processes`` (default: one for each core) have the shards open, each some of them. All other parts of a
    collection are missing: there are ids and scores, but no payloads and no writes.

    A search is exact or an error: while a process is not there, it is a
    :class:`~posh.errors.MissingShardsError` that names its shards. The process is started again by itself.
    """

    has_items: ClassVar[bool] = False

    def __init__(self, folder: str | Path, *, n_processes: int | None = None) -> None:
        folder = Path(folder).absolute()
        read_job(folder, INDEX)
        parts = finished_parts(folder)
        n = min(
            len(parts), cores() if n_processes is None else _validate.integer("n_processes", n_processes, 1)
        )
        self._count_all = sum((read_manifest(part) or {})["n_rows"] for part in parts)
        self._template = Index.load(folder / TEMPLATE / "index")
        self._folder, self._n_shards = folder, len(parts)
        self._lock = threading.Lock()
        self._processes = [ShardProcess(parts[i::n], max(1, cores() // n)) for i in range(n)]

    def wait(self, seconds: float = 60.0) -> Self:
        """Return when all processes are ready; a :class:`~posh.errors.MissingShardsError` if not in time."""
        deadline = time.monotonic() + seconds
        missing = [
            process
            for process in self._processes
            if not process.is_ready.wait(max(0.0, deadline - time.monotonic()))
        ]
        if missing:
            raise self._missing(missing)
        return self

    @property
    def processes(self) -> Mapping[int | None, list[str]]:
        """The shards of each process, by its number."""
        return {process.pid: process.names for process in self._processes}

    @property
    def n_features(self) -> int:
        """The number of columns of all vectors."""
        return self._template.hasher.n_features_in_

    @property
    def hasher(self) -> Hasher[Any]:
        """The hasher of all shards."""
        return self._template.hasher

    @property
    def metadata(self) -> Payload:
        """What the collection is."""
        return {"shards": self._n_shards}

    @property
    def index_options(self) -> dict[str, Any]:
        """The options of all shards."""
        return asdict(self._template.options)

    def memory_usage(self) -> None:
        """Not known: the system decides what of the mapped files is in memory."""

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.close()

    def _search(self, vectors: Float32, params: SearchParams, where: Filter | None, include: Include) -> Hits:
        if where is not None or any(include):
            self._refuse("filters, payloads and vectors")
        with self._lock:
            asked = {process: process.ask((vectors, params)) for process in self._processes}
            # The answers of all, also if one is missing: otherwise the next search would get them.
            answers = {process: process.answer(pipe) for process, pipe in asked.items() if pipe is not None}
        for found in answers.values():
            if isinstance(found, Exception):
                raise found
        missing = [process for process in self._processes if answers.get(process) is None]
        if missing:
            raise self._missing(missing)
        hits = _best(iter(answers.values()), params.k)
        ids = hits.ids.astype(object)
        ids[hits.ids < 0] = None
        return Hits(ids, hits.scores, hits.kind)

    def _missing(self, processes: Sequence[ShardProcess]) -> MissingShardsError:
        names = sorted(name for process in processes for name in process.names)
        return MissingShardsError(
            f"expected all {self._n_shards} shards, but {', '.join(names)} cannot be searched at the moment: "
            "their process is being started again, try again in a second",
            names,
        )

    def _count(self, where: Filter | None) -> int:
        if where is not None:
            self._refuse("filters")
        return int(self._count_all)

    def _refuse(self, what: str) -> NoReturn:
        raise ValueError(
            f"expected a search by vectors, got a question for {what}: shards of 'posh batch' have none, "
            "import the vectors into a collection"
        )

    def _get(self, ids: list[Id]) -> list[Item | None]:
        self._refuse("items")

    def _items(self, where: Filter | None, after: Id | None, limit: int | None) -> Iterator[Item]:
        self._refuse("items")

    def _sample(self, n: int) -> Float32:
        self._refuse("vectors")

    def _report(self) -> IndexReport:
        self._refuse("a report")

    def _set_metadata(self, metadata: Payload) -> None:
        self._refuse("metadata")

    def _upsert(self, ids: list[Id], vectors: Float32, payloads: list[Payload]) -> None:
        self._refuse("writes")

    def _delete(self, ids: list[Id]) -> int:
        self._refuse("writes")

    def _delete_where(self, where: Filter, limit: int | None) -> int:
        self._refuse("writes")

    def _update_payload(self, ids: list[Id], payloads: list[Payload], *, replace: bool) -> None:
        self._refuse("writes")

    def _reindex(self, hasher: Hasher[Any] | None, options: Mapping[str, Any]) -> None:
        self._refuse("another index")

    def compact(self) -> Self:
        """There is nothing to give back."""
        return self
