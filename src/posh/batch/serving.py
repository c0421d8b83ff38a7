"""The shards of ``build`` as one collection, searched by processes of this machine.

Each process keeps some shards open. It is restarted when it dies or hangs.
"""

from __future__ import annotations

import contextlib
import logging
import math
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import reduce
from multiprocessing import connection
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

from posh._runtime import limit_threads, resolve_threads
from posh._validate import validate_integer
from posh.batch.jobs import read_job, read_manifest
from posh.batch.shard_search import merge_hits, search_shards
from posh.batch.steps import INDEX, TEMPLATE, list_parts
from posh.batch.workers import get_process_context
from posh.collection.base import BaseCollection, Id, Include, Item, Payload
from posh.collection.filters import Filter
from posh.errors import MissingShardsError
from posh.hashers.base import Hasher
from posh.index.base import IndexSnapshot
from posh.index.codes.snapshot import CodeSnapshot
from posh.index.hits import Hits
from posh.index.nearest.report import IndexReport
from posh.index.open import load_snapshot
from posh.index.params import SearchParams
from posh.preprocess import Float32

__all__ = ["ShardProcess", "ShardedCollection"]

_BEAT_INTERVAL = 1.0  # seconds between two heartbeats of a process
_BEAT_TIMEOUT = 10.0  # seconds without a heartbeat after which a process is killed
_MAX_PAUSE = 30.0  # seconds between two attempts to start a process that keeps dying
_log = logging.getLogger("posh.batch")


