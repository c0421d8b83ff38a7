"""Finished parts of a job: folders that appear complete, each with a manifest of what it was made from.

A job writes into one folder. ``job.json`` has its parameters. Each part is a sub-folder with a
``manifest.json``. A part is made under another name and renamed when it is complete, so that a part either is
finished or is not there. A part whose manifest says the same as the job now wants is not made again.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from posh import _system
from posh._files import LockFile, atomic_write, make_folder, sync_folder, writing
from posh.errors import FormatError, StorageError

__all__ = ["JOB", "MANIFEST", "is_finished", "job_folder", "making", "read_job", "read_manifest"]

JOB, MANIFEST = "job.json", "manifest.json"
_LOCK = ".posh-batch-lock"
_UNFINISHED = re.compile(r"\.unfinished-[0-9a-f]{32}")
VERSION = 1


@contextlib.contextmanager
def job_folder(path: Path, kind: str, parameters: Mapping[str, Any]) -> Iterator[None]:
    """Make or resume a job in a folder, for this process alone.

    A folder with a job of another kind or with other parameters is refused, and so is one with other files.
    What killed workers left behind is removed, before and after.
    """
    wanted = {"format": kind, "version": VERSION, "parameters": dict(parameters)}
    make_folder(path)
    if not (path / JOB).exists():
        strangers = [entry.name for entry in path.iterdir() if not entry.name.startswith(".")]
        if strangers:
            raise FileExistsError(
                f"{path}: expected an empty folder or one to resume, found other files ({min(strangers)}): "
                "choose another folder"
            )
    lock = LockFile(path / _LOCK)
    try:
        _take(lock, path)
        if (path / JOB).exists():
            _require_same(path, read_job(path, kind), wanted)
        else:
            _write_json(path / JOB, wanted)
        _remove_unfinished(path)
        yield
        _remove_unfinished(path)
    finally:
        lock.close()


def _take(lock: LockFile, path: Path) -> None:
    try:
        lock.lock(wait=False)
    except BlockingIOError:
        raise StorageError(f"{path}: another process works on this job: wait until it is done") from None


def _require_same(path: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    before, now = found["parameters"], wanted["parameters"]
    for name in {**before, **now}:
        if before.get(name) != now.get(name):
            raise ValueError(
                f"{path}: expected {name}={before.get(name)!r}, as the job there began, "
                f"got {now.get(name)!r}: "
                "choose another folder, or remove this one to begin again"
            )


def read_job(path: Path, kind: str) -> dict[str, Any]:
    """Return what ``job.json`` says, if it is a job of this kind."""
    try:
        found = json.loads((path / JOB).read_bytes())
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: expected a folder of 'posh batch', found no {JOB}") from None
    except ValueError as error:
        raise FormatError(f"{path / JOB}: not readable ({error})") from error
    if not isinstance(found, dict) or (found.get("format"), found.get("version")) != (kind, VERSION):
        about = (found.get("format"), found.get("version")) if isinstance(found, dict) else found
        raise FormatError(
            f"{path / JOB}: expected a job of the format {kind!r}, version {VERSION}, got {about}"
        )
    return found


def read_manifest(part: Path) -> dict[str, Any] | None:
    """Return the manifest of a part; None if it is not finished."""
    try:
        return dict(json.loads((part / MANIFEST).read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise FormatError(
            f"{part / MANIFEST}: not readable ({error}): remove {part} to make it again"
        ) from error


def is_finished(part: Path, made_from: Mapping[str, Any]) -> bool:
    """Whether a part is there that was made from this."""
    found = read_manifest(part)
    return found is not None and found["made_from"] == json.loads(json.dumps(made_from))


@contextlib.contextmanager
def making(part: Path, made_from: Mapping[str, Any], **about: Any) -> Iterator[Path]:
    """Give a folder to write a part into; it gets its name, and a manifest, when all is there.

    If two workers make the same part, that of the first one stays: both are the same.
    """
    folder = part.with_name(f".unfinished-{uuid.uuid4().hex}")
    try:
        with writing(part, folder):
            folder.mkdir()
            yield folder
            for file in folder.iterdir():
                if file.is_file():
                    _sync(file)
            _write_json(folder / MANIFEST, {"made_from": dict(made_from), **about})
        if part.exists() and not is_finished(part, made_from):  # of a shard that has changed since
            part.rename(part.with_name(f".unfinished-{uuid.uuid4().hex}"))
        try:
            folder.rename(part)
        except OSError:
            if not is_finished(part, made_from):
                raise
        sync_folder(part.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sync(file: Path) -> None:
    with file.open("rb+") as opened:
        _system.sync(opened.fileno())


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n")


def _remove_unfinished(path: Path) -> None:
    for entry in path.iterdir():
        if _UNFINISHED.fullmatch(entry.name):
            shutil.rmtree(entry, ignore_errors=True)
