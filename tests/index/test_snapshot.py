"""Snapshots of an index: nothing can change them, and they can be built again alike."""

from __future__ import annotations

import numpy as np
import pytest

import posh
from tests.conftest import clusters

DATA = clusters(1200, 8).astype(np.float32)
SPARSE = posh.POSH(32, 4, n_epochs=1, random_state=0).fit(DATA)
DENSE = posh.LSH(12, random_state=0).fit(DATA)
KINDS = {
    "overlap": (SPARSE, {}),
    "decoder": (SPARSE, {"refine": "decoder", "document_active": 6}),
    "sbiht": (SPARSE, {"refine": "sbiht"}),
    "cosine": (SPARSE, {"refine": "cosine"}),
    "ivf": (SPARSE, {"structure": "ivf", "n_lists": 9, "n_probe": 2}),
    "dense": (DENSE, {"refine": "vectors"}),
}


def same(found: posh.Hits, expected: posh.Hits) -> None:
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.scores, expected.scores)
    assert found.kind == expected.kind


def test_a_snapshot_stays_as_it_is():
    index = posh.CodeIndex(SPARSE).add(DATA[:300])
    snapshot = index.snapshot()
    before = snapshot.search(DATA[:20], k=30)
    index.delete([1, 2]).add(DATA[300:]).update(DATA[:1], [7]).compact()
    same(snapshot.search(DATA[:20], k=30), before)
    assert len(snapshot) == 300
    assert index.search(DATA[:20], 30).ids.max() > 300


@pytest.mark.parametrize("kind", list(KINDS))
def test_built_again_from_codes_and_trained_state_in_other_batches(kind, monkeypatch):
    hasher, options = KINDS[kind]
    index = posh.CodeIndex(hasher, **options).add(DATA[:700])
    for start in range(700, 1200, 7):
        index.add(DATA[start : start + 7])
    index.delete(np.arange(0, 1200, 3))
    ids, snapshot = index.ids, index.snapshot()
    codes = snapshot.encode(DATA[ids])
    again = posh.CodeIndex(hasher, **options).snapshot().with_trained_state(snapshot.trained_state())
    monkeypatch.setattr(type(hasher), "encode", None)  # codes that are given are not computed
    for start in range(0, len(ids), 333):
        rows = slice(start, start + 333)
        X = DATA[ids[rows]] if snapshot.needs_vectors else None
        again = again.with_documents(ids[rows], X, codes[rows])
    monkeypatch.undo()
    same(again.search(DATA[:50], k=20), index.search(DATA[:50], 20))
    assert len(again) == len(index)
    assert snapshot.needs_training is bool(snapshot.trained_state())


def test_training_for_more_documents_than_are_shown():
    snapshot = posh.CodeIndex(SPARSE, structure="ivf").snapshot()
    assert snapshot.train(DATA, 50_000).trained_state()["centroids"].shape == (50, 8)
    assert snapshot.train(DATA).trained_state()["centroids"].shape == (2, 8)


@pytest.mark.parametrize("state", [{}, {"centroids": np.zeros((3, 7), np.float32)}])
def test_a_trained_state_of_another_kind_is_refused(state):
    with pytest.raises((KeyError, ValueError)):
        posh.CodeIndex(SPARSE, structure="ivf").snapshot().with_trained_state(state)


def test_scoring_of_one_search():
    index = posh.CodeIndex(SPARSE).add(DATA)
    asymmetric = posh.CodeIndex(SPARSE, scoring="asymmetric").add(DATA)
    same(index.search(DATA[:9], 5, scoring="asymmetric"), asymmetric.search(DATA[:9], 5))
    same(asymmetric.search(DATA[:9], 5, scoring="overlap"), index.search(DATA[:9], 5))
    with pytest.raises(ValueError, match="expected scoring to be one of 'overlap', 'asymmetric', got 'x'"):
        index.search(DATA, scoring="x")
    with pytest.raises(ValueError, match="scoring='asymmetric' needs sparse codes, got LSH: leave it out"):
        posh.CodeIndex(DENSE).search(DATA, scoring="asymmetric")


def test_there_are_no_more_lists_than_documents():
    """65,536 lists of 30 documents would take memory for nothing."""
    X = np.random.default_rng(0).normal(size=(30, 8))
    hasher = posh.FruitFly(64, 4, random_state=0).fit(X)
    index = posh.CodeIndex(hasher, structure="ivf", n_lists=65_536, n_probe=65_536).add(X)
    assert len(index.snapshot().structure.lists.centroids) == 30
    assert (index.search(X, 1).scores[:, 0] == 4).all()
