"""Filters as masks over slots, as the index wants them.

What a payload says of a condition never changes, since a changed item gets a new seq. So what was found for a
condition is remembered, and only newer items are looked at again.
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
from posh.collection.conditions import Column, Condition, columns
from posh.collection.directory import Directory, Mask
from posh.collection.filters import All, AnyOf, Filter, Not, OneOf, Range, leaves, passes
from posh.collection.storage import Connection, DamageError

__all__ = ["Known", "Masks", "combined"]

MAX_BYTES = 1 << 26  # of remembered masks and their keys
FEW = 1000  # items whose payloads are read sooner than the rows of a wide range
_ENTRY = 1024  # bytes that an entry takes beside its mask and its key: Python objects, the dictionary
_LONG = 200  # characters of a key that is replaced by its digest


class Known(NamedTuple):
    """Which of the first slots of a numbering fulfil a condition; removed items may be left out."""

    numbering: int
    mask: Mask


class Masks:
    """Remembers masks by condition, the most recently used ones. May be used from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._bytes = 0

    def recall(self, tree: Filter) -> dict[str, Known]:
        """What is known of the conditions of a filter.

        Call this before you take the moment that you use it for: masks that were found later lack the items
        that were removed in between.
        """
        keys = {_key(leaf) for leaf in leaves(tree)}
        with self._lock:
            keys &= self._known.keys()
            for key in keys:
                self._known.move_to_end(key)
            return {key: self._known[key] for key in keys}

    def mask(
        self, tree: Filter, known: dict[str, Known], directory: Directory, connection: Connection
    ) -> Mask:
        """The mask of a filter over all slots; the connection reads at the moment of the directory."""
        complete = dict(known)
        missing: dict[str, dict[str, Condition]] = {}  # by field, then by key
        for leaf in leaves(tree):
            if not _suffices(known.get(_key(leaf)), directory):
                missing.setdefault(leaf.field, {})[_key(leaf)] = leaf
        recent = _Recent(connection)
        for conditions in missing.values():
            olds = [known.get(key) for key in conditions]
            found = _looked_up(list(conditions.values()), olds, directory, connection, recent)
            for key, mask in zip(conditions, found, strict=True):
                complete[key] = Known(directory.numbering, mask)
                self._remember(key, complete[key])
        return _mask(tree, complete, directory.n_slots)

    def _remember(self, key: str, known: Known) -> None:
        with self._lock:
            self._forget(key)
            self._known[key] = known
            self._bytes += _size(key, known)
            while self._bytes > MAX_BYTES:
                self._forget(next(iter(self._known)))

    def _forget(self, key: str) -> None:
        if key in self._known:
            self._bytes -= _size(key, self._known.pop(key))


def combined(tree: Filter, known: dict[str, Known], directory: Directory) -> Mask | None:
    """The mask of a filter over the slots of a directory; None if more must be found out first."""
    if not all(_suffices(known.get(_key(leaf)), directory) for leaf in leaves(tree)):
        return None
    return _mask(tree, known, directory.n_slots)


def _suffices(known: Known | None, directory: Directory) -> bool:
    return (
        known is not None and known.numbering == directory.numbering and len(known.mask) == directory.n_slots
    )


def _mask(tree: Filter, known: dict[str, Known], n: int) -> Mask:
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
        case OneOf() | Range():
            return known[_key(tree)].mask


class _Recent:
    """Payloads of the items above a seq, read once for all conditions."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._read: dict[int, list[tuple[int, Payload]]] = {}

    def above(self, seq: int) -> list[tuple[int, Payload]]:
        if seq not in self._read:
            self._read[seq] = list(tables.payloads_after(self._connection, seq))
        return self._read[seq]


def _looked_up(
    conditions: list[Condition],
    olds: Sequence[Known | None],
    directory: Directory,
    connection: Connection,
    recent: _Recent,
) -> list[Mask]:
    """The masks of conditions on one field; ``olds`` are those that were known of fewer slots."""
    start = min(0 if old is None or old.numbering != directory.numbering else len(old.mask) for old in olds)
    after = int(directory.seqs.rows[start - 1]) if start else 0
    masks = []
    for old in olds:
        mask = np.zeros(directory.n_slots, bool)
        if start and old is not None:
            mask[:start] = old.mask[:start]
        masks.append(mask)
    is_wide = any(isinstance(condition, Range) for condition in conditions)
    if is_wide and directory.n_slots - start <= FEW:
        payloads = recent.above(after)
        for condition, mask in zip(conditions, masks, strict=True):
            found = [seq for seq, payload in payloads if passes(condition, payload)]
            mask[directory.slots_of(np.array(found, np.int64))] = True
    else:
        for column in columns(conditions):
            _mark(masks, column, after, directory, connection)
    for mask in masks:
        mask.flags.writeable = False  # it is remembered
    return masks


def _mark(
    masks: list[Mask], column: Column, after: int, directory: Directory, connection: Connection
) -> None:
    """Set the slots that fulfil conditions, by the rows of a column: each is read once."""
    parts = [np.empty(0, np.int64)] * (2 * len(column.points) + 1)
    for part, statement, values in column.selections(after):
        parts[part] = _numbers(*connection.execute(statement, values).fetchone())
    ends = np.cumsum([0, *map(len, parts)])
    slots = directory.slots_of(np.concatenate(parts))
    for number, first, end in column.spans:
        masks[number][slots[ends[first] : ends[end]]] = True


def _numbers(text: str | None, n: int) -> npt.NDArray[np.int64]:
    """Integers (n,) that SQLite has put into one text."""
    try:
        return np.fromiter(map(int, text.split(",") if text else ()), np.int64, n)
    except ValueError as error:
        raise DamageError(f"rows of fields: {error}") from error


def _key(leaf: Condition) -> str:
    """Equal for equal conditions only: unlike conditions themselves, for which 1 equals True."""
    key = repr(leaf)
    return key if len(key) <= _LONG else hashlib.sha256(key.encode()).hexdigest()


def _size(key: str, known: Known) -> int:
    return len(key) + known.mask.nbytes + _ENTRY
