"""Wide vectors: codes and 8-bit numbers of their principal components, scores of all columns."""

from __future__ import annotations

import numpy as np
import pytest

import posh
from posh.index.nearest.space import find_principal_rows
from tests.index.test_metric import plain_scores

RNG = np.random.default_rng(0)
FLAT = RNG.standard_normal((3000, 30)) @ RNG.standard_normal((30, 700))
X = (FLAT + 0.3 * RNG.standard_normal((3000, 700))).astype(np.float32)
Q = X[::30] + 0.1 * RNG.standard_normal((100, 700)).astype(np.float32)


def reduction_of(index: posh.Index) -> np.ndarray | None:
    lists = index.snapshot().lists
    return None if lists is None else lists.space.reduction


def test_rows_are_orthonormal_and_keep_most_of_the_squares():
    rows = find_principal_rows(X, np.random.default_rng(1))
    np.testing.assert_allclose(rows @ rows.T, np.eye(len(rows)), atol=1e-5)
    assert len(rows) % 64 == 0
    assert ((X @ rows.T) ** 2).sum() >= 0.9 * (X**2).sum()


def test_few_columns_and_spheres_are_not_reduced():
    rng = np.random.default_rng(1)
    assert find_principal_rows(X[:, :500], rng) is None
    assert find_principal_rows(rng.standard_normal((3000, 600)).astype(np.float32), rng) is None
    assert find_principal_rows(np.zeros((1, 600), np.float32), rng) is None


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "dot"])
@pytest.mark.parametrize("store", ["float32", "float16"])
def test_scores_are_of_all_columns_and_most_neighbours_are_found(metric, store, tmp_path):
    index = posh.Index(metric, store=store, n_lists=20).add(X)
    rows = reduction_of(index)
    assert rows is not None
    assert len(rows) < 700
    hits = index.search(Q, 10, n_probe=12)
    true = plain_scores(metric, Q, X)
    got = np.take_along_axis(true, hits.ids, axis=1)
    scale = np.abs(true).max()
    np.testing.assert_allclose(hits.scores, got, atol=(1e-5 if store == "float32" else 2e-3) * scale)
    best = np.argsort(-true, axis=1)[:, :10]
    found = np.mean(
        [len(set(a) & set(b)) / 10 for a, b in zip(hits.ids.tolist(), best.tolist(), strict=True)]
    )
    assert found > 0.9
    index.save(tmp_path / "index")
    same = posh.Index.load(tmp_path / "index").search(Q, 10, n_probe=12)
    np.testing.assert_array_equal(same.ids, hits.ids)
    np.testing.assert_array_equal(same.scores, hits.scores)


def test_without_vectors_all_columns_are_kept():
    index = posh.Index(metric="cosine", store="int8", n_lists=4).add(X)
    assert reduction_of(index) is None
