"""Running a program under the recorder, and reading what it recorded."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
PROJECT = HERE.parent.parent.parent
_HEAD = struct.Struct("<cQqIII")


class Operation(NamedTuple):
    """One record; ``recorder.c`` says what the kinds are."""

    kind: str
    inode: int
    offset: int
    first: str
    second: str
    data: bytes


def why_not() -> str | None:
    """Why nothing can be recorded here, or None."""
    if not sys.platform.startswith("linux"):
        return "expected Linux, whose loader and system calls the recorder needs"
    if compiler() is None:
        return "expected a C compiler (cc or gcc) for the recorder, found none"
    return None


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc")


def compiled(folder: Path) -> Path:
    """The recorder as a library."""
    library = folder / "recorder.so"
    command = [compiler(), "-O1", "-shared", "-fPIC", "-o", library, HERE / "recorder.c", "-ldl", "-lpthread"]
    subprocess.run(command, check=True)
    return library


def recorded(library: Path, root: Path, subject: str, steps: int) -> Path:
    """Run the program of a subject, in the new folder ``root``, and return the log of what it did there."""
    root.mkdir()
    log = root.with_suffix(".log")
    run(library, "subjects", root, subject, steps, POWER_LOSS_ROOT=str(root), POWER_LOSS_LOG=str(log))
    return log


def run(library: Path, module: str, *arguments: object, **environment: str) -> None:
    """Run a module of this package with the recorder preloaded."""
    environment |= {
        "LD_PRELOAD": str(library),
        "TQDM_DISABLE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPENBLAS_NUM_THREADS": "1",  # its threads do not survive a fork
    }
    command = [sys.executable, "-m", f"tests.adversary.power_loss.{module}", *map(str, arguments)]
    subprocess.run(command, check=True, cwd=PROJECT, env=os.environ | environment)


def read(log: Path) -> Iterator[Operation]:
    """The records of a log."""
    content, at = log.read_bytes(), 0
    while at < len(content):
        kind, inode, offset, *lengths = _HEAD.unpack_from(content, at)
        at += _HEAD.size
        parts = []
        for length in lengths:
            parts.append(content[at : at + length])
            at += length
        first, second, data = parts
        yield Operation(kind.decode(), inode, offset, os.fsdecode(first), os.fsdecode(second), data)


def acknowledge(text: object) -> None:
    """Called by the recorded program: what it has done so far was acknowledged."""
    ctypes.CDLL(None).power_loss_mark(str(text).encode())


@contextlib.contextmanager
def recording(root: Path, log: Path) -> Iterator[list[Operation]]:
    """Record what this program does below a folder.

    The list has operations that make the files that are there; at the end, those of the program follow.
    """
    operations = list(_made(root))
    ctypes.CDLL(None).power_loss_start(os.fsencode(root), os.fsencode(log))
    try:
        yield operations
    finally:
        ctypes.CDLL(None).power_loss_stop()
    operations += read(log)


def _made(root: Path) -> Iterator[Operation]:
    """Operations that make the files of a folder, and sync them."""
    folders = [root]
    yield Operation("m", root.stat().st_ino, 0, "", "", b"")
    for path in sorted(root.rglob("*")):
        name, inode = str(path.relative_to(root)), path.stat().st_ino
        if path.is_dir():
            folders.append(path)
            yield Operation("m", inode, 0, name, "", b"")
        else:
            yield Operation("c", inode, 0, name, "", b"")
            yield Operation("w", inode, 0, "", "", path.read_bytes())
            yield Operation("s", inode, 0, "", "", b"")
    for folder in folders:
        yield Operation("s", folder.stat().st_ino, 0, "", "", b"")


def kill_at_sync(number: int) -> None:
    """Called by the recorded program: it is to be killed before its sync with this number, or never if 0."""
    ctypes.CDLL(None).power_loss_kill_at_sync(number)
