"""Copying a collection from one engine to another, so that a second run goes on where the first one stopped.

Items are copied in the order of writing. An item that the target has already, with the same vector and
payload, is not written again: nothing is lost, and nothing is doubled. Until the copy is complete, the
metadata of the target say where it comes from. So a second run knows that it may go on.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from posh.collection.base import BaseCollection, Id, Item, Payload
from posh.collection.importing import lacks_index
from posh.errors import StorageError
from posh.hashers.base import Hasher

__all__ = ["BATCH", "COPY", "Copier", "Create"]

BATCH = 1000  # items of one write
COPY = "posh:copy"  # the field of the metadata of a copy that is not complete

Create = Callable[[Hasher[Any] | None, Payload, dict[str, Any]], BaseCollection]


@dataclass
class Copier:
    """Copies ``source`` to the collection that ``open_target`` gives, or else ``create_target`` makes.

    ``origin`` names the source in the metadata of the target. With ``index_last`` the target gets its hasher
    and its options after its items: an embedded collection would be trained again and again otherwise.
    """

    source: BaseCollection
    origin: str
    open_target: Callable[[], BaseCollection | None]
    create_target: Create
    index_last: bool
    target: BaseCollection | None = None
    n_items: int = 0  # that are in the target now
    n_written: int = 0

    def steps(self) -> Iterator[int]:
        """Copy the items; yield the number of items of each batch when they are in the target."""
        self._open()
        items, ids = self.source.items(), set[Id]()
        while batch := list(itertools.islice(items, BATCH)):
            self._write(batch)
            ids.update(item.id for item in batch)
            yield len(batch)
        self._remove_others(ids)

    def finish(self) -> None:
        """Make the index of the target if it comes last, and let the copy count as complete."""
        target = self._target
        if not self._is_begun:
            return
        if lacks_index(target) and not lacks_index(self.source):
            target.reindex(self.source.hasher, **self.source.index_options)
        target.set_metadata(self.source.metadata)

    @property
    def _target(self) -> BaseCollection:
        assert self.target is not None
        return self.target

    @property
    def _is_begun(self) -> bool:
        """Whether the target is a copy that is not complete."""
        return COPY in self._target.metadata

    def _open(self) -> None:
        self.target = self.open_target()
        if self.target is None:
            options = {} if self.index_last else self.source.index_options
            hasher = None if self.index_last else self.source.hasher
            self.target = self.create_target(hasher, {COPY: self.origin}, options)
        origin = self.target.metadata.get(COPY, self.origin)
        if origin != self.origin:
            raise StorageError(
                f"expected a new target or an interrupted copy of {self.origin}, got one of {origin}: choose "
                "another target"
            )

    def _write(self, batch: list[Item]) -> None:
        there = self._target.get([item.id for item in batch])
        new = [item for item, own in zip(batch, there, strict=True) if own is None or not _equal(item, own)]
        if new and not self._is_begun:
            raise StorageError(
                "expected a new target or an interrupted copy, got a collection without the item "
                f"{new[0].id!r:.80} of the source, or with another one: choose another target"
            )
        if new:
            vectors = np.array([item.vector for item in new], np.float32)
            self._target.upsert([item.id for item in new], vectors, [item.payload for item in new])
        self.n_items += len(batch)
        self.n_written += len(new)

    def _remove_others(self, ids: set[Id]) -> None:
        """Remove items that were copied before and are not in the source any more."""
        if len(self._target) == len(ids):
            return
        others = [item.id for item in self._target.items() if item.id not in ids]
        if others and not self._is_begun:
            raise StorageError(
                f"expected a new target or an interrupted copy, got a collection with {len(others):,} other "
                "items: choose another target"
            )
        self._target.delete(others)


def _equal(one: Item, other: Item) -> bool:
    return np.array_equal(one.vector, other.vector) and repr(one.payload) == repr(other.payload)
