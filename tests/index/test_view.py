"""Views: moments of an index that nothing can change, and that can be built again alike."""

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


def test_a_view_stays_as_it_is():
    index = posh.Index(SPARSE).add(DATA[:300])
    view = index.view()
    before = view.search(DATA[:20], 30)
    index.remove([1, 2]).add(DATA[300:]).update([7], DATA[:1]).compact()
    same(view.search(DATA[:20], 30), before)
    assert len(view) == 300
    assert index.search(DATA[:20], 30).ids.max() > 300


@pytest.mark.parametrize("kind", list(KINDS))
def test_built_again_from_codes_and_knowledge_in_other_batches(kind, monkeypatch):
    hasher, options = KINDS[kind]
    index = posh.Index(hasher, **options).add(DATA[:700])
    for start in range(700, 1200, 7):
        index.add(DATA[start : start + 7])
    index.remove(np.arange(0, 1200, 3))
    ids, view = index.ids, index.view()
    codes = view.encode(DATA[ids])
    again = posh.Index(hasher, **options).view().taught(view.knowledge())
    monkeypatch.setattr(type(hasher), "encode", None)  # codes that are given are not computed
    for start in range(0, len(ids), 333):
        rows = slice(start, start + 333)
        X = DATA[ids[rows]] if view.needs_vectors else None
        again = again.with_documents(ids[rows], X, codes[rows])
    monkeypatch.undo()
    same(again.search(DATA[:50], 20), index.search(DATA[:50], 20))
    assert len(again) == len(index)
    assert view.learns is bool(view.knowledge())


def test_learning_for_more_documents_than_are_shown():
    view = posh.Index(SPARSE, structure="ivf").view()
    assert view.learned(DATA, 50_000).knowledge()["centroids"].shape == (50, 8)
    assert view.learned(DATA).knowledge()["centroids"].shape == (2, 8)


@pytest.mark.parametrize("knowledge", [{}, {"centroids": np.zeros((3, 7), np.float32)}])
def test_knowledge_of_another_kind_is_refused(knowledge):
    with pytest.raises((KeyError, ValueError)):
        posh.Index(SPARSE, structure="ivf").view().taught(knowledge)


def test_scoring_of_one_search():
    index = posh.Index(SPARSE).add(DATA)
    asymmetric = posh.Index(SPARSE, scoring="asymmetric").add(DATA)
    same(index.search(DATA[:9], 5, scoring="asymmetric"), asymmetric.search(DATA[:9], 5))
    same(asymmetric.search(DATA[:9], 5, scoring="overlap"), index.search(DATA[:9], 5))
    with pytest.raises(ValueError, match="expected scoring to be one of 'overlap', 'asymmetric', got 'x'"):
        index.search(DATA, scoring="x")
    with pytest.raises(ValueError, match="scoring='asymmetric' needs sparse codes, got LSH: leave it out"):
        posh.Index(DENSE).search(DATA, scoring="asymmetric")


def test_there_are_no_more_lists_than_documents():
    """65,536 lists of 30 documents would take memory for nothing."""
    X = np.random.default_rng(0).normal(size=(30, 8))
    hasher = posh.FruitFly(64, 4, random_state=0).fit(X)
    index = posh.Index(hasher, structure="ivf", n_lists=65_536, n_probe=65_536).add(X)
    assert len(index.view().state.structure.centroids) == 30
    assert (index.search(X, 1).scores[:, 0] == 4).all()
