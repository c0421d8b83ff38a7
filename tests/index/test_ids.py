"""Ids up to the largest int64: none is negative, none is given twice, all can be saved."""

from __future__ import annotations

import numpy as np
import pytest

import posh
from tests.conftest import clusters

LAST = 2**63 - 1
DATA = clusters(40, 8)
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
