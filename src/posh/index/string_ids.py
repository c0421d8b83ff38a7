"""Ids that are strings: an index that was given one has all of its ids as objects, int or str.

The files of such an index have two arrays, of the ids of all slots:

=======  ============================================================================================
ids      int64 (n, 2): the number, -1 for a string, and the end of its text in ``id_text``
id_text  the strings as UTF-8, one after the other, uint8; a number has no text there
=======  ============================================================================================
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt

from posh import _validate
from posh._matrix import listed
from posh.index.append_only import AppendOnlyArray
from posh.index.sliced import Mask, Slots
from posh.model_files import Arrays, expect

__all__ = [
    "Ids",
    "IdsLike",
    "appended",
    "by_slot",
    "checked",
    "from_arrays",
    "mask_of",
    "nbytes",
    "to_arrays",
]

Ids = npt.NDArray[Any]
"""Ids (n,): int64, or objects, int or str."""

IdsLike = npt.ArrayLike | Sequence[int | str | UUID]


def checked(values: IdsLike, n: int | None = None) -> Ids:
    """Return distinct ids (n,): int64 >= 0 if all are integers, else objects; a UUID becomes its string.

    >>> import uuid
    >>> checked([3, "a", uuid.UUID(int=5)])
    array([3, 'a', '00000000-0000-0000-0000-000000000005'], dtype=object)
    >>> checked([3, 5])
    array([3, 5])
    """
    values = listed(values)
    if not _has_strings(values):  # an array of strings would be as wide as the longest of them
        array = np.asarray(values)
        if array.dtype.kind in "ui" or array.size == 0:
            return _validate.ids(array, n)
    ids = _validate.any_ids(values, n)
    numbers = [value for value in ids if isinstance(value, int)]
    if numbers and min(numbers) < 0:
        raise ValueError(f"expected ids in 0 .. 2^63 - 1 or strings, got {min(numbers)}")
    return np.array(ids, np.int64 if len(numbers) == len(ids) else object)


def appended(column: AppendOnlyArray, ids: Ids) -> AppendOnlyArray:
    """The ids of an index and some more: objects from the first string on."""
    if ids.dtype == object and column.buffer.dtype != object:
        column = AppendOnlyArray.of(column.rows.astype(object))
    return column.with_rows(ids)


def by_slot(ids: Ids, slots: Slots) -> Ids:
    """The ids in slots of any shape, of objects; None where the slot is -1."""
    if not len(ids):
        return np.full(slots.shape, None, object)
    found = ids[np.maximum(slots, 0)]
    found[slots < 0] = None
    return found


def mask_of(wanted: Any, ids: Ids) -> Mask:
    """Which ids, objects (n,), are among the wanted ones, as a filter gives them."""
    if isinstance(wanted, np.ndarray) and wanted.dtype == bool:
        raise ValueError(
            "expected filter to be a list or an array of ids, since the index has ids that are strings, "
            f"got a boolean mask {wanted.shape}"
        )
    chosen = set(_validate.any_ids(wanted, distinct=False))
    return np.fromiter(map(chosen.__contains__, ids.tolist()), bool, len(ids))


def nbytes(column: AppendOnlyArray) -> int:
    """Bytes that ids take, those of their objects included."""
    objects = column.rows.tolist() if column.buffer.dtype == object else []
    return column.buffer.nbytes + sum(map(sys.getsizeof, objects))


def to_arrays(ids: Ids) -> Arrays:
    """The arrays of files."""
    if ids.dtype != object:
        return {"ids": ids}
    values = ids.tolist()
    texts = [value.encode() if isinstance(value, str) else b"" for value in values]
    pairs = np.empty((len(values), 2), np.int64)
    pairs[:, 0] = [-1 if isinstance(value, str) else value for value in values]
    pairs[:, 1] = np.cumsum([len(text) for text in texts], dtype=np.int64)
    return {"ids": pairs, "id_text": np.frombuffer(b"".join(texts), np.uint8)}


def from_arrays(arrays: Arrays) -> Ids:
    """The ids in arrays of files; a ValueError or KeyError if these are wrong."""
    if arrays["ids"].ndim != 2:
        return expect(arrays, "ids", np.int64, (None,), low=0)
    numbers, ends = expect(arrays, "ids", np.int64, (None, 2), low=-1).T
    text = expect(arrays, "id_text", np.uint8, (None,)).tobytes()
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


def _has_strings(values: Any) -> bool:
    return isinstance(values, list | tuple) and any(issubclass(kind, str) for kind in set(map(type, values)))
