"""What operating systems do differently: file locks, forks, syncs, processes.

Each function does the best thing that the system has. Other modules ask here, so that ``import posh`` works
where ``fcntl`` or ``os.register_at_fork`` do not exist.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["at_fork", "is_alive", "lock", "sync", "sync_file", "sync_folder", "unlock"]


def at_fork(**calls: Callable[[], Any]) -> None:
    """``os.register_at_fork``; a system without it has no forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**calls)


def sync(descriptor: int) -> None:
    """Write an open file to the disk, so that it survives a power failure."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:  # macOS, whose fsync leaves the content in the cache of the disk
        try:
            fcntl.fcntl(descriptor, full)
            return
        except OSError:  # a file system that has only fsync
            pass
    os.fsync(descriptor)


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that the names of its files survive a power failure."""
    if os.name != "nt":  # Windows opens no folders, and writes the names by itself
        sync_file(folder)


def sync_file(path: Path) -> None:
    """Sync a file that is not open; an error names it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync(descriptor)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)


def is_alive(pid: int) -> bool:
    """Whether a process runs; where we cannot tell, we say yes."""
    if os.name == "nt":  # there, os.kill(pid, 0) would end the process
        return True
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)  # the process of another user
    except OverflowError:  # no process can have this number
        return False
    return True


def lock(descriptor: int, *, wait: bool, shared: bool = False) -> None:
    """Lock an open file until :func:`unlock`.

    If another open file has the lock, wait, or without ``wait`` raise a BlockingIOError.
    Without ``fcntl``, the lock holds between the threads of this process only, and is never shared.
    """
    if fcntl is None:
        _lock_in_process(descriptor, wait)
        return
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)


def unlock(descriptor: int) -> None:
    """Release the lock. Call it before the file is closed."""
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        return
    with _changed:
        if _holders.get(_identity(descriptor)) == descriptor:
            del _holders[_identity(descriptor)]
            _changed.notify_all()


_changed = threading.Condition()
_holders: dict[tuple[int, int], int] = {}  # from files to the descriptors that have their locks


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def _lock_in_process(descriptor: int, wait: bool) -> None:
    warnings.warn(
        "this system has no file locks: do not write to a folder from two processes at once",
        RuntimeWarning,
        stacklevel=2,
    )
    file = _identity(descriptor)
    with _changed:
        if not wait and file in _holders:
            raise BlockingIOError("another open file has the lock")
        _changed.wait_for(lambda: file not in _holders)
        _holders[file] = descriptor
