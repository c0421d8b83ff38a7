"""The vectors of documents: as they are stored by slot, and as the blocks of lists hold them in 8 bits.

``native/blocks.h`` has the layout of blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from posh import _native, kernels
from posh._model_files import Arrays, require_array
from posh.errors import FormatError
from posh.index.arrays import AppendOnlyArray, Slots
from posh.index.hits import SlotScores
from posh.index.nearest.metric import Metric
from posh.index.nearest.space import Space
from posh.preprocess import Float32

__all__ = [
    "VectorStore",
    "bytes_per_number",
    "damaged_slot",
    "decode_vectors",
    "erase_deleted",
    "require_precision",
]

_COARSE = 0.01  # errors of scores, compared with their spread: 2 to 5 times that share of neighbours is lost
_ENOUGH = 100  # vectors that tell the spread
_QUERIES, _DOCUMENTS = 64, 1000  # that are compared for it
_DTYPES = {"float32": np.float32, "float16": np.float16}
_GROUP_DOCS, _GROUP_BYTES, _COLUMNS = 256, 32, 64  # of a block


def damaged_slot() -> FormatError:
    """Return the error for blocks with a slot that has no document; slots are validated when read."""
    return FormatError(
        "expected blocks with the slots of documents, found another slot: the saved index is damaged: "
        "load it with verify=True to find the damaged file, then build the index again"
    )


def bytes_per_number(store: str) -> int:
    """Return the bytes of one number of a stored vector, in addition to its byte in a block."""
    return np.dtype(_DTYPES[store]).itemsize if store in _DTYPES else 0


def require_precision(store: str, metric: Metric, sample: Float32) -> None:
    """Raise ValueError if float16 is too coarse for the scores of prepared vectors like these (n, d).

    That happens with products and cosines of vectors that have a large offset in common, compared with their
    differences: float16 rounds the offset.

    >>> X = np.random.default_rng(0).normal(size=(200, 8))
    >>> require_precision("float16", Metric.of("cosine", X), Metric.of("cosine", X).prepare(X))
    """
    if store != "float16" or len(sample) < _ENOUGH:
        return
    some = sample[:: -(-len(sample) // _DOCUMENTS)]
    queries = metric.as_queries(some[:: -(-len(some) // _QUERIES)]).astype(np.float64)
    exact = some.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        halves = some.astype(np.float16).astype(np.float64)
        scores, rounded = (
            2.0 * queries @ rows.T - metric.is_distance * (rows**2).sum(axis=1) for rows in (exact, halves)
        )
        errors, spreads = (rounded - scores).std(axis=1), scores.std(axis=1)
    if np.median(errors - _COARSE * spreads) > 0:
        raise ValueError(
            f"expected vectors whose {metric.name} scores float16 tells apart, got errors of "
            f"{np.median(errors) / max(np.median(spreads), 1e-300):.2g} of the spread of scores: use "
            "store='float32', or subtract the mean of all vectors from them"
        )


@dataclass(frozen=True, eq=False)
class VectorStore:
    """Prepared vectors (n_slots, d); (n_slots, 0) for ``"int8"``, where only the blocks have them."""

    store: str
    rows: AppendOnlyArray

    @classmethod
    def empty(cls, store: str, n_features: int) -> VectorStore:
        """Return a store without documents."""
        columns = n_features if store in _DTYPES else 0
        return cls(store, AppendOnlyArray.of(np.empty((0, columns), _DTYPES.get(store, np.float32))))

    @property
    def n_slots(self) -> int:
        """Slots in use."""
        return self.rows.n

    @property
    def has_vectors(self) -> bool:
        """Whether vectors are stored."""
        return self.store in _DTYPES

    def with_rows(self, prepared: Float32) -> VectorStore:
        """Add vectors (n, d)."""
        if self.store == "float16":
            with np.errstate(over="ignore"):
                halves = prepared.astype(np.float16)
            if not np.isfinite(halves).all():
                raise ValueError(
                    f"expected vectors that fit into float16, got {np.abs(prepared).max():.3g} times the "
                    "scale of the first ones: use store='float32'"
                )
            return replace(self, rows=self.rows.with_rows(halves))
        rows = prepared if self.has_vectors else np.empty((len(prepared), 0), np.float32)
        return replace(self, rows=self.rows.with_rows(rows))

    def read_arrays(self, arrays: Arrays, n: int) -> VectorStore:
        """Return a store with the vectors of n documents of a file; raise ValueError if they are wrong."""
        like = self.rows.buffer
        vectors = require_array(arrays, "vectors", like.dtype, (n, like.shape[1]))
        return replace(self, rows=AppendOnlyArray.of(np.ascontiguousarray(vectors)))

    def detach(self) -> VectorStore:
        """Return a copy whose later additions do not affect this store."""
        return replace(self, rows=self.rows.detach())

    def at(self, slots: Slots) -> Float32:
        """Return vectors by slot, float32."""
        return np.asarray(self.rows.rows[slots], np.float32)

    def search(
        self,
        blocks: _native.Blocks,
        settings: _native.BlockSettings,
        queries: Float32,
        k: int,
        n_threads: int = 1,
    ) -> SlotScores:
        """Return the k best documents of blocks for prepared queries, with scores from these vectors."""
        found = SlotScores.allocate(len(queries), k)
        kernel = kernels.active()
        try:
            blocks.search(settings, queries, self.native, None, *found, n_threads, kernel)
        except IndexError as error:
            raise damaged_slot() from error
        return found

    @cached_property
    def native(self) -> _native.BlockVectors:
        """The store for the kernels."""
        rows: npt.NDArray[Any] = self.rows.rows
        floats = rows if self.store == "float32" else None
        halves = rows.view(np.uint16) if self.store == "float16" else None
        return _native.BlockVectors(floats, halves, self.n_slots)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle, without the kernels' object."""
        return {name: value for name, value in vars(self).items() if name != "native"}


