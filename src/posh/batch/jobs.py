"""Jobs: tasks that make the parts of a folder, each complete or absent, so that a job can be resumed.

A job writes to one folder. ``job.json`` has its parameters. Each part is a sub-folder with a
``manifest.json``, which describes the inputs of the part. A part is written under a temporary name and
renamed when it is complete. A part whose manifest agrees with the task is not made again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from posh._durable import (
    LockFile,
    explain_disk_errors,
    make_folder,
    sync_descriptor,
    sync_folder,
    write_atomically,
)
from posh._runtime import track_progress
from posh.batch.workers import Workers
from posh.errors import FormatError, StorageError

__all__ = ["JOB", "MANIFEST", "Outcome", "Task", "is_finished", "make_parts", "open_job", "read_job"]
__all__ += ["read_manifest", "write_part"]

JOB, MANIFEST = "job.json", "manifest.json"
VERSION = 1
_LOCK = ".posh-batch-lock"
_UNFINISHED = re.compile(r"\.unfinished-[0-9a-f]{32}")
_LOG_INTERVAL = 5.0  # seconds
_log = logging.getLogger("posh.batch")


class Outcome(NamedTuple):
    """The result of a step: it has ``n_parts``, of which ``n_resumed`` were finished before.

    ``n_rows`` vectors (or queries, for a search: once for each shard) were processed in ``seconds``, using
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
        """The throughput; 0 if nothing was left to do."""
        return self.n_rows / self.seconds if self.seconds else 0.0


class Task(Protocol):
    """The input of a worker that makes one part."""

    @property
    def part(self) -> Path:
        """The folder of the part."""

    @property
    def made_from(self) -> dict[str, Any]:
        """The description of the inputs, for the manifest."""

    @property
    def n_rows(self) -> int:
        """The number of vectors to process."""


def make_parts(
    output: Path, function: Callable[[Any], int], tasks: Sequence[Task], workers: Workers, title: str
) -> Outcome:
    """Let workers make the unfinished parts; ``function`` makes one and returns its number of rows."""
    start = logged = time.perf_counter()
    pending = [task for task in tasks if not is_finished(task.part, task.made_from)]
    n_resumed = len(tasks) - len(pending)
    if n_resumed:
        _log.info("%s: %d of %d parts are finished already", title, n_resumed, len(tasks))
    n_rows, cpu_seconds = 0, 0.0
    results: Iterator[tuple[int, float]] = workers.results(_Timed(function), pending)
    for i, (n, seconds) in enumerate(track_progress(results, title, "part", len(pending)), 1):
        n_rows, cpu_seconds = n_rows + n, cpu_seconds + seconds
        now = time.perf_counter()
        if now - logged > _LOG_INTERVAL:
            logged = now
            rate = n_rows / (now - start)
            _log.info("%s: %d of %d parts, %.0f rows per second", title, i, len(pending), rate)
    return Outcome(output, len(tasks), n_resumed, n_rows, time.perf_counter() - start, cpu_seconds)


@dataclass(frozen=True)
class _Timed:
    """A function that also returns the CPU seconds that it took."""

    function: Callable[[Any], int]

    def __call__(self, task: Any) -> tuple[int, float]:
        start = time.process_time()
        return self.function(task), time.process_time() - start


# Folders -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def open_job(path: Path, kind: str, parameters: Mapping[str, Any]) -> Iterator[None]:
    """Create or resume a job in a folder, and lock the folder.

    A folder with a job of another kind or with other parameters is refused, and so is one with other files.
    Unfinished parts of killed workers are removed before and after.
    """
    job = {"format": kind, "version": VERSION, "parameters": dict(parameters)}
    make_folder(path)
    if not (path / JOB).exists():
        others = [entry.name for entry in path.iterdir() if not entry.name.startswith(".")]
        if others:
            raise FileExistsError(
                f"{path}: expected an empty folder or one to resume, found other files ({min(others)}): "
                "choose another folder"
            )
    lock = LockFile(path / _LOCK)
    try:
        _acquire(lock, path)
        if (path / JOB).exists():
            _require_same_parameters(path, read_job(path, kind)["parameters"], job["parameters"])
        else:
            _write_json(path / JOB, job)
        _remove_unfinished(path)
        yield
        _remove_unfinished(path)
    finally:
        lock.close()


def _acquire(lock: LockFile, path: Path) -> None:
    try:
        lock.lock(wait=False)
    except BlockingIOError:
        raise StorageError(f"{path}: another process works on this job: wait until it ends") from None


def _require_same_parameters(path: Path, stored: Mapping[str, Any], requested: Any) -> None:
    for name in {**stored, **requested}:
        if stored.get(name) != requested.get(name):
            raise ValueError(
                f"{path}: expected {name}={stored.get(name)!r}, with which the job began, "
                f"got {requested.get(name)!r}: choose another folder, or remove this one to begin again"
            )


def read_job(path: Path, kind: str) -> dict[str, Any]:
    """Return the content of ``job.json``; raise FormatError if it is a job of another kind."""
    try:
        job = json.loads((path / JOB).read_bytes())
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: expected a folder of 'posh batch', found no {JOB}") from None
    except ValueError as error:
        raise FormatError(f"{path / JOB}: not readable ({error})") from error
    found = (job.get("format"), job.get("version")) if isinstance(job, dict) else job
    if found != (kind, VERSION):
        raise FormatError(
            f"{path / JOB}: expected a job of the format {kind!r}, version {VERSION}, got {found}"
        )
    return dict(job)


def _remove_unfinished(path: Path) -> None:
    for entry in path.iterdir():
        if _UNFINISHED.fullmatch(entry.name):
            shutil.rmtree(entry, ignore_errors=True)


# Parts -------------------------------------------------------------------------------------------------


def read_manifest(part: Path) -> dict[str, Any] | None:
    """Return the manifest of a part, or None if the part is not finished."""
    try:
        return dict(json.loads((part / MANIFEST).read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise FormatError(
            f"{part / MANIFEST}: not readable ({error}): remove {part} to make it again"
        ) from error


def is_finished(part: Path, made_from: Mapping[str, Any]) -> bool:
    """Return whether a part exists that was made from these inputs."""
    manifest = read_manifest(part)
    return manifest is not None and manifest["made_from"] == json.loads(json.dumps(made_from))


@contextlib.contextmanager
def write_part(part: Path, made_from: Mapping[str, Any], **details: Any) -> Iterator[Path]:
    """Yield a temporary folder to write a part to, then add the manifest and rename the folder.

    If two workers make the same part, the first one to finish it wins: both parts are equal.
    """
    folder = part.with_name(f".unfinished-{uuid.uuid4().hex}")
    try:
        with explain_disk_errors(part, folder):
            folder.mkdir()
            yield folder
            for path in folder.iterdir():
                if path.is_file():
                    _sync(path)
            _write_json(folder / MANIFEST, {"made_from": dict(made_from), **details})
        if part.exists() and not is_finished(part, made_from):  # made from a shard that has changed since
            part.rename(part.with_name(f".unfinished-{uuid.uuid4().hex}"))
        try:
            folder.rename(part)
        except OSError:
            if not is_finished(part, made_from):
                raise
        sync_folder(part.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        sync_descriptor(file.fileno())


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    with write_atomically(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n")
