"""What the tests of batches use: shards, workers without processes, workers that are killed."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

import posh
from posh import batch
from posh.batch import jobs

DIGITS = posh.datasets.load("digits")
SIZES = (500, 3, 700, 394)


class Here(batch.Workers):
    """Does the tasks in this process, one after the other, and remembers which parts it made."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def results(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
        for task in tasks:
            yield function(task)
            self.made.append(task.part.name)


class Killed(NamedTuple):
    """A function of a worker that is killed when the part of its third shard is complete but for its name.

    That happens once: then the file ``marker`` is there.
    """

    function: Callable[[Any], Any]
    marker: Path

    def __call__(self, task: Any) -> Any:
        if not task.part.name.endswith("2") or self.marker.exists():
            return self.function(task)
        with mock.patch.object(jobs, "_write_json", self._kill):
            return self.function(task)

    def _kill(self, *_: object) -> None:
        self.marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)


class KilledWorkers(batch.Workers):
    """Other workers, one of which is killed in each step."""

    def __init__(self, workers: batch.Workers, folder: Path) -> None:
        self._workers, self._folder, self.kills = workers, folder, 0

    def __enter__(self) -> KilledWorkers:
        self._workers.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.__exit__()

    def results(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
        marker = self._folder / f"killed-{self.kills}"
        yield from self._workers.results(Killed(function, marker), tasks)
        assert marker.exists()
        self.kills += 1


class Slow(NamedTuple):
    """A function that takes so long for all but the first two tasks that their worker ends meanwhile."""

    function: Callable[[Any], Any]
    first: Sequence[Any]

    def __call__(self, task: Any) -> Any:
        if task.part not in self.first:
            time.sleep(30)
        return self.function(task)


class MortalDriver(batch.Workers):
    """Other workers, whose driver is killed as soon as two parts are finished."""

    def __init__(self, workers: batch.Workers) -> None:
        self._workers = workers

    def __enter__(self) -> MortalDriver:
        self._workers.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.__exit__()

    def results(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
        slow = Slow(function, [task.part for task in tasks[:2]])
        for i, result in enumerate(self._workers.results(slow, tasks)):
            if i == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            yield result


def write_npy(folder: Path) -> list[Path]:
    folder.mkdir(exist_ok=True)
    ends = np.cumsum(SIZES)
    paths = [folder / f"{i}.npy" for i in range(len(SIZES))]
    for path, end, size in zip(paths, ends, SIZES, strict=True):
        np.save(path, DIGITS.base[end - size : end])
    return paths


def write_parquet(path: Path, vectors: Any, ids: Any = None, *, fixed: bool = True) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    flat = pa.array(np.ascontiguousarray(vectors, np.float32).ravel())
    column = (
        pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
        if fixed
        else pa.ListArray.from_arrays(
            np.arange(0, flat.__len__() + 1, vectors.shape[1], dtype=np.int32), flat
        )
    )
    columns = {"vector": column} | ({} if ids is None else {"number": pa.array(ids)})
    pq.write_table(pa.table(columns), path)
    return path


def equal(some: posh.Hits, others: posh.Hits) -> None:
    np.testing.assert_array_equal(some.ids, others.ids)
    np.testing.assert_array_equal(some.scores, others.scores)
    assert some.kind == others.kind


@contextlib.contextmanager
def all_steps(folder: Path, workers: batch.Workers) -> Iterator[posh.Hits]:
    """Fit, encode, build and search; give the results."""
    shards = [folder / "shards"]
    batch.fit(shards, posh.POSH(128, 8, n_epochs=2, random_state=0), folder / "model", workers, n_sample=800)
    batch.encode(folder / "model", shards, folder / "codes", workers)
    index = posh.CodeIndex(posh.Hasher.load(folder / "model"), refine="decoder")
    batch.build(shards, folder / "index", index, workers)
    batch.search(
        folder / "index", DIGITS.queries, folder / "hits", workers, k=7, n_at_once=150, shards_at_once=1
    )
    yield batch.read_hits(folder / "hits")
