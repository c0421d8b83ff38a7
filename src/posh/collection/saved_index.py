"""The index of a collection, saved as a folder beside the database.

Reading it is faster than building the index from the database. The database names the saved index that
counts, after it is complete. A saved index that is missing, damaged or not named does no harm: the index is
built again. The file format says ``snapshot`` for it: in the name of the folder and as a key of ``meta``.
"""

from __future__ import annotations

import logging
import re
import uuid
from pathlib import Path

import numpy as np

from posh._folder import remove_folder
from posh.collection import build_index, tables
from posh.collection.database import Connection, Database
from posh.collection.snapshot import CollectionSnapshot, SlotTable
from posh.errors import StorageError
from posh.index import files
from posh.index.index import Index
from posh.index.snapshot import IndexSnapshot

__all__ = ["find_name", "is_name", "is_worth_it", "read_or_build", "remove_unused"]
__all__ += ["require_none_unused", "write"]

logger = logging.getLogger(__name__)

_PREFIX = "snapshot-"
_NAME = re.compile(f"{_PREFIX}[0-9a-f]{{32}}")
WORTH = 5_000  # written items: an index takes as many more in a moment


def is_worth_it(snapshot: CollectionSnapshot, n_written: int) -> bool:
    """Whether saving the index makes the next opening much faster: after many writes, of many items."""
    return snapshot.index is not None and n_written >= max(WORTH, snapshot.slot_table.n_live // 4)


def write(folder: Path, snapshot: CollectionSnapshot) -> str | None:
    """Save the index and return its name, which the caller writes into the database."""
    if snapshot.index is None or snapshot.index.documents is None:
        return None
    name = f"{_PREFIX}{uuid.uuid4().hex}"
    snapshot.index.save(folder / name)
    return name


def find_name(connection: Connection) -> str | None:
    """Return the name of the saved index that counts."""
    name = tables.get_meta(connection, "snapshot")
    return name if isinstance(name, str) and is_name(name) else None


def is_name(name: str) -> bool:
    """Whether a folder of this name may be a saved index."""
    return _NAME.fullmatch(name) is not None


def remove_unused(folder: Path, database: Database) -> list[str]:
    """Remove all saved indexes but the one that counts; return the names of those that cannot be removed."""
    with database.reading() as connection:
        used = find_name(connection)
    left = []
    for path in folder.iterdir():
        if is_name(path.name) and path.name != used:
            try:
                remove_folder(path, files.FORMAT)
            except OSError:
                left.append(path.name)
    return left


def require_none_unused(folder: Path, database: Database) -> None:
    """Remove all saved indexes but the one that counts; raise if one stays: it may hold deleted items."""
    left = remove_unused(folder, database)
    if left:
        raise StorageError(
            f"{folder}: expected saved indexes that can be removed, got {', '.join(left)}, which may hold "
            "deleted items: make the folder and its files writable, and compact again"
        )


def read_or_build(
    folder: Path, connection: Connection, generation: int, empty: IndexSnapshot, table: SlotTable
) -> tuple[IndexSnapshot, SlotTable, int]:
    """Return the index with all items of a slot table, the table in the order of its slots, and a number.

    The number is that of the items that the saved index lacks. ``empty`` is the trained index without
    documents.
    """
    name = find_name(connection)
    if name is not None and (folder / name).exists():
        try:
            return _read(folder / name, connection, generation, empty, table)
        except Exception as error:
            logger.warning("%s cannot be used (%s): the index is built again", folder / name, error)
    index = build_index.fill(connection, generation, empty, table)
    return index, table, max(1, table.n_live)  # an unusable saved index may have to go, even without items


def _read(
    path: Path, connection: Connection, generation: int, empty: IndexSnapshot, table: SlotTable
) -> tuple[IndexSnapshot, SlotTable, int]:
    saved = Index.load(path).snapshot()
    if saved.options != empty.options or saved.documents is None:
        raise ValueError("it is of another index")
    seqs, live = saved.documents.ids.rows, saved.documents.live
    if not (np.diff(seqs) > 0).all():
        raise ValueError("its items are not in order")
    in_slots = table.rearranged(seqs)
    n_known = in_slots.n_live
    n_older = np.searchsorted(table.seqs.rows, in_slots.last_seq, "right")
    if n_known != n_older or not live[in_slots.live.rows].all():
        raise ValueError("it lacks items")
    deleted = np.flatnonzero(live & ~in_slots.live.rows)
    newer = slice(n_known, None)
    in_slots = in_slots.with_items(table.seqs.rows[newer], table.ids.rows[newer])
    index = build_index.fill(connection, generation, saved.without(deleted), in_slots)
    return index, in_slots, len(deleted) + table.n_live - n_known
