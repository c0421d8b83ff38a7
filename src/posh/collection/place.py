"""Whether a file of an open collection is still where it was opened."""

from __future__ import annotations

import os
from pathlib import Path

from posh.errors import StorageError

__all__ = ["Place"]


class Place:
    """A file, as it was when this was made; one that is not there is not looked at.

    A file that is deleted, moved or replaced stays open, and takes what is written to it without an error:
    it is lost when the file is closed.
    """

    def __init__(self, file: Path) -> None:
        self._file = str(file)  # faster than a path, and it is asked for at every write
        self._identity = _identity(self._file)

    def require(self, consequence: str) -> None:
        """Raise a :class:`StorageError` if it is not the same any more; ``consequence`` is part of it."""
        if self._identity is not None and _identity(self._file) != self._identity:
            raise StorageError(
                f"{self._file}: expected the file that was opened, but it was deleted, moved or replaced: "
                f"{consequence}. Put the folder back as it was, or close this collection and open another one"
            )


def _identity(file: str) -> tuple[int, int] | None:
    try:
        found = os.stat(file)  # noqa: PTH116
    except OSError:
        return None
    return found.st_dev, found.st_ino
