"""One process at a time: a lock on the folder of a collection, which ends with the process.

The kernel keeps a ``flock`` for as long as any process has the open file, and a forked child inherits it. So
children close it at once: the lock stays with the process that took it. A child that was forked without
Python's knowledge, by C code, and that does not run another program, keeps it until it ends.
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

_guard = threading.RLock()  # no fork between opening the file and adding it to _files
_files: set[int] = set()  # of the locks that this process holds


def _let_go_in_child() -> None:
    for file in _files:
        os.close(file)
    _files.clear()
    _guard.release()


os.register_at_fork(before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_let_go_in_child)


class FolderLock:
    """Holds the lock from its making until ``release``; a folder in use is a :class:`StorageError`."""

    def __init__(self, folder: Path) -> None:
        self._file: int | None = None
        self._process = os.getpid()
        with _guard:
            file = _opened(folder)
            try:
                _take(file, folder)
            except BaseException:
                os.close(file)
                raise
            self._file = file
            _files.add(file)
        with contextlib.suppress(OSError):  # a full disk: the number is only for the message of others
            os.truncate(file, os.pwrite(file, f"{os.getpid()}\n".encode(), 0))

    def release(self) -> None:
        """Let others have the folder; may be called twice, and does nothing in a forked child."""
        with _guard:
            file, self._file = self._file, None
            if file is None or os.getpid() != self._process:
                return
            _files.discard(file)
            fcntl.flock(file, fcntl.LOCK_UN)  # closing is not enough: a child may be about to close its own
            os.close(file)

    def __del__(self) -> None:
        self.release()


def _opened(folder: Path) -> int:
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
    number = _number(file)
    if number is None or not _is_alive(number):
        time.sleep(0.05)  # one that has just taken the lock has not written its number yet
        number = _number(file)
    if number is None:
        return "another process has it open: close it there first"
    if number == os.getpid():
        return "this process has it open: close it there first"
    if _is_alive(number):
        return f"process {number} has it open: close it there first"
    return (
        f"another process has it open, not the one that opened it last ({number}, which does not run any "
        "more): look for a process that it has started, or for one in another container, and end it"
    )


def _number(file: int) -> int | None:
    text = os.pread(file, 20, 0).decode("ascii", "replace").strip()
    return int(text) if text.isdigit() else None


def _is_alive(number: int) -> bool:
    try:
        os.kill(number, 0)
    except OSError as error:
        return isinstance(error, PermissionError)  # somebody else's
    except OverflowError:  # the file has been written to by somebody else
        return False
    return True