def decode_vectors(space: Space, blocks: _native.Blocks, n_slots: int) -> Float32:
    """Return the vectors of all documents by slot, (n_slots, d), decoded from 8 bits."""
    memory, table, _, _ = blocks.to_arrays()
    d = space.centroids.shape[1]
    half_bytes = -(-d // _COLUMNS) * _COLUMNS // 2
    vectors = np.zeros((n_slots, d), np.float32)
    for offset, number, n in table.tolist():
        at = offset + space.shape.n_bits * _GROUP_BYTES * -(-n // _GROUP_DOCS)
        high, low = memory[at : at + 2 * n * half_bytes].reshape(2, n, half_bytes)
        words = memory[at + 2 * n * half_bytes :][: 12 * n].view(np.uint32)
        scale, slots = words[: 2 * n : 2].view(np.float32), words[2 * n :]
        if slots.max() >= n_slots:
            raise damaged_slot()
        numbers = 16.0 * _unpack_columns(high)[:, :d] + _unpack_columns(low)[:, :d] - np.float32(128)
        vectors[slots] = space.centroids[number] + scale[:, None] * numbers
    return vectors


def erase_deleted(
    space: Space,
    memory: npt.NDArray[np.uint8],
    table: npt.NDArray[np.int64],
    live: npt.NDArray[np.uint64],
) -> None:
    """Write zeros over the codes and 8-bit numbers of deleted documents, in the arrays of blocks.

    ``memory`` (n_bytes,) is changed; ``table`` (n_blocks, 3) and the bitmap ``live`` say where documents are.
    """
    n_columns = space.signs.shape[1]
    half_bytes = -(-n_columns // _COLUMNS) * _COLUMNS // 2
    first = 0
    for offset, _, n in table.tolist():
        n_bytes = _GROUP_BYTES * -(-n // _GROUP_DOCS)
        bits = live[first : first + n_bytes // 8].view(np.uint8)
        first += n_bytes // 8
        deleted = np.unpackbits(~bits, bitorder="little", count=n).view(bool)
        if not deleted.any():
            continue
        at = offset + space.shape.n_bits * n_bytes
        planes = memory[offset:at].reshape(-1, n_bytes)
        planes &= bits
        halves = memory[at : at + 2 * n * half_bytes].reshape(2, n, half_bytes)
        halves[:, deleted] = 0
        fits = memory[at + 2 * n * half_bytes :][: 8 * n].reshape(n, 8)
        fits[deleted] = 0


def _unpack_columns(halves: npt.NDArray[np.uint8]) -> Float32:
    """Return four-bit numbers (n, columns): of every 32 bytes the lower bits, then the upper ones."""
    groups = halves.reshape(len(halves), -1, _COLUMNS // 2)
    parts = np.stack([groups & 15, groups >> 4], axis=2)
    return parts.reshape(len(halves), -1).astype(np.float32)
