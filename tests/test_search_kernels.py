"""Exact search over bit-sliced segments: every kernel, on one and two threads, against plain NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posh import kernels
from posh.index.codes.bitsliced import (
    MAX_DOCS,
    Segment,
    allocate_planes,
    make_native_segments,
    overlap_lists,
    overlap_topk,
    pack,
    stride_words,
)
from tests.conftest import CASES

KERNELS = kernels.available()
FAST = [name for name in KERNELS if name != "scalar"]
THREADS = [1, 2]

pytestmark = pytest.mark.usefixtures("fastest_again")


def random_codes(rng: np.random.Generator, n: int, n_bits: int, n_active: int) -> np.ndarray:
    """Codes uint16 (n, n_active) whose low bits are more frequent, as in real data."""
    weights = rng.random((n, n_bits)) * np.linspace(1.0, 0.6, n_bits)
    chosen = np.argpartition(-weights, n_active - 1, axis=1)[:, :n_active]
    return np.sort(chosen, axis=1).astype(np.uint16)


def bitmap(mask: np.ndarray) -> np.ndarray:
    """Boolean (n,) as words of 64 documents, the lowest bit first."""
    padded = np.zeros(-(-len(mask) // 64) * 64, bool)
    padded[: len(mask)] = mask
    return np.packbits(padded, bitorder="little").view("<u8").astype(np.uint64)


def segments_of(
    codes: np.ndarray,
    n_bits: int,
    sizes: Sequence[int],
    live: np.ndarray | None = None,
    keep: np.ndarray | None = None,
) -> list[Segment]:
    """Consecutive documents in segments of the given sizes, read-only."""
    segments, start = [], 0
    for size in sizes:
        rows = slice(start, start + size)
        planes = allocate_planes(n_bits, size)
        pack(codes[rows], planes)
        planes.flags.writeable = False
        bitmaps = [None if mask is None else bitmap(mask[rows]) for mask in (live, keep)]
        segments.append(Segment(planes, size, start, *bitmaps))
        start += size
    assert start == len(codes)
    return segments


def reference(
    codes: np.ndarray, queries: np.ndarray, n_bits: int, k: int, allowed: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Overlaps by a product of dense matrices, the order by a stable sort; ``allowed`` is (n,) or (m, n)."""
    base, asked = np.zeros((len(codes), n_bits), np.float32), np.zeros((len(queries), n_bits), np.float32)
    np.put_along_axis(base, codes.astype(np.int64), 1, axis=1)
    np.put_along_axis(asked, queries.astype(np.int64), 1, axis=1)
    overlaps = np.where(allowed, (asked @ base.T).astype(np.int32), -1)
    overlaps = np.pad(overlaps, [(0, 0), (0, max(0, k - len(codes)))], constant_values=-1)
    ids = np.argsort(-overlaps, axis=1, kind="stable")[:, :k]
    scores = np.take_along_axis(overlaps, ids, axis=1)
    return np.where(scores >= 0, ids, -1), scores


def topk(segments: Sequence[Segment], queries: np.ndarray, k: int, n_threads: int = 1):
    return overlap_topk(make_native_segments(segments), queries, k, n_threads)


def check(found: tuple[np.ndarray, np.ndarray], expected: tuple[np.ndarray, np.ndarray]) -> None:
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_array_equal(found[0], expected[0])


def check_search(kernel, n_threads, codes, queries, n_bits, sizes, k, live=None, keep=None) -> None:
    kernels.use(kernel)
    allowed = np.ones(len(codes), bool)
    for mask in (live, keep):
        allowed &= True if mask is None else mask
    segments = segments_of(codes, n_bits, sizes, live, keep)
    check(topk(segments, queries, k, n_threads), reference(codes, queries, n_bits, k, allowed))


@pytest.mark.parametrize("n_threads", THREADS)
@pytest.mark.parametrize("kernel", KERNELS)
@settings(max_examples=CASES)
@given(data=st.data())
def test_any_search(kernel, n_threads, data):
    draw = data.draw
    n_bits = draw(st.integers(2, 300))
    n_active, a_query = draw(st.integers(1, min(200, n_bits))), draw(st.integers(1, n_bits))
    sizes = draw(st.lists(st.integers(1, 700), min_size=1, max_size=4))
    n, m = sum(sizes), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    codes = random_codes(rng, n, n_bits, n_active)
    n_distinct = draw(st.sampled_from([1, 3, n]))  # few distinct codes: floods of ties
    codes = codes[rng.integers(min(n_distinct, n), size=n)]
    live, keep = (
        None if fraction is None else rng.random(n) < fraction
        for fraction in draw(st.tuples(*[st.sampled_from([None, 0.0, 0.01, 0.5, 1.0])] * 2))
    )
    k = draw(st.sampled_from([1, 2, 10, 100, n - 1, n, n + 5]))
    queries = random_codes(rng, m, n_bits, a_query)
    check_search(kernel, n_threads, codes, queries, n_bits, sizes, max(k, 1), live, keep)


