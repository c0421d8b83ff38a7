"""A lock on the folder of a collection: one process at a time, until it ends.

The lock file contains the process id of the holder, which errors name. A child that C code forks, without
Python, and that does not run another program keeps the lock until it ends.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from posh._files import LockFile
from posh._system import is_alive
from posh.errors import StorageError

__all__ = ["NAME", "FolderLock", "lock_out_writers"]

NAME = "lock"


class FolderLock:
    """Takes the lock when it is made and holds it until ``release``.

    A folder that is in use is a :class:`StorageError`.
    """

    def __init__(self, folder: Path) -> None:
        self._file: LockFile | None = None
        file = _open(folder)
        try:
            _take(file, folder)
        except BaseException:
            file.close()
            raise
        self._file = file
        with contextlib.suppress(OSError):  # a full disk: only the error messages of others need the pid
            os.ftruncate(file.descriptor, os.write(file.descriptor, f"{os.getpid()}\n".encode()))

    def release(self) -> None:
        """Release the folder; a second call, and a call in a forked child, do nothing."""
        if self._file is not None:
            self._file.close()

    def __del__(self) -> None:
        self.release()


def lock_out_writers(folder: Path) -> LockFile | None:
    """Take a lock that other readers may share, and return it; a writer is a BlockingIOError.

    None: there is no lock file, as in a copy that nobody has opened for writing.
    """
    try:
        file = LockFile(folder / NAME, shared=True)
    except FileNotFoundError:
        return None
    try:
        file.lock(wait=False)
    except BaseException:
        file.close()
        raise
    return file


def _open(folder: Path) -> LockFile:
    try:
        return LockFile(folder / NAME, 0o644)
    except OSError as error:
        raise StorageError(
            f"{folder}: expected a folder that can be written to, got {error.strerror}: "
            "make it writable, or copy the collection to where it is"
        ) from error


def _take(file: LockFile, folder: Path) -> None:
    try:
        file.lock(wait=False)
    except OSError as error:
        raise StorageError(
            f"{folder}: expected a collection that is not open elsewhere, but {_holder(file.descriptor)}"
        ) from error


def _holder(file: int) -> str:
    pid = _read_pid(file)
    if pid is None or not is_alive(pid):
        time.sleep(0.05)  # a process that has just taken the lock may not have written its pid yet
        pid = _read_pid(file)
    if pid is None:
        return "another process has it open: close it there first"
    if pid == os.getpid():
        return "this process has it open: close it there first"
    if is_alive(pid):
        return f"process {pid} has it open: close it there first"
    return (
        f"another process has it open, not the one that opened it last ({pid}, which does not run any "
        "more): look for a process that it has started, or for one in another container, and end it"
    )


def _read_pid(file: int) -> int | None:
    os.lseek(file, 0, os.SEEK_SET)
    text = os.read(file, 20).decode("ascii", "replace").strip()
    return int(text) if text.isdigit() else None
