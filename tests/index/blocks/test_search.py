"""The search in blocks: every kernel, on one and two threads, equals the specification."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posh import _native
from posh.index.nearest.calibration import CountModel
from tests.conftest import CASES
from tests.index.blocks import search_specification
from tests.index.blocks import specification as spec
from tests.index.blocks.cases import (
    KERNELS,
    METRICS,
    STORED,
    Case,
    Settings,
    f32,
    native_blocks,
    native_search,
    native_settings,
    random_case,
    random_settings,
    seeds,
    specified_blocks,
    stored,
)
from tests.index.blocks.test_blocks import cases

pytestmark = pytest.mark.filterwarnings(
    "ignore::RuntimeWarning"
)  # overflow and 0 / 0 are part of the specification

NO_FILTER = np.zeros(2, np.int32)
GENEROUS = Settings(1, 16, 16, 16, 10, NO_FILTER, 1.0, 1e9, None, True)  # filters nothing


def equal_results(
    case: Case, blocks, settings: Settings, k: int, vectors, allowed=None, n_slots=None
) -> None:
    """Every kernel's results are those of the specification. Blocks: native and specified."""
    n_slots = len(case.vectors) if n_slots is None else n_slots
    ids, scores = search_specification.search(
        case.space, blocks[1], settings, case.queries, vectors, n_slots, k, allowed
    )
    for kernel in KERNELS:
        for n_threads in 1, 2:
            got = native_search(blocks[0], case, settings, k, kernel, n_threads, vectors, allowed, n_slots)
            np.testing.assert_array_equal(got[0], ids, err_msg=f"{kernel}, {n_threads} threads")
            np.testing.assert_array_equal(got[1], scores, err_msg=f"{kernel}, {n_threads} threads")


def random_filter(rng: np.random.Generator, n: int) -> np.ndarray | None:
    share = rng.choice([2.0, 0.5, 0.02, 0.0])
    return None if share > 1 else rng.random(n) < share


@given(st.data())
@settings(max_examples=2 * CASES)
def test_results_are_those_of_the_specification(data):
    rng, case = cases(data.draw)
    k = data.draw(st.one_of(st.integers(1, 20), st.integers(1, 400)))
    kinds = STORED if case.space.reduction is None else STORED[:2]  # decoding needs all columns
    vectors = stored(case, data.draw(st.sampled_from(kinds)))
    blocks = native_blocks(case, KERNELS[-1]), specified_blocks(case)
    if rng.random() < 0.3:
        removed = rng.random(len(case.vectors)) < rng.choice([0.1, 0.9, 1.0])
        blocks = blocks[0].without(removed.view(np.uint8)), spec.without_documents(blocks[1], removed)
    equal_results(
        case, blocks, random_settings(rng, case, k), k, vectors, random_filter(rng, len(case.vectors))
    )


