"""Snapshots: the index as a checksummed folder, which is opened sooner than it is built from the database.

The database names the only one that counts, after it is complete. One that is missing, damaged or not named
is of no importance: the index is then built again.
"""

from __future__ import annotations

import logging
import shutil
import uuid
from pathlib import Path

import numpy as np

from posh.collection import building, tables
from posh.collection.directory import Directory
from posh.collection.moment import Moment
from posh.collection.storage import Connection, Database
from posh.index.index import Index
from posh.index.snapshot import IndexSnapshot

__all__ = ["PREFIX", "is_worth_it", "opened", "remove_unused", "write"]

logger = logging.getLogger(__name__)

PREFIX = "snapshot-"
WORTH = 5_000  # changed items: as many are added to an index in no time


def is_worth_it(moment: Moment, changes: int) -> bool:
    """Whether a snapshot would spare the next opening much: after many changes, of many items."""
    return moment.index is not None and changes >= max(WORTH, moment.directory.n_live // 4)


def write(folder: Path, moment: Moment) -> str | None:
    """Write a snapshot and return its name, by which it has yet to become the one that counts."""
    if moment.index is None or moment.index.documents is None:
        return None
    name = f"{PREFIX}{uuid.uuid4().hex}"
    moment.index.save(folder / name)
    return name


def named(connection: Connection) -> str | None:
    """The name of the snapshot that counts."""
    name = tables.get_meta(connection, "snapshot")
    return name if isinstance(name, str) and Path(name).name == name and name.startswith(PREFIX) else None


def remove_unused(folder: Path, database: Database) -> None:
    """Remove all snapshots but the one that counts."""
    with database.reading() as connection:
        keep = named(connection)
    for path in folder.glob(f"{PREFIX}*"):
        if path.name != keep:
            shutil.rmtree(path, ignore_errors=True)


def opened(
    folder: Path, connection: Connection, generation: int, index: IndexSnapshot, directory: Directory
) -> tuple[IndexSnapshot, Directory, int]:
    """The index with all items of a directory, the directory in its slots, and what the snapshot lacks."""
    name = named(connection)
    if name is not None and (folder / name).exists():
        try:
            return _restored(folder / name, connection, generation, index, directory)
        except Exception as error:
            logger.warning("%s cannot be used (%s): the index is built again", folder / name, error)
    return building.filled(connection, generation, index, directory), directory, directory.n_live


def _restored(
    path: Path, connection: Connection, generation: int, index: IndexSnapshot, directory: Directory
) -> tuple[IndexSnapshot, Directory, int]:
    saved = Index.load(path).snapshot()
    if saved.options != index.options or saved.documents is None:
        raise ValueError("it is of another index")
    seqs, present = saved.documents.ids.rows, saved.documents.live
    if not (np.diff(seqs) > 0).all():
        raise ValueError("its items are not in order")
    in_slots = directory.renumbered(seqs)
    n_known = in_slots.n_live
    n_older = np.searchsorted(directory.seqs.rows, in_slots.last_seq, "right")
    if n_known != n_older or not present[in_slots.live.rows].all():
        raise ValueError("it lacks items")
    gone = np.flatnonzero(present & ~in_slots.live.rows)
    newer = slice(n_known, None)
    in_slots = in_slots.with_items(directory.seqs.rows[newer], directory.names.rows[newer])
    filled = building.filled(connection, generation, saved.without(gone), in_slots)
    return filled, in_slots, len(gone) + directory.n_live - n_known
