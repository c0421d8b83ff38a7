"""Arrays by slot that grow at the end while others read the beginning, and small helpers for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from posh._durable import empty_aligned

__all__ = ["AppendOnlyArray", "Mask", "Slots", "cached", "get_fields", "pack_mask", "zero_deleted"]

T = TypeVar("T")

Slots = npt.NDArray[np.int64]
"""Slots of documents, int64; -1 stands for no document."""

Mask = npt.NDArray[np.bool_]
"""A mask over slots, bool (n_slots,)."""


@dataclass(frozen=True, eq=False)
class AppendOnlyArray:
    """The first ``n`` rows of a buffer. Rows are added behind them, where no earlier reader looks.

    Only the newest array of a family may grow: the index does so under its lock. :meth:`detach` starts a new
    family.

    >>> import numpy as np
    >>> AppendOnlyArray.of(np.array([1, 2])).with_rows(np.array([3])).rows
    array([1, 2, 3])
    """

    buffer: npt.NDArray[Any]
    n: int

    @classmethod
    def of(cls, rows: npt.NDArray[Any]) -> AppendOnlyArray:
        """Wrap an array without copying it; the first addition copies it."""
        return cls(rows, len(rows))

    def detach(self) -> AppendOnlyArray:
        """Return the same rows as a new family: the first addition copies them."""
        return AppendOnlyArray.of(self.rows)

    @property
    def rows(self) -> npt.NDArray[Any]:
        """The rows, (n, ...), read-only by convention."""
        return self.buffer[: self.n]

    def with_rows(self, rows: npt.NDArray[Any]) -> AppendOnlyArray:
        """Return an array with more rows."""
        n = self.n + len(rows)
        buffer = self.buffer
        if n > len(buffer):
            buffer = empty_aligned((max(n, self.n + self.n // 2), *buffer.shape[1:]), buffer.dtype)
            buffer[: self.n] = self.rows
        buffer[self.n : n] = rows
        return AppendOnlyArray(buffer, n)


class cached(Generic[T]):  # noqa: N801  # used like a property
    """A property that is computed once, like ``functools.cached_property``, but without a lock.

    A fork may happen while another thread holds that lock, and the child would deadlock.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make, self._name = make, make.__name__

    def __get__(self, instance: Any, owner: type[Any]) -> T:
        if instance is None:
            return self  # type: ignore[return-value]
        value = vars(instance)[self._name] = self._make(instance)
        return value


def get_fields(instance: Any) -> dict[str, Any]:
    """Return the fields of a dataclass for a pickle, without cached native objects."""
    return {field.name: getattr(instance, field.name) for field in fields(instance)}


def pack_mask(mask: Mask) -> npt.NDArray[np.uint64]:
    """Return a mask (n,) as ceil(n / 64) words, the first document in the lowest bit."""
    packed = np.zeros(-(-len(mask) // 64) * 8, np.uint8)
    packed[: -(-len(mask) // 8)] = np.packbits(mask, bitorder="little")
    return packed.view(np.uint64)


def zero_deleted(rows: npt.NDArray[Any], live: Mask) -> npt.NDArray[Any]:
    """Return rows (n, ...) with zeros where ``live`` (n,) is False; the same array if it is True everywhere.

    >>> zero_deleted(np.array([[1, 2], [3, 4]]), np.array([True, False])).tolist()
    [[1, 2], [0, 0]]
    """
    if live.all():
        return rows
    copy = rows.copy()
    copy[~live] = 0
    return copy
