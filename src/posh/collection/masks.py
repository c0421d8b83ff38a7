"""Filters as masks over slots, which the index searches with.

Whether an item fulfils a condition never changes, because a changed item gets a new seq. So the mask of a
condition is remembered, and only newer items are looked up the next time.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from posh.collection import tables
from posh.collection.base import Payload
from posh.collection.conditions import Column, columns
from posh.collection.database import Connection
from posh.collection.filters import All, AnyOf, Condition, Contains, Not, OneOf, Range, Tree, leaves, passes
from posh.collection.snapshot import Mask, SlotTable
from posh.collection.sqlite_errors import DamageError

__all__ = ["KnownMask", "Masks", "combined"]

MAX_BYTES = 1 << 26  # for remembered masks and their keys
FEW = 1000  # reading the payloads of so few items is faster than reading the rows of a wide range
_ENTRY = 1024  # bytes of an entry beside its mask and its key: Python objects, the dictionary
_LONG = 200  # characters; a longer key is replaced by its digest


class KnownMask(NamedTuple):
    """Which of the first slots of a numbering fulfil a condition; deleted items may be missing."""

    numbering: int
    mask: Mask


class Masks:
    """Remembers the most recently used masks, by condition. Many threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, KnownMask] = OrderedDict()
        self._bytes = 0

    def recall(self, tree: Tree) -> dict[str, KnownMask]:
        """Return the known masks of the conditions of a filter.

        Call this before you take the snapshot that you use them with. A mask that becomes known later may
        lack items that were deleted after the snapshot.
        """
        keys = {_key(leaf) for leaf in leaves(tree)}
        with self._lock:
            keys &= self._known.keys()
            for key in keys:
                self._known.move_to_end(key)
            return {key: self._known[key] for key in keys}

    def mask(self, tree: Tree, known: dict[str, KnownMask], table: SlotTable, connection: Connection) -> Mask:
        """Return the mask of a filter over all slots; the connection reads the state of the slot table."""
        complete = dict(known)
        missing: dict[str, dict[str, Condition]] = {}  # by field, then by key
        for leaf in leaves(tree):
            if not _suffices(known.get(_key(leaf)), table):
                missing.setdefault(leaf.field, {})[_key(leaf)] = leaf
        recent = _RecentPayloads(connection)
        for conditions in missing.values():
            olds = [known.get(key) for key in conditions]
            found = _look_up(list(conditions.values()), olds, table, connection, recent)
            for key, mask in zip(conditions, found, strict=True):
                complete[key] = KnownMask(table.numbering, mask)
                self._remember(key, complete[key])
        return _mask(tree, complete, table.n_slots)

    def _remember(self, key: str, known: KnownMask) -> None:
        with self._lock:
            self._forget(key)
            self._known[key] = known
            self._bytes += _size(key, known)
            while self._bytes > MAX_BYTES:
                self._forget(next(iter(self._known)))

    def _forget(self, key: str) -> None:
        if key in self._known:
            self._bytes -= _size(key, self._known.pop(key))


def combined(tree: Tree, known: dict[str, KnownMask], table: SlotTable) -> Mask | None:
    """Return the mask of a filter over all slots; None if the mask of a condition is not known."""
    if not all(_suffices(known.get(_key(leaf)), table) for leaf in leaves(tree)):
        return None
    return _mask(tree, known, table.n_slots)


def _suffices(known: KnownMask | None, table: SlotTable) -> bool:
    return known is not None and known.numbering == table.numbering and len(known.mask) == table.n_slots


def _mask(tree: Tree, known: dict[str, KnownMask], n: int) -> Mask:
    match tree:
        case All(parts):
            mask = np.ones(n, bool)
            for part in parts:
                mask &= _mask(part, known, n)
            return mask
        case AnyOf(parts):
            mask = np.zeros(n, bool)
            for part in parts:
                mask |= _mask(part, known, n)
            return mask
        case Not(part):
            return ~_mask(part, known, n)
        case OneOf() | Contains() | Range():
            return known[_key(tree)].mask


class _RecentPayloads:
    """Reads the payloads of the items above a seq once for all conditions."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._read: dict[int, list[tuple[int, Payload]]] = {}

    def above(self, seq: int) -> list[tuple[int, Payload]]:
        if seq not in self._read:
            self._read[seq] = list(tables.payloads_after(self._connection, seq))
        return self._read[seq]


def _look_up(
    conditions: list[Condition],
    olds: Sequence[KnownMask | None],
    table: SlotTable,
    connection: Connection,
    recent: _RecentPayloads,
) -> list[Mask]:
    """Return the masks of conditions on one field; ``olds`` are their masks over fewer slots, if known."""
    start = min(0 if old is None or old.numbering != table.numbering else len(old.mask) for old in olds)
    after = int(table.seqs.rows[start - 1]) if start else 0
    masks = []
    for old in olds:
        mask = np.zeros(table.n_slots, bool)
        if start and old is not None:
            mask[:start] = old.mask[:start]
        masks.append(mask)
    is_wide = any(isinstance(condition, Range) for condition in conditions)
    if is_wide and table.n_slots - start <= FEW:
        payloads = recent.above(after)
        for condition, mask in zip(conditions, masks, strict=True):
            found = [seq for seq, payload in payloads if passes(condition, payload)]
            mask[table.slots_of(np.array(found, np.int64))] = True
    else:
        for column in columns(conditions):
            _mark(masks, column, after, table, connection)
    for mask in masks:
        mask.flags.writeable = False  # it is shared with later searches
    return masks


def _mark(masks: list[Mask], column: Column, after: int, table: SlotTable, connection: Connection) -> None:
    """Set the slots that fulfil conditions; each row of the column is read once."""
    parts = [np.empty(0, np.int64)] * (2 * len(column.points) + 1)
    for part, statement, values in column.selections(after):
        parts[part] = _parse_seqs(*connection.execute(statement, values).fetchone())
    ends = np.cumsum([0, *map(len, parts)])
    slots = table.slots_of(np.concatenate(parts))
    for number, first, end in column.spans:
        masks[number][slots[ends[first] : ends[end]]] = True


def _parse_seqs(text: str | None, n: int) -> npt.NDArray[np.int64]:
    """Return the integers (n,) that SQLite has put into one text."""
    try:
        return np.fromiter(map(int, text.split(",") if text else ()), np.int64, n)
    except ValueError as error:
        raise DamageError(f"rows of fields: {error}") from error


def _key(leaf: Condition) -> str:
    """Return a key of a condition. Conditions themselves are no keys: in Python 1 equals True."""
    key = repr(leaf)
    return key if len(key) <= _LONG else hashlib.sha256(key.encode()).hexdigest()


def _size(key: str, known: KnownMask) -> int:
    return len(key) + known.mask.nbytes + _ENTRY
