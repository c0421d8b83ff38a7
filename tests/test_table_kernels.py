"""Scores by tables, Hamming distances and the choice among candidates: against plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posh import _native, kernels
from tests.conftest import CASES

KERNELS = kernels.available()
THREADS = [1, 2]

pytestmark = pytest.mark.usefixtures("fastest_again")


def best(scores: np.ndarray, slots: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k best of the candidates (m, c), by score and then by lower slot, -1 and -inf at the end."""
    missing = [(0, 0), (0, max(0, k - slots.shape[1]))]
    slots = np.pad(slots, missing, constant_values=-1)
    scores = np.where(slots < 0, -np.inf, np.pad(scores, missing))
    order = np.lexsort((slots, -scores, slots < 0), axis=1)[:, :k]
    return np.take_along_axis(slots, order, axis=1), np.take_along_axis(scores, order, axis=1)


def check(found, expected) -> None:
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])


@st.composite
def table_searches(draw):
    """Codes, tables of small integers (sums are exact, ties frequent), penalties or None, k."""
    n, m, n_bits = draw(st.integers(1, 300)), draw(st.integers(1, 4)), draw(st.integers(1, 200))
    n_active = draw(st.integers(1, n_bits))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    codes = np.sort(rng.permuted(np.tile(np.arange(n_bits), (n, 1)), axis=1)[:, :n_active], axis=1)
    tables = rng.integers(-3, 4, (m, n_bits)).astype(np.float32)
    penalty = rng.integers(0, 5, n).astype(np.float32) if draw(st.booleans()) else None
    return codes.astype(np.uint16), tables, penalty, draw(st.sampled_from([1, 5, n, n + 3])), rng


def sums(codes, tables, penalty):
    scores = tables[:, codes].sum(axis=2)
    return scores if penalty is None else scores - penalty


@pytest.mark.parametrize("n_threads", THREADS)
@pytest.mark.parametrize("kernel", KERNELS)
@settings(max_examples=CASES)
@given(search=table_searches(), fraction=st.sampled_from([None, 0.0, 0.5]))
def test_table_topk(kernel, n_threads, search, fraction):
    codes, tables, penalty, k, rng = search
    passing = np.ones(len(codes), bool) if fraction is None else rng.random(len(codes)) < fraction
    words = np.packbits(np.pad(passing, (0, -len(codes) % 64)), bitorder="little").view(np.uint64)
    kernels.use(kernel)
    found = kernels.table_topk(
        codes,
        tables,
        k,
        penalty=penalty,
        passing=None if fraction is None else words,
        n_threads=n_threads,
    )
    slots = np.where(passing, np.arange(len(codes)), -1)[None].repeat(len(tables), axis=0)
    check(found, best(sums(codes, tables, penalty), slots, k))


@pytest.mark.parametrize("n_threads", THREADS)
@settings(max_examples=CASES)
@given(search=table_searches(), n_candidates=st.integers(0, 90))
def test_scores_and_choice_of_candidates(n_threads, search, n_candidates):
    codes, tables, penalty, k, rng = search
    chosen = [rng.permutation(len(codes) + 20)[:n_candidates] for _ in tables]
    slots = np.array([np.where(row < len(codes), row, -1) for row in chosen], np.int64)
    slots = slots.reshape(len(tables), -1)
    scores = kernels.table_scores(codes, tables, slots, penalty=penalty, n_threads=n_threads)
    rows = np.arange(len(tables))[:, None]
    expected = sums(codes, tables, penalty)[rows, np.maximum(slots, 0)]
    np.testing.assert_array_equal(scores, np.where(slots < 0, -np.inf, expected))
    check(kernels.best_candidates(slots, scores, k, n_threads=n_threads), best(scores, slots, k))


def test_a_wrong_bit_in_a_mapped_code_is_never_read_at():
    codes = np.array([[0, 1], [1, 9]], np.uint16)
    scores = kernels.table_scores(codes, np.ones((1, 2), np.float32), np.array([[0, 1]]))
    assert scores.tolist() == [[2.0, -np.inf]]


@pytest.mark.parametrize("n", [1, 63, 64, 65, 500, 3000])
def test_choice_among_real_numbers(n):
    rng = np.random.default_rng(n)
    scores = rng.standard_normal((3, n)).astype(np.float32) * 10.0 ** rng.integers(-30, 30, (3, n))
    scores = scores.astype(np.float32)
    scores[:, ::7] = -0.0
    slots = rng.permuted(np.tile(np.arange(2**32 - n, 2**32), (3, 1)), axis=1)
    for k in (1, n // 2 + 1, n):
        check(kernels.best_candidates(slots, scores, k), best(scores, slots, k))


@pytest.mark.parametrize("n_threads", THREADS)
@pytest.mark.parametrize("kernel", KERNELS)
@settings(max_examples=CASES)
@given(data=st.data())
def test_hamming_topk(kernel, n_threads, data):
    n, m, n_bits = (data.draw(st.integers(1, high)) for high in (400, 4, 300))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    bits, asked = (rng.integers(0, 2, (rows, n_bits), np.uint8) for rows in (n, m))
    k = data.draw(st.sampled_from([1, 10, n + 2]))
    kernels.use(kernel)
    codes, queries = (np.packbits(part, axis=1, bitorder="little") for part in (bits, asked))
    slots, scores = kernels.hamming_topk(codes, queries, n_bits, k, n_threads=n_threads)
    equal = (bits[None] == asked[:, None]).sum(axis=2)
    expected = best(equal, np.arange(n)[None].repeat(m, axis=0), k)
    check((slots, np.where(slots < 0, -np.inf, scores)), expected)


def test_the_bindings_refuse_what_would_read_elsewhere():
    slots, scores = np.array([[0]]), np.zeros((1, 1), np.float32)
    with pytest.raises(ValueError, match="candidates: slots"):
        kernels.best_candidates(slots + 2**32, scores, 1)
    with pytest.raises(ValueError, match="candidates: shapes"):
        kernels.best_candidates(slots, np.zeros((1, 2), np.float32), 1)
    with pytest.raises(ValueError, match="tables: slots"):
        kernels.table_scores(np.zeros((1, 1), np.uint16), np.zeros((1, 4), np.float32), slots + 1)
    with pytest.raises(ValueError, match="tables: bits"):
        kernels.table_topk(np.full((1, 1), 4, np.uint16), np.zeros((1, 4), np.float32), 1)
    with pytest.raises(TypeError):
        _native.best_candidates(slots, scores.astype(np.float64), slots, scores, 1)
