"""The machine and the version of the code that made a record."""

from __future__ import annotations

import subprocess
from pathlib import Path

import posh
from posh import bench

__all__ = ["commit", "environment"]


_CODE = ("src", "native", "reproduction")  # a run writes to results: only changed code counts


def commit(*paths: str) -> str | None:
    """The commit of the code in use, with ``-dirty`` if files of it were changed; None outside of a clone.

    With paths of the clone: the last commit that changed them.
    """
    root = Path(posh.__file__).parents[2]
    if not (root / "pyproject.toml").exists():
        return None
    try:
        head = _git(root, "log", "-1", "--format=%h", "--abbrev=12", "--", *paths).stdout.strip()
        changed = _git(root, "status", "--porcelain", "--", *(paths or _CODE)).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{head}-dirty" if changed else head


def environment(commit: str | None) -> dict[str, str | None]:
    """Chip, kernel, versions and thread pools of this process, and the commit."""
    return {**bench.environment(), "commit": commit}


def _git(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