class ShardedCollection(BaseCollection):
    """The shards that :func:`posh.batch.build` has indexed, as a collection that can be searched.

    ``n_processes`` processes (default: one for each core) keep the shards open. The collection has ids and
    scores only: no payloads, no vectors, no writes.

    A search covers all shards or fails: while a process is missing, it raises
    :class:`~posh.errors.MissingShardsError`, which names its shards. The process is restarted automatically.
    """

    has_items: ClassVar[bool] = False

    def __init__(self, folder: str | Path, *, n_processes: int | None = None) -> None:
        folder = Path(folder).absolute()
        read_job(folder, INDEX)
        parts = list_parts(folder)
        n = min(
            len(parts),
            resolve_threads() if n_processes is None else validate_integer("n_processes", n_processes, 1),
        )
        self._n_documents = sum((read_manifest(part) or {})["n_rows"] for part in parts)
        self._template = load_snapshot(folder / TEMPLATE / "index")
        self._folder, self._n_shards = folder, len(parts)
        self._lock = threading.Lock()
        self._processes = [ShardProcess(parts[i::n], max(1, resolve_threads() // n)) for i in range(n)]

    def wait(self, seconds: float = 60.0) -> Self:
        """Wait until all processes are ready.

        Raises :class:`~posh.errors.MissingShardsError` after a timeout.
        """
        deadline = time.monotonic() + seconds
        missing = [
            process
            for process in self._processes
            if not process.is_ready.wait(max(0.0, deadline - time.monotonic()))
        ]
        if missing:
            raise self._build_error(missing)
        return self

    @property
    def processes(self) -> Mapping[int | None, list[str]]:
        """The names of the shards of each process, by process id."""
        return {process.pid: process.names for process in self._processes}

    @property
    def n_features(self) -> int:
        """The number of columns of all vectors."""
        n_features = self._template.n_features
        assert n_features is not None
        return n_features

    @property
    def hasher(self) -> Hasher[Any] | None:
        """The hasher of all shards; None if they are searched by a metric."""
        return self._template.hasher if isinstance(self._template, CodeSnapshot) else None

    @property
    def metadata(self) -> Payload:
        """The number of shards."""
        return {"shards": self._n_shards}

    @property
    def index_options(self) -> dict[str, Any]:
        """The options of all shards."""
        return asdict(self._template.options)

    def memory_usage(self) -> None:
        """Return None: the operating system decides which pages of the mapped files are in memory."""

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.close()

    def _search(self, vectors: Float32, params: SearchParams, where: Filter | None, include: Include) -> Hits:
        if where is not None or include.has_fields:
            self._refuse("filters, payloads and vectors")
        with self._lock:
            pipes = {process: process.send((vectors, params)) for process in self._processes}
            # Receive all responses even if one is missing: otherwise the next search would get them.
            responses = {
                process: process.receive(pipe) for process, pipe in pipes.items() if pipe is not None
            }
        for response in responses.values():
            if isinstance(response, Exception):
                raise response
        missing = [process for process in self._processes if responses.get(process) is None]
        if missing:
            raise self._build_error(missing)
        results = [(hits.ids, hits.scores) for hits in responses.values()]
        best_ids, scores = reduce(lambda first, second: merge_hits(first, second, params.k), results)
        ids = best_ids.astype(object)
        ids[best_ids < 0] = None
        return Hits(ids, scores, next(iter(responses.values())).kind)

    def _build_error(self, processes: Sequence[ShardProcess]) -> MissingShardsError:
        names = sorted(name for process in processes for name in process.names)
        seconds = max(1, math.ceil(max(process.missing_seconds for process in processes)))
        return MissingShardsError(
            f"expected all {self._n_shards} shards, but {', '.join(names)} cannot be searched now: "
            f"their process is being restarted, try again in {seconds} s",
            names,
            seconds,
        )

    def _count(self, where: Filter | None) -> int:
        if where is not None:
            self._refuse("filters")
        return int(self._n_documents)

    def _refuse(self, what: str) -> NoReturn:
        raise ValueError(
            f"expected a search by vectors, got a request for {what}: shards of 'posh batch' have none, "
            "import the vectors into a collection"
        )

    def _get(self, ids: list[Id]) -> list[Item | None]:
        self._refuse("items")

    def _items(self, where: Filter | None, after: Id | None, limit: int | None) -> Iterator[Item]:
        self._refuse("items")

    def _sample(self, n: int) -> Float32:
        self._refuse("vectors")

    def _calibrate(self, queries: Float32 | None) -> None:
        self._refuse("a calibration")

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
        """Do nothing: shards have no deleted documents."""
        return self


class ShardProcess:
    """A process that keeps some shards open, mapped from their files.

    A thread of the parent starts it, receives its heartbeats, kills it when they stop, and starts the next
    one. The process sends heartbeats even while it searches.
    """

    def __init__(self, parts: Sequence[Path], n_threads: int) -> None:
        self.names = [part.name for part in parts]
        self._paths, self._n_threads = [part / "index" for part in parts], n_threads
        self._process: Any = None
        self._pipe: Any = None
        self._started = self._next_start = time.monotonic()
        self._pause, self._opening = 0.0, 1.0  # seconds before the next start, and to open the shards
        self.is_ready = threading.Event()
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._supervisor = threading.Thread(target=self._supervise, daemon=True)
        self._supervisor.start()

    @property
    def pid(self) -> int | None:
        """The process id, or None if the process is not ready."""
        return self._process.pid if self.is_ready.is_set() else None

    @property
    def missing_seconds(self) -> float:
        """The estimated time until the process is ready."""
        with self._lock:
            return max(0.0, self._next_start + self._opening - time.monotonic())

    def send(self, request: object) -> Any:
        """Send a request; return the pipe for the response, or None if the process is missing."""
        pipe = self._pipe
        if pipe is None or not self.is_ready.is_set():
            return None
        try:
            pipe.send(request)
        except OSError:
            self._schedule_restart(pipe)
            return None
        return pipe

    def receive(self, pipe: Any) -> Any:
        """Return the response, or None if the process has died."""
        try:
            return pipe.recv()
        except (EOFError, OSError):
            self._schedule_restart(pipe)
            return None

    def close(self) -> None:
        """End the process."""
        self._closed.set()
        if self._process is not None:
            self._process.kill()
        self._supervisor.join()

    def _schedule_restart(self, pipe: Any) -> None:
        """Schedule the start of the next process, unless it is scheduled already.

        A process that lived long is replaced immediately. After one that died early, the pause doubles.
        """
        with self._lock:
            if pipe is not self._pipe:
                return
            # Other threads may still wait for a response on this pipe. If it were closed here, its descriptor
            # could be reused immediately. It is closed when the last of them releases it.
            self._pipe = None
            self.is_ready.clear()
            now = time.monotonic()
            lived_long = now - self._started > _MAX_PAUSE
            self._pause = 0.0 if lived_long else min(_MAX_PAUSE, max(0.1, 2 * self._pause))
            self._next_start = now + self._pause

    def _supervise(self) -> None:
        """Start the process, wait until it dies, and start the next one."""
        while not self._closed.wait(max(0.0, self._next_start - time.monotonic())):
            try:
                pipe, beats = self._start()
            except OSError as error:
                _log.error("cannot start the process of %s: %s", ", ".join(self.names), error)
                self._schedule_restart(None)
                continue
            self._listen(pipe, beats)
            self._schedule_restart(pipe)
            self._process.kill()
            self._process.join()
            if not self._closed.is_set():
                _log.warning("the process of %s died and is restarted", ", ".join(self.names))

    def _start(self) -> tuple[Any, Any]:
        """Start the process; return the pipes for requests and for heartbeats."""
        context = get_process_context()
        self._started = time.monotonic()
        (pipe, child_pipe), (beats, child_beats) = context.Pipe(), context.Pipe(duplex=False)
        with child_pipe, child_beats:
            process = context.Process(
                target=_serve, args=(child_pipe, child_beats, self._paths, self._n_threads), daemon=True
            )
            process.start()
        self._process = process  # only now: a process that has not started cannot be killed
        with self._lock:
            self._pipe = pipe
        return pipe, beats

    def _listen(self, pipe: Any, beats: Any) -> None:
        """Receive heartbeats until the process dies or stops sending them, or is no longer needed."""
        began = time.monotonic()  # excludes the start of the fork server
        timeout = None  # opening the shards may take any time
        while not self._closed.is_set() and pipe is self._pipe:
            ready = connection.wait([beats, self._process.sentinel], timeout)
            if not ready:
                _log.error("%s: no heartbeat for %.0f s, killed", ", ".join(self.names), _BEAT_TIMEOUT)
            if beats not in ready:
                return
            try:
                beats.recv_bytes()
            except (EOFError, OSError):
                return
            if timeout is None:
                self._opening = time.monotonic() - began
                self.is_ready.set()
            timeout = _BEAT_TIMEOUT


def _serve(pipe: Any, beats: Any, paths: Sequence[Path], n_threads: int) -> None:
    """Open indexes and respond to requests until the pipe closes; the main function of the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent closes the pipe
    limit_threads(n_threads)
    snapshots = [load_snapshot(path, mmap=True) for path in paths]
    threading.Thread(target=_send_heartbeats, args=(beats,), daemon=True).start()
    with contextlib.suppress(EOFError, OSError):  # the parent has closed the pipe
        while True:
            pipe.send(_search(snapshots, *pipe.recv()))


def _send_heartbeats(beats: Any) -> None:
    """Send heartbeats; the first one signals that the shards are open."""
    with contextlib.suppress(OSError):
        while True:
            beats.send_bytes(b"")
            time.sleep(_BEAT_INTERVAL)


def _search(snapshots: Sequence[IndexSnapshot], vectors: Float32, params: SearchParams) -> Hits | Exception:
    try:
        return search_shards(snapshots, vectors, params)
    except Exception as error:
        return error
