"""Search the indexes of all shards for many queries, and merge the hits exactly."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, reduce
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from posh._durable import write_atomically
from posh._runtime import track_progress
from posh._validate import validate_integer, validate_queries
from posh.batch.jobs import (
    JOB,
    MANIFEST,
    Outcome,
    is_finished,
    make_parts,
    open_job,
    read_job,
    read_manifest,
    write_part,
)
from posh.batch.steps import INDEX, list_parts
from posh.batch.workers import Workers
from posh.files import read_vectors
from posh.files.contract import import_extra, translate_errors
from posh.index.base import IndexSnapshot
from posh.index.codes.bitsliced import SlicedCodes
from posh.index.codes.options import CodeParams
from posh.index.codes.snapshot import CodeSnapshot
from posh.index.codes.structures import Queries
from posh.index.hits import Hits, SlotScores, pad_results
from posh.index.open import load_snapshot
from posh.index.params import SearchParams
from posh.preprocess import Float32

__all__ = ["HITS", "merge_hits", "read_hits", "search", "search_shards"]

HITS = "hits.parquet"
_FORMAT, _MERGED, _QUERIES = "posh-batch-hits", "merged", "queries"

Ids = npt.NDArray[np.int64]
IdsAndScores = tuple[Ids, Float32]


class _SearchTask(NamedTuple):
    """Queries to search for in the indexes of some shards."""

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
    """Search the shards that :func:`build` has indexed for the k nearest documents of many queries (m, d).

    Parameters
    ----------
    folder : str or path
        Output of :func:`build`.
    queries : array (m, d), str or path
        Queries, or a file of vectors.
    output : str or path
        Folder for ``hits.parquet`` with the columns query, id and score: for each query the best score first,
        and of equal scores the lowest id first. :func:`read_hits` reads it.
    workers : Workers
        Workers that search.
    k : int
        Hits per query.
    n_at_once, shards_at_once : int
        Queries and shards of one task. By default each worker gets two tasks; a resumed job keeps its number
        of shards.
    **options : Any
        Parameters of ``search`` of the index, except ``filter``.

    """
    folder, output = Path(folder).absolute(), Path(output).absolute()
    validate_integer("n_at_once", n_at_once, 1)
    if shards_at_once is not None:
        validate_integer("shards_at_once", shards_at_once, 1)
    read_job(folder, INDEX)
    parts = list_parts(folder)
    indexes, digests = [part / "index" for part in parts], [_hash_part(part) for part in parts]
    params, array = _validate_search(queries, indexes[0], k, options)
    if shards_at_once is None:
        shards_at_once = _read_shards_at_once(output) or -(-len(parts) // (2 * workers.n_workers))
    parameters: dict[str, Any] = {
        "indexes": _hash_text("".join(digests)),
        "queries": hashlib.sha256(array.tobytes()).hexdigest(),
        "n_at_once": n_at_once,
        "shards_at_once": shards_at_once,
        "options": params.as_arguments(),
    }
    with open_job(output, _FORMAT, parameters):
        if is_finished(output / _MERGED, parameters):
            n_tasks = -(-len(indexes) // shards_at_once) * -(-len(array) // n_at_once)
            return Outcome(output, n_tasks, n_tasks, 0, 0.0, 0.0)
        start = time.perf_counter()
        _write_queries(output, array)
        step = shards_at_once
        tasks = [
            _SearchTask(
                tuple(indexes[group : group + step]),
                _hash_text("".join(digests[group : group + step])),
                output / _QUERIES / "queries.npy",
                first,
                min(first + n_at_once, len(array)),
                params,
                output / f"queries-{first:09d}-{group:05d}",
            )
            for first in range(0, len(array), n_at_once)
            for group in range(0, len(indexes), step)
        ]
        outcome = make_parts(output, _search_task, tasks, workers, "searching")
        _write_hits(output, tasks, k, parameters)
        return outcome._replace(seconds=time.perf_counter() - start)


def _read_shards_at_once(output: Path) -> int | None:
    """Return the number of shards per task of a job to resume, or None for a new job."""
    if not (output / JOB).exists():
        return None
    return int(read_job(output, _FORMAT)["parameters"]["shards_at_once"])


def _validate_search(
    queries: Any, index: Path, k: int, options: dict[str, Any]
) -> tuple[SearchParams, Float32]:
    """Return parameters, and queries as an array; raise if they do not fit the indexes."""
    array = read_vectors(queries) if isinstance(queries, str | Path) else queries
    snapshot = load_snapshot(index, mmap=True)
    for name, value in options.items():
        if name not in type(snapshot.make_params(k)).__dataclass_fields__:
            needed, present = "a metric", "a hasher"
            if not isinstance(snapshot, CodeSnapshot):
                needed, present = present, needed
            raise ValueError(f"{name}={value!r} needs indexes with {needed}, got {present}: leave it out")
    params = snapshot.make_params(k, **options)
    return params, np.ascontiguousarray(snapshot.validate_vectors(validate_queries(array)), np.float32)


def _hash_part(part: Path) -> str:
    """Return the digest of the inputs of an index, which determine it."""
    return hashlib.sha256((part / MANIFEST).read_bytes()).hexdigest()


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _write_queries(output: Path, array: Float32) -> None:
    made_from = {"sha256": hashlib.sha256(array.tobytes()).hexdigest()}
    if not is_finished(output / _QUERIES, made_from):
        with write_part(output / _QUERIES, made_from) as folder:
            np.save(folder / "queries.npy", array)


@lru_cache(maxsize=2)
def _open_indexes(folders: tuple[Path, ...], digest: str) -> list[IndexSnapshot]:
    """Open indexes, once for all tasks of a worker that search them."""
    return [load_snapshot(folder, mmap=True) for folder in folders]


def _search_task(task: _SearchTask) -> int:
    snapshots = _open_indexes(task.folders, task.digest)
    queries = np.load(task.queries, mmap_mode="r", allow_pickle=False)[task.first : task.last]
    hits = search_shards(snapshots, np.array(queries), task.params)
    with write_part(task.part, task.made_from, kind=hits.kind) as folder:
        np.save(folder / "ids.npy", hits.ids)
        np.save(folder / "scores.npy", hits.scores)
    return task.n_rows


# Results -----------------------------------------------------------------------------------------------


def _write_hits(output: Path, tasks: Sequence[_SearchTask], k: int, parameters: dict[str, Any]) -> None:
    """Merge the parts to the file of results, then remove them."""
    arrow = import_extra("pyarrow", "writing Parquet")
    parquet = import_extra("pyarrow.parquet", "writing Parquet")
    fields = [("query", arrow.int64()), ("id", arrow.int64()), ("score", arrow.float32())]
    manifest = read_manifest(tasks[0].part)
    assert manifest is not None
    metadata = {"posh.kind": manifest["kind"], "posh.k": str(k), "posh.n_queries": str(tasks[-1].last)}
    schema = arrow.schema(fields, metadata)
    batches = [list(batch) for _, batch in groupby(tasks, key=lambda task: task.first)]
    with write_atomically(output / HITS) as temporary, parquet.ParquetWriter(temporary, schema) as writer:
        for batch in track_progress(batches, "merging", "batch"):
            ids, scores = _merge_all(map(_read_part, batch), k)
            is_hit = ids >= 0
            numbers = np.repeat(np.arange(batch[0].first, batch[0].last), is_hit.sum(axis=1))
            writer.write_table(arrow.table([numbers, ids[is_hit], scores[is_hit]], schema=schema))
    with write_part(output / _MERGED, parameters):
        pass
    for task in tasks:
        shutil.rmtree(task.part, ignore_errors=True)
    shutil.rmtree(output / _QUERIES, ignore_errors=True)


def _read_part(task: _SearchTask) -> IdsAndScores:
    with translate_errors(task.part, "part of results"):
        ids = np.load(task.part / "ids.npy", allow_pickle=False)
        scores = np.load(task.part / "scores.npy", allow_pickle=False)
    return ids, scores


def read_hits(output: str | Path) -> Hits:
    """Return the results of :func:`search` as :class:`posh.Hits`, all queries in memory."""
    output = Path(output)
    if not (output / HITS).is_file():
        raise FileNotFoundError(f"{output}: expected results of a finished search, found no {HITS}")
    read_job(output, _FORMAT)
    with translate_errors(output / HITS, "Parquet"):
        table = import_extra("pyarrow.parquet", "reading Parquet").read_table(output / HITS)
        metadata = table.schema.metadata
        shape = int(metadata[b"posh.n_queries"]), int(metadata[b"posh.k"])
        query, hit_ids, hit_scores = (table.column(name).to_numpy() for name in ("query", "id", "score"))
        ids, scores = np.full(shape, -1, np.int64), np.full(shape, -np.inf, np.float32)
        rank = np.arange(len(query)) - np.searchsorted(query, query)
        ids[query, rank], scores[query, rank] = hit_ids, hit_scores
        return Hits(ids, scores, metadata[b"posh.kind"].decode())


# Several shards ----------------------------------------------------------------------------------------


def search_shards(snapshots: Sequence[IndexSnapshot], vectors: Float32, params: SearchParams) -> Hits:
    """Return the best documents of several shards, trained from one template, for vectors (m, d).

    Where possible, the shards are searched as one index: queries are encoded once, and the scores found in
    one shard bound the search of the next.
    """
    joined = _join_segments(snapshots, params)
    if joined is None:
        found = [snapshot.search_ids(vectors, params, None) for snapshot in snapshots]
        return Hits(*_merge_all(((hits.ids, hits.scores) for hits in found), params.k), found[0].kind)
    first, segments, ids = joined
    for snapshot in snapshots:
        snapshot.require_files()
    queries = Queries(vectors, first.hasher, first.options.query_active, params.threads)
    k = min(params.k, len(ids))
    counts = segments.search(queries.encode(), k, n_threads=queries.n_threads)
    slots, scores = SlotScores.from_counts(*counts)
    hit_ids = np.where(slots < 0, -1, ids[slots])
    return Hits(*pad_results(hit_ids, scores, params.k), "overlap").above(params.min_score)


def _join_segments(
    snapshots: Sequence[IndexSnapshot], params: SearchParams
) -> tuple[CodeSnapshot, SlicedCodes, Ids] | None:
    """Return the segments of all shards and the ids of their slots, or None if that changes the results.

    Equal scores are in the order of slots. So ids must ascend through all shards.
    """
    first = snapshots[0]
    if not isinstance(first, CodeSnapshot) or not isinstance(params, CodeParams):
        return None
    if first.score_kind(params.scoring) != "overlap":
        return None
    parts, ids, n = [], [np.empty(0, np.int64)], 0
    for snapshot in snapshots:
        structure = snapshot.structure if isinstance(snapshot, CodeSnapshot) else None
        segments = None if structure is None else structure.segments
        if segments is None:
            return None
        parts += [part._replace(first_slot=part.first_slot + n) for part in segments.parts]
        ids.append(np.asarray(snapshot.id_column.rows.rows))
        n += len(segments)
    all_ids = np.concatenate(ids)
    if not n or (all_ids[1:] <= all_ids[:-1]).any():
        return None
    return first, replace(SlicedCodes(first.hasher.n_bits), parts=tuple(parts)), all_ids


def merge_hits(first: IdsAndScores, second: IdsAndScores, k: int) -> IdsAndScores:
    """Return the k best ids and scores (m, k) of two results for the same queries, (m, k') and (m, k'').

    The higher score comes first, and of equal scores the lower id. The id -1 fills up missing hits. No id may
    be in both results; :func:`build` guarantees that for its shards.

    >>> first = np.array([[3, 5]]), np.array([[0.9, 0.5]], np.float32)
    >>> second = np.array([[1, -1]]), np.array([[0.5, -np.inf]], np.float32)
    >>> merge_hits(first, second, 2)
    (array([[3, 1]]), array([[0.9, 0.5]], dtype=float32))
    """
    ids = np.concatenate([first[0], second[0]], axis=1)
    scores = np.concatenate([first[1], second[1]], axis=1)
    is_missing = ids < 0
    keys = np.where(is_missing, np.iinfo(np.int64).max, ids)
    order = np.lexsort((keys, -scores, is_missing), axis=1)[:, :k]
    return np.take_along_axis(ids, order, 1), np.take_along_axis(scores, order, 1)


def _merge_all(results: Iterable[IdsAndScores], k: int) -> IdsAndScores:
    return reduce(lambda first, second: merge_hits(first, second, k), results)
