"""Built indexes on disk: found by later runs, deleted if not needed, in memory only as long as they fit."""

from __future__ import annotations

import numpy as np
import pytest

from posh_reproduction.ann.cases import Case, Prepared
from posh_reproduction.ann.indexes import Indexes

from .stubs import Stub, never

STUB = Stub("stub", [{}], never)
BUILDS = [{"size": 1}, {"size": 2}]


@pytest.fixture
def data(tmp_path, monkeypatch) -> Prepared:
    monkeypatch.setenv("POSH_DATA", str(tmp_path / "data"))
    base = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    return Prepared(Case("toy", "toy", "euclidean"), base, {}, {}, "content")


def add_both(indexes, data):
    return [indexes.add(STUB, build, STUB.build(data.base, "euclidean", 1)) for build in BUILDS]


def test_an_index_is_found_by_a_later_run_of_the_same_version_only(data):
    sizes = add_both(Indexes(data, {"stub": "1"}), data)
    assert sizes[0] >= data.base.nbytes
    found = Indexes(data, {"stub": "1"}).find(STUB, BUILDS[0])
    assert found.searching(1, 1)(data.base[:5]).ravel().tolist() == [0, 1, 2, 3, 4]
    other = Indexes(data, {"stub": "2"})
    assert other.find(STUB, BUILDS[0]) is None
    other.add(STUB, BUILDS[0], STUB.build(data.base, "euclidean", 1))
    assert Indexes(data, {"stub": "1"}).find(STUB, BUILDS[0]) is None  # the older is deleted
    assert Indexes(data, {"stub": "1"}).find(STUB, BUILDS[1]) is not None


def test_only_what_fits_is_held_in_memory(data):
    for budget, is_held in ((1e9, True), (1000, False)):
        indexes = Indexes(data, {"stub": "1"}, budget)
        add_both(indexes, data)
        first = indexes.find(STUB, BUILDS[0])
        indexes.find(STUB, BUILDS[1])
        assert (indexes.find(STUB, BUILDS[0]) is first) == is_held


def test_indexes_that_are_not_kept_are_deleted(data):
    indexes = Indexes(data, {"stub": "1"})
    add_both(indexes, data)
    indexes.keep(STUB, BUILDS[:1])
    assert indexes.find(STUB, BUILDS[0]) is not None
    assert indexes.find(STUB, BUILDS[1]) is None
