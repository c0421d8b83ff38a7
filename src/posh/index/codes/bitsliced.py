"""Sparse codes in bit-sliced segments, and overlap search over them.

NumPy holds the memory, C++ does the work.

A segment stores up to 32,768 documents as one bitmap per bit: word ``w`` of plane ``b`` holds bit ``b`` of
the documents 64 w, …, 64 w + 63. Segments are plain arrays, so they can be mapped from a file. A search never
writes to them.

:class:`SlicedCodes` is immutable: adding copies the last segment (4 MB at 1,024 bits), deleting copies a
bitmap, and concurrent searches of the old object are not affected.

>>> import numpy as np
>>> planes = allocate_planes(n_bits=4, n_docs=3)
>>> pack(np.array([[0, 2], [1, 2], [1, 3]], np.uint16), planes)
>>> overlap_topk(make_native_segments([Segment(planes, n_docs=3)]), np.array([[0, 2]], np.uint16), k=2)
(array([[0, 1]]), array([[2, 1]], dtype=int32))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from posh import _native, kernels
from posh._model_files import Arrays
from posh.codes import Codes
from posh.index.arrays import Mask, Slots, cached, get_fields, pack_mask

__all__ = [
    "MAX_DOCS",
    "Segment",
    "SlicedCodes",
    "allocate_planes",
    "enlarge_planes",
    "join_planes",
    "make_native_segments",
    "overlap_lists",
    "overlap_topk",
    "pack",
    "slot_range",
    "stride_words",
]

MAX_DOCS = 32_768
"""Documents in a full segment. One plane of a full segment is 4 KB, a page of memory."""

_LINE_WORDS = 8  # a cache line
_BLOCK_DOCS = 256  # the kernels read whole blocks

Scores = npt.NDArray[np.int32]
Words = npt.NDArray[np.uint64]


class Segment(NamedTuple):
    """Up to :data:`MAX_DOCS` documents; document ``i`` has the slot ``first_slot + i``.

    ``planes`` is uint64 (n_bits, stride), see :func:`allocate_planes`. ``live`` and ``filter`` are bitmaps,
    uint64 (at least n_docs / 64,): a search never finds a document whose bit is 0. ``None`` keeps all
    documents.
    """

    planes: Words
    n_docs: int
    first_slot: int = 0
    live: Words | None = None
    filter: Words | None = None


def stride_words(n_docs: int) -> int:
    """Return the words per plane for ``n_docs`` documents: an odd number of whole cache lines.

    If the number of lines were even, the first lines of all planes would fall into few sets of the cache
    (into one, for a power of two) and evict one another.

    >>> stride_words(32_768), stride_words(1024), stride_words(100)
    (520, 24, 8)
    """
    blocks = -(-n_docs // _BLOCK_DOCS)
    lines = -(-blocks * _BLOCK_DOCS // (64 * _LINE_WORDS))
    return (lines | 1) * _LINE_WORDS


def allocate_planes(n_bits: int, n_docs: int) -> Words:
    """Return zeroed planes for ``n_docs`` documents, uint64 (n_bits, stride), aligned to a cache line."""
    return _allocate_aligned(np.zeros, n_bits, n_docs)


def enlarge_planes(planes: Words, n_docs: int) -> Words:
    """Return a copy of planes with room for ``n_docs`` documents, at least as many as they have room for."""
    n_bits, used = planes.shape
    larger = _allocate_aligned(np.empty, n_bits, n_docs)
    larger[:, :used] = planes
    larger[:, used:] = 0
    return larger


def _allocate_aligned(allocate: Any, n_bits: int, n_docs: int) -> Words:
    stride = stride_words(n_docs)
    raw = allocate(n_bits * stride + _LINE_WORDS, np.uint64)
    start = -raw.ctypes.data // 8 % _LINE_WORDS
    planes: Words = raw[start : start + n_bits * stride].reshape(n_bits, stride)
    return planes


def pack(codes: npt.NDArray[np.uint16], planes: Words, first_doc: int = 0) -> None:
    """Write ``codes``, uint16 (n, n_active), to the documents from ``first_doc`` on; these must be empty."""
    _native.pack(codes, first_doc, planes)


def make_native_segments(segments: Sequence[Segment], slots: Sequence[Slots] = ()) -> _native.Segments:
    """Check segments once, and return the native object that any number of searches can use.

    For :func:`overlap_lists`, ``slots`` holds an array for each segment: the ascending slots of its
    documents, int64 (n_docs,). They replace ``first_slot``.
    """
    n_bits = len(segments[0].planes) if segments else kernels.MAX_BITS
    return _native.Segments(list(segments), n_bits, list(slots))


def overlap_topk(
    segments: _native.Segments, queries: npt.NDArray[np.uint16], k: int, n_threads: int = 1
) -> tuple[Slots, Scores]:
    """Find the k documents that share the most bits with each query, best first, then the lower slot.

    ``queries`` is uint16 (m, a), bit numbers; documents may have another number of active bits than ``a``.
    Returns the slots, int64 (m, k), and the overlaps, int32 (m, k); both are -1 where fewer than ``k``
    documents may be found. The number of threads does not change the result.
    """
    ids, scores = _allocate_results(len(queries), k)
    _native.overlap_topk(segments, queries, ids, scores, n_threads, kernels.active())
    return ids, scores


def overlap_lists(
    segments: _native.Segments,
    queries: npt.NDArray[np.uint16],
    offsets: npt.NDArray[np.int64],
    visits: npt.NDArray[np.int32],
    k: int,
    n_threads: int = 1,
) -> tuple[Slots, Scores]:
    """Search like :func:`overlap_topk`, but visit only some segments for each query, its lists.

    Query ``q`` visits the segments with the numbers ``visits[offsets[q] : offsets[q + 1]]``, all different,
    in any order. ``offsets`` is int64 (m + 1,), ``visits`` int32.

    >>> import numpy as np
    >>> code = np.array([[1, 2]], np.uint16)
    >>> segments = [Segment(allocate_planes(4, 1), 1) for _ in range(2)]
    >>> for segment in segments:
    ...     pack(code, segment.planes)
    >>> lists = make_native_segments(segments, slots=[np.array([0]), np.array([10])])
    >>> overlap_lists(lists, code, np.array([0, 1]), np.array([1], np.int32), k=2)
    (array([[10, -1]]), array([[ 2, -1]], dtype=int32))
    """
    ids, scores = _allocate_results(len(queries), k)
    _native.overlap_lists(segments, queries, offsets, visits, ids, scores, n_threads, kernels.active())
    return ids, scores


def _allocate_results(m: int, k: int) -> tuple[Slots, Scores]:
    return np.empty((m, k), np.int64), np.empty((m, k), np.int32)


@dataclass(frozen=True, eq=False)
class SlicedCodes:
    """Documents in order of addition; the slot of a document is its place in that order.

    >>> import posh
    >>> from posh.index.codes.bitsliced import SlicedCodes
    >>> codes = posh.Codes([[0, 2], [1, 2], [1, 3]], n_bits=4)
    >>> SlicedCodes(4).with_codes(codes).search(codes[:1], 2, n_threads=1)
    (array([[0, 1]]), array([[2, 1]], dtype=int32))
    """

    n_bits: int
    parts: tuple[Segment, ...] = ()

    def __len__(self) -> int:
        """Return the slots in use, deleted documents included."""
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
                parts.append(Segment(allocate_planes(self.n_bits, room), 0, len(parts) * MAX_DOCS))
            stop = min(start + MAX_DOCS - parts[-1].n_docs, len(codes))
            parts[-1] = _extend(parts[-1], codes[start:stop])
            start = stop
        return replace(self, parts=tuple(parts))

    def without(self, slots: Slots) -> SlicedCodes:
        """Delete the documents at these slots."""
        parts = list(self.parts)
        for number in np.unique(slots // MAX_DOCS):
            mask = live_mask(parts[number])
            mask[slots[slots // MAX_DOCS == number] - number * MAX_DOCS] = False
            parts[number] = parts[number]._replace(live=pack_mask(mask))
        return replace(self, parts=tuple(parts))

    def search(
        self, queries: Codes, k: int, *, n_threads: int, allowed: Mask | None = None
    ) -> tuple[Slots, npt.NDArray[np.int32]]:
        """Return slots and overlaps (m, k) of the best documents; -1 where there are fewer than k.

        ``allowed`` is a mask over slots.
        """
        segments = self._all_segments if allowed is None else make_native_segments(self.with_filter(allowed))
        return overlap_topk(segments, queries.active, k, n_threads)

    def with_filter(self, allowed: Mask) -> list[Segment]:
        """Return the segments with a filter, a mask over slots."""
        return [part._replace(filter=pack_mask(allowed[slot_range(part)])) for part in self.parts]

    @classmethod
    def from_arrays(cls, n_bits: int, flat: Words, table: npt.NDArray[np.int64]) -> SlicedCodes:
        """Return segments from the arrays of :func:`join_planes`; raise ValueError if they are wrong."""
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
    def _all_segments(self) -> _native.Segments:
        return make_native_segments(self.parts)

    def __getstate__(self) -> dict[str, Any]:
        return get_fields(self)


def join_planes(runs: Sequence[SlicedCodes]) -> Arrays:
    """Return all planes one after the other, and (offset, stride, n_docs, number of the run) of each segment.

    Deleted documents have no set bits there.
    """
    parts = [(part, number) for number, run in enumerate(runs) for part in run.parts]
    rows, offset = [], 0
    for part, number in parts:
        rows.append((offset, part.planes.shape[1], part.n_docs, number))
        offset += part.planes.size
    flat = np.concatenate([_clear_deleted(part).ravel() for part, _ in parts] or [np.empty(0, np.uint64)])
    return {"planes": flat, "parts": np.array(rows, np.int64).reshape(-1, 4)}


def _clear_deleted(part: Segment) -> Words:
    """Return the planes of a segment without the bits of deleted documents."""
    if part.live is None:
        return part.planes
    planes = part.planes.copy()
    planes[:, : len(part.live)] &= part.live
    return planes


def slot_range(part: Segment) -> slice:
    """Return the slots of a segment."""
    return slice(part.first_slot, part.first_slot + part.n_docs)


def _extend(part: Segment, codes: Codes) -> Segment:
    """Return a copy of a segment with more documents, in larger planes if necessary."""
    n_docs = part.n_docs + len(codes)
    room = min(MAX_DOCS, part.planes.shape[1] * 64)
    planes = enlarge_planes(part.planes, room if n_docs <= room else min(MAX_DOCS, max(n_docs, 2 * room)))
    pack(codes.active, planes, part.n_docs)
    live = None if part.live is None else pack_mask(np.r_[live_mask(part), np.ones(len(codes), bool)])
    return Segment(planes, n_docs, part.first_slot, live)


def live_mask(part: Segment) -> Mask:
    """Return the mask of live documents of a segment, (n_docs,)."""
    if part.live is None:
        return np.ones(part.n_docs, bool)
    return np.unpackbits(part.live.view(np.uint8), bitorder="little", count=part.n_docs).view(bool)