@given(st.data())
@settings(max_examples=CASES // 5)
def test_blocks_that_grow_and_lose_documents(data):
    rng, case = cases(data.draw)
    n, k = len(case.vectors), data.draw(st.integers(1, 20))
    blocks = _native.Blocks(case.native_space()), []
    for part in np.array_split(np.arange(n, dtype=np.uint32), 4):
        arguments = case.vectors[part], case.lists[part], part
        blocks = (
            blocks[0].with_documents(*arguments, 1, KERNELS[-1]),
            spec.with_documents(case.space, blocks[1], *arguments),
        )
        removed = rng.random(n) < 0.3
        blocks = blocks[0].without(removed.view(np.uint8)), spec.without_documents(blocks[1], removed)
        equal_results(case, blocks, random_settings(rng, case, k), k, case.vectors)


@given(seed=seeds, metric=st.sampled_from(METRICS))
@settings(max_examples=max(2, CASES // 25))
def test_lists_of_several_blocks(seed, metric):
    rng = np.random.default_rng(seed)
    case = random_case(rng, metric, n=5000, d=5, n_lists=2, n_bits=64)
    blocks = native_blocks(case, KERNELS[-1]), specified_blocks(case)
    few = np.arange(5000) % 1000 == 7
    for by_list in True, False:
        chosen = replace(
            random_settings(rng, case, 10),
            by_list=by_list,
            n_plus=32,
            n_minus=32,
            n_scanned=case.space.n_bits,
            thresholds=CountModel(32, 32, case.space.n_bits, 0.5).thresholds(1.5),
            threshold_scale=128 / CountModel(32, 32, case.space.n_bits, 0.5).reach,
        )
        equal_results(case, blocks, chosen, 10, case.vectors)
        equal_results(case, blocks, chosen, 10, case.vectors, few)


@given(st.data())
@settings(max_examples=CASES)
def test_samples_are_those_of_the_specification(data):
    rng, case = cases(data.draw)
    native, blocks = native_blocks(case, KERNELS[-1]), specified_blocks(case)
    if not blocks:
        return
    chosen = random_settings(rng, case, 1)
    expected = search_specification.sample_counts(case.space, blocks, chosen, case.queries, 7, 3)
    for kernel in KERNELS:
        got = np.zeros((2, len(case.queries), 7), f32)
        native.sample_counts(native_settings(chosen), case.queries, 3, got[0], got[1], kernel)
        np.testing.assert_array_equal(got, expected, err_msg=kernel)


# Properties without the specification ------------------------------------------------------------------


@given(st.data())
@settings(max_examples=CASES)
def test_without_filters_the_results_are_those_of_brute_force(data):
    rng, case = cases(data.draw)
    n, k = len(case.vectors), data.draw(st.integers(1, 30))
    allowed = random_filter(rng, n)
    passing = np.arange(n) if allowed is None else np.flatnonzero(allowed)
    chosen = replace(
        GENEROUS,
        n_probe=len(case.space.centroids),
        n_keep=max(n, k),
        by_list=bool(rng.random() < 0.5),
    )
    native = native_blocks(case, KERNELS[-1])
    for kernel in KERNELS:
        ids, scores = native_search(native, case, chosen, k, kernel, vectors=case.vectors, allowed=allowed)
        for i, query in enumerate(case.queries):
            exact = search_specification.last_scores(case.vectors[passing], query, case.space.is_distance)
            order = np.lexsort((passing, -exact))[:k]
            assert ids[i].tolist() == passing[order].tolist() + [-1] * (k - len(order))
            np.testing.assert_array_equal(scores[i, : len(order)], exact[order])
            assert np.all(scores[i, len(order) :] == -np.inf)


@given(st.data())
@settings(max_examples=CASES)
def test_never_fewer_results_than_documents(data):
    """Whatever the settings and the first limit are: also one that no document reaches."""
    rng, case = cases(data.draw)
    n, k = len(case.vectors), data.draw(st.integers(1, 30))
    chosen = random_settings(rng, case, k)
    if rng.random() < 0.5:
        chosen = replace(chosen, first=(float(rng.choice([3e38, np.inf, np.nan, -np.inf])), 0.0))
    native = native_blocks(case, KERNELS[-1])
    allowed = random_filter(rng, n)
    n_found = n if allowed is None else int(allowed.sum())
    for kernel in KERNELS:
        ids, scores = native_search(native, case, chosen, k, kernel, vectors=case.vectors, allowed=allowed)
        assert np.all((ids >= 0).sum(axis=1) == min(n_found, k))
        assert np.all(np.isfinite(scores) == (ids >= 0))
        for row in ids:
            assert len(set(row[row >= 0].tolist())) == min(n_found, k)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("by_list", [True, False])
def test_one_document_of_ten_thousand_passes(kernel, by_list):
    rng = np.random.default_rng(0)
    case = random_case(rng, "cosine", n=10_000, d=16, n_lists=30)
    native = native_blocks(case, kernel, 2)
    allowed = np.arange(10_000) == 4321
    chosen = replace(GENEROUS, half_margin=1.5, first=(0.9, 0.0), by_list=by_list)
    ids, scores = native_search(native, case, chosen, 5, kernel, vectors=case.vectors, allowed=allowed)
    assert ids.tolist() == [[4321, -1, -1, -1, -1]] * len(case.queries)
    np.testing.assert_allclose(scores[:, 0], case.queries @ case.vectors[4321], atol=1e-6)


@pytest.mark.parametrize("kernel", KERNELS)
def test_documents_in_the_last_of_65536_lists(kernel):
    rng = np.random.default_rng(0)
    case = random_case(rng, "dot", n=40, d=3, n_lists=65536)
    case.lists[:20], case.lists[20:] = 65535, 0
    native = native_blocks(case, kernel)
    for by_list in True, False:
        for n_probe in 1, 65536:
            chosen = replace(GENEROUS, n_probe=n_probe, n_keep=40, by_list=by_list)
            ids, _ = native_search(native, case, chosen, 40, kernel, vectors=case.vectors)
            assert np.array_equal(np.sort(ids, axis=1), np.tile(np.arange(40), (len(case.queries), 1)))


@pytest.mark.parametrize("kernel", KERNELS)
def test_no_queries_and_no_documents(kernel):
    case = random_case(np.random.default_rng(0), "euclidean", n=0, n_lists=2)
    native = native_blocks(case, kernel)
    for by_list in True, False:
        chosen = replace(GENEROUS, by_list=by_list)
        ids, scores = native_search(native, case, chosen, 2, kernel, vectors=case.vectors)
        assert np.all(ids == -1)
        assert np.all(scores == -np.inf)
        none = replace(case, queries=case.queries[:0])
        assert native_search(native, none, chosen, 2, kernel, 2, vectors=case.vectors)[0].shape == (0, 2)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("by_list", [True, False])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_slots_beyond_the_vectors_are_refused(kernel, by_list, n_threads):
    """A file may hold them. The exception of a worker arrives at the caller."""
    case = random_case(np.random.default_rng(0), "dot", n_queries=200)
    native = native_blocks(case, kernel)
    chosen = replace(GENEROUS, n_probe=5, by_list=by_list)
    with pytest.raises(IndexError, match="slots"):
        native_search(native, case, chosen, 5, kernel, n_threads, case.vectors, n_slots=299)
    allowed = np.ones(299, bool)
    with pytest.raises(IndexError, match="slots"):
        native_search(native, case, chosen, 5, kernel, n_threads, case.vectors, allowed, n_slots=299)


def test_one_thread_is_the_least():
    case = random_case(np.random.default_rng(0), "dot")
    with pytest.raises(ValueError, match="documents: shapes"):
        native_blocks(case, KERNELS[0], n_threads=0)


def test_routing_of_another_shape_is_refused():
    case = random_case(np.random.default_rng(0), "dot")
    wrong = {
        "routing_bias": case.space.routing_bias[1:],
        "routing": case.space.routing[:, 1:].copy(),
        "centroids": case.space.centroids[1:],
    }
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=r"space: lists|space: columns|router: shapes"):
            _native.BlockSpace(**{**vars(case.space), name: value})
