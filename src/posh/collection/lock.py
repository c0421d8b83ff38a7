"""A lock on the folder of a collection: one process at a time, until it ends.

The operating system keeps a ``flock`` for as long as any process has the open file, and a forked child
inherits the open file. So a child closes it at once: the lock stays with the process that took it. A child
that C code forks, without Python, and that does not run another program keeps the lock until it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from pathlib import Path

from posh.errors import StorageError

__all__ = ["NAME", "FolderLock"]

NAME = "lock"

_guard = threading.RLock()  # prevents a fork between opening a file and adding it to _files
_files: set[int] = set()  # the open files of the locks that this process holds


def _close_in_child() -> None:
    for file in _files:
        os.close(file)
    _files.clear()
    _guard.release()


os.register_at_fork(before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_close_in_child)


class FolderLock:
    """Takes the lock when it is made and holds it until ``release``.

    A folder that is in use is a :class:`StorageError`.
    """

    def __init__(self, folder: Path) -> None:
        self._file: int | None = None
        self._process = os.getpid()
        with _guard:
            file = _open(folder)
            try:
                _take(file, folder)
            except BaseException:
                os.close(file)
                raise
            self._file = file
            _files.add(file)
        with contextlib.suppress(OSError):  # a full disk: only the error messages of others need the pid
            os.truncate(file, os.pwrite(file, f"{os.getpid()}\n".encode(), 0))

    def release(self) -> None:
        """Release the folder; a second call, and a call in a forked child, do nothing."""
        with _guard:
            file, self._file = self._file, None
            if file is None or os.getpid() != self._process:
                return
            _files.discard(file)
            fcntl.flock(file, fcntl.LOCK_UN)  # a forked child may still have the file open
            os.close(file)

    def __del__(self) -> None:
        self.release()


def _open(folder: Path) -> int:
    try:
        return os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StorageError(
            f"{folder}: expected a folder that can be written to, got {error.strerror}: "
            "make it writable, or copy the collection to where it is"
        ) from error


def _take(file: int, folder: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise StorageError(
            f"{folder}: expected a collection that is not open elsewhere, but {_holder(file)}"
        ) from error


def _holder(file: int) -> str:
    pid = _read_pid(file)
    if pid is None or not _is_alive(pid):
        time.sleep(0.05)  # a process that has just taken the lock may not have written its pid yet
        pid = _read_pid(file)
    if pid is None:
        return "another process has it open: close it there first"
    if pid == os.getpid():
        return "this process has it open: close it there first"
    if _is_alive(pid):
        return f"process {pid} has it open: close it there first"
    return (
        f"another process has it open, not the one that opened it last ({pid}, which does not run any "
        "more): look for a process that it has started, or for one in another container, and end it"
    )


def _read_pid(file: int) -> int | None:
    text = os.pread(file, 20, 0).decode("ascii", "replace").strip()
    return int(text) if text.isdigit() else None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)  # the process of another user
    except OverflowError:  # another program has written to the file
        return False
    return True
