"""Durable storage: files that survive a power failure, locks, array files, folders with a manifest.

A folder of arrays consists of

====================  ==================================================================================
``manifest.json``     format, version, the caller's description, size and SHA-256 of every file, and last
                      a SHA-256 of the manifest itself
``posh-data-<hex>/``  the files of one save; in older folders ``data-<hex>``
``.posh-lock``        locked by writers; readers take no lock
====================  ==================================================================================

The manifest is the commit point. Saving writes a new sub-folder, syncs it, and then replaces the manifest in
one rename. After a power failure, the folder has either the old or the new content. The next save removes the
files that an interrupted save left behind. No save touches files of other programs.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import mmap as memory
import os
import re
import shutil
import threading
import uuid
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from io import BufferedReader, BufferedWriter
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from posh._model_files import Arrays
from posh._runtime import register_at_fork
from posh.errors import FormatError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "MANIFEST",
    "FolderContent",
    "LockFile",
    "MappedFile",
    "empty_aligned",
    "explain_disk_errors",
    "hold_lock",
    "lock_descriptor",
    "make_folder",
    "read_array",
    "read_folder",
    "remove_folder",
    "require_replaceable",
    "rewrite_in_place",
    "sync_descriptor",
    "sync_file",
    "sync_folder",
    "unlock_descriptor",
    "verify_file",
    "write_atomically",
    "write_folder",
    "write_with_checksum",
]

MANIFEST = "manifest.json"
LOCK = ".posh-lock"

_BLOCK = 1 << 20
_LINE = 64  # bytes of a cache line
_FULL = "free some space on the disk, or choose another one, and try again"
_BROKEN = "repair the disk, or choose another one, and try again"
_READ_ONLY = "make the folder and its files writable, or choose another folder"
_REMEDIES = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EIO: _BROKEN,
    errno.EROFS: _READ_ONLY,
    errno.EACCES: _READ_ONLY,
    errno.EPERM: _READ_ONLY,
}

_HEX = "[0-9a-f]{32}"
_DATA = re.compile(f"posh-data-{_HEX}")
_OLD_DATA = re.compile(f"data-{_HEX}")  # too common a name: removed only if our manifest refers to it
_TEMPORARY = re.compile(rf"\.{re.escape(MANIFEST)}\.{_HEX}")
_SUFFIXES = {".npy", ".safetensors"}  # all files in our sub-folders have one of these
_SMALL = 1 << 24  # bytes; the checksum of a file up to this size is always verified
_COPIED = 1 << 16  # bytes; a file up to this size is not mapped: each search checks the sizes of mapped files
_TRIES = 100  # attempts to open all files; an attempt fails if another process saves concurrently


# Syncs and atomic writes ---------------------------------------------------------------------------


def sync_descriptor(descriptor: int) -> None:
    """Write an open file to the disk, so that it survives a power failure."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:  # macOS, whose fsync leaves the content in the cache of the disk
        try:
            fcntl.fcntl(descriptor, full)
            return
        except OSError:  # a file system that has only fsync
            pass
    os.fsync(descriptor)


def sync_file(path: Path) -> None:
    """Sync a file that is not open; an error names it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync_descriptor(descriptor)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that the names of its files survive a power failure."""
    if os.name != "nt":  # Windows cannot open folders, and writes their entries by itself
        sync_file(folder)


@contextlib.contextmanager
def explain_disk_errors(path: Path, temporary: Path) -> Iterator[None]:
    """Add ``path``, which is first written as ``temporary``, and a remedy to errors of the disk."""
    try:
        yield
    except OSError as error:
        is_cut = error.errno is None and "requested and" in str(error)  # NumPy's error for a full disk
        number = errno.ENOSPC if is_cut else error.errno
        failed = temporary if error.filename is None else Path(str(error.filename))
        is_ours = failed.is_relative_to(temporary) or temporary.is_relative_to(failed)
        if number not in _REMEDIES or not is_ours:
            raise
        raise OSError(number, f"{os.strerror(number)}: {_REMEDIES[number]}", str(path)) from error


