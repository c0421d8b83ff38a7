"""What the steps of a batch have in common: tasks that make parts, and what a step tells when it is done."""

from __future__ import annotations

import logging
import random
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from posh import _validate
from posh._progress import progress
from posh.batch.parts import is_finished, job_folder, making
from posh.batch.shards import Columns, Shard, opened, read_rows
from posh.batch.workers import Workers
from posh.datasets._guard import reading, require
from posh.errors import FormatError
from posh.hashers.base import Hasher
from posh.model_files import model_digest
from posh.preprocess import Float32

__all__ = ["Outcome", "Task", "digest_of", "forget", "make_parts", "require_distinct_ids", "sampled"]

_EVERY = 5.0  # seconds between two lines of the log
_ROWS = 65_536  # ids that are checked at once
_log = logging.getLogger("posh.batch")


class Outcome(NamedTuple):
    """What a step did: of ``n_parts``, ``n_resumed`` were finished before.

    ``n_rows`` vectors (or queries, for a search: once for each shard) were done in ``seconds``, which took
    ``cpu_seconds`` of all workers together (of this process, for a fit).
    """

    output: Path
    n_parts: int
    n_resumed: int
    n_rows: int
    seconds: float
    cpu_seconds: float

    @property
    def rows_per_second(self) -> float:
        """The throughput; 0 if all was done before."""
        return self.n_rows / self.seconds if self.seconds else 0.0


class Task(Protocol):
    """What a worker needs to make one part."""

    @property
    def part(self) -> Path:
        """Where the part is to be."""

    @property
    def made_from(self) -> dict[str, Any]:
        """What its manifest is to say."""

    @property
    def n_rows(self) -> int:
        """How many vectors it is about."""


def make_parts(
    output: Path, function: Callable[[Any], int], tasks: Sequence[Task], workers: Workers, title: str
) -> Outcome:
    """Let workers make the parts that are not finished; ``function`` makes one and returns its rows."""
    start = logged = time.perf_counter()
    left = [task for task in tasks if not is_finished(task.part, task.made_from)]
    if len(left) < len(tasks):
        _log.info("%s: %d of %d parts are there already", title, len(tasks) - len(left), len(tasks))
    n_rows, cpu_seconds = 0, 0.0
    results: Iterator[tuple[int, float]] = workers.results(_Timed(function), left)
    for i, (n, used) in enumerate(progress(results, title, "part", len(left)), 1):
        n_rows, cpu_seconds = n_rows + n, cpu_seconds + used
        now = time.perf_counter()
        if now - logged > _EVERY:
            logged = now
            _log.info("%s: %d of %d parts, %.0f rows per second", title, i, len(left), n_rows / (now - start))
    n_resumed = len(tasks) - len(left)
    return Outcome(output, len(tasks), n_resumed, n_rows, time.perf_counter() - start, cpu_seconds)


@dataclass(frozen=True)
class _Timed:
    """A function that also returns the CPU seconds that it took."""

    function: Callable[[Any], int]

    def __call__(self, task: Any) -> tuple[int, float]:
        start = time.process_time()
        return self.function(task), time.process_time() - start


def digest_of(hasher: Hasher[Any]) -> str:
    """What tells one hasher from another, fitted or not."""
    if hasattr(hasher, "weights_"):
        return model_digest(hasher.to_bytes(), "model")
    return f"{type(hasher).__name__} {sorted(hasher.get_params().items())}"


# Sampling ------------------------------------------------------------------------------------------


class _SampleTask(NamedTuple):
    """Some rows of a shard."""

    shard: Shard
    columns: Columns
    rows: tuple[int, ...]
    part: Path

    @property
    def made_from(self) -> dict[str, Any]:
        return {"shard": self.shard.identity()}

    @property
    def n_rows(self) -> int:
        return len(self.rows)


def sampled(
    shards: Sequence[Shard],
    columns: Columns,
    n: int,
    random_state: int,
    folder: Path,
    workers: Workers,
) -> Float32:
    """Return n vectors (n, d) of all shards, at random, in their order; all vectors if there are not more.

    ``folder`` keeps what was read until the caller removes it, so that this can be resumed.
    """
    n_rows = sum(shard.n_rows for shard in shards)
    # random.sample needs memory for n numbers, NumPy's choice without replacement for all of them.
    chosen = np.array(sorted(random.Random(random_state).sample(range(n_rows), min(n, n_rows))), np.int64)
    ends = np.cumsum([shard.n_rows for shard in shards])
    parts = np.split(chosen, np.searchsorted(chosen, ends[:-1]))
    tasks = [
        _SampleTask(shard, columns, tuple((rows - end + shard.n_rows).tolist()), folder / f"part-{i:05d}")
        for i, (shard, rows, end) in enumerate(zip(shards, parts, ends.tolist(), strict=True))
        if len(rows)
    ]
    parameters = {"n": n, "random_state": random_state, "columns": list(columns)}
    with job_folder(folder, "posh-batch-sample", parameters):
        make_parts(folder, _take_sample, tasks, workers, "sampling")
        return _together(tasks)


def _take_sample(task: _SampleTask) -> int:
    vectors = read_rows(task.shard, task.columns, np.array(task.rows, np.int64))
    with making(task.part, task.made_from) as folder:
        np.save(folder / "vectors.npy", vectors)
    return len(vectors)


def _together(tasks: Iterable[_SampleTask]) -> Float32:
    vectors: list[Float32] = []
    for task in tasks:
        vectors.append(np.load(task.part / "vectors.npy", allow_pickle=False))
        if vectors[-1].shape[1] != vectors[0].shape[1]:
            raise FormatError(
                f"{task.shard.path}: expected vectors of {vectors[0].shape[1]} numbers, as in other shards, "
                f"got {vectors[-1].shape[1]}"
            )
    return np.concatenate(vectors)


def forget(folder: Path) -> None:
    """Remove the folder of a sample that was used."""
    shutil.rmtree(folder, ignore_errors=True)


def require_distinct_ids(shards: Sequence[Shard], columns: Columns) -> None:
    """Raise a FormatError if two shards have the same id; reads the columns of ids only."""
    if columns.id is None or len(shards) == 1:
        return
    ids, n = np.empty(sum(shard.n_rows for shard in shards), np.int64), 0
    for shard in progress(shards, "comparing ids", "shard"):
        own = _read_ids(shard, columns.id)
        ids[n : n + len(own)] = own
        n += len(own)
    ids = ids[:n]
    ids.sort()  # in its place: this is all the memory that it takes
    again = ids[1:][ids[1:] == ids[:-1]]
    if len(again):
        holders = [shard.path for shard in shards if again[0] in _read_ids(shard, columns.id)]
        raise FormatError(
            f"expected each id in one shard only, got {again[0]} in {holders[0]} and in {holders[1]}: "
            "give documents other ids"
        )


def _read_ids(shard: Shard, column: str) -> npt.NDArray[np.int64]:
    """Return the ids of a shard, each once: whoever reads its vectors refuses those that are there twice."""
    path = Path(shard.path)
    parts = [np.empty(0, np.int64)]
    with opened(shard.path) as file:
        with reading(path, "Parquet"):
            table = require("pyarrow.parquet", "reading Parquet").ParquetFile(file).read(columns=[column])
        for batch in table.to_batches(_ROWS):
            try:
                parts.append(_validate.ids(batch.column(0).to_pylist()))
            except ValueError as error:
                raise FormatError(f"{path}: {error}") from error
    return np.unique(np.concatenate(parts))
