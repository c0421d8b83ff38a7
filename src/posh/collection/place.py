"""Whether the files of an open collection are still where it was opened."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from posh.errors import StorageError

__all__ = ["Place"]


class Place:
    """Files, as they were when this was made.

    A file that is deleted or replaced stays open, and takes what is written to it without an error: it is
    lost when the file is closed. Comparing costs a few microseconds.
    """

    def __init__(self, files: Iterable[Path]) -> None:
        known = {str(file): _identity(str(file)) for file in files}  # faster than paths
        self._known = {file: identity for file, identity in known.items() if identity is not None}

    def require(self, consequence: str) -> None:
        """Raise a :class:`StorageError` if a file is not the same any more; ``consequence`` is part of it."""
        for file, identity in self._known.items():
            if _identity(file) != identity:
                raise StorageError(
                    f"{file}: expected the file that was opened, but it was deleted, moved or replaced: "
                    f"{consequence}. Put the folder back as it was, or close this collection and open "
                    "another one"
                )


def _identity(file: str) -> tuple[int, int] | None:
    try:
        found = os.stat(file)  # noqa: PTH116
    except OSError:
        return None
    return found.st_dev, found.st_ino
