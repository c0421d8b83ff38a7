"""Filters as masks over slots, which the index searches with, and the SQL that finds them.

Whether an item fulfils a condition never changes, because a changed item gets a new seq. So the mask of a
condition is cached, and only newer items are looked up the next time.

The primary key of the table ``fields`` makes a condition a range of the table. Conditions on one field are
looked up together, so each row of the field is read once. SQLite compares values as
:func:`posh.collection.filters.passes` does: only within a type, integers and floats exactly, strings by the
bytes of UTF-8, which gives the order of code points. No text of a user becomes part of a statement.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from posh.collection import tables
from posh.collection.base import Payload
from posh.collection.filters import (
    IN_LIST,
    All,
    AnyOf,
    Condition,
    Contains,
    Exists,
    Holds,
    Not,
    OneOf,
    Prefix,
    Range,
    Scalar,
    Tree,
    find_successor,
    iterate_conditions,
    passes,
    to_stored,
)
from posh.collection.snapshot import Mask, SlotTable
from posh.collection.tables import Connection, DamageError

__all__ = ["Column", "KnownMask", "Masks", "combine_masks", "make_columns"]


class Column(NamedTuple):
    """The rows of one field and one type, divided into parts for some conditions.

    The ``points`` are the values and bounds of the conditions, ascending. They divide the rows into parts:
    part ``2 i + 1`` has the rows that equal point ``i``, part ``2 i`` those between it and the point before.
    ``spans`` say for which parts a condition is true: (number of the condition, first part, last part + 1).
    """

    field: str
    kind: int
    points: list[Any]
    spans: list[tuple[int, int, int]]

    def iterate_statements(self, after: int = 0) -> Iterator[tuple[int, str, list[Any]]]:
        """Yield the parts that are in a span, each with a statement for its seqs above ``after``.

        The statement gives the seqs as one text, with commas, and their count. So SQLite goes through all
        rows in one step. Row by row, it would take the interpreter's lock from other threads for each row.

        >>> (column,) = make_columns([Range("price", "lte", 20)])
        >>> [(part, values) for part, statement, values in column.iterate_statements()]
        [(0, ['price', 2, 20, 0]), (1, ['price', 2, 20, 0])]
        """
        start = "SELECT group_concat(seq), count(*) FROM fields WHERE name = ? AND type = ?"
        for part in sorted({part for _, first, end in self.spans for part in range(first, end)}):
            clause, values = self._build_clause(part)
            yield part, f"{start} {clause} AND seq > ?", [self.field, self.kind, *values, after]

    def _build_clause(self, part: int) -> tuple[str, list[Any]]:
        i, is_point = divmod(part, 2)
        if is_point:
            return "AND value = ?", [self.points[i]]
        above, below = self.points[:i][-1:], self.points[i : i + 1]
        return "AND value > ? " * len(above) + "AND value < ?" * len(below), above + below


def make_columns(conditions: Sequence[Condition]) -> list[Column]:
    """Return the columns that conditions on one field need, one for each type of value.

    >>> make_columns([OneOf("label", (3, 7)), Range("label", "gte", 5)])
    [Column(field='label', kind=2, points=[3, 5, 7], spans=[(0, 1, 2), (0, 5, 6), (1, 3, 7)])]
    """
    by_kind: dict[int, dict[Any, None]] = {}
    for condition in conditions:
        for kind, stored in _list_points(condition):
            by_kind.setdefault(kind, {})[stored] = None
    found = []
    for kind, values in by_kind.items():
        points = sorted(values)
        position = {value: i for i, value in enumerate(points)}
        spans = [
            (number, *_find_span(condition, stored, position))
            for number, condition in enumerate(conditions)
            for its_kind, stored in _list_starts(condition)
            if its_kind == kind
        ]
        found.append(Column(conditions[0].field, kind, points, spans))
    return found


_Stored = tuple[int, str | int | float]


def _list_points(condition: Condition) -> list[_Stored]:
    """Return the types and values that divide the rows for a condition."""
    starts = _list_starts(condition)
    if isinstance(condition, Prefix):
        ((kind, _),) = starts
        successor = find_successor(condition.start)
        return starts if successor is None else [*starts, (kind, successor)]
    return starts


def _list_starts(condition: Condition) -> list[_Stored]:
    """Return the types and values of which each has a span for a condition."""
    match condition:
        case OneOf(_, values):
            return [to_stored(value) for value in values]
        case Contains(_, value):
            return [_to_listed(value)]
        case Holds(_, values):
            return [stored for value in values for stored in (to_stored(value), _to_listed(value))]
        case Range(_, _, bound):
            return [to_stored(bound)]
        case Prefix(_, start):
            return [to_stored(start)]
        case Exists():  # of any type and value
            return []


def _to_listed(value: Scalar) -> _Stored:
    kind, stored = to_stored(value)
    return kind + IN_LIST, stored


def _find_span(condition: Condition, stored: Any, position: Mapping[Any, int]) -> tuple[int, int]:
    i, n = position[stored], len(position)
    if isinstance(condition, Prefix):
        successor = find_successor(condition.start)
        return 2 * i + 1, 2 * n + 1 if successor is None else 2 * position[successor] + 1
    match condition.operator if isinstance(condition, Range) else "eq":
        case "eq":
            return 2 * i + 1, 2 * i + 2
        case "gt":
            return 2 * i + 2, 2 * n + 1
        case "gte":
            return 2 * i + 1, 2 * n + 1
        case "lt":
            return 0, 2 * i + 1
        case _:
            return 0, 2 * i + 2


MAX_BYTES = 1 << 26  # for cached masks and their keys
FEW = 1000  # reading the payloads of this number of items is faster than reading a wide range of rows
_ENTRY = 1024  # bytes of an entry in addition to mask and key: Python objects, the dictionary
_LONG = 200  # characters; a longer key is replaced by its digest


class KnownMask(NamedTuple):
    """Mask of a condition over the first slots of a numbering; deleted items may be missing."""

    numbering: int
    mask: Mask


class Masks:
    """A cache of the most recently used masks, by condition. Many threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, KnownMask] = OrderedDict()
        self._bytes = 0

    def recall(self, tree: Tree) -> dict[str, KnownMask]:
        """Return the known masks of the conditions of a filter.

        Call this before you take the snapshot that you use them with. A mask that becomes known later may
        lack items that were deleted after the snapshot.
        """
        keys = {_make_key(leaf) for leaf in iterate_conditions(tree)}
        with self._lock:
            keys &= self._known.keys()
            for key in keys:
                self._known.move_to_end(key)
            return {key: self._known[key] for key in keys}

    def make_mask(
        self, tree: Tree, known: dict[str, KnownMask], table: SlotTable, connection: Connection
    ) -> Mask:
        """Return the mask of a filter over all slots; the connection reads the state of the slot table."""
        complete = dict(known)
        missing: dict[str, dict[str, Condition]] = {}  # by field, then by key
        for leaf in iterate_conditions(tree):
            if not _suffices(known.get(_make_key(leaf)), table):
                missing.setdefault(leaf.field, {})[_make_key(leaf)] = leaf
        recent = _RecentPayloads(connection)
        for conditions in missing.values():
            olds = [known.get(key) for key in conditions]
            found = _look_up(list(conditions.values()), olds, table, connection, recent)
            for key, mask in zip(conditions, found, strict=True):
                complete[key] = KnownMask(table.numbering, mask)
                self._remember(key, complete[key])
        return _evaluate(tree, complete, table.n_slots)

    def _remember(self, key: str, known: KnownMask) -> None:
        with self._lock:
            self._forget(key)
            self._known[key] = known
            self._bytes += _count_bytes(key, known)
            while self._bytes > MAX_BYTES:
                self._forget(next(iter(self._known)))

    def _forget(self, key: str) -> None:
        if key in self._known:
            self._bytes -= _count_bytes(key, self._known.pop(key))


