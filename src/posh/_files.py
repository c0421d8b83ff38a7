"""Files that survive a power failure, and lock files that forked children do not keep."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

from posh import _system
from posh._system import sync_folder

__all__ = ["LockFile", "atomic_write", "locked", "make_folder", "sync_folder", "write_again", "writing"]

_BLOCK = 1 << 20
_FULL = "free some space on the disk, or choose another one, and try again"
_BROKEN = "mend the disk, or choose another one, and try again"
_REFUSED = "make the folder and its files writable, or choose another folder"
_REMEDIES = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EIO: _BROKEN,
    errno.EROFS: _REFUSED,
    errno.EACCES: _REFUSED,
    errno.EPERM: _REFUSED,
}


@contextlib.contextmanager
def writing(path: Path, temporary: Path) -> Iterator[None]:
    """Let errors of the disk name ``path``, which is written as ``temporary`` first, and say what to do."""
    try:
        yield
    except OSError as error:
        is_cut = error.errno is None and "requested and" in str(error)  # how NumPy says that no more fits
        number = errno.ENOSPC if is_cut else error.errno
        failed = temporary if error.filename is None else Path(str(error.filename))
        is_own = failed.is_relative_to(temporary) or temporary.is_relative_to(failed)
        if number not in _REMEDIES or not is_own:
            raise
        raise OSError(number, f"{os.strerror(number)}: {_REMEDIES[number]}", str(path)) from error


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield the path of a temporary file beside ``path``; on success, sync it and rename it to ``path``.

    If only the sync of the folder fails, after the rename, ``path`` has the new content, but a power failure
    may bring back the old one.
    """
    named, path = Path(path), Path(path).resolve()  # if it is a link, we replace its target and not the link
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such folder, create it first", str(path.parent))
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with writing(named, temporary):
            yield temporary
            with temporary.open("rb+") as file:
                _system.sync(file.fileno())
            temporary.replace(path)
            sync_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):  # on a read-only disk, even if there is none
            temporary.unlink()


def write_again(path: Path) -> None:
    """Write the bytes of a file to the disk once more.

    If the last sync of another process failed, the system may show bytes that the disk does not have. It
    takes them for written, and a sync alone would not write them.
    """
    with path.open("rb+", buffering=0) as file:
        while block := file.read(_BLOCK):
            file.seek(-len(block), os.SEEK_CUR)
            file.write(block)  # perhaps not all of it: the next block begins where this ends
        _system.sync(file.fileno())


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents, and sync their names to the disk."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    present = missing[-1].parent if missing else folder
    with contextlib.suppress(PermissionError):  # then we cannot have created it
        sync_folder(present.parent)  # the process that created it may have been killed before its sync
    for place in reversed(missing):
        place.mkdir(exist_ok=True)  # another process may create it at the same time
        sync_folder(place.parent)


_guard = threading.RLock()  # prevents a fork between opening a file and adding it to _lock_files
_lock_files: set[LockFile] = set()  # those that this process has open


class LockFile:
    """An open file to lock; it is created if it is missing, and is not removed.

    With ``shared``, the file must exist, need not be writable, and its lock is one that several may have.
    The operating system keeps a ``flock`` for as long as any process has the open file, and a forked child
    inherits the open file. So a child closes it at once: the lock stays with the process that took it.
    """

    def __init__(self, path: Path, mode: int = 0o666, *, shared: bool = False) -> None:
        self._shared = shared
        with _guard:
            self.descriptor = os.open(path, os.O_RDONLY if shared else os.O_RDWR | os.O_CREAT, mode)
            _lock_files.add(self)

    def lock(self, *, wait: bool) -> None:
        """Take the lock; if another open file has it, wait or raise a BlockingIOError."""
        _system.lock(self.descriptor, wait=wait, shared=self._shared)

    def close(self) -> None:
        """Release the lock and close the file; a second call, and a call in a forked child, do nothing."""
        with _guard:
            if self in _lock_files:
                _lock_files.discard(self)
                _system.unlock(self.descriptor)  # a forked child may still have the file open
                os.close(self.descriptor)


def _close_in_child() -> None:
    for file in _lock_files:
        os.close(file.descriptor)
    _lock_files.clear()
    _guard.release()


_system.at_fork(before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_close_in_child)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file ``path`` inside the context; first wait until no other thread or process holds it.

    The lock ends with the process at the latest.
    """
    while True:
        file = LockFile(path)
        try:
            file.lock(wait=True)
            if _is_same_file(path, file.descriptor):
                yield
                return
        finally:
            file.close()


def _is_same_file(path: Path, file: int) -> bool:
    """Whether ``path`` still names the open file. If not, other processes would lock another file."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except FileNotFoundError:
        return False
