"""Bit-sliced segments of codes, and overlap search over them. NumPy holds the memory, C++ does the work.

A segment stores up to 32,768 documents as one bitmap per bit: word ``w`` of plane ``b`` holds bit ``b`` of
the documents 64 w, …, 64 w + 63. Segments are plain arrays, so they can be mapped from a file. A search never
writes to them.

>>> import numpy as np
>>> planes = empty_planes(n_bits=4, n_docs=3)
>>> pack(np.array([[0, 2], [1, 2], [1, 3]], np.uint16), planes)
>>> overlap_topk(native_segments([Segment(planes, n_docs=3)]), np.array([[0, 2]], np.uint16), k=2)
(array([[0, 1]]), array([[2, 1]], dtype=int32))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from posh import _native, kernels

__all__ = [
    "MAX_DOCS",
    "Segment",
    "empty_planes",
    "larger_planes",
    "native_segments",
    "overlap_lists",
    "overlap_topk",
    "pack",
    "stride_words",
]

MAX_DOCS = 32_768
"""Documents in a full segment. One plane of a full segment is 4 KB, a page of memory."""

_LINE_WORDS = 8  # a cache line
_BLOCK_DOCS = 256  # the kernels read whole blocks

Ids = npt.NDArray[np.int64]
Scores = npt.NDArray[np.int32]
Words = npt.NDArray[np.uint64]


class Segment(NamedTuple):
    """Up to :data:`MAX_DOCS` documents; document ``i`` has the slot ``first_slot + i``.

    ``planes`` is uint64 (n_bits, stride), see :func:`empty_planes`. ``live`` and ``filter`` are bitmaps,
    uint64 (at least n_docs / 64,): a search never finds a document whose bit is 0. ``None`` keeps all
    documents.
    """

    planes: Words
    n_docs: int
    first_slot: int = 0
    live: Words | None = None
    filter: Words | None = None


def stride_words(n_docs: int) -> int:
    """Words per plane for ``n_docs`` documents: an odd number of whole cache lines.

    If the number of lines were even, the first lines of all planes would fall into few sets of the cache
    (into one, for a power of two) and evict one another.

    >>> stride_words(32_768), stride_words(1024), stride_words(100)
    (520, 24, 8)
    """
    blocks = -(-n_docs // _BLOCK_DOCS)
    lines = -(-blocks * _BLOCK_DOCS // (64 * _LINE_WORDS))
    return (lines | 1) * _LINE_WORDS


def empty_planes(n_bits: int, n_docs: int) -> Words:
    """Zeroed planes for ``n_docs`` documents, uint64 (n_bits, stride), aligned to a cache line."""
    return _aligned(np.zeros, n_bits, n_docs)


def larger_planes(planes: Words, n_docs: int) -> Words:
    """A copy of planes with room for ``n_docs`` documents, at least as many as they have room for."""
    n_bits, used = planes.shape
    larger = _aligned(np.empty, n_bits, n_docs)
    larger[:, :used] = planes
    larger[:, used:] = 0
    return larger


def _aligned(allocate: Any, n_bits: int, n_docs: int) -> Words:
    stride = stride_words(n_docs)
    raw = allocate(n_bits * stride + _LINE_WORDS, np.uint64)
    start = -raw.ctypes.data // 8 % _LINE_WORDS
    planes: Words = raw[start : start + n_bits * stride].reshape(n_bits, stride)
    return planes


def pack(codes: npt.NDArray[np.uint16], planes: Words, first_doc: int = 0) -> None:
    """Write ``codes``, uint16 (n, n_active), to the documents from ``first_doc`` on; these must be empty."""
    _native.pack(codes, first_doc, planes)


def native_segments(segments: Sequence[Segment], slots: Sequence[Ids] = ()) -> _native.Segments:
    """Check segments once, and return the native object that any number of searches can use.

    For :func:`overlap_lists`, ``slots`` holds an array for each segment: the ascending slots of its
    documents, int64 (n_docs,). They replace ``first_slot``.
    """
    n_bits = len(segments[0].planes) if segments else kernels.MAX_BITS
    return _native.Segments(list(segments), n_bits, list(slots))


def overlap_topk(
    segments: _native.Segments, queries: npt.NDArray[np.uint16], k: int, n_threads: int = 1
) -> tuple[Ids, Scores]:
    """Find the k documents that share the most bits with each query, best first, then the lower slot.

    ``queries`` is uint16 (m, a), bit numbers; documents may have another number of active bits than ``a``.
    Returns the slots, int64 (m, k), and the overlaps, int32 (m, k); both are -1 where fewer than ``k``
    documents may be found. The number of threads does not change the result.
    """
    ids, scores = _results(len(queries), k)
    _native.overlap_topk(segments, queries, ids, scores, n_threads, kernels.active())
    return ids, scores


def overlap_lists(
    segments: _native.Segments,
    queries: npt.NDArray[np.uint16],
    offsets: npt.NDArray[np.int64],
    visits: npt.NDArray[np.int32],
    k: int,
    n_threads: int = 1,
) -> tuple[Ids, Scores]:
    """Like :func:`overlap_topk`, but each query visits only some segments, its lists.

    Query ``q`` visits the segments with the numbers ``visits[offsets[q] : offsets[q + 1]]``, all different,
    in any order. ``offsets`` is int64 (m + 1,), ``visits`` int32.

    >>> import numpy as np
    >>> code = np.array([[1, 2]], np.uint16)
    >>> segments = [Segment(empty_planes(4, 1), 1) for _ in range(2)]
    >>> for segment in segments:
    ...     pack(code, segment.planes)
    >>> lists = native_segments(segments, slots=[np.array([0]), np.array([10])])
    >>> overlap_lists(lists, code, np.array([0, 1]), np.array([1], np.int32), k=2)
    (array([[10, -1]]), array([[ 2, -1]], dtype=int32))
    """
    ids, scores = _results(len(queries), k)
    _native.overlap_lists(segments, queries, offsets, visits, ids, scores, n_threads, kernels.active())
    return ids, scores


def _results(m: int, k: int) -> tuple[Ids, Scores]:
    return np.empty((m, k), np.int64), np.empty((m, k), np.int32)