def combine_masks(tree: Tree, known: dict[str, KnownMask], table: SlotTable) -> Mask | None:
    """Return the mask of a filter over all slots; None if the mask of a condition is not known."""
    if not all(_suffices(known.get(_make_key(leaf)), table) for leaf in iterate_conditions(tree)):
        return None
    return _evaluate(tree, known, table.n_slots)


def _suffices(known: KnownMask | None, table: SlotTable) -> bool:
    return known is not None and known.numbering == table.numbering and len(known.mask) == table.n_slots


def _evaluate(tree: Tree, known: dict[str, KnownMask], n: int) -> Mask:
    match tree:
        case All(parts):
            mask = np.ones(n, bool)
            for part in parts:
                mask &= _evaluate(part, known, n)
            return mask
        case AnyOf(parts):
            mask = np.zeros(n, bool)
            for part in parts:
                mask |= _evaluate(part, known, n)
            return mask
        case Not(part):
            return ~_evaluate(part, known, n)
        case _:
            return known[_make_key(tree)].mask


class _RecentPayloads:
    """Reads the payloads of the items above a seq once for all conditions."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._read: dict[int, list[tuple[int, Payload]]] = {}

    def read_after(self, seq: int) -> list[tuple[int, Payload]]:
        if seq not in self._read:
            self._read[seq] = list(tables.read_payloads_after(self._connection, seq))
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
    is_wide = any(isinstance(condition, Range | Prefix | Exists) for condition in conditions)
    if is_wide and table.n_slots - start <= FEW:
        payloads = recent.read_after(after)
        for condition, mask in zip(conditions, masks, strict=True):
            found = [seq for seq, payload in payloads if passes(condition, payload)]
            mask[table.find_slots(np.array(found, np.int64))] = True
    else:
        for column in make_columns(conditions):
            _mark_slots(masks, column, after, table, connection)
        for condition, mask in zip(conditions, masks, strict=True):
            if isinstance(condition, Exists):
                _mark_existing(mask, condition, after, table, connection)
    for mask in masks:
        mask.flags.writeable = False  # it is shared with later searches
    return masks


def _mark_slots(
    masks: list[Mask], column: Column, after: int, table: SlotTable, connection: Connection
) -> None:
    """Set the slots that fulfil conditions; each row of the column is read once."""
    parts = [np.empty(0, np.int64)] * (2 * len(column.points) + 1)
    for part, statement, values in column.iterate_statements(after):
        parts[part] = _parse_seqs(*connection.execute(statement, values).fetchone())
    ends = np.cumsum([0, *map(len, parts)])
    slots = table.find_slots(np.concatenate(parts))
    for number, first, end in column.spans:
        masks[number][slots[ends[first] : ends[end]]] = True


def _mark_existing(
    mask: Mask, condition: Exists, after: int, table: SlotTable, connection: Connection
) -> None:
    """Set the slots of items that have a field.

    Objects, empty and long lists have no row of their own, so the payloads of the other items are read if
    the name occurs in their text.
    """
    statement = "SELECT group_concat(seq), count(*) FROM fields WHERE name = ? AND seq > ?"
    with_row = _parse_seqs(*connection.execute(statement, [condition.field, after]).fetchone())
    mask[table.find_slots(with_row)] = True
    start = int(np.searchsorted(table.seqs.rows, after, "right"))
    if (mask | ~table.live.rows)[start:].all():
        return
    seqs = tables.find_seqs_with_key(connection, condition.field.rpartition(".")[2], after)
    slots = table.find_slots(seqs)
    candidates = table.seqs.rows[slots[~mask[slots]]]
    for seq, payload in tables.read_payloads(connection, candidates):
        if passes(condition, payload):
            mask[table.find_slots(np.array([seq]))] = True


def _parse_seqs(text: str | None, n: int) -> npt.NDArray[np.int64]:
    """Return the integers (n,) that SQLite has put into one text."""
    try:
        return np.fromiter(map(int, text.split(",") if text else ()), np.int64, n)
    except ValueError as error:
        raise DamageError(f"rows of fields: {error}") from error


def _make_key(leaf: Condition) -> str:
    """Return a key of a condition. Conditions themselves cannot be keys: in Python 1 equals True."""
    key = repr(leaf)
    return key if len(key) <= _LONG else hashlib.sha256(key.encode()).hexdigest()


def _count_bytes(key: str, known: KnownMask) -> int:
    return len(key) + known.mask.nbytes + _ENTRY
