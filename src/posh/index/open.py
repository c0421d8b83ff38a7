"""Open a saved index of either kind."""

from __future__ import annotations

import os

from posh.index.codes.index import CodeIndex
from posh.index.codes.snapshot import CodeSnapshot
from posh.index.files import read_index
from posh.index.nearest.index import Index
from posh.index.nearest.snapshot import NearestSnapshot

__all__ = ["load_index", "load_snapshot"]


def load_snapshot(
    path: str | os.PathLike[str], *, mmap: bool = False, verify: bool | None = None
) -> NearestSnapshot | CodeSnapshot:
    """Return the snapshot of a saved index of either kind; see :meth:`posh.Index.load`."""
    saved = read_index(path, mmap=mmap, verify=not mmap if verify is None else verify)
    return NearestSnapshot.load(saved) if saved.kind == "nearest" else CodeSnapshot.load(saved)


def load_index(
    path: str | os.PathLike[str], *, mmap: bool = False, verify: bool | None = None
) -> Index | CodeIndex:
    """Open a saved index of either kind; see :meth:`posh.Index.load`."""
    snapshot = load_snapshot(path, mmap=mmap, verify=verify)
    if isinstance(snapshot, NearestSnapshot):
        return Index.from_snapshot(snapshot)
    return CodeIndex.from_snapshot(snapshot)
