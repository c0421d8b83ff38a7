"""Float16 is refused where it would lose neighbours: vectors with a large offset in common."""

from __future__ import annotations

import numpy as np
import pytest

import posh

RNG = np.random.default_rng(3)
N, D, K = 1500, 24, 10
X, QUERIES = RNG.standard_normal((N, D)), RNG.standard_normal((50, D))


def true_nearest(vectors: np.ndarray, queries: np.ndarray, metric: str) -> np.ndarray:
    """The ids of the nearest vectors, in float64."""
    if metric == "cosine":
        vectors, queries = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (vectors, queries))
    scores = queries @ vectors.T
    if metric == "euclidean":
        scores = -((queries[:, None] - vectors[None]) ** 2).sum(axis=2)
    return np.argsort(-scores, axis=1, kind="stable")[:, :K]


def share_found(index: posh.Index, vectors: np.ndarray, queries: np.ndarray, metric: str) -> float:
    found = index.search(queries, K, exact=True).ids
    true = true_nearest(vectors, queries, metric)
    return float(np.mean([np.isin(row, own).mean() for row, own in zip(found, true, strict=True)]))


@pytest.mark.parametrize(
    ("metric", "offset"),
    [("euclidean", offset) for offset in (0.0, 10.0, 1000.0)]
    + [("dot", offset) for offset in (0.0, 3.0, 10.0, 30.0)]
    + [("cosine", offset) for offset in (0.0, 1.0, 3.0, 5.0)],
)
def test_float16_finds_the_neighbours(metric, offset):
    vectors, queries = (offset + X).astype(np.float32), (offset + QUERIES).astype(np.float32)
    index = posh.Index.build(vectors, metric=metric, store="float16")
    assert share_found(index, vectors.astype(float), queries.astype(float), metric) > 0.95


@pytest.mark.parametrize("offset", [100.0, 300.0, 1000.0, -1000.0])
@pytest.mark.parametrize("metric", ["cosine", "dot"])
def test_float16_is_refused_for_a_large_offset(metric, offset):
    """Dot products found 0.63 of the neighbours, and cosines none, even with ``exact=True``."""
    with pytest.raises(ValueError, match=f"whose {metric} scores float16 tells apart.*use store='float32'"):
        posh.Index.build(offset + X, metric=metric, store="float16")


@pytest.mark.parametrize("metric", ["cosine", "dot"])
def test_the_remedies_of_the_error(metric):
    vectors, queries = (100.0 + X).astype(np.float32), (100.0 + QUERIES).astype(np.float32)
    index = posh.Index.build(vectors, metric=metric)
    assert share_found(index, vectors.astype(float), queries.astype(float), metric) > 0.99
    centred = vectors - vectors.mean(axis=0)
    index = posh.Index.build(centred, metric=metric, store="float16")
    assert share_found(index, centred.astype(float), QUERIES, metric) > 0.99


@pytest.mark.parametrize("rows", [np.full((500, 8), 100.1), np.zeros((500, 8)), np.full((3, 8), 0.3)])
@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean"])
def test_equal_vectors_and_few_are_not_refused(rows, metric):
    assert len(posh.Index.build(rows, metric=metric, store="float16")) == len(rows)


def test_a_constant_column_is_not_refused():
    """Its rounding is the same for all vectors."""
    vectors = np.hstack([X, np.full((N, 1), 1000.3)])
    index = posh.Index.build(vectors, metric="dot", store="float16")
    queries = np.hstack([QUERIES, np.ones((len(QUERIES), 1))])
    assert share_found(index, vectors, queries, "dot") > 0.95


def test_a_collection_refuses_them_and_stays_as_it_is(tmp_path):
    vectors = (100.0 + X).astype(np.float32)
    with posh.Collection(tmp_path, metric="dot", store="float16") as collection:
        with pytest.raises(ValueError, match="use store='float32'"):
            collection.upsert(range(N), vectors)
        assert collection.count() == 0
        collection.reindex(store="float32")
        collection.upsert(range(N), vectors)
        assert collection.search(vectors[:5], 1).ids.shape == (5, 1)
