"""One process at a time: a lock on the folder of a collection, which ends with the process."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from posh.errors import StorageError

__all__ = ["FolderLock"]

NAME = "lock"


class FolderLock:
    """Holds the lock from its making until ``release``; a folder in use is a :class:`StorageError`."""

    def __init__(self, folder: Path) -> None:
        self._file: int | None = None
        self._process = os.getpid()
        path = folder / NAME
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StorageError(
                f"{folder}: expected a folder that can be written to, got {error.strerror}: "
                "make it writable, or copy the collection to where it is"
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _holder(file)
            os.close(file)
            raise StorageError(
                f"{folder}: expected a collection that is not open elsewhere, but {holder} has it open: "
                "close it there first"
            ) from error
        self._file = file
        with contextlib.suppress(OSError):  # a full disk: the number is only for the message above
            os.truncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let others have the folder; may be called twice."""
        file, self._file = self._file, None
        if file is None:
            return
        if os.getpid() == self._process:  # the lock is not a forked child's, though it has inherited the file
            fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)

    def __del__(self) -> None:
        self.release()


def _holder(file: int) -> str:
    number = os.pread(file, 20, 0).decode("ascii", "replace").strip()
    if not number.isdigit():
        return "another process"
    return "this process" if int(number) == os.getpid() else f"process {number}"