@pytest.mark.parametrize("n_threads", THREADS)
@pytest.mark.parametrize("kernel", KERNELS)
@settings(max_examples=CASES)
@given(data=st.data())
def test_any_lists(kernel, n_threads, data):
    draw = data.draw
    sizes = draw(st.lists(st.integers(1, 600), min_size=1, max_size=6))
    n, m, n_bits = sum(sizes), draw(st.sampled_from([1, 3, 70])), draw(st.integers(8, 100))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    codes, queries = random_codes(rng, n, n_bits, 4), random_codes(rng, m, n_bits, 6)
    n_distinct = draw(st.sampled_from([2, n]))  # few distinct codes: floods of ties
    codes = codes[rng.integers(min(n_distinct, n), size=n)]
    live = rng.random(n) < 0.8
    list_of = np.repeat(rng.permutation(len(sizes)), sizes)[rng.permutation(n)]
    slots = [np.flatnonzero(list_of == i) for i in range(len(sizes))]
    segments = [segments_of(codes[own], n_bits, [len(own)], live[own])[0] for own in slots]
    visits = [rng.permutation(len(sizes))[: rng.integers(len(sizes) + 1)] for _ in range(m)]
    allowed = np.stack([np.isin(list_of, chosen) for chosen in visits]) & live
    k = draw(st.sampled_from([1, 10, 100, n + 1]))
    kernels.use(kernel)
    found = search_lists(segments, slots, queries, visits, k, n_threads)
    check(found, reference(codes, queries, n_bits, k, allowed))


def search_lists(segments, slots, queries, visits, k, n_threads):
    offsets = np.cumsum([0, *map(len, visits)])
    numbers = np.concatenate(visits).astype(np.int32)
    return overlap_lists(make_native_segments(segments, slots), queries, offsets, numbers, k, n_threads)


@cache
def long_lists(n_distinct: int):
    """Segments and slots of 12 lists, queries, and their 80,000 best: what all kernels are compared with."""
    rng = np.random.default_rng(n_distinct)
    codes = random_codes(rng, n_distinct, 40, 5)[rng.integers(n_distinct, size=90_000)]
    queries, list_of = random_codes(rng, 3, 40, 7), rng.integers(12, size=90_000)
    slots = [np.flatnonzero(list_of == i) for i in range(12)]
    segments = [segments_of(codes[own], 40, [len(own)])[0] for own in slots]
    return segments, slots, queries, reference(codes, queries, 40, 80_000, np.ones(90_000, bool))


@pytest.mark.parametrize("n_threads", THREADS)
@pytest.mark.parametrize("kernel", FAST)
@pytest.mark.parametrize("n_distinct", [5, 90_000])
@pytest.mark.parametrize("k", [1, 1000, 80_000])
def test_lists_with_more_documents_than_are_scanned_at_once(kernel, n_threads, n_distinct, k):
    segments, slots, queries, (ids, scores) = long_lists(n_distinct)
    kernels.use(kernel)
    found = search_lists(segments, slots, queries, [np.arange(12)] * 3, k, n_threads)
    check(found, (ids[:, :k], scores[:, :k]))


