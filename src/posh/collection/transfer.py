"""Importing files into a collection, and copying a collection to another engine.

Both can be repeated after an interruption. An item that the target has already, with the same vector and
payload, is not written again: nothing is lost, and nothing is written twice. Each batch is one write, which
is on the disk completely or not at all.

A new collection gets its index after the last row. Made with the first rows, the index would be trained again
whenever their number doubles, and an import would take several times as long. Until then, the metadata of the
collection hold the metric that the index will have. The metadata of an incomplete copy name its source.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from posh.collection import base
from posh.collection.base import BaseCollection, Id, Item, Payload
from posh.errors import StorageError
from posh.files import BadRowHandler, Batch, Roles, RowError, VectorFile, take_valid_vectors
from posh.hashers.base import Hasher
from posh.preprocess import Float32

__all__ = [
    "COPY",
    "COPY_BATCH",
    "IMPORT",
    "IMPORT_BATCH",
    "Copier",
    "Create",
    "Importer",
    "find_metric",
    "lacks_index",
    "take_valid_rows",
]

IMPORT_BATCH = 8192  # rows of one write
IMPORT = "posh:import"  # the field of the metadata of a collection whose import is not complete


@dataclass
class Importer:
    """Writes files to a collection.

    ``open_collection`` is called before the first row is written, so a file without a valid row creates no
    collection. ``options``, among them the metric, are those of a collection without an index, whose
    metric an interrupted import may have chosen. ``replace`` allows rows to replace other items with the same
    ids; otherwise they are bad rows. ``on_bad_row`` is called for each bad row, which is then skipped;
    without it, a bad row is an error.
    """

    open_collection: Callable[[], BaseCollection]
    options: dict[str, Any]
    replace: bool = False
    on_bad_row: BadRowHandler | None = None
    collection: BaseCollection | None = None
    n_rows: int = 0  # rows that are in the collection now
    n_written: int = 0
    n_replaced: int = 0  # of those written
    n_zero: int = 0  # rows whose vector has no direction
    _seen: set[Id] = field(default_factory=set)
    _was_empty: bool = True
    _offset: int = 0  # of the numbers of rows: those without ids are numbered through all files

    def open(self) -> BaseCollection:
        """Open the collection, if it is not open yet."""
        if self.collection is None:
            self.collection = self.open_collection()
            self._was_empty = len(self.collection) == 0
            if lacks_index(self.collection):
                begun = self.collection.metadata.get(IMPORT, {})
                options = begun | self.options | {"metric": begun.get("metric", self.options["metric"])}
                if options != begun:
                    self.collection.set_metadata(self.collection.metadata | {IMPORT: options})
        return self.collection

    def steps(self, file: VectorFile, roles: Roles) -> Iterator[int]:
        """Write the rows of a file; yield the number of rows of each batch when it is on the disk.

        A row that cannot be imported raises :class:`~posh.files.RowError`, after all rows before it are
        written, unless bad rows are skipped.
        """
        offset = self._offset
        for batch in file.batches(roles, IMPORT_BATCH):
            error, n_before, start = None, self.n_rows, 0
            self._offset = offset + batch.first_row + len(batch.payloads)
            while start < len(batch.payloads):
                rest = batch.rows_from(start)
                width = None if self.collection is None else self.collection.n_features
                n_good, problem = self._write(*take_valid_rows(rest, width, offset, self._seen))
                start += n_good
                if problem is None:
                    break
                error = RowError(file.path, rest.first_row + n_good, problem, _describe_row(rest, n_good))
                if self.on_bad_row is None:
                    break
                self.on_bad_row(error)
                start, error = start + 1, None
            yield self.n_rows - n_before
            if error is not None:
                raise error

    def finish(self) -> None:
        """Build the index of a collection that has none, and mark the import as complete."""
        if self.collection is None:
            return
        if lacks_index(self.collection):
            self.collection.reindex(**self.collection.metadata.get(IMPORT, self.options))
        metadata = self.collection.metadata
        if metadata.pop(IMPORT, None) is not None:
            self.collection.set_metadata(metadata)

    def _write(
        self, ids: list[Id], vectors: Float32, payloads: list[Payload], problem: str | None
    ) -> tuple[int, str | None]:
        """Write new rows; return the number of rows now present, and the problem of the next row."""
        if not ids:
            return 0, problem
        collection = self.open()
        there: list[Item | None] = [None] * len(ids) if self._was_empty else collection.get(ids)
        new = [i for i, item in enumerate(there) if item is None]
        others = [
            i
            for i, item in enumerate(there)
            if item is not None and not _equals_row(item, vectors[i], payloads[i])
        ]
        if others and not self.replace:
            first = others[0]
            new, others = [i for i in new if i < first], []
            problem = (
                f"the collection has another item with the id {ids[first]!r}: "
                "--replace replaces such items, --id chooses another column"
            )
            n_good = first
        else:
            n_good = len(ids)
        rows = sorted(new + others)
        collection.upsert([ids[i] for i in rows], vectors[rows], [payloads[i] for i in rows])
        self._seen.difference_update(ids[n_good:])  # rows that are not written yet
        self.n_zero += int(np.count_nonzero(~vectors[rows].any(axis=1)))
        self.n_rows += n_good
        self.n_written += len(rows)
        self.n_replaced += len(others)
        return n_good, problem


def lacks_index(collection: BaseCollection) -> bool:
    """Whether a collection cannot be searched: it is new, or its import was interrupted."""
    return collection.hasher is None and collection.index_options.get("metric") is None


def find_metric(collection: BaseCollection) -> str | None:
    """Return the metric that a collection has, or that it will have when its import is complete."""
    if not lacks_index(collection):
        return collection.index_options.get("metric")
    begun = collection.metadata.get(IMPORT)
    return None if begun is None else str(begun["metric"])


def take_valid_rows(
    batch: Batch, width: int | None, offset: int, seen: set[Id]
) -> tuple[list[Id], Float32, list[Payload], str | None]:
    """Return ids, vectors and payloads before the first invalid row, and the problem of that row.

    ``width`` is the length that vectors must have, if it is known. Rows without ids are numbered from
    ``offset`` on. ``seen`` has the ids of the rows before; those of these rows are added.
    """
    vectors, problem = take_valid_vectors(batch.vectors, width)
    payloads, problem = _take_valid_payloads(batch.payloads[: len(vectors)], problem)
    ids, problem = _take_valid_ids(batch, offset, len(payloads), problem, seen)
    return ids, vectors[: len(ids)], payloads[: len(ids)], problem


def _describe_row(batch: Batch, i: int) -> dict[str, Any]:
    """Return a row as JSON has it, for a report of bad rows."""
    vector = batch.vectors[i]
    vector = vector.tolist() if isinstance(vector, np.ndarray) else vector
    item_id = None if batch.ids is None else batch.ids[i]
    return {"id": item_id, "vector": vector, "payload": batch.payloads[i]}


def _take_valid_ids(
    batch: Batch, offset: int, n: int, problem: str | None, seen: set[Id]
) -> tuple[list[Id], str | None]:
    """Return the ids of n rows before the first invalid one, and its problem."""
    first = offset + batch.first_row
    ids: list[Id] = []
    for value in range(first, first + n) if batch.ids is None else batch.ids[:n]:
        if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
            return ids, "expected an id, got nothing"
        try:
            (item_id,) = base.validate_ids([value])
        except ValueError as error:
            return ids, str(error)
        if item_id in seen:
            return ids, f"expected different ids, got {item_id!r} a second time"
        seen.add(item_id)
        ids.append(item_id)
    return ids, problem


def _take_valid_payloads(payloads: list[Payload], problem: str | None) -> tuple[list[Payload], str | None]:
    """Return the payloads before the first invalid one, and its problem."""
    try:
        return base.validate_payloads(payloads, len(payloads)), problem
    except ValueError:
        checked: list[Payload] = []
        for payload in payloads:
            try:
                checked.append(base.validate_json_object(payload, "the payload"))
            except ValueError as error:
                return checked, str(error)
        raise


def _equals_row(item: Item, vector: Float32, payload: Payload) -> bool:
    return np.array_equal(item.vector, vector) and _to_text(item.payload) == _to_text(payload)


def _to_text(payload: Any) -> str:
    return json.dumps(payload, sort_keys=True)  # unlike dictionaries, it distinguishes 1 from True


COPY_BATCH = 1000  # items of one write
COPY = "posh:copy"  # the field of the metadata of a copy that is not complete

Create = Callable[[Hasher[Any] | None, Payload, dict[str, Any]], BaseCollection]


@dataclass
class Copier:
    """Copies ``source`` to the collection that ``open_target`` returns, or else ``create_target``.

    ``origin`` names the source in the metadata of the target. With ``index_last`` the target gets its hasher
    and its options after its items: otherwise an embedded collection would be trained repeatedly.
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
        while batch := list(itertools.islice(items, COPY_BATCH)):
            self._write(batch)
            ids.update(item.id for item in batch)
            yield len(batch)
        self._remove_others(ids)

    def finish(self) -> None:
        """Build the index of the target if it comes last, and mark the copy as complete."""
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
        new = [
            item for item, own in zip(batch, there, strict=True) if own is None or not _are_equal(item, own)
        ]
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


def _are_equal(one: Item, other: Item) -> bool:
    return np.array_equal(one.vector, other.vector) and repr(one.payload) == repr(other.payload)
