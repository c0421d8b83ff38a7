"""The memory of blocks: every kernel writes the bytes of the specification."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posh import _native
from tests.conftest import CASES
from tests.index.blocks import specification as spec
from tests.index.blocks.cases import (
    KERNELS,
    KINDS,
    METRICS,
    SCALES,
    Case,
    f32,
    native_blocks,
    random_case,
    seeds,
    specified_blocks,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore::RuntimeWarning"
)  # overflow and 0 / 0 are part of the specification


def same(native: _native.Blocks, blocks: list[spec.Block]) -> None:
    for got, expected in zip(native.to_arrays(), spec.arrays_of(blocks), strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)


def cases(draw, most: int = 300) -> tuple[np.random.Generator, Case]:
    rng = np.random.default_rng(draw(seeds))
    learned = draw(st.booleans())
    return rng, random_case(
        rng,
        draw(st.sampled_from(METRICS)),
        draw(st.sampled_from(KINDS)),
        draw(st.sampled_from(SCALES)),
        n=draw(st.integers(0, 40 if learned else most)),
        d=draw(st.one_of(st.integers(1, 300), st.sampled_from([1, 7, 8, 63, 64, 65, 127, 256, 257]))),
        n_lists=draw(st.integers(1, 12)),
        n_bits=32 * draw(st.integers(1, 8)),
        learned=learned,
        n_reduced=draw(st.none() | st.integers(1, 70)),
    )


@given(st.data())
@settings(max_examples=CASES)
def test_blocks_hold_the_bytes_of_the_specification(data):
    rng, case = cases(data.draw)
    expected = specified_blocks(case)
    for kernel in KERNELS:
        same(native_blocks(case, kernel, int(rng.integers(1, 3))), expected)


@given(st.data())
@settings(max_examples=CASES // 2)
def test_batches_and_removals_change_the_blocks_as_specified(data):
    rng, case = cases(data.draw)
    n = len(case.vectors)
    slots = rng.permutation(n).astype(np.uint32)
    for kernel in KERNELS:
        native, blocks = _native.Blocks(case.native_space()), []
        for part in np.array_split(np.arange(n), 5):
            arguments = case.vectors[part], case.lists[part], slots[part]
            native = native.with_documents(*arguments, 1, kernel)
            blocks = spec.with_documents(case.space, blocks, *arguments)
            removed = rng.random(n) < 0.2
            native = native.without(removed.view(np.uint8))
            blocks = spec.without_documents(blocks, removed)
        same(native, blocks)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("sizes", [[2047, 1, 1], [2048, 1], [255, 1, 1, 1800], [4500, 100, 3000], [1, 4097]])
def test_lists_of_more_than_a_block(kernel, sizes):
    rng = np.random.default_rng(sum(sizes))
    case = random_case(rng, "euclidean", n=sum(sizes), d=3, n_lists=2, n_bits=32)
    case.lists[:] = 1
    native, blocks = _native.Blocks(case.native_space()), []
    slots = np.arange(len(case.vectors), dtype=np.uint32)
    for part in np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1]):
        arguments = case.vectors[part], case.lists[part], slots[part]
        native = native.with_documents(*arguments, 2, kernel)
        blocks = spec.with_documents(case.space, blocks, *arguments)
    same(native, blocks)
    assert len(blocks) == -(-sum(sizes) // 2048)


@given(st.data())
@settings(max_examples=CASES // 2)
def test_the_nearest_list_is_the_one_with_the_best_routing_score(data):
    _, case = cases(data.draw)
    space = case.space
    vectors = np.vstack([space.reduced(case.queries), space.routing])  # centroids, also equal ones
    expected = np.argmax(space.route(vectors), axis=1)
    for kernel in KERNELS:
        lists = np.full(len(vectors), -1, np.int32)
        _native.Router(space.routing, space.routing_bias).nearest(vectors, lists, 2, kernel)
        np.testing.assert_array_equal(lists, expected)


@pytest.mark.parametrize("kernel", KERNELS)
def test_65536_lists(kernel):
    rng = np.random.default_rng(0)
    centroids = rng.normal(size=(65536, 2)).astype(f32)
    centroids[-1] = 10, 10
    router = _native.Router(centroids, np.zeros(65536, f32))
    lists = np.empty(1, np.int32)
    router.nearest(np.ones((1, 2), f32), lists, 1, kernel)
    assert lists == 65535


# Arrays ------------------------------------------------------------------------------------------------


@pytest.fixture
def case() -> Case:
    return random_case(np.random.default_rng(1), "euclidean", n=700, n_lists=3)


def test_arrays_come_back_as_the_same_blocks(case, tmp_path):
    native = native_blocks(case, KERNELS[0]).without(np.arange(700, dtype=np.uint8) % 2)
    arrays = native.to_arrays()
    for i, array in enumerate(arrays):
        np.save(tmp_path / f"{i}.npy", array)
    maps = [np.load(tmp_path / f"{i}.npy", mmap_mode="r") for i in range(4)]
    opened = _native.Blocks.from_arrays(case.native_space(), *maps, native.n_stored)
    del maps
    for got, expected in zip(opened.to_arrays(), arrays, strict=True):
        np.testing.assert_array_equal(got, expected)
    more = case.vectors, case.lists, np.arange(700, 1400, dtype=np.uint32)
    same(
        opened.with_documents(*more, 1, KERNELS[0]),
        spec.with_documents(
            case.space, spec.without_documents(specified_blocks(case), np.arange(700) % 2 == 1), *more
        ),
    )


def test_no_blocks_as_arrays(case):
    memory, table, groups, live = _native.Blocks(case.native_space()).to_arrays()
    assert (memory.shape, table.shape, groups.shape, live.shape) == ((0,), (0, 3), (0, 24), (0,))
    same(_native.Blocks.from_arrays(case.native_space(), memory, table, groups, live, 20), [])


def table_with(row: int, column: int, value: int):
    def change(memory, table, groups, live):
        table[row, column] = value
        return memory, table, groups, live

    return change


LIES = {
    "a block begins before the memory": table_with(0, 0, -64),
    "a block begins between two lines": table_with(0, 0, 4),
    "a block begins inside the one before": table_with(1, 0, 64),
    "a block ends after the memory": table_with(2, 0, 2**40),
    "a block begins beyond all integers": table_with(2, 0, 2**63 - 64),
    "a list below the first": table_with(0, 1, -1),
    "a list beyond the last": table_with(2, 1, 3),
    "lists that do not ascend": table_with(2, 1, 0),
    "a block without documents": table_with(1, 2, 0),
    "more documents than fit into a block": table_with(1, 2, 2049),
    "more documents than the memory holds": table_with(2, 2, 2048),
    "fewer documents than are live": table_with(2, 2, 10),
    "memory too short": lambda memory, *rest: (memory[:-64].copy(), *rest),
    "memory at an odd address": lambda memory, *rest: (np.append(memory, memory[:1])[1:], *rest),
    "lengths for fewer blocks": lambda *a: (a[0], a[1], a[2][1:], a[3]),
    "lengths for fewer groups": lambda *a: (a[0], a[1], a[2][:, 1:].copy(), a[3]),
    "an offset that is not a number": lambda *a: (
        a[0],
        a[1],
        np.where(np.arange(24) == 2, f32(np.nan), a[2]),
        a[3],
    ),
    "a length of zero": lambda *a: (a[0], a[1], 0 * a[2], a[3]),
    "a length that is no number": lambda *a: (a[0], a[1], np.nan * a[2], a[3]),
    "a shortest length above the longest": lambda *a: (a[0], a[1], a[2][:, ::-1].copy(), a[3]),
    "an infinite length": lambda *a: (a[0], a[1], np.inf * a[2], a[3]),
    "too few words of live documents": lambda *a: (*a[:3], a[3][:-1]),
    "too many words of live documents": lambda *a: (*a[:3], np.append(a[3], np.uint64(0))),
    "live documents after the last": lambda *a: (*a[:3], np.full_like(a[3], 2**64 - 1)),
}


@pytest.mark.parametrize("lie", LIES)
def test_arrays_that_lie_are_refused(case, lie):
    arrays = native_blocks(case, KERNELS[0]).to_arrays()
    _native.Blocks.from_arrays(case.native_space(), *arrays, 20)
    with pytest.raises(ValueError, match="arrays"):
        _native.Blocks.from_arrays(case.native_space(), *LIES[lie](*(array.copy() for array in arrays)), 20)


@pytest.mark.parametrize("n_stored", [0, 19, 21, 63, 65])
def test_columns_that_lie_are_refused(case, n_stored):
    arrays = native_blocks(case, KERNELS[0]).to_arrays()
    with pytest.raises(ValueError, match="arrays: columns"):
        _native.Blocks.from_arrays(case.native_space(), *arrays, n_stored)


# Other lists ----------------------------------------------------------------------------------------------


def test_documents_are_counted_by_list(case):
    blocks = native_blocks(case, KERNELS[0])
    list_of = np.empty(len(case.vectors), np.int32)
    blocks.lists_of_slots(list_of)
    n_lists = len(case.space.centroids)
    live, stored = blocks.count_documents()
    np.testing.assert_array_equal(live, np.bincount(list_of[list_of >= 0], minlength=n_lists))
    np.testing.assert_array_equal(stored, np.bincount(case.lists, minlength=n_lists))
    chosen = np.arange(n_lists, dtype=np.int32)[::-2].copy()
    slots = blocks.slots_of_lists(chosen)
    np.testing.assert_array_equal(list_of[slots], np.repeat(chosen, live[chosen]))
    assert len(np.unique(slots)) == len(slots)


def test_rearranged_blocks_are_those_of_the_source_lists(case):
    blocks, space = native_blocks(case, KERNELS[0]), case.native_space()
    n_lists = len(case.space.centroids)
    sources = np.arange(n_lists, dtype=np.int32)[::-1].copy()
    sources[0] = -1
    moved = blocks.rearranged(space, sources)
    before, after = blocks.count_documents(), moved.count_documents()
    np.testing.assert_array_equal(after, np.where(sources >= 0, before[:, sources], 0))
    for number, source in enumerate(sources.tolist()[1:], 1):
        found = moved.slots_of_lists(np.array([number], np.int32))
        np.testing.assert_array_equal(found, blocks.slots_of_lists(np.array([source], np.int32)))
    back = moved.rearranged(space, sources)  # without the last list
    np.testing.assert_array_equal(back.count_documents()[:, :-1][:, 1:], before[:, 1:-1])


def test_wrong_lists_are_refused(case):
    blocks, space = native_blocks(case, KERNELS[0]), case.native_space()
    n_lists = len(case.space.centroids)
    for wrong in (-1, n_lists):
        with pytest.raises(ValueError, match="slots_of_lists: lists"):
            blocks.slots_of_lists(np.array([0, wrong], np.int32))
    with pytest.raises(ValueError, match="rearranged: lists"):
        blocks.rearranged(space, np.full(n_lists, n_lists, np.int32))
    with pytest.raises(ValueError, match="rearranged: shapes"):
        blocks.rearranged(space, np.zeros(n_lists + 1, np.int32))