@pytest.mark.parametrize(
    "n", [1, 63, 64, 65, 255, 256, 257, 2047, 2048, 2049, 32_767, 32_768, 32_769, 70_000]
)
def test_edges_of_blocks_tiles_and_segments(n):
    rng = np.random.default_rng(n)
    codes, queries = random_codes(rng, n, 40, 5), random_codes(rng, 3, 40, 7)
    sizes = [MAX_DOCS] * (n // MAX_DOCS) + [n % MAX_DOCS]
    segments = segments_of(codes, 40, [size for size in sizes if size])
    ids, scores = reference(codes, queries, 40, 1000, np.ones(n, bool))
    for kernel in FAST:
        kernels.use(kernel)
        for k in (1, 10, 1000):
            check(topk(segments, queries, k, 2), (ids[:, :k], scores[:, :k]))


@pytest.mark.parametrize("a_query", [*range(1, 70), 127, 128, 129, 200, 255, 256, 500])
def test_any_number_of_query_bits(a_query):
    rng = np.random.default_rng(a_query)
    codes = np.concatenate([random_codes(rng, 600, 500, 200), np.arange(200)[None]]).astype(np.uint16)
    queries = np.concatenate([random_codes(rng, 2, 500, a_query), np.arange(a_query)[None]]).astype(np.uint16)
    segments = segments_of(codes, 500, [601])
    expected = reference(codes, queries, 500, 20, np.ones(601, bool))
    for kernel in FAST:
        kernels.use(kernel)
        check(topk(segments, queries, 20), expected)


@pytest.mark.parametrize("kernel", FAST)
def test_every_bit_of_the_longest_code(kernel):
    codes = np.arange(65_536, dtype=np.uint16)[None].repeat(3, axis=0)
    planes = allocate_planes(65_536, 3)
    pack(codes[:2], planes)
    pack(np.arange(0, 65_536, 2, dtype=np.uint16)[None], planes, first_doc=2)
    kernels.use(kernel)
    ids, scores = topk([Segment(planes, 3)], codes[:1], 4)
    np.testing.assert_array_equal(ids, [[0, 1, 2, -1]])
    np.testing.assert_array_equal(scores, [[65_536, 65_536, 32_768, -1]])


@cache
def many_codes() -> tuple[np.ndarray, np.ndarray]:
    """Codes of documents and queries: enough of both for tiles, batches and guesses."""
    rng = np.random.default_rng(0)
    return random_codes(rng, 300_000, 64, 6), random_codes(rng, 130, 64, 8)


@pytest.mark.parametrize("order", ["random", "best last", "best first", "identical"])
def test_thresholds_guessed_from_a_sample(order):
    """In orders that mislead the guess."""
    codes, queries = many_codes()
    n, n_bits, k = len(codes), 64, 500
    if order == "identical":
        codes = np.repeat(codes[:1], n, axis=0)
    if order.startswith("best"):
        overlaps = np.isin(codes, queries[0]).sum(axis=1)
        codes = codes[np.argsort(overlaps if order == "best last" else -overlaps, kind="stable")]
    segments = segments_of(codes, n_bits, [32_768] * (n // 32_768) + [n % 32_768])
    few = [0, 64, 129]
    expected = reference(codes, queries[few], n_bits, k, np.ones(n, bool))
    for kernel in FAST:
        kernels.use(kernel)
        for n_threads in THREADS:
            ids, scores = topk(segments, queries, k, n_threads)
            check((ids[few], scores[few]), expected)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_filter_that_keeps_nothing(kernel):
    codes = random_codes(np.random.default_rng(0), 500, 30, 3)
    kernels.use(kernel)
    ids, scores = topk(segments_of(codes, 30, [500], keep=np.zeros(500, bool)), codes[:2], 3)
    assert (ids == -1).all()
    assert (scores == -1).all()


@pytest.mark.parametrize("kernel", KERNELS)
def test_nothing_to_search_in_or_for(kernel):
    kernels.use(kernel)
    ids, scores = topk([], np.array([[3]], np.uint16), 2)
    assert ids.tolist() == scores.tolist() == [[-1, -1]]
    assert topk([Segment(allocate_planes(8, 1), 1)], np.empty((0, 3), np.uint16), 2)[0].shape == (0, 2)
    assert topk([Segment(allocate_planes(8, 0), 0)], np.array([[3]], np.uint16), 1)[0].tolist() == [[-1]]


@pytest.mark.parametrize("kernel", FAST)
def test_bits_past_the_last_document_are_ignored(kernel):
    planes = np.full((8, stride_words(100)), 2**64 - 1, np.uint64)
    everything = np.full(2, 2**64 - 1, np.uint64)
    kernels.use(kernel)
    ids, _ = topk([Segment(planes, 100, 7, everything, everything)], np.array([[1, 2]], np.uint16), 200)
    np.testing.assert_array_equal(ids[0, :100], np.arange(7, 107))
    assert (ids[0, 100:] == -1).all()


def test_packing_in_pieces_sets_the_same_bits():
    codes = random_codes(np.random.default_rng(0), 1000, 77, 9)
    whole, pieces = allocate_planes(77, 1000), allocate_planes(77, 1000)
    pack(codes, whole)
    for start in range(0, 1000, 130):
        pack(codes[start : start + 130], pieces, first_doc=start)
    np.testing.assert_array_equal(whole, pieces)
    dense = np.unpackbits(whole.view(np.uint8), axis=1, bitorder="little")[:, :1000].T
    np.testing.assert_array_equal(
        np.flatnonzero(dense.ravel()), np.sort((np.arange(1000)[:, None] * 77 + codes).ravel())
    )


@pytest.mark.parametrize("n_docs", [1, 256, 257, 1000, 7680, 30_000, 32_768])
def test_planes_are_aligned_and_spread_over_the_cache(n_docs):
    planes = allocate_planes(16, n_docs)
    assert planes.ctypes.data % 64 == 0
    assert planes.strides[0] % 128 == 64
    assert planes.shape[1] * 64 >= -(-n_docs // 256) * 256
    assert not planes.any()
