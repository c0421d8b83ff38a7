"""The collection that a vector store opens by itself: in a folder of the user, or in a temporary one."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from posh.collection.embedded import Collection
from posh.collection.opening import DATABASE

__all__ = ["open_collection"]


def open_collection(
    path: str | os.PathLike[str] | None, index_options: Mapping[str, Any]
) -> tuple[Collection, Callable[[], None]]:
    """Return the collection of a folder, and what closes it; without a path, of a temporary folder.

    An existing collection keeps its options. A new one has a metric, unless the options say otherwise.
    """
    if path is not None:
        collection = _opened(Path(path), index_options)
        return collection, collection.close
    folder = Path(tempfile.mkdtemp(prefix="posh-"))
    try:
        collection = _opened(folder, index_options)
    except BaseException:
        shutil.rmtree(folder)
        raise

    def close() -> None:
        collection.close()
        shutil.rmtree(folder)

    return collection, close


def _opened(folder: Path, index_options: Mapping[str, Any]) -> Collection:
    if (folder / DATABASE).exists():
        return Collection(folder, **index_options)
    return Collection(folder, **{"metric": "cosine", "recall": 0.95, **index_options})
