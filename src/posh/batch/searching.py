"""Search: many queries against the indexes of all shards, and one exact merge."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from posh import _validate
from posh._files import atomic_write
from posh._progress import progress
from posh.batch.jobs import Outcome, make_parts
from posh.batch.joined import search_all
from posh.batch.merging import Ids, merged
from posh.batch.parts import JOB, MANIFEST, is_finished, job_folder, making, read_job, read_manifest
from posh.batch.steps import INDEX, finished_parts
from posh.batch.workers import Workers
from posh.datasets._guard import reading, require
from posh.index.hits import Hits
from posh.index.index import Index
from posh.index.params import SearchParams
from posh.index.snapshot import IndexSnapshot
from posh.preprocess import Float32
from posh.vector_files.formats import read_matrix

__all__ = ["HITS", "read_hits", "search"]

HITS = "hits.parquet"
_FORMAT, _DONE = "posh-batch-hits", "merged"
_QUERIES = "queries"


class _SearchTask(NamedTuple):
    """Some queries to search in the indexes of some shards."""

    folders: tuple[Path, ...]
    digest: str
    queries: Path
    first: int
    last: int
    params: SearchParams
    part: Path

    @property
    def made_from(self) -> dict[str, Any]:
        return {"indexes": self.digest, "queries": [self.first, self.last]}

    @property
    def n_rows(self) -> int:
        return (self.last - self.first) * len(self.folders)


def search(
    folder: str | Path,
    queries: str | Path | npt.ArrayLike,
    output: str | Path,
    workers: Workers,
    *,
    k: int = 10,
    n_at_once: int = 65_536,
    shards_at_once: int | None = None,
    **options: Any,
) -> Outcome:
    """Search the shards that ``build`` has indexed for the k nearest documents of many queries (m, d).

    ``queries`` are an array or a file of vectors; ``options`` are those of :meth:`posh.Index.search`, but for
    ``filter``. A task searches ``shards_at_once`` shards for ``n_at_once`` queries. By default each worker
    gets two tasks, and a job that is resumed goes on as it began. The folder ``output`` then has
    ``hits.parquet`` with the columns query, id and score: of each query the best score first, and of equal
    scores the lowest id. :func:`read_hits` reads it.
    """
    folder, output = Path(folder).absolute(), Path(output).absolute()
    params = SearchParams(k=k, **options)
    _validate.integer("n_at_once", n_at_once, 1)
    if shards_at_once is not None:
        _validate.integer("shards_at_once", shards_at_once, 1)
    read_job(folder, INDEX)
    parts = finished_parts(folder)
    indexes, digests = [part / "index" for part in parts], [_digest(part) for part in parts]
    array = _checked(queries, indexes[0], params)
    parameters: dict[str, Any] = {
        "indexes": hashlib.sha256("".join(digests).encode()).hexdigest(),
        "queries": hashlib.sha256(array.tobytes()).hexdigest(),
        "n_at_once": n_at_once,
        "shards_at_once": shards_at_once or _begun(output) or -(-len(parts) // (2 * workers.n_workers)),
        "options": params.as_arguments(),
    }
    with job_folder(output, _FORMAT, parameters):
        if is_finished(output / _DONE, parameters):
            n_tasks = -(-len(indexes) // parameters["shards_at_once"]) * -(-len(array) // n_at_once)
            return Outcome(output, n_tasks, n_tasks, 0, 0.0, 0.0)
        start = time.perf_counter()
        _write_queries(output, array)
        step = parameters["shards_at_once"]
        tasks = [
            _SearchTask(
                tuple(indexes[group : group + step]),
                hashlib.sha256("".join(digests[group : group + step]).encode()).hexdigest(),
                output / _QUERIES / "queries.npy",
                first,
                min(first + n_at_once, len(array)),
                params,
                output / f"queries-{first:09d}-{group:05d}",
            )
            for first in range(0, len(array), n_at_once)
            for group in range(0, len(indexes), step)
        ]
        outcome = make_parts(output, _search, tasks, workers, "searching")
        _merge(output, tasks, k, parameters)
        return outcome._replace(seconds=time.perf_counter() - start)


def _begun(output: Path) -> int | None:
    """How many shards a task searches in the job that is to be resumed."""
    if not (output / JOB).exists():
        return None
    return int(read_job(output, _FORMAT)["parameters"]["shards_at_once"])


def _checked(queries: Any, index: Path, params: SearchParams) -> Float32:
    """The queries, if they and the parameters fit the indexes: asked once, and not by every worker."""
    array = read_matrix(Path(queries), None) if isinstance(queries, str | Path) else queries
    snapshot = Index.load(index, mmap=True).snapshot()
    params.completed(snapshot.options, snapshot.hasher)
    return np.ascontiguousarray(snapshot.checked(_validate.queries(array)), np.float32)


def _digest(part: Path) -> str:
    """What an index was made from: one that is made again from the same is the same."""
    return hashlib.sha256((part / MANIFEST).read_bytes()).hexdigest()


def _write_queries(output: Path, array: Float32) -> None:
    made_from = {"sha256": hashlib.sha256(array.tobytes()).hexdigest()}
    if not is_finished(output / _QUERIES, made_from):
        with making(output / _QUERIES, made_from) as folder:
            np.save(folder / "queries.npy", array)


@lru_cache(maxsize=2)
def _opened(folders: tuple[Path, ...], digest: str) -> list[IndexSnapshot]:
    """Some indexes; a worker that gets other queries for them does not open them again."""
    return [Index.load(folder, mmap=True).snapshot() for folder in folders]


def _search(task: _SearchTask) -> int:
    snapshots = _opened(task.folders, task.digest)
    queries = np.load(task.queries, mmap_mode="r", allow_pickle=False)[task.first : task.last]
    hits = search_all(snapshots, np.array(queries), task.params)
    with making(task.part, task.made_from, kind=hits.kind) as folder:
        np.save(folder / "ids.npy", hits.ids)
        np.save(folder / "scores.npy", hits.scores)
    return task.n_rows


# Merging -------------------------------------------------------------------------------------------


def _merge(output: Path, tasks: Sequence[_SearchTask], k: int, parameters: dict[str, Any]) -> None:
    """Write the file of results, then remove the parts that it was made from."""
    arrow = require("pyarrow", "writing Parquet")
    parquet = require("pyarrow.parquet", "writing Parquet")
    fields = [("query", arrow.int64()), ("id", arrow.int64()), ("score", arrow.float32())]
    about = read_manifest(tasks[0].part)
    assert about is not None
    metadata = {"posh.kind": about["kind"], "posh.k": str(k), "posh.n_queries": str(tasks[-1].last)}
    schema = arrow.schema(fields, metadata)
    batches = [list(some) for _, some in groupby(tasks, key=lambda task: task.first)]
    with atomic_write(output / HITS) as temporary, parquet.ParquetWriter(temporary, schema) as writer:
        for some in progress(batches, "merging", "batch"):
            ids, scores = _best(some, k)
            found = ids >= 0
            numbers = np.repeat(np.arange(some[0].first, some[0].last), found.sum(axis=1))
            writer.write_table(arrow.table([numbers, ids[found], scores[found]], schema=schema))
    with making(output / _DONE, parameters):
        pass
    for task in tasks:
        shutil.rmtree(task.part, ignore_errors=True)
    shutil.rmtree(output / _QUERIES, ignore_errors=True)


def _best(tasks: Sequence[_SearchTask], k: int) -> tuple[Ids, Float32]:
    results = _results(tasks)
    best = next(results)
    for others in results:
        best = merged(best, others, k)
    return best


def _results(tasks: Sequence[_SearchTask]) -> Iterator[tuple[Ids, Float32]]:
    for task in tasks:
        with reading(task.part, "part of results"):
            ids = np.load(task.part / "ids.npy", allow_pickle=False)
            scores = np.load(task.part / "scores.npy", allow_pickle=False)
        yield ids, scores


def read_hits(output: str | Path) -> Hits:
    """Return the results of :func:`search` as :class:`posh.Hits`, all queries in memory."""
    output = Path(output)
    if not (output / HITS).is_file():
        raise FileNotFoundError(f"{output}: expected results of a finished search, found no {HITS}")
    read_job(output, _FORMAT)
    with reading(output / HITS, "Parquet"):
        table = require("pyarrow.parquet", "reading Parquet").read_table(output / HITS)
        metadata = table.schema.metadata
        shape = int(metadata[b"posh.n_queries"]), int(metadata[b"posh.k"])
        query, found, score = (table.column(name).to_numpy() for name in ("query", "id", "score"))
        ids, scores = np.full(shape, -1, np.int64), np.full(shape, -np.inf, np.float32)
        place = np.arange(len(query)) - np.searchsorted(query, query)
        ids[query, place], scores[query, place] = found, score
        return Hits(ids, scores, metadata[b"posh.kind"].decode())
