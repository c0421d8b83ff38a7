"""The search in blocks in plain NumPy: what every kernel must compute, bit for bit.

Read native/blocks.h first: it says what the steps are for. All floats are float32, and sums add in the order
of the kernels. This file makes blocks; search_specification.py searches them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]

f32 = np.float32
GROUP, BLOCK = 256, 2048  # documents
SMALLEST = np.finfo(f32).tiny  # smaller units lose digits


# Numbers ----------------------------------------------------------------------------------------------


def sum_in_order(terms: Floats) -> Floats:
    """Terms (n, m) added from left to right, (n,)."""
    return np.cumsum(terms, axis=1, dtype=f32)[:, -1]


def sum_in_lanes(terms: Floats) -> Floats:
    """Terms (..., m) added in eight lanes, then the lanes, (...)."""
    lanes = np.zeros((*terms.shape[:-1], 8), f32)
    for at in range(0, terms.shape[-1], 8):
        part = terms[..., at : at + 8]
        lanes[..., : part.shape[-1]] += part
    four = lanes[..., :4] + lanes[..., 4:]
    return (four[..., 0] + four[..., 2]) + (four[..., 1] + four[..., 3])


def quantise(values: Floats, most: int, unit_of_zeros: float) -> tuple[Numbers, Floats]:
    """Values (n, m) as numbers from -most to most, and the unit of each row."""
    units = np.abs(values).max(axis=1, initial=0).astype(f32) / f32(most)
    usable = units >= SMALLEST
    numbers = np.rint(values / np.where(usable, units, f32(1))[:, None]).astype(np.int64)
    return numbers, np.where(usable, units, f32(unit_of_zeros))


def products_of_numbers(vectors: Floats, rows: Floats) -> Floats:
    """Products (n, n_rows) of vectors (n, m) as 8-bit numbers and rows (n_rows, m) as 7-bit numbers."""
    own, steps = quantise(rows, 63, 0)
    numbers, units = quantise(vectors, 127, 1)
    return (numbers @ own.T).astype(f32) * (steps * units[:, None])


def winners(scores: Floats, n: int) -> Numbers:
    """The n largest of each row by ascending number; of equal ones the lower number."""
    return np.sort(np.argsort(-scores, axis=1, kind="stable")[:, :n], axis=1)


# Documents --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Space:
    """The arguments of _native.BlockSpace."""

    n_bits: int
    n_active: int
    centroids: Floats  # (n_lists, d)
    routing: Floats  # (n_lists, n_columns); n_columns is d, or the rows of the reduction
    routing_bias: Floats
    weights: Floats | None
    signs: Floats | None
    reduction: Floats | None
    is_distance: bool

    def reduced(self, values: Floats) -> Floats:
        """Values (n, d) as (n, n_columns)."""
        if self.reduction is None:
            return values
        return sum_in_lanes(self.reduction[None] * values[:, None])

    def reduced_queries(self, vectors: Floats) -> Floats:
        """Vectors (n, d) as (n, n_columns), by 8-bit numbers."""
        return vectors if self.reduction is None else products_of_numbers(vectors, self.reduction)

    def project(self, values: Floats) -> Floats:
        """Values (n, n_columns) as (n, n_bits)."""
        if self.weights is not None:
            return sum_in_lanes(self.weights[None] * values[:, None])
        assert self.signs is not None
        size = self.n_bits // len(self.signs)
        return np.hstack([hadamard(folded(values * row, size)) for row in self.signs])

    def route(self, vectors: Floats) -> Floats:
        """Routing scores (n, n_lists) of vectors (n, n_columns)."""
        return products_of_numbers(vectors, self.routing) + self.routing_bias

    def residuals(self, vectors: Floats, lists: npt.NDArray[np.int32]) -> Residuals:
        residuals = vectors - self.centroids[lists]
        reduced = self.reduced(residuals)
        offsets = (
            -f32(0.5) * sum_in_lanes(residuals * residuals) if self.is_distance else np.zeros(len(lists), f32)
        )
        squares = sum_in_lanes(reduced * reduced)
        further = offsets + f32(0.5) * squares if self.is_distance else offsets
        return Residuals(reduced, offsets, np.sqrt(squares), further)


class Residuals(NamedTuple):
    """What codes and 8-bit numbers are made of, offsets, lengths, and offsets without those of lengths."""

    values: Floats
    offsets: Floats
    lengths: Floats
    further: Floats

    def some(self, docs: Numbers) -> Residuals:
        return Residuals(*(part[docs] for part in self))


def folded(values: Floats, size: int) -> Floats:
    result = np.zeros((len(values), size), f32)
    for at in range(0, values.shape[1], size):
        part = values[:, at : at + size]
        result[:, : part.shape[1]] += part
    return result


def hadamard(values: Floats) -> Floats:
    n, size = values.shape
    half = 1
    while half < size:
        pairs = values.reshape(n, -1, 2, half)
        a, b = pairs[:, :, 0], pairs[:, :, 1]
        values = np.stack([a + b, a - b], axis=2).reshape(n, size)
        half *= 2
    return values


@dataclass(frozen=True)
class Block:
    list: int
    codes: npt.NDArray[np.bool_]  # (n_docs, n_bits)
    numbers: Numbers  # (n_docs, n_columns), from -127 to 127
    scale: Floats
    offset: Floats
    slots: npt.NDArray[np.uint32]
    live: npt.NDArray[np.bool_]
    ranges: Floats  # (n_groups, 3): the shortest and the longest length, the highest further offset

    @property
    def halves(self) -> tuple[Numbers, Numbers]:
        return np.divmod(self.numbers + 128, 16)


def empty_block(space: Space, number: int) -> Block:
    n_columns = space.routing.shape[1]
    return Block(
        number,
        np.zeros((0, space.n_bits), bool),
        np.zeros((0, n_columns), np.int64),
        np.zeros(0, f32),
        np.zeros(0, f32),
        np.zeros(0, np.uint32),
        np.zeros(0, bool),
        np.zeros((0, 3), f32),
    )


def extended(space: Space, block: Block, residuals: Residuals, slots: npt.NDArray[np.uint32]) -> Block:
    """The block with further documents."""
    codes = np.zeros((len(slots), space.n_bits), bool)
    np.put_along_axis(codes, winners(space.project(residuals.values), space.n_active), True, axis=1)
    numbers, scale = quantise(residuals.values, 127, 0)
    return Block(
        block.list,
        np.vstack([block.codes, codes]),
        np.vstack([block.numbers, numbers]),
        np.append(block.scale, scale),
        np.append(block.offset, residuals.offsets),
        np.append(block.slots, slots),
        np.append(block.live, np.ones(len(slots), bool)),
        ranges_of_groups(block, residuals),
    )


def ranges_of_groups(block: Block, residuals: Residuals) -> Floats:
    n_old = len(block.slots)
    ranges = []
    for group in range(-(-(n_old + len(residuals.lengths)) // GROUP)):
        new = slice(max(group * GROUP - n_old, 0), max((group + 1) * GROUP - n_old, 0))
        own = np.column_stack([np.maximum(residuals.lengths[new], SMALLEST)] * 2 + [residuals.further[new]])
        own = np.vstack([own, block.ranges[group : group + 1]])
        ranges.append([own[:, 0].min(), own[:, 1].max(), own[:, 2].max()])
    return np.array(ranges, f32)


def with_documents(
    space: Space,
    blocks: list[Block],
    vectors: Floats,
    lists: npt.NDArray[np.int32],
    slots: npt.NDArray[np.uint32],
) -> list[Block]:
    """Blocks by ascending list. New documents of a list fill its last block first, short residuals first."""
    difference = vectors - space.centroids[lists]
    order = np.lexsort((sum_in_order(difference * difference), lists))
    residuals = space.residuals(vectors, lists)
    result = []
    for number in range(len(space.centroids)):
        own = [block for block in blocks if block.list == number]
        new = order[lists[order] == number]
        while len(new):
            last = own.pop() if own and len(own[-1].slots) < BLOCK else empty_block(space, number)
            fitting, new = np.split(new, [BLOCK - len(last.slots)])
            own.append(extended(space, last, residuals.some(fitting), slots[fitting]))
        result += own
    return result


def without_documents(blocks: list[Block], removed: npt.NDArray[np.bool_]) -> list[Block]:
    return [replace(block, live=block.live & ~removed[block.slots]) for block in blocks]


# Memory -----------------------------------------------------------------------------------------------


def words_of(flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
    """Flags (..., n) as bytes of whole groups, the lowest bit first."""
    missing = -flags.shape[-1] % GROUP
    padded = np.pad(flags, [(0, 0)] * (flags.ndim - 1) + [(0, missing)])
    return np.packbits(padded, axis=-1, bitorder="little")


def half_bytes(halves: Numbers, of_padding: int) -> npt.NDArray[np.uint8]:
    """Column 64 g + b and column 64 g + 32 + b share a byte; the last columns do so in half as many bytes."""
    padded = np.pad(halves, [(0, 0), (0, halves.shape[1] % 2)], constant_values=of_padding)
    parts = []
    for at in range(0, padded.shape[1], 64):
        lower, upper = np.hsplit(padded[:, at : at + 64], 2)
        parts.append(lower + 16 * upper)
    return np.hstack(parts).astype(np.uint8)


def documents_of(block: Block) -> bytes:
    """High halves, low halves, fits and slots; the last two are in the padding of high halves if they fit."""
    high, low = half_bytes(block.halves[0], 8), half_bytes(block.halves[1], 0)
    fits = np.column_stack([block.scale, block.offset]).view(np.uint8).reshape(len(high), 8)
    slots = block.slots[:, None].view(np.uint8)
    padding = -high.shape[1] % 32
    unread = bytes(padding)  # kernels read that much past the last low half
    if padding >= 12:
        high = np.hstack([high, np.zeros((len(high), padding - 12), np.uint8), fits, slots])
        return high.tobytes() + low.tobytes() + unread
    halves = np.pad(high, [(0, 0), (0, padding)]).tobytes() + low.tobytes() + unread
    return halves + bytes(-len(halves) % 4) + fits.tobytes() + slots.tobytes()


def arrays_of(blocks: list[Block]) -> tuple[npt.NDArray[np.uint8], Numbers, Floats, npt.NDArray[np.uint64]]:
    """The same as _native.Blocks.to_arrays."""
    memory, table, groups, live = b"", [], np.zeros((len(blocks), BLOCK // GROUP, 3), f32), b""
    for i, block in enumerate(blocks):
        table.append((len(memory), block.list, len(block.slots)))
        own = words_of(block.codes.T).tobytes() + documents_of(block)
        memory += own + bytes(-len(own) % 64)
        groups[i, : len(block.ranges)] = block.ranges
        live += words_of(block.live).tobytes()
    return (
        np.frombuffer(memory, np.uint8),
        np.array(table, np.int64).reshape(-1, 3),
        groups.reshape(len(blocks), 3 * BLOCK // GROUP),
        np.frombuffer(live, np.uint64),
    )
