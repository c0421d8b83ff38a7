"""Sparse codes in bit-sliced segments, immutable.

A change makes a new :class:`SlicedCodes` that shares what did not change: adding copies the last segment
(4 MB at 1,024 bits), removing copies a bitmap. Searches of the old object go on undisturbed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from posh import _native
from posh._bitsliced import (
    MAX_DOCS,
    Segment,
    Words,
    empty_planes,
    larger_planes,
    native_segments,
    overlap_topk,
    pack,
)
from posh.codes import Codes
from posh.model_files import Arrays

__all__ = ["SlicedCodes", "plane_arrays"]

T = TypeVar("T")

Slots = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class cached(Generic[T]):  # noqa: N801  # used like a property
    """A property that is computed once, like ``functools.cached_property``, but without a lock.

    A fork may happen while another thread holds that lock, and the child would wait for it for ever.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make, self._name = make, make.__name__

    def __get__(self, instance: Any, owner: type[Any]) -> T:
        if instance is None:
            return self  # type: ignore[return-value]
        value = vars(instance)[self._name] = self._make(instance)
        return value


@dataclass(frozen=True, eq=False)
class SlicedCodes:
    """Documents in order of addition; the slot of a document is its place in that order.

    >>> import posh
    >>> from posh.index.sliced import SlicedCodes
    >>> codes = posh.Codes([[0, 2], [1, 2], [1, 3]], n_bits=4)
    >>> SlicedCodes(4).with_codes(codes).search(codes[:1], 2, n_threads=1)
    (array([[0, 1]]), array([[2, 1]], dtype=int32))
    """

    n_bits: int
    parts: tuple[Segment, ...] = ()

    def __len__(self) -> int:
        """Slots in use, deleted documents included."""
        return sum(part.n_docs for part in self.parts)

    @property
    def nbytes(self) -> int:
        """Memory of planes and bitmaps."""
        return sum(p.planes.nbytes + (0 if p.live is None else p.live.nbytes) for p in self.parts)

    def with_codes(self, codes: Codes) -> SlicedCodes:
        """Add documents at the end."""
        parts = list(self.parts)
        start = 0
        while start < len(codes):
            if not parts or parts[-1].n_docs == MAX_DOCS:
                room = min(MAX_DOCS, len(codes) - start)
                parts.append(Segment(empty_planes(self.n_bits, room), 0, len(parts) * MAX_DOCS))
            stop = min(start + MAX_DOCS - parts[-1].n_docs, len(codes))
            parts[-1] = _grown(parts[-1], codes[start:stop])
            start = stop
        return replace(self, parts=tuple(parts))

    def without(self, slots: Slots) -> SlicedCodes:
        """Remove the documents at these slots."""
        parts = list(self.parts)
        for number in np.unique(slots // MAX_DOCS):
            mask = live_mask(parts[number])
            mask[slots[slots // MAX_DOCS == number] - number * MAX_DOCS] = False
            parts[number] = parts[number]._replace(live=bitmap(mask))
        return replace(self, parts=tuple(parts))

    def search(
        self, queries: Codes, k: int, *, n_threads: int, allowed: Mask | None = None
    ) -> tuple[Slots, npt.NDArray[np.int32]]:
        """Slots and overlaps (m, k) of the best documents; -1 where there are fewer than k.

        ``allowed`` is a mask over slots.
        """
        segments = self._unfiltered if allowed is None else native_segments(self.filtered(allowed))
        return overlap_topk(segments, queries.active, k, n_threads)

    def filtered(self, allowed: Mask) -> list[Segment]:
        """The segments with a filter, a mask over slots."""
        return [part._replace(filter=bitmap(allowed[slice_of(part)])) for part in self.parts]

    @classmethod
    def from_arrays(cls, n_bits: int, flat: Words, table: npt.NDArray[np.int64]) -> SlicedCodes:
        """Segments from the arrays of :func:`plane_arrays`; a ValueError if they are not consistent."""
        parts = []
        for number, (offset, stride, n_docs, _) in enumerate(table.tolist()):
            if not (0 <= n_docs <= MAX_DOCS and 4 * -(-n_docs // 256) <= stride):
                raise ValueError(f"a segment of {n_docs} documents with a stride of {stride}")
            if not 0 <= offset <= offset + n_bits * stride <= len(flat):
                raise ValueError(f"a segment at {offset} outside of {len(flat)} words")
            planes = flat[offset : offset + n_bits * stride].reshape(n_bits, stride)
            parts.append(Segment(planes, n_docs, number * MAX_DOCS))
        return cls(n_bits, tuple(parts))

    @cached
    def _unfiltered(self) -> _native.Segments:
        return native_segments(self.parts)

    def __getstate__(self) -> dict[str, Any]:
        return fields_of(self)


def plane_arrays(runs: Sequence[SlicedCodes]) -> Arrays:
    """All planes one after the other, and (offset, stride, n_docs, number of the run) of each segment.

    Deleted documents have no set bits there.
    """
    parts = [(part, number) for number, run in enumerate(runs) for part in run.parts]
    rows, offset = [], 0
    for part, number in parts:
        rows.append((offset, part.planes.shape[1], part.n_docs, number))
        offset += part.planes.size
    flat = np.concatenate([_live_planes(part).ravel() for part, _ in parts] or [np.empty(0, np.uint64)])
    return {"planes": flat, "parts": np.array(rows, np.int64).reshape(-1, 4)}


def _live_planes(part: Segment) -> Words:
    """The planes of a segment without the bits of deleted documents."""
    if part.live is None:
        return part.planes
    planes = part.planes.copy()
    planes[:, : len(part.live)] &= part.live
    return planes


def fields_of(structure: Any) -> dict[str, Any]:
    """What a pickle holds: without what is cached, of which native objects cannot be pickled."""
    return {field.name: getattr(structure, field.name) for field in fields(structure)}


def slice_of(part: Segment) -> slice:
    """The slots of a segment."""
    return slice(part.first_slot, part.first_slot + part.n_docs)


def _grown(part: Segment, codes: Codes) -> Segment:
    """A copy of a segment with more documents, in larger planes if need be."""
    n_docs = part.n_docs + len(codes)
    room = min(MAX_DOCS, part.planes.shape[1] * 64)
    planes = larger_planes(part.planes, room if n_docs <= room else min(MAX_DOCS, max(n_docs, 2 * room)))
    pack(codes.active, planes, part.n_docs)
    live = None if part.live is None else bitmap(np.r_[live_mask(part), np.ones(len(codes), bool)])
    return Segment(planes, n_docs, part.first_slot, live)


def live_mask(part: Segment) -> Mask:
    """Which documents of a segment are live, (n_docs,)."""
    if part.live is None:
        return np.ones(part.n_docs, bool)
    return np.unpackbits(part.live.view(np.uint8), bitorder="little", count=part.n_docs).view(bool)


def bitmap(mask: Mask) -> Words:
    """A mask (n,) as ceil(n / 64) words, the first document in the lowest bit."""
    packed = np.zeros(-(-len(mask) // 64) * 8, np.uint8)
    packed[: -(-len(mask) // 8)] = np.packbits(mask, bitorder="little")
    return packed.view(np.uint64)
