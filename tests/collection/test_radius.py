"""Range searches and duplicates of collections: in a folder, of a service, and of other engines."""

from __future__ import annotations

import numpy as np
import pytest

import posh
from posh.collection.base import DUPLICATES
from tests.collection.implementations import SPARSE, Implementation
from tests.collection.reference import ReferenceCollection
from tests.conftest import clusters
from tests.serve.service import create_remote

X = clusters(3000, 12, n_clusters=60).astype(np.float32)
IDS = [f"i{i}" if i % 2 else i for i in range(len(X))]
PAYLOADS = [{"n": i, "third": i % 3 == 0} for i in range(len(X))]
SCORES = (X @ X.T) / np.linalg.norm(X, axis=1)[:, None] / np.linalg.norm(X, axis=1)
BOUND = 0.99


@pytest.fixture(scope="module", params=["embedded", "remote"])
def items(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("radius")
    create = posh.Collection if request.param == "embedded" else create_remote
    collection = Implementation(request.param, create).create(folder / "items", metric="cosine", recall=0.95)
    with collection:
        yield collection.upsert(IDS, X, PAYLOADS)


def expected(row, chosen):
    found = np.flatnonzero((SCORES[row] >= BOUND) & chosen)
    return {IDS[i] for i in found}


def test_hits_with_payloads_and_vectors(items):
    hits = items.search_radius(X[:20], min_score=BOUND, payloads=True, vectors=True, exact=True)
    assert len(hits) == 20
    for row in range(20):
        assert {hit.id for hit in hits[row]} == expected(row, np.ones(len(X), bool))
        for hit in hits[row]:
            place = IDS.index(hit.id)
            assert hit.payload == PAYLOADS[place]
            np.testing.assert_array_equal(hit.vector, X[place])
            assert hit.score == pytest.approx(SCORES[row, place], abs=1e-5)
    assert hits.kind == "cosine"
    assert "third" in hits.to_pandas()
    bare = items.search_radius(X[0], min_score=BOUND)
    assert bare[0][0].payload is None


def test_filters_limits_and_recall(items):
    third = np.arange(len(X)) % 3 == 0
    hits = items.search_radius(X[:9], min_score=BOUND, filter={"third": True}, exact=True)
    assert [{hit.id for hit in hits[row]} for row in range(9)] == [expected(row, third) for row in range(9)]
    cut = items.search_radius(X[:9], min_score=BOUND, limit=2)
    assert (cut.counts <= 2).all()
    assert cut.is_cut.any()
    some = items.search_radius(X[:200], min_score=BOUND, recall=0.9)
    shares = [
        len({hit.id for hit in some[row]} & true) / len(true)
        for row in range(200)
        if (true := expected(row, True))
    ]
    assert np.mean(shares) > 0.89
    with pytest.raises(ValueError, match="min_score"):
        items.search_radius(X[:2], min_score=np.nan)
    with pytest.raises(ValueError, match="12 columns"):
        items.search_radius(X[:2, :5], min_score=0.5)


def test_duplicates(items):
    bound = float(np.sort(SCORES[np.triu_indices(len(X), 1)])[-200]) - 1e-6
    found = items.duplicates(min_score=bound, exact=True, limit=20)
    left, right = np.nonzero(np.triu(bound <= SCORES, 1))
    assert {frozenset(pair) for pair in found.pairs.tolist()} == {
        frozenset((IDS[a], IDS[b])) for a, b in zip(left.tolist(), right.tolist(), strict=True)
    }
    assert not found.is_cut
    assert sum(map(len, found.groups)) == len({*left, *right})
    some = items.duplicates(min_score=bound, filter={"third": True}, limit=20)
    assert all(IDS.index(item) % 3 == 0 for pair in some.pairs.tolist() for item in pair)
    with pytest.raises(ValueError, match="limit"):
        items.duplicates(min_score=0.9, limit=0)


def test_an_empty_collection(tmp_path):
    with posh.create(tmp_path, metric="cosine") as empty:
        assert len(empty.search_radius([[1.0, 0.0]], min_score=0.5).ids) == 0
        assert len(empty.duplicates(min_score=0.5)) == 0
        empty.upsert(["a"], [[1.0, 0.0]])
        empty.delete(["a"])
        assert len(empty.search_radius([[1.0, 0.0]], min_score=0.5).ids) == 0


def test_collections_without_a_metric(tmp_path):
    with posh.Collection(tmp_path / "codes", SPARSE) as codes:
        for call in (codes.duplicates, lambda min_score: codes.search_radius(X[:1, :8], min_score=min_score)):
            with pytest.raises(ValueError, match="metric for a range search, got one with a hasher"):
                call(min_score=0.5)
    with pytest.raises(ValueError, match="got neither"), posh.Collection(tmp_path / "none") as none:
        none.duplicates(min_score=0.5)


def test_engines_without_range_search():
    with pytest.raises(ValueError, match="in a folder or of a service"):
        ReferenceCollection(metric="cosine").upsert([1], [[1.0, 2.0]]).search_radius(
            [[1.0, 2.0]], min_score=0.5
        )


def test_the_service_limits_hits(tmp_path):
    remote = create_remote(tmp_path / "same", metric="cosine")
    remote.upsert(range(1500), np.ones((1500, 2), np.float32))
    hits = remote.search_radius([[1.0, 1.0]], min_score=0.9)
    assert hits.counts.tolist() == [1000]
    assert hits.is_cut.all()
    with pytest.raises(ValueError, match="hits of all queries"):
        remote.search_radius(np.ones((200, 2)), min_score=0.9, limit=900)
    found = remote.duplicates(min_score=0.9)
    assert found.is_cut
    assert len(found.groups) == 1
    assert len(found) >= DUPLICATES