@contextlib.contextmanager
def write_atomically(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield the path of a temporary file next to ``path``; on success, sync it and rename it to ``path``.

    If only the sync of the folder fails, after the rename, ``path`` has the new content, but a power failure
    may restore the old one.
    """
    named, path = Path(path), Path(path).resolve()  # the target of a link is replaced, not the link
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such folder, create it first", str(path.parent))
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with explain_disk_errors(named, temporary):
            yield temporary
            with temporary.open("rb+") as file:
                sync_descriptor(file.fileno())
            temporary.replace(path)
            sync_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):  # a read-only disk refuses even if the file does not exist
            temporary.unlink()


def rewrite_in_place(path: Path) -> None:
    """Write the bytes of a file to the disk once more.

    If the last sync of another process failed, the page cache may hold bytes that the disk does not have. The
    system considers them written, so a sync alone would not write them.
    """
    with path.open("rb+", buffering=0) as file:
        while block := file.read(_BLOCK):
            file.seek(-len(block), os.SEEK_CUR)
            file.write(block)  # perhaps only a part of it: the next block begins where this write ends
        sync_descriptor(file.fileno())


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents, and sync their entries to the disk."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    present = missing[-1].parent if missing else folder
    with contextlib.suppress(PermissionError):  # then this user cannot have created it
        sync_folder(present.parent)  # the process that created it may have been killed before its sync
    for place in reversed(missing):
        place.mkdir(exist_ok=True)  # another process may create it concurrently
        sync_folder(place.parent)


# Locks ---------------------------------------------------------------------------------------------

_released = threading.Condition()
_holders: dict[
    tuple[int, int], int
] = {}  # without fcntl: from files to the descriptors that hold their locks


def lock_descriptor(descriptor: int, *, wait: bool, shared: bool = False) -> None:
    """Lock an open file until :func:`unlock_descriptor`.

    If another open file has the lock, wait, or without ``wait`` raise BlockingIOError.
    Without ``fcntl``, the lock holds between the threads of this process only, and is never shared.
    """
    if fcntl is None:
        _lock_in_process(descriptor, wait)
        return
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)


def unlock_descriptor(descriptor: int) -> None:
    """Release the lock. Call it before the file is closed."""
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        return
    with _released:
        if _holders.get(_identify(descriptor)) == descriptor:
            del _holders[_identify(descriptor)]
            _released.notify_all()


def _lock_in_process(descriptor: int, wait: bool) -> None:
    warnings.warn(
        "this system has no file locks: do not write to a folder from two processes",
        RuntimeWarning,
        stacklevel=2,
    )
    file = _identify(descriptor)
    with _released:
        if not wait and file in _holders:
            raise BlockingIOError("another open file has the lock")
        _released.wait_for(lambda: file not in _holders)
        _holders[file] = descriptor


def _identify(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


_guard = threading.RLock()  # prevents a fork between opening a file and adding it to _lock_files
_lock_files: set[LockFile] = set()  # open in this process


class LockFile:
    """An open file to lock; it is created if it is missing, and is not removed.

    With ``shared``, the file must exist, need not be writable, and several processes may hold its lock.
    The operating system keeps a ``flock`` for as long as any process has the open file, and a forked child
    inherits the open file. So a child closes it immediately: the lock stays with the process that took it.
    """

    def __init__(self, path: Path, mode: int = 0o666, *, shared: bool = False) -> None:
        self._shared = shared
        with _guard:
            self.descriptor = os.open(path, os.O_RDONLY if shared else os.O_RDWR | os.O_CREAT, mode)
            _lock_files.add(self)

    def lock(self, *, wait: bool) -> None:
        """Take the lock; if another open file has it, wait or raise BlockingIOError."""
        lock_descriptor(self.descriptor, wait=wait, shared=self._shared)

    def close(self) -> None:
        """Release the lock and close the file; a second call, and a call in a forked child, do nothing."""
        with _guard:
            if self in _lock_files:
                _lock_files.discard(self)
                unlock_descriptor(self.descriptor)  # a forked child may still have the file open
                os.close(self.descriptor)


def _close_in_child() -> None:
    for file in _lock_files:
        os.close(file.descriptor)
    _lock_files.clear()
    _guard.release()


register_at_fork(before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_close_in_child)


@contextlib.contextmanager
def hold_lock(path: Path) -> Iterator[None]:
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
    """Return whether ``path`` still names the open file. If not, other processes would lock another file."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except FileNotFoundError:
        return False


# Array files ---------------------------------------------------------------------------------------


class _HashingWriter:
    """Hash and count the bytes while they are written, so that the file need not be read again."""

    def __init__(self, file: BufferedWriter) -> None:
        self.file, self.digest, self.size = file, hashlib.sha256(), 0

    def write(self, block: bytes) -> None:
        self.file.write(block)
        self.digest.update(block)
        self.size += len(block)


def write_with_checksum(path: Path, content: bytes | npt.NDArray[Any]) -> dict[str, Any]:
    """Write a new file, an array as ``.npy``, and sync it; return its size and its SHA-256."""
    with path.open("xb") as file:
        writer = _HashingWriter(file)
        if isinstance(content, bytes):
            writer.write(content)
        else:
            np.save(writer, content, allow_pickle=False)
        file.flush()
        sync_descriptor(file.fileno())
    return {"bytes": writer.size, "sha256": writer.digest.hexdigest()}


def verify_file(path: Path, file: BufferedReader, entry: Mapping[str, Any], *, verify: bool) -> None:
    """Compare the size of an open file, and with ``verify`` its SHA-256, with the recorded ``entry``."""
    _require_size(path, entry["bytes"], os.fstat(file.fileno()).st_size)
    if verify:
        if hashlib.file_digest(file, "sha256").hexdigest() != entry["sha256"]:
            raise FormatError(f"{path}: the checksum does not match: the file is damaged")
        file.seek(0)


def read_array(path: Path, file: BufferedReader, *, mmap: bool) -> npt.NDArray[Any]:
    """Return the array of an open ``.npy`` file, mapped with ``mmap``. ``path`` is for error messages."""
    try:
        return _map_array(file) if mmap else _read_array(file)
    except Exception as error:  # NumPy parses the header as Python: a damaged one may raise anything
        raise FormatError(f"{path}: not a readable array ({error})") from error


class MappedFile(NamedTuple):
    """A file that is mapped into memory.

    If another program truncates the file, reading the mapped memory kills the process. So check the size
    first.
    """

    path: Path
    size: int
    mapping: Callable[[], memory.mmap | None]  # a weak reference, so that unused files are unmapped

    @classmethod
    def from_array(cls, array: npt.NDArray[Any], path: Path, size: int) -> MappedFile:
        """Return the file of an array that :func:`read_array` has mapped."""
        assert isinstance(array.base, memory.mmap)
        return cls(path, size, weakref.ref(array.base))

    def __reduce__(self) -> tuple[Any, ...]:
        return MappedFile, (self.path, self.size, _no_mapping)  # a copy of a mapped array is in memory

    def check(self) -> None:
        """Raise if the size of the file has changed; ignore a mapping that is no longer in use."""
        mapping = self.mapping()
        if mapping is not None:
            _require_size(self.path, self.size, mapping.size())


def _no_mapping() -> None:
    """Stand in for the weak reference: a copy has no mapping."""


def _map_array(file: BufferedReader) -> npt.NDArray[Any]:
    shape, dtype, order = _read_header(file)
    mapping = memory.mmap(file.fileno(), 0, access=memory.ACCESS_READ)
    return np.ndarray(shape, dtype, mapping, file.tell(), order=order)


def _read_array(file: BufferedReader) -> npt.NDArray[Any]:
    array = empty_aligned(*_read_header(file))
    n_read = file.readinto(array.ravel("K").view(np.uint8).data)
    if n_read != array.nbytes:
        raise ValueError(f"expected {array.nbytes} bytes of numbers, found {n_read}")
    return array


def _read_header(file: BufferedReader) -> tuple[tuple[int, ...], np.dtype[Any], Literal["C", "F"]]:
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("expected version 1.0 of the array format")
    shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.hasobject:
        raise ValueError(f"expected numbers, found {dtype}")
    return shape, dtype, "F" if is_fortran else "C"


def empty_aligned(
    shape: tuple[int, ...], dtype: npt.DTypeLike, order: Literal["C", "F"] = "C"
) -> npt.NDArray[Any]:
    """Return an array without values that begins at a cache line, which NumPy does not ensure.

    A row of 64 bytes is then in one line, not in two, and a kernel that prefetches a row fetches all of it.

    Arrays of objects are NumPy's own, which are filled with None: in other memory, any bytes would be taken
    for the address of an object.

    >>> empty_aligned((3, 16), np.float32).ctypes.data % 64
    0
    >>> empty_aligned((2,), object)
    array([None, None], dtype=object)
    """
    if np.dtype(dtype).hasobject:
        return np.empty(shape, dtype, order)
    size = math.prod(shape) * np.dtype(dtype).itemsize
    buffer = np.empty(size + _LINE, np.uint8)
    return np.ndarray(shape, dtype, buffer, -buffer.ctypes.data % _LINE, order=order)


def _require_size(path: Path, expected: int, found: int) -> None:
    if found != expected:
        raise FormatError(
            f"{path}: expected {expected} bytes, found {found}: another program has changed the file"
        )


# Writing folders -----------------------------------------------------------------------------------


def write_folder(
    path: Path,
    kind: str,
    version: int,
    description: Mapping[str, Any],
    arrays: Arrays,
    files: Mapping[str, bytes],
) -> None:
    """Write arrays and small files under ``path``, replacing the previous save in one step.

    Concurrent writers of one folder wait for one another. After an error the folder has the old content, with
    one exception: if only the last sync failed, it may have the new content.
    """
    require_replaceable(path, kind)  # before the lock file is created
    with explain_disk_errors(path, path):
        make_folder(path)
    with explain_disk_errors(path, path), hold_lock(path / LOCK):
        replaced = require_replaceable(path, kind)
        data = path / f"posh-data-{uuid.uuid4().hex}"
        try:
            entries = _write_data(data, arrays, files)
            sync_folder(path)  # the name of the sub-folder must be safe before the manifest refers to it
            manifest = {
                "format": kind,
                "version": version,
                "data": data.name,
                **description,
                "files": entries,
            }
            with write_atomically(path / MANIFEST) as temporary:
                signed = manifest | {"sha256": _compute_digest(manifest)}
                temporary.write_text(json.dumps(signed, indent=1) + "\n")
        except BaseException:
            with contextlib.suppress(OSError):
                if require_replaceable(path, kind) != data.name:  # then the manifest is still the old one
                    shutil.rmtree(data)
            raise
        _remove_leftovers(path, data.name, replaced)


def require_replaceable(path: Path, kind: str) -> str | None:
    """Raise if ``path`` holds anything that :func:`write_folder` must not replace.

    Returns the name of the sub-folder that the manifest uses, or ``None`` without a manifest. Files of other
    programs next to a manifest of ours are kept.
    """
    if not path.exists():
        return None
    if not path.is_dir():
        raise NotADirectoryError(f"{path}: expected a folder to write, got a file: choose another name")
    if (path / MANIFEST).exists():
        return _read_data_name(path / MANIFEST, kind)
    for entry in path.iterdir():
        is_ours = entry.name in (LOCK, MANIFEST)  # another process may have saved a manifest by now
        if not (is_ours or _is_data(entry.name) or _TEMPORARY.fullmatch(entry.name)):
            raise FileExistsError(
                f"{path}: expected an empty folder or a saved index, found other files ({entry.name}): "
                "choose another folder"
            )
    return None


def _read_data_name(file: Path, kind: str) -> str | None:
    try:
        manifest = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        manifest = None
    if not isinstance(manifest, dict) or manifest.get("format") != kind:
        raise FileExistsError(
            f"{file}: expected a manifest of the format {kind!r} to replace, found another file: "
            "choose another folder, or remove this one if it is a damaged index"
        )
    name = str(manifest.get("data"))
    return name if _is_data(name) else None


def _write_data(data: Path, arrays: Arrays, files: Mapping[str, bytes]) -> dict[str, Any]:
    """Write and sync a new folder; return the sizes and checksums of its files."""
    data.mkdir()
    entries = {name: write_with_checksum(data / name, content) for name, content in files.items()}
    for name, array in arrays.items():
        entries[f"{name}.npy"] = write_with_checksum(data / f"{name}.npy", array)
    sync_folder(data)
    return entries


def _remove_leftovers(path: Path, data: str, replaced: str | None) -> None:
    """Remove the files of interrupted saves and the sub-folder ``replaced``; keep ``data``."""
    for entry in path.iterdir():
        with contextlib.suppress(OSError):  # the save has succeeded, so a file that cannot be removed stays
            if _TEMPORARY.fullmatch(entry.name):
                entry.unlink()
            elif entry.name != data and (entry.name == replaced or _DATA.fullmatch(entry.name)):
                _remove_data(entry)


def remove_folder(path: Path, kind: str) -> None:
    """Remove a folder that :func:`write_folder` wrote, complete or not; keep files of other programs."""
    if path.is_symlink() or not path.is_dir():
        return
    names = {entry.name for entry in path.iterdir()}
    ours = {name for name in names if _DATA.fullmatch(name) or _TEMPORARY.fullmatch(name)}
    try:
        ours |= {MANIFEST, str(_read_data_name(path / MANIFEST, kind))}
    except FileNotFoundError:  # the save was interrupted
        if not ours and names - {LOCK}:
            return
    except FileExistsError:  # a manifest of another program, or a damaged one next to our data
        if not ours:
            return
        ours.add(MANIFEST)
    for name in ours & names:
        if (path / name).is_dir():
            _remove_data(path / name)
        else:
            (path / name).unlink()
    if names <= ours | {LOCK}:
        shutil.rmtree(path)


def _remove_data(folder: Path) -> None:
    """Remove a sub-folder, unless it holds files that are not ours."""
    if all(file.suffix in _SUFFIXES for file in folder.iterdir()):
        shutil.rmtree(folder)


# Reading folders -----------------------------------------------------------------------------------


class FolderContent(NamedTuple):
    """The content of a folder: manifest, arrays, small files, and the files that arrays are mapped from."""

    manifest: dict[str, Any]
    arrays: Arrays
    files: dict[str, bytes]
    mapped: tuple[MappedFile, ...]


def read_folder(path: Path, kind: str, version: int, *, mmap: bool, verify: bool) -> FolderContent:
    """Return the content of a folder; raise FormatError if anything is wrong.

    With ``mmap``, large arrays stay on disk until they are used. The manifest, the sizes of all files and the
    checksums of small files are always verified. ``verify`` also verifies the checksums of large files, which
    reads them.
    """
    manifest, opened, stack = _open_folder(path, kind, version)
    arrays: Arrays = {}
    files: dict[str, bytes] = {}
    mapped: list[MappedFile] = []
    with stack:
        for name, file in opened.items():
            place, entry = path / manifest["data"] / name, manifest["files"][name]
            verify_file(place, file, entry, verify=verify or entry["bytes"] <= _SMALL)
            if not name.endswith(".npy"):
                files[name] = file.read()
                continue
            is_mapped = mmap and entry["bytes"] > _COPIED
            array = arrays[name.removesuffix(".npy")] = read_array(place, file, mmap=is_mapped)
            if is_mapped:
                mapped.append(MappedFile.from_array(array, place, entry["bytes"]))
    return FolderContent(manifest, arrays, files, tuple(mapped))


def _open_folder(
    path: Path, kind: str, version: int
) -> tuple[dict[str, Any], dict[str, BufferedReader], contextlib.ExitStack]:
    """Return the manifest, its files, all of them open, and the stack that closes them.

    A concurrent save removes the files, but files that are open can still be read to the end.
    """
    manifest = _read_manifest(path, kind, version)
    for _ in range(_TRIES):
        try:
            with contextlib.ExitStack() as stack:
                folder = path / manifest["data"]
                opened = {name: stack.enter_context((folder / name).open("rb")) for name in manifest["files"]}
                return manifest, opened, stack.pop_all()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            newer = _read_manifest(path, kind, version)
            if newer == manifest:
                raise FormatError(f"{error.filename}: listed in the manifest, but missing") from error
            manifest = newer
    raise FormatError(
        f"{path}: expected files that do not change, but {_TRIES} saves have replaced them: try again"
    )


def _read_manifest(path: Path, kind: str, version: int) -> dict[str, Any]:
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        digest = manifest.pop("sha256")
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: expected a saved index, found no {MANIFEST}") from None
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
        raise FormatError(f"{path / MANIFEST}: not a readable manifest ({error})") from error
    if manifest.get("format") != kind:
        raise FormatError(f"{path}: expected the format {kind!r}, found {manifest.get('format')!r}")
    if manifest.get("version") not in range(1, version + 1):
        found = manifest.get("version")
        raise FormatError(
            f"{path}: expected a format version up to {version}, found {found}: upgrade posh-ann to read it"
        )
    if digest != _compute_digest(manifest):
        raise FormatError(f"{path / MANIFEST}: the checksum does not match: the file is damaged")
    if not _is_data(str(manifest["data"])) or any(Path(name).name != name for name in manifest["files"]):
        raise FormatError(f"{path / MANIFEST}: names a file outside of its folder")
    return dict(manifest)


def _is_data(name: str) -> bool:
    return bool(_DATA.fullmatch(name) or _OLD_DATA.fullmatch(name))


def _compute_digest(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
