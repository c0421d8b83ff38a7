"""The vectors of documents: as they are stored by slot, and as the blocks of lists hold them in 8 bits.

``native/blocks.h`` has the layout of blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from posh import _native, kernels
from posh._model_files import Arrays, require_array
from posh.errors import FormatError
from posh.index.arrays import AppendOnlyArray, Mask, Slots
from posh.index.hits import SlotScores
from posh.index.nearest.metric import Metric
from posh.index.nearest.space import Space
from posh.preprocess import Float32

__all__ = [
    "BlockLayout",
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
_REST = 12  # bytes of the lengths and the slot of a document


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

    def search_radius(
        self,
        blocks: _native.Blocks,
        settings: _native.BlockSettings,
        queries: Float32,
        bounds: Float32,
        margin: float,
        allowed: Mask | None = None,
        n_threads: int = 1,
    ) -> tuple[Slots, Slots, Float32]:
        """Return all documents of blocks that reach the bounds (m,), for prepared queries (m, d).

        Returns the number of documents of each query, and the slots and scores of all, best first for each.
        """
        passing = None if allowed is None else allowed.view(np.uint8)
        try:
            return blocks.search_radius(
                settings, queries, bounds, margin, self.native, passing, n_threads, kernels.active()
            )
        except IndexError as error:
            raise damaged_slot() from error

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
    layout = BlockLayout(space.shape.n_bits, blocks.n_stored)
    vectors = np.zeros((n_slots, d), np.float32)
    for offset, number, n in table.tolist():
        parts = layout.split(memory[offset:], n)
        scale, slots = parts.fits.view(np.float32)[:, 0], parts.slots.view(np.uint32)[:, 0]
        if slots.max() >= n_slots:
            raise damaged_slot()
        high, low = layout.unpack_columns(parts.high)[:, :d], layout.unpack_columns(parts.low)[:, :d]
        vectors[slots] = space.centroids[number] + scale[:, None] * (16.0 * high + low - np.float32(128))
    return vectors


def erase_deleted(
    space: Space,
    n_stored: int,
    memory: npt.NDArray[np.uint8],
    table: npt.NDArray[np.int64],
    live: npt.NDArray[np.uint64],
) -> None:
    """Write zeros over the codes and 8-bit numbers of deleted documents, in the arrays of blocks.

    ``memory`` (n_bytes,) is changed; ``table`` (n_blocks, 3) and the bitmap ``live`` say where documents are.
    """
    layout = BlockLayout(space.shape.n_bits, n_stored)
    first = 0
    for offset, _, n in table.tolist():
        n_bytes = _GROUP_BYTES * -(-n // _GROUP_DOCS)
        bits = live[first : first + n_bytes // 8].view(np.uint8)
        first += n_bytes // 8
        deleted = np.unpackbits(~bits, bitorder="little", count=n).view(bool)
        if not deleted.any():
            continue
        parts = layout.split(memory[offset:], n)
        parts.planes[:] &= bits
        for part in (parts.high, parts.low, parts.fits):
            part[deleted] = 0


class _Parts(NamedTuple):
    """The parts of a block, as views of its bytes."""

    planes: npt.NDArray[np.uint8]  # (n_bits, bytes of all groups)
    high: npt.NDArray[np.uint8]  # (n, bytes of one half)
    low: npt.NDArray[np.uint8]
    fits: npt.NDArray[np.uint8]  # (n, 8)
    slots: npt.NDArray[np.uint8]  # (n, 4)


@dataclass(frozen=True)
class BlockLayout:
    """The layout of blocks: ``BlockShape`` in ``native/blocks.h``."""

    n_bits: int
    n_stored: int

    @property
    def half_bytes(self) -> int:
        """Bytes of one half of the numbers of a document; the last columns are in fewer than 32."""
        last = (self.n_stored - 1) % _COLUMNS + 1
        return (self.n_stored - last) // 2 + -(-last // 2)

    @property
    def high_stride(self) -> int:
        """Bytes of high halves with padding."""
        return -(-self.n_stored // _COLUMNS) * _COLUMNS // 2

    @property
    def is_joined(self) -> bool:
        """Whether the padding of high halves has room for lengths and slot."""
        return self.high_stride - self.half_bytes >= _REST

    @property
    def document_bytes(self) -> int:
        """Bytes of a document without its code."""
        return self.high_stride + self.half_bytes + (0 if self.is_joined else _REST)

    def split(self, memory: npt.NDArray[np.uint8], n: int) -> _Parts:
        """Return the parts of the block of n documents at the beginning of ``memory`` (n_bytes,)."""
        plane = _GROUP_BYTES * -(-n // _GROUP_DOCS)
        stride = self.high_stride
        half = self.half_bytes
        ends = np.cumsum([self.n_bits * plane, n * stride, n * half])
        planes, high, low, rest = np.split(memory, ends)
        high, low = high.reshape(n, stride), low.reshape(n, half)
        if self.is_joined:
            fits, slots = high[:, -_REST:-4], high[:, -4:]
        else:
            start = -(-int(ends[-1] + stride - half) // 4) * 4 - int(ends[-1])
            rest = rest[start : start + _REST * n]
            fits, slots = rest[: 8 * n].reshape(n, 8), rest[8 * n :].reshape(n, 4)
        return _Parts(planes.reshape(self.n_bits, plane), high[:, :half], low, fits, slots)

    def unpack_columns(self, halves: npt.NDArray[np.uint8]) -> Float32:
        """Return four-bit numbers (n, columns): of each 32 bytes the lower bits, then the upper ones."""
        groups = [halves[:, i : i + _COLUMNS // 2] for i in range(0, halves.shape[1], _COLUMNS // 2)]
        numbers = [part for group in groups for part in (group & 15, group >> 4)]
        return np.hstack(numbers).astype(np.float32)
