"""Copies of an index: what happens to one is not seen by the other."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import threading

import numpy as np
import pytest

import posh
from posh.index.open import load_index
from tests.conftest import clusters

DATA = clusters(900, 8).astype(np.float32)
QUERIES = DATA[::30]
SPARSE = posh.POSH(32, 4, n_epochs=1, random_state=0).fit(DATA)
DENSE = posh.LSH(12, random_state=0).fit(DATA)
KINDS = {
    "overlap": (SPARSE, {}),
    "asymmetric": (SPARSE, {"scoring": "asymmetric"}),
    "decoder": (SPARSE, {"refine": "decoder"}),
    "sbiht": (SPARSE, {"refine": "sbiht"}),
    "ivf": (SPARSE, {"structure": "ivf", "n_lists": 5, "n_probe": 2, "refine": "cosine"}),
    "dense": (DENSE, {"refine": "vectors"}),
    "nearest": (None, {"metric": "euclidean", "n_lists": 4}),
}
WAYS = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda index: pickle.loads(pickle.dumps(index)),
}


def same(index: posh.CodeIndex, expected: posh.CodeIndex) -> None:
    assert index.ids.tolist() == expected.ids.tolist()
    for found, wanted in zip(index.search(QUERIES, 30), expected.search(QUERIES, 30), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("searched", [False, True], ids=["new", "searched"])
def test_a_copy_and_its_original_go_separate_ways(kind, way, searched, tmp_path):
    hasher, options = KINDS[kind]

    def grown(*blocks: np.ndarray) -> posh.CodeIndex:
        index = posh.Index(**options) if hasher is None else posh.CodeIndex(hasher, **options)
        index.add(DATA[:400])
        for block in blocks:
            index.add(block)
        return index

    first, mine, yours = DATA[400:420], DATA[500:600], DATA[600:650]
    original = grown(first)  # the second addition leaves spare room in the buffers
    if searched:
        original.search(QUERIES)
    other = WAYS[way](original)
    same(other, original)
    other.add(yours)
    original.add(mine)
    same(original, grown(first, mine))
    same(other, grown(first, yours))
    other.delete(np.arange(0, 400, 3)).compact().add(DATA[700:], ids=np.arange(5000, 5200))
    same(original, grown(first, mine))
    other.save(tmp_path / "other")
    same(load_index(tmp_path / "other", mmap=True), other)
    same(WAYS[way](load_index(tmp_path / "other", mmap=True)), other)


@pytest.mark.parametrize("way", list(WAYS))
def test_an_index_without_documents_can_be_copied(way):
    other = WAYS[way](posh.CodeIndex(SPARSE))
    same(other.add(DATA), posh.CodeIndex(SPARSE).add(DATA))


def test_a_copy_is_one_moment_while_others_add():
    index = posh.CodeIndex(SPARSE).add(DATA)
    stop = threading.Event()

    def add() -> None:
        while not stop.is_set():
            index.add(DATA[:10])

    thread = threading.Thread(target=add)
    thread.start()
    try:
        for _ in range(100):
            other = copy.copy(index)
            n = len(other)
            other.add(DATA[10:11])
            assert other.ids.tolist() == list(range(n + 1))
    finally:
        stop.set()
        thread.join()
    codes = SPARSE.encode(np.vstack([DATA, *[DATA[:10]] * ((len(index) - len(DATA)) // 10)]))
    np.testing.assert_array_equal(index.snapshot().structure.codes.rows, codes.active)


def test_an_index_can_be_sent_to_another_process():
    index = posh.CodeIndex(SPARSE).add(DATA)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.apply(_search, (index,))
    np.testing.assert_array_equal(found, index.search(QUERIES).ids)


def _search(index: posh.CodeIndex) -> np.ndarray:
    return index.search(QUERIES).ids
