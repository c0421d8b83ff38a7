"""Writing the rows of files to a collection, so that a second run goes on where the first one stopped.

A row that the collection has already, with the same vector and payload, is not written again. So an import
that was interrupted is repeated from the beginning: nothing is lost, and nothing is doubled. Each batch is
one write, which is on the disk completely or not at all.

A new collection gets its index after the last row. Made with the first rows, the index would be trained again
whenever their number doubles, and an import would take several times as long. Until then, the metadata of the
collection keep the metric that the index will have.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from posh.collection import arguments
from posh.collection.base import BaseCollection, Id, Item, Payload
from posh.preprocess import Float32
from posh.vector_files import Batch, Roles, RowError, VectorFile, checked_vectors

__all__ = ["BATCH", "IMPORT", "Importer", "checked_rows", "lacks_index", "metric_of"]

BATCH = 8192  # rows of one write
IMPORT = "posh:import"  # the field of the metadata of a collection whose import is not complete


@dataclass
class Importer:
    """Writes files to a collection.

    ``open_collection`` is called when the first row is to be written: a file without a good row makes no
    collection. ``metric`` is that of a collection without an index, unless an import that stopped has chosen
    one. ``replace`` allows other items with the same ids; otherwise such a row is an error.
    """

    open_collection: Callable[[], BaseCollection]
    metric: str
    replace: bool = False
    collection: BaseCollection | None = None
    n_rows: int = 0  # rows that are in the collection now
    n_written: int = 0
    n_replaced: int = 0  # of those written
    _seen: set[Id] = field(default_factory=set)
    _was_empty: bool = True

    def open(self) -> BaseCollection:
        """Open the collection, if it is not open yet."""
        if self.collection is None:
            self.collection = self.open_collection()
            self._was_empty = len(self.collection) == 0
            if lacks_index(self.collection) and metric_of(self.collection) is None:
                self.collection.set_metadata(self.collection.metadata | {IMPORT: {"metric": self.metric}})
        return self.collection

    def steps(self, file: VectorFile, roles: Roles) -> Iterator[int]:
        """Write the rows of a file; yield the number of rows of each batch when it is on the disk.

        A row that cannot be imported is a :class:`~posh.vector_files.RowError`; all rows before it are in the
        collection then.
        """
        offset = self.n_rows  # rows without ids are numbered through all files
        for batch in file.batches(roles, BATCH):
            width = None if self.collection is None else self.collection.n_features
            n_good, problem = self._write(*checked_rows(batch, width, offset, self._seen))
            yield n_good
            if problem is not None:
                raise RowError(file.path, batch.first_row + n_good, problem)

    def finish(self) -> None:
        """Make the index of a collection that has none, and let the import count as complete."""
        if self.collection is None:
            return
        if lacks_index(self.collection):
            self.collection.reindex(metric=metric_of(self.collection))
        metadata = self.collection.metadata
        if metadata.pop(IMPORT, None) is not None:
            self.collection.set_metadata(metadata)

    def _write(
        self, ids: list[Id], vectors: Float32, payloads: list[Payload], problem: str | None
    ) -> tuple[int, str | None]:
        """Write rows that are not there yet; return how many are there now, and the problem of the next."""
        if not ids:
            return 0, problem
        collection = self.open()
        there: list[Item | None] = [None] * len(ids) if self._was_empty else collection.get(ids)
        new = [i for i, item in enumerate(there) if item is None]
        others = [
            i
            for i, item in enumerate(there)
            if item is not None and not _equal(item, vectors[i], payloads[i])
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
        self.n_rows += n_good
        self.n_written += len(rows)
        self.n_replaced += len(others)
        return n_good, problem


def lacks_index(collection: BaseCollection) -> bool:
    """Whether a collection cannot be searched: it is new, or its import was interrupted."""
    return collection.hasher is None and collection.index_options.get("metric") is None


def metric_of(collection: BaseCollection) -> str | None:
    """Return the metric that a collection has, or that it will have when its import is complete."""
    if not lacks_index(collection):
        return collection.index_options.get("metric")
    begun = collection.metadata.get(IMPORT)
    return None if begun is None else str(begun["metric"])


def checked_rows(
    batch: Batch, width: int | None, offset: int, seen: set[Id]
) -> tuple[list[Id], Float32, list[Payload], str | None]:
    """Return ids, vectors and payloads before the first wrong row, and what is wrong with that row.

    ``width`` is the length that vectors must have, if it is known. Rows without ids are numbered from
    ``offset`` on. ``seen`` has the ids of the rows before; those of these rows are added.
    """
    vectors, problem = checked_vectors(batch.vectors, width)
    ids, problem = _checked_ids(batch, offset, len(vectors), problem, seen)
    payloads, problem = _checked_payloads(batch.payloads[: len(ids)], problem)
    return ids[: len(payloads)], vectors[: len(payloads)], payloads, problem


def _checked_ids(
    batch: Batch, offset: int, n: int, problem: str | None, seen: set[Id]
) -> tuple[list[Id], str | None]:
    """Return the ids of n rows before the first wrong one, and what is wrong with that one."""
    first = offset + batch.first_row
    ids: list[Id] = []
    for value in range(first, first + n) if batch.ids is None else batch.ids[:n]:
        if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
            return ids, "expected an id, got nothing"
        try:
            (item_id,) = arguments.ids([value])
        except ValueError as error:
            return ids, str(error)
        if item_id in seen:
            return ids, f"expected different ids, got {item_id!r} a second time"
        seen.add(item_id)
        ids.append(item_id)
    return ids, problem


def _checked_payloads(payloads: list[Payload], problem: str | None) -> tuple[list[Payload], str | None]:
    """Return the payloads before the first wrong one, and what is wrong with that one."""
    try:
        return arguments.payloads(payloads, len(payloads)), problem
    except ValueError:
        checked: list[Payload] = []
        for payload in payloads:
            try:
                checked.append(arguments.json_object(payload, "the payload"))
            except ValueError as error:
                return checked, str(error)
        raise


def _equal(item: Item, vector: Float32, payload: Payload) -> bool:
    return np.array_equal(item.vector, vector) and _text(item.payload) == _text(payload)


def _text(payload: Any) -> str:
    return json.dumps(payload, sort_keys=True)  # unlike dictionaries, it tells 1 from True
