"""The content of blocks in arrays of bytes; ``native/blocks.h`` has the layout."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from posh import _native
from posh.index.space import Space
from posh.index.stored import strange_slot
from posh.preprocess import Float32

__all__ = ["decoded_vectors", "erase_deleted"]

_GROUP_DOCS, _GROUP_BYTES, _COLUMNS = 256, 32, 64


def decoded_vectors(space: Space, blocks: _native.Blocks, n_slots: int) -> Float32:
    """The vectors of all documents by slot, (n_slots, d), as far as 8 bits tell them."""
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
            raise strange_slot()
        numbers = 16.0 * _columns(high)[:, :d] + _columns(low)[:, :d] - np.float32(128)
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
    n_columns = space.projection.shape[1]
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


def _columns(halves: npt.NDArray[np.uint8]) -> Float32:
    """Four-bit numbers (n, columns) from their bytes: the lower bits of 32 bytes, then the upper ones."""
    groups = halves.reshape(len(halves), -1, _COLUMNS // 2)
    parts = np.stack([groups & 15, groups >> 4], axis=2)
    return parts.reshape(len(halves), -1).astype(np.float32)
