"""Filters as masks over slots, as the index wants them.

What a payload says of a condition never changes, since a changed item gets a new seq. So what was found for a
condition is remembered, and only newer items are looked at again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from posh.collection import tables
from posh.collection.conditions import Condition, selections
from posh.collection.directory import Directory, Mask
from posh.collection.filters import All, AnyOf, Filter, Not, OneOf, Range, passes
from posh.collection.storage import Connection

__all__ = ["Known", "Masks", "combined"]

MAX_BYTES = 1 << 26  # of remembered masks
FEW = 1000  # items whose payloads are read sooner than the rows of a wide range


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

        To be asked for before the moment is taken that it is used for: what was found out later lacks the
        items that were removed in between.
        """
        with self._lock:
            keys = {_key(leaf) for leaf in _leaves(tree)} & self._known.keys()
            for key in keys:
                self._known.move_to_end(key)
            return {key: self._known[key] for key in keys}

    def mask(
        self, tree: Filter, known: dict[str, Known], directory: Directory, connection: Connection
    ) -> Mask:
        """The mask of a filter over all slots; the connection reads at the moment of the directory."""
        complete = dict(known)
        for leaf in _leaves(tree):
            key = _key(leaf)
            if not _suffices(complete.get(key), directory):
                found = _looked_up(leaf, complete.get(key), directory, connection)
                complete[key] = Known(directory.numbering, found)
                self._remember(key, complete[key])
        return _mask(tree, complete, directory.n_slots)

    def _remember(self, key: str, known: Known) -> None:
        with self._lock:
            old = self._known.pop(key, None)
            self._bytes += known.mask.nbytes - (0 if old is None else old.mask.nbytes)
            self._known[key] = known
            while self._bytes > MAX_BYTES and self._known:
                _, dropped = self._known.popitem(last=False)
                self._bytes -= dropped.mask.nbytes


def combined(tree: Filter, known: dict[str, Known], directory: Directory) -> Mask | None:
    """The mask of a filter over the slots of a directory; None if more must be found out first."""
    if not all(_suffices(known.get(_key(leaf)), directory) for leaf in _leaves(tree)):
        return None
    return _mask(tree, known, directory.n_slots)


def _suffices(known: Known | None, directory: Directory) -> bool:
    return (
        known is not None and known.numbering == directory.numbering and len(known.mask) == directory.n_slots
    )


def _mask(tree: Filter, known: dict[str, Known], n: int) -> Mask:
    match tree:
        case All(parts):
            masks = [_mask(part, known, n) for part in parts]
            return np.logical_and.reduce(masks) if masks else np.ones(n, bool)
        case AnyOf(parts):
            masks = [_mask(part, known, n) for part in parts]
            return np.logical_or.reduce(masks) if masks else np.zeros(n, bool)
        case Not(part):
            return ~_mask(part, known, n)
        case OneOf() | Range():
            return known[_key(tree)].mask


def _looked_up(leaf: Condition, known: Known | None, directory: Directory, connection: Connection) -> Mask:
    mask = np.zeros(directory.n_slots, bool)
    start = 0
    if known is not None and known.numbering == directory.numbering:
        start = len(known.mask)
        mask[:start] = known.mask
    after = int(directory.seqs.rows[start - 1]) if start else 0
    if isinstance(leaf, Range) and directory.n_slots - start <= FEW:
        found = [seq for seq, payload in tables.payloads_after(connection, after) if passes(leaf, payload)]
    else:
        found = [
            row[0]
            for statement, values in selections(leaf, after)
            for row in connection.execute(statement, values)
        ]
    mask[directory.slots_of(np.array(found, np.int64))] = True
    mask.flags.writeable = False  # it is remembered
    return mask


def _leaves(tree: Filter) -> Iterator[Condition]:
    match tree:
        case All(parts) | AnyOf(parts):
            for part in parts:
                yield from _leaves(part)
        case Not(part):
            yield from _leaves(part)
        case OneOf() | Range():
            yield tree


def _key(leaf: Condition) -> str:
    """Equal for equal conditions only: unlike conditions themselves, for which 1 equals True."""
    return repr(leaf)
