"""The data folder: arrays as ``.npy`` files in one sub-folder per data set, each written atomically.

The name of a sub-folder contains the version of its recipe (``mnist.v1``). A changed recipe gets a new
version, and never reads arrays that an older one wrote.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posh.errors import FormatError

__all__ = ["Arrays", "create_scratch", "data_dir", "is_stored", "read_array", "store", "write_arrays"]

Arrays: TypeAlias = dict[str, NDArray[Any]]

_STALE_SECONDS = 24 * 3600  # no fetch takes longer than a day


def data_dir(root: str | Path | None = None) -> Path:
    """Return the folder that holds the data sets, whether or not it exists.

    The first of: ``root``, the environment variable ``POSH_DATA``, ``$XDG_CACHE_HOME/posh``,
    ``~/.cache/posh``.

    Examples
    --------
    >>> from posh.datasets import data_dir
    >>> data_dir("my/data").as_posix()
    'my/data'

    """
    chosen = root or os.environ.get("POSH_DATA")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "posh"


def is_stored(folder: Path) -> bool:
    """Whether ``store`` has completed ``folder``."""
    return folder.is_dir()


def store(folder: Path, fill: Callable[[Path], None]) -> None:
    """Create ``folder`` atomically: call ``fill`` on a temporary sibling, then rename it.

    If another process creates the folder first, its result is kept.
    """
    with create_scratch(folder.parent) as work:
        fill(work)
        try:
            work.rename(folder)
        except OSError:
            if not is_stored(folder):
                raise


@contextmanager
def create_scratch(parent: Path) -> Iterator[Path]:
    """Yield a new temporary folder inside ``parent``, and remove it afterwards unless it was renamed."""
    parent.mkdir(parents=True, exist_ok=True)
    _remove_stale(parent)
    work = Path(tempfile.mkdtemp(prefix=".partial-", dir=parent))
    # mkdtemp creates private folders, but users may share a data folder.
    work.chmod(0o755)
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _remove_stale(parent: Path) -> None:
    """Remove the temporary folders of killed processes."""
    for folder in parent.glob(".partial-*"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)


def write_arrays(folder: Path, arrays: Arrays) -> None:
    """Write each array to ``folder/<key>.npy``."""
    for key, array in arrays.items():
        np.save(folder / f"{key}.npy", array, allow_pickle=False)


def read_array(path: Path, *, mmap: bool = False) -> NDArray[Any]:
    """Read an ``.npy`` file without pickle; with ``mmap``, map it into memory."""
    try:
        return np.asarray(np.load(path, mmap_mode="r" if mmap else None, allow_pickle=False))
    except (ValueError, EOFError, OSError) as error:
        raise FormatError(
            f"{path}: expected a complete .npy file, got {error}; delete {path.parent} and load again"
        ) from error
