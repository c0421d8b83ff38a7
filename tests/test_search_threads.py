"""Search kernels among threads, forks and Ctrl-C; bindings that refuse what would read elsewhere."""

from __future__ import annotations

import multiprocessing
import threading
import time

import numpy as np
import pytest

from posh import _native
from posh.index.codes.bitsliced import (
    Segment,
    allocate_planes,
    make_native_segments,
    overlap_lists,
    pack,
)
from tests.conftest import interrupted_after
from tests.test_search_kernels import THREADS, check, random_codes, topk


def big_segments(n: int = 40) -> list[Segment]:
    planes = allocate_planes(64, 32_768)
    pack(random_codes(np.random.default_rng(0), 32_768, 64, 8), planes)
    return [Segment(planes, 32_768, i * 32_768) for i in range(n)]


@pytest.mark.usefixtures("listening")
@pytest.mark.parametrize("n_threads", THREADS)
def test_a_long_search_can_be_interrupted(n_threads):
    queries = np.arange(16, dtype=np.uint16)[None].repeat(200_000, axis=0)
    segments, start = big_segments(400), time.monotonic()  # more than a minute of work
    with pytest.raises(KeyboardInterrupt), interrupted_after(0.3):
        topk(segments, queries, 10, n_threads)
    assert time.monotonic() - start < 20


def test_searches_from_many_threads_at_once():
    segments, queries = big_segments(4), random_codes(np.random.default_rng(1), 100, 64, 8)
    expected = topk(segments, queries, 20, 1)
    results = [None] * 6

    def search(i: int) -> None:
        results[i] = topk(segments, queries, 20, 1 + i % 3)

    threads = [threading.Thread(target=search, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for found in results:
        check(found, expected)


def _search_and_send(connection) -> None:
    connection.send(topk(big_segments(2), np.arange(8, dtype=np.uint16)[None], 5, 2))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own():
    expected = topk(big_segments(2), np.arange(8, dtype=np.uint16)[None], 5, 2)
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_search_and_send, args=(theirs,))
    child.start()
    assert ours.poll(60), "the child hangs"
    check(ours.recv(), expected)
    child.join()


def test_the_bindings_refuse_what_would_read_elsewhere():
    planes, query = allocate_planes(8, 300), np.array([[1, 2]], np.uint16)
    offsets, visits = np.array([0, 1]), np.array([0], np.int32)
    lists = make_native_segments([Segment(planes, 300)], [np.arange(300)])
    with pytest.raises(ValueError, match="bits"):
        pack(np.array([[8]], np.uint16), planes)
    with pytest.raises(ValueError, match="shapes"):
        pack(query, planes, first_doc=64 * planes.shape[1])
    with pytest.raises(ValueError, match="bits"):
        topk([Segment(planes, 300)], np.array([[8]], np.uint16), 1)
    with pytest.raises(ValueError, match="segment: shapes"):
        topk([Segment(planes, 64 * planes.shape[1] + 1)], query, 1)
    with pytest.raises(ValueError, match="segment: shapes"):
        topk([Segment(planes, 300), Segment(allocate_planes(9, 1), 1, 300)], query, 1)
    with pytest.raises(ValueError, match="bitmap"):
        topk([Segment(planes, 300, 0, np.zeros(4, np.uint64))], query, 1)
    with pytest.raises(ValueError, match="slots"):
        topk([Segment(planes, 300, -1)], query, 1)
    with pytest.raises(ValueError, match="search: shapes"):
        topk([Segment(planes, 300)], query, 0)
    with pytest.raises(ValueError, match="lists: offsets"):
        overlap_lists(lists, query, np.array([0, 2]), visits, 1)
    with pytest.raises(ValueError, match="lists: segments"):
        overlap_lists(lists, query, offsets, np.array([1], np.int32), 1)
    with pytest.raises(ValueError, match="lists: slots"):
        overlap_lists(make_native_segments([Segment(planes, 300)]), query, offsets, visits, 1)
    with pytest.raises(ValueError, match="slots: lists"):
        make_native_segments([Segment(planes, 300)], [np.arange(300)] * 2)
    with pytest.raises(ValueError, match="slots: ascending"):
        make_native_segments([Segment(planes, 300)], [np.arange(299)])
    with pytest.raises(ValueError, match="slots: range"):
        make_native_segments([Segment(planes, 300)], [np.arange(300) - 1])
    with pytest.raises(TypeError):
        _native.Segments([(planes.astype(np.int64), 300, 0, None, None)], 8, [])
