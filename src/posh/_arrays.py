"""Arrays in files: writing them with a checksum, checking them, and reading or mapping them."""

from __future__ import annotations

import hashlib
import mmap as memory
import os
import weakref
from collections.abc import Callable, Mapping
from io import BufferedReader, BufferedWriter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from posh import _system
from posh.errors import FormatError

__all__ = ["MappedFile", "check_file", "read_array", "write_file"]


class _HashingWriter:
    """Hashes and counts the bytes while they are written, so that the file need not be read again."""

    def __init__(self, file: BufferedWriter) -> None:
        self.file, self.digest, self.size = file, hashlib.sha256(), 0

    def write(self, block: bytes) -> None:
        self.file.write(block)
        self.digest.update(block)
        self.size += len(block)


def write_file(path: Path, content: bytes | npt.NDArray[Any]) -> dict[str, Any]:
    """Write a new file, an array as ``.npy``, and sync it; return its size and its SHA-256."""
    with path.open("xb") as file:
        hashed = _HashingWriter(file)
        if isinstance(content, bytes):
            hashed.write(content)
        else:
            np.save(hashed, content, allow_pickle=False)
        file.flush()
        _system.sync(file.fileno())
    return {"bytes": hashed.size, "sha256": hashed.digest.hexdigest()}


def check_file(path: Path, file: BufferedReader, entry: Mapping[str, Any], *, verify: bool) -> None:
    """Compare the size of an open file, and with ``verify`` its SHA-256, with those of :func:`write_file`."""
    _check_size(path, entry["bytes"], os.fstat(file.fileno()).st_size)
    if verify:
        if hashlib.file_digest(file, "sha256").hexdigest() != entry["sha256"]:
            raise FormatError(f"{path}: the checksum does not match: the file is damaged")
        file.seek(0)


def read_array(path: Path, file: BufferedReader, *, mmap: bool) -> npt.NDArray[Any]:
    """The array of an open ``.npy`` file; with ``mmap`` its memory is the file. ``path`` is for messages."""
    try:
        return _mapped(file) if mmap else np.lib.format.read_array(file, allow_pickle=False)
    except Exception as error:  # NumPy parses the header as Python: a damaged one may raise anything
        raise FormatError(f"{path}: not a readable array ({error})") from error


class MappedFile(NamedTuple):
    """A file that is mapped into memory.

    If another program cuts the file short, reading the mapped memory kills the process. So check the size
    first.
    """

    path: Path
    size: int
    mapping: Callable[[], memory.mmap | None]  # a weak reference, so that unused files are unmapped

    @classmethod
    def of(cls, array: npt.NDArray[Any], path: Path, size: int) -> MappedFile:
        """The file of an array that :func:`read_array` has mapped."""
        assert isinstance(array.base, memory.mmap)
        return cls(path, size, weakref.ref(array.base))

    def __reduce__(self) -> tuple[Any, ...]:
        return MappedFile, (self.path, self.size, _no_mapping)  # a copy of a mapped array is in memory

    def check(self) -> None:
        """Raise if the size of the file has changed; ignore a mapping that is no longer in use."""
        mapping = self.mapping()
        if mapping is not None:
            _check_size(self.path, self.size, mapping.size())


def _no_mapping() -> None:
    """Stand in for the weak reference: a copy has no mapping."""


def _mapped(file: BufferedReader) -> npt.NDArray[Any]:
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("expected version 1.0 of the array format")
    shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.hasobject:
        raise ValueError(f"expected numbers, found {dtype}")
    mapping = memory.mmap(file.fileno(), 0, access=memory.ACCESS_READ)
    return np.ndarray(shape, dtype, mapping, file.tell(), order="F" if is_fortran else "C")


def _check_size(path: Path, expected: int, found: int) -> None:
    if found != expected:
        raise FormatError(f"{path}: expected {expected} bytes, found {found}: somebody has changed the file")
