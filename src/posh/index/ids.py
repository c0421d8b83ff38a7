"""Ids of documents: validation, the column of ids by slot, and the table from ids to slots.

Ids are integers >= 0 or strings. An index that was given a string stores all of its ids as objects, int or
str. The files of an index have these arrays:

=======  ============================================================================================
ids      int64 (n,); if one is a string, int64 (n, 2): the number, -1 for a string, and the end of its
         text in ``id_text``
id_text  the strings as UTF-8, one after the other, uint8; numbers have no text
next_id  above every number that was ever an id, int64; 2^63 - 1 if no automatic ids are left
=======  ============================================================================================
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt

from posh import _validate
from posh._model_files import Arrays, require_array
from posh._validate import as_list
from posh.index.arrays import AppendOnlyArray, Mask, Slots, zero_deleted

__all__ = ["LAST_ID", "NO_IDS", "IdColumn", "IdTable", "Ids", "IdsLike", "validate_ids"]

Ids = npt.NDArray[Any]
"""Ids (n,): int64, or objects, int or str."""

IdsLike = npt.ArrayLike | Sequence[int | str | UUID]

LAST_ID = 2**63 - 1
"""The largest id that is a number. Automatic ids stop before it; a caller may give it."""


def validate_ids(values: IdsLike, n: int | None = None) -> Ids:
    """Return distinct ids (n,): int64 >= 0 if all are integers, else objects; a UUID becomes its string.

    >>> import uuid
    >>> validate_ids([3, "a", uuid.UUID(int=5)])
    array([3, 'a', '00000000-0000-0000-0000-000000000005'], dtype=object)
    >>> validate_ids([3, 5])
    array([3, 5])
    """
    values = as_list(values)
    if not _has_strings(values):  # an array of strings would be as wide as the longest of them
        array = np.asarray(values)
        if array.dtype.kind in "ui" or array.size == 0:
            return _validate.validate_integer_ids(array, n)
    ids = _validate.validate_ids(values, n)
    numbers = [value for value in ids if isinstance(value, int)]
    if numbers and min(numbers) < 0:
        raise ValueError(f"expected ids in 0 .. 2^63 - 1 or strings, got {min(numbers)}")
    return np.array(ids, np.int64 if len(numbers) == len(ids) else object)


def _has_strings(values: Any) -> bool:
    return isinstance(values, list | tuple) and any(issubclass(kind, str) for kind in set(map(type, values)))


@dataclass(frozen=True, eq=False)
class IdColumn:
    """The ids of all slots, immutable.

    If every id is its slot, ``are_slots`` is True: no ids are stored, and a search need not look them up.
    ``next_id`` is above every number that was ever an id; at ``LAST_ID`` no automatic ids are left.

    >>> column = IdColumn.of(np.array([7, 3])).with_ids(np.array(["a"], object))
    >>> column.at(np.array([[2, -1]])), column.next_id
    (array([['a', None]], dtype=object), 8)
    """

    stored: AppendOnlyArray | None  # None if ids are slots
    n: int
    next_id: int

    @classmethod
    def of(cls, ids: Ids, next_id: int = 0) -> IdColumn:
        """Return the column of these ids (n,)."""
        stored = None if _are_slots(ids, 0) else AppendOnlyArray.of(ids)
        return cls(stored, len(ids), max(next_id, _find_next(ids)))

    def __len__(self) -> int:
        return self.n

    @property
    def are_slots(self) -> bool:
        """Whether every id is its slot."""
        return self.stored is None

    @property
    def rows(self) -> AppendOnlyArray:
        """The ids (n,); computed if they are slots."""
        return AppendOnlyArray.of(np.arange(self.n)) if self.stored is None else self.stored

    def with_ids(self, ids: Ids) -> IdColumn:
        """Return a column with more ids; they become objects with the first string."""
        n, next_id = self.n + len(ids), max(self.next_id, _find_next(ids))
        if self.stored is None and _are_slots(ids, self.n):
            return IdColumn(None, n, next_id)
        rows = self.rows
        if ids.dtype == object and rows.buffer.dtype != object:
            rows = AppendOnlyArray.of(rows.rows.astype(object))
        return IdColumn(rows.with_rows(ids), n, next_id)

    def select(self, live: Mask) -> IdColumn:
        """Return the ids of live slots, in new slots."""
        return IdColumn.of(self.rows.rows[live], self.next_id)

    def detach(self) -> IdColumn:
        """Return a copy whose later additions do not affect this column."""
        return self if self.stored is None else replace(self, stored=self.stored.detach())

    def at(self, slots: Slots) -> Ids:
        """Return the ids in slots of any shape; -1 stays -1, or becomes None if ids are objects."""
        if self.are_slots:
            return slots
        ids = self.rows.rows
        if ids.dtype != object:
            return np.where(slots < 0, -1, ids[np.maximum(slots, 0)])
        if not len(ids):
            return np.full(slots.shape, None, object)
        chosen = ids[np.maximum(slots, 0)]
        chosen[slots < 0] = None
        return np.asarray(chosen)

    @property
    def numbers(self) -> Slots | None:
        """The ids (n_slots,) if they are numbers other than the slots."""
        return None if self.are_slots or self.rows.buffer.dtype == object else self.rows.rows

    def make_mask(self, wanted: IdsLike, live: Mask) -> Mask:
        """Return the mask over slots that a filter, ids or a boolean mask by id, stands for."""
        ids = None if self.stored is None else self.stored.rows
        if ids is not None and ids.dtype == object:
            return _mask_objects(wanted, ids)
        array = np.asarray(wanted)
        if array.shape == (0,) and array.dtype.kind == "f":  # an empty list
            array = array.astype(np.int64)
        if array.ndim != 1 or array.dtype.kind not in "bui":
            raise ValueError(
                "expected filter to be a boolean mask by id or a 1-D array of ids, "
                f"got {array.dtype} {array.shape}"
            )
        if ids is None:
            return _mask_slots(array, live)
        if array.dtype.kind != "b":
            return np.isin(ids, array)
        if len(array) > ids.max(initial=-1):
            return np.asarray(array[ids])
        _require_all_ids(array, ids[live].max(initial=-1))
        covering = np.append(array, False)  # ids beyond the mask belong to deleted documents
        return np.asarray(covering[np.minimum(ids, len(array))])

    @property
    def nbytes(self) -> int:
        """Memory of the ids, including their objects."""
        if self.stored is None:
            return 0
        buffer = self.stored.buffer
        objects = self.stored.rows.tolist() if buffer.dtype == object else []
        return buffer.nbytes + sum(map(sys.getsizeof, objects))

    def to_arrays(self, live: Mask) -> Arrays:
        """Return the arrays of a file, with 0 in place of deleted strings."""
        next_id: Arrays = {"next_id": np.array(self.next_id, np.int64)}
        ids = self.rows.rows
        if ids.dtype != object:
            return next_id | {"ids": ids}
        values = zero_deleted(ids, live).tolist()
        texts = [value.encode() if isinstance(value, str) else b"" for value in values]
        pairs = np.empty((len(values), 2), np.int64)
        pairs[:, 0] = [-1 if isinstance(value, str) else value for value in values]
        pairs[:, 1] = np.cumsum([len(text) for text in texts], dtype=np.int64)
        return next_id | {"ids": pairs, "id_text": np.frombuffer(b"".join(texts), np.uint8)}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> IdColumn:
        """Return the column of :meth:`to_arrays`; raise ValueError or KeyError if the arrays are wrong."""
        next_id = 0  # files of older versions do not have it
        if "next_id" in arrays:
            next_id = int(require_array(arrays, "next_id", np.int64, (), low=0))
        if arrays["ids"].ndim != 2:
            return cls.of(require_array(arrays, "ids", np.int64, (None,), low=0), next_id)
        return cls.of(_read_objects(arrays), next_id)

    def require_distinct_strings(self, live: Mask) -> None:
        """Raise ValueError if live documents share an id; numbers alone are not compared."""
        ids = self.rows.rows
        if ids.dtype == object and len(set(ids[live].tolist())) < np.count_nonzero(live):
            raise ValueError("expected distinct ids, found one more than once")


def _mask_slots(array: npt.NDArray[Any], live: Mask) -> Mask:
    """Return the mask over slots for a filter of ids that are slots; see ``IdColumn.make_mask``."""
    mask = np.zeros(len(live), bool)
    if array.dtype.kind == "b":
        if len(array) < len(live):
            _require_all_ids(array, np.flatnonzero(live).max(initial=-1))
        mask[: len(array)] = array[: len(live)]
    else:
        mask[array[(array >= 0) & (array < len(live))].astype(np.int64)] = True
    return mask


def _require_all_ids(mask: Mask, largest: int) -> None:
    if len(mask) <= largest:
        raise ValueError(
            f"expected a mask longer than the largest id ({largest}), got length {len(mask)}: "
            "give one entry per id, or an array of ids"
        )


def _mask_objects(wanted: Any, ids: Ids) -> Mask:
    if isinstance(wanted, np.ndarray) and wanted.dtype == bool:
        raise ValueError(
            "expected filter to be a list or an array of ids, since the index has ids that are strings, "
            f"got a boolean mask {wanted.shape}"
        )
    chosen = set(_validate.validate_ids(wanted, distinct=False))
    return np.fromiter(map(chosen.__contains__, ids.tolist()), bool, len(ids))


def _read_objects(arrays: Arrays) -> Ids:
    numbers, ends = require_array(arrays, "ids", np.int64, (None, 2), low=-1).T
    text = require_array(arrays, "id_text", np.uint8, (None,)).tobytes()
    places = np.concatenate([[0], ends])
    lengths = np.diff(places)
    if lengths.min(initial=0) < 0 or places[-1] != len(text) or ((lengths == 0) != (numbers >= 0)).any():
        raise ValueError("expected the ends of strings in id_text, and none for numbers, found others")
    bounds = zip(numbers.tolist(), places.tolist(), ends.tolist(), strict=False)
    ids = [text[start:end].decode() if number < 0 else number for number, start, end in bounds]
    longest = max((len(value) for value in ids if isinstance(value, str)), default=0)
    if longest > _validate.MAX_ID_LENGTH:
        raise ValueError(f"expected ids of 1 to {_validate.MAX_ID_LENGTH} characters, found {longest}")
    return np.array(ids, object)


def _are_slots(ids: Ids, first_slot: int) -> bool:
    slots = np.arange(first_slot, first_slot + len(ids))
    return ids.dtype != object and bool(np.array_equal(ids, slots))


def _find_next(ids: Ids) -> int:
    """Return the number above all numbers among ids."""
    if ids.dtype == object:
        ids = np.array([value for value in ids.tolist() if isinstance(value, int)], np.int64)
    return min(int(ids.max()) + 1, LAST_ID) if len(ids) else 0


NO_IDS = IdColumn.of(np.empty(0, np.int64))
"""The column of an index without documents."""


class IdTable:
    """Slots of live documents by id, built when first needed; guarded by the lock of the index."""

    def __init__(self) -> None:
        self._slots: dict[int | str, int] | None = None

    def reset(self) -> None:
        """Rebuild the table when it is next needed, because slots were renumbered."""
        self._slots = None

    def add(self, ids: Ids, first_slot: int) -> None:
        """Enter documents that were added with slots from ``first_slot`` on."""
        if self._slots is not None:
            self._slots.update(zip(ids.tolist(), range(first_slot, first_slot + len(ids)), strict=True))

    def delete(self, ids: Ids) -> None:
        """Remove deleted documents."""
        if self._slots is not None:
            for value in ids.tolist():
                del self._slots[value]

    def has(self, value: object, column: IdColumn, live: Mask) -> bool:
        """Return whether an id is present."""
        return (str(value) if isinstance(value, UUID) else value) in self._table(column, live)

    def find_slots(self, ids: Ids, column: IdColumn, live: Mask) -> Slots:
        """Return the slots of present ids; raise KeyError for an absent one."""
        table = self._table(column, live)
        try:
            return np.array([table[value] for value in ids.tolist()], np.int64)
        except KeyError as error:
            raise KeyError(f"expected ids of the index, got {error.args[0]!r}, which is not in it") from None

    def choose_new(self, ids: IdsLike | None, n: int, column: IdColumn, live: Mask) -> Ids:
        """Return the ids of n new documents, by default the next numbers; raise if one is present."""
        if ids is None:
            return _number(column.next_id, n)
        valid, table = validate_ids(ids, n), self._table(column, live)
        for value in valid.tolist():
            if value in table:
                raise ValueError(
                    f"expected new ids, got {value!r}, which is in the index: use update to replace it"
                )
        return valid

    def _table(self, column: IdColumn, live: Mask) -> dict[int | str, int]:
        if self._slots is None:
            slots = np.flatnonzero(live)
            self._slots = dict(zip(column.rows.rows[slots].tolist(), slots.tolist(), strict=True))
        return self._slots


def _number(start: int, n: int) -> npt.NDArray[np.int64]:
    """Return the next n automatic ids."""
    if start + n > LAST_ID:
        raise ValueError(
            f"expected room for {n} more automatic ids below {LAST_ID}, got {start} as the next one: "
            "give ids yourself"
        )
    return np.arange(start, start + n, dtype=np.int64)
