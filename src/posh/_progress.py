"""Progress bars: shown on a terminal for work that takes more than a second, silent elsewhere.

``TQDM_DISABLE=1`` in the environment silences them everywhere.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")


class _Bar(tqdm):  # type: ignore[misc]
    """A bar without the thread that tqdm adds: its lock, if held at a fork, would stop the child for ever."""

    monitor_interval = 0


def progress(steps: Iterable[T], title: str, unit: str = "epoch", total: int | None = None) -> Iterable[T]:
    """Iterate over ``steps`` with a bar that disappears when done."""
    if not _shown():
        return steps
    bar: Iterable[T] = _Bar(steps, desc=title, unit=unit, total=total, leave=False, delay=1.0)
    return bar


def _shown() -> bool:
    """Whether somebody looks.

    If not, tqdm stays out of it: forked processes share a lock of its, which one that is killed keeps.
    """
    silenced = os.environ.get("TQDM_DISABLE", "0") not in ("", "0")
    return not silenced and sys.stderr is not None and sys.stderr.isatty()
