"""The shards of ``build`` as one collection to search: processes of this machine, one merge."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

from posh import _validate
from posh._threads import cores
from posh.batch.merging import merged
from posh.batch.parts import read_job, read_manifest
from posh.batch.shard_process import ShardProcess
from posh.batch.steps import INDEX, TEMPLATE, finished_parts
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
        seconds = max(1, math.ceil(max(process.missing_seconds for process in processes)))
        return MissingShardsError(
            f"expected all {self._n_shards} shards, but {', '.join(names)} cannot be searched at the moment: "
            f"their process is being started again, try again in {seconds} s",
            names,
            seconds,
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
