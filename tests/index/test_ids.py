"""Ids up to the largest int64: none is negative, none is given twice, all can be saved."""

from __future__ import annotations

import numpy as np
import pytest

import posh
from tests.conftest import clusters

LAST = 2**63 - 1
DATA = clusters(40, 8)
MORE = clusters(43, 8)
HASHER = posh.LSH(12, random_state=0).fit(DATA)


def reloaded(index: posh.CodeIndex, folder) -> posh.CodeIndex:
    index.save(folder)
    return posh.CodeIndex.load(folder)


@pytest.mark.parametrize("last", [LAST, LAST - 1])
def test_an_index_with_the_largest_id_can_be_saved(tmp_path, last):
    index = posh.CodeIndex(HASHER).add(DATA[:2], ids=[5, last])
    loaded = reloaded(index, tmp_path / "index")
    assert loaded.ids.tolist() == [5, last]
    assert loaded.delete([last]).add(DATA[:1], ids=[7]).ids.tolist() == [5, 7]


@pytest.mark.parametrize("saved", [False, True])
def test_no_automatic_id_after_the_largest(tmp_path, saved):
    index = posh.CodeIndex(HASHER).add(DATA[:2], ids=[5, LAST])
    if saved:
        index = reloaded(index, tmp_path / "index")
    with pytest.raises(ValueError, match=r"expected room for 3 more automatic ids .* give ids yourself"):
        index.add(DATA[:3])
    with pytest.raises(ValueError, match="automatic ids"):
        index.delete([LAST]).compact().add(DATA[:1])  # an id is not given twice
    assert index.add(DATA[:3], ids=[0, 1, 2]).ids.tolist() == [5, 0, 1, 2]


def test_automatic_ids_up_to_the_end(tmp_path):
    index = posh.CodeIndex(HASHER).add(DATA[:1], ids=[LAST - 4])
    with pytest.raises(ValueError, match="automatic ids"):
        index.add(DATA[:4])
    index = reloaded(index.add(DATA[:3]), tmp_path / "index")
    assert index.ids.tolist() == [LAST - 4, LAST - 3, LAST - 2, LAST - 1]
    with pytest.raises(ValueError, match="automatic ids"):
        index.add(DATA[:1])
    assert len(index.add(DATA[:0])) == 4
    assert index.search(DATA[0], 4).ids.min() == LAST - 4


def test_whether_an_id_is_present_is_looked_up_in_the_table(monkeypatch):
    """Not by comparing it with all ids, which takes as long as there are documents."""
    index = posh.CodeIndex(HASHER).add(DATA, ids=np.arange(100, 140))
    index.delete([110]).update(DATA[:1], [130])
    monkeypatch.setattr(posh.Index, "ids", None)
    assert 100 in index
    assert np.int64(130) in index
    assert 101.0 in index
    for absent in (110, 50, -1, 10**30, "a", None, 100.5):
        assert absent not in index
    assert 0 not in posh.CodeIndex(HASHER)


@pytest.mark.parametrize("kind", [posh.Index, lambda: posh.CodeIndex(HASHER)])
def test_ids_that_are_slots_take_no_memory(kind, tmp_path):
    automatic, given = kind().add(MORE[:40]), kind().add(MORE[:40], np.arange(40) + 1)
    used = [index.memory_usage()["ids"] for index in (automatic, given)]
    assert used == [40, 40 * 9]
    automatic.save(tmp_path)
    for index in (automatic, type(automatic).load(tmp_path)):
        assert index.ids.tolist() == list(range(40))
        assert index.memory_usage()["ids"] == 40
        assert index.search(MORE[:1], 1).ids.tolist() == [[0]]
        assert index.add(MORE[40:42], [90, 91]).ids.tolist() == [*range(40), 90, 91]
        assert index.memory_usage()["ids"] >= 42 * 9
        assert index.add(MORE[42:43], ["x"]).ids.tolist() == [*range(40), 90, 91, "x"]


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.int8])
def test_filters_of_ids_that_are_slots(dtype):
    index = posh.Index().add(MORE[:40]).delete([39, 3])
    wanted = np.array([1, 2, 3, 38, 39, 40, 100], dtype)
    assert set(index.search(MORE[:1], 40, filter=wanted).ids[0].tolist()) == {1, 2, 38, -1}
    mask = np.isin(np.arange(101), wanted)
    for n in (39, 40, 41, 101):
        assert set(index.search(MORE[:1], 40, filter=mask[:n]).ids[0].tolist()) == {1, 2, 38, -1}
    with pytest.raises(ValueError, match=r"expected a mask longer than the largest id \(38\), got length 38"):
        index.search(MORE[:1], 40, filter=mask[:38])
    if dtype != np.uint64:
        found = index.search(MORE[:1], 40, filter=np.array([-1, -40, 5], dtype)).ids[0].tolist()
        assert set(found) == {5, -1}
