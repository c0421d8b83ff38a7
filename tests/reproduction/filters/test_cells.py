"""Filters leave the stated share, near the query or far from it, and the truth is that of brute force."""

from __future__ import annotations

import numpy as np
import pytest

from posh_reproduction.ann.cases import Case, Prepared, _true
from posh_reproduction.filters.cells import RELATIONS, SHARES, Cell, FilteredData

N, M = 5000, 30


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> FilteredData:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POSH_DATA", str(tmp_path_factory.mktemp("data")))
        rng = np.random.default_rng(0)
        centres = 3 * rng.normal(size=(20, 8))
        X = (centres[rng.integers(20, size=N + 2 * M)] + rng.normal(size=(N + 2 * M, 8))).astype(np.float32)
        base, queries = X[:N], {"choose": X[N : N + M], "report": X[N + M :]}
        true = {half: _true(base, asked, half) for half, asked in queries.items()}
        return FilteredData(Prepared(Case("toy", "toy", "euclidean"), base, queries, true, "toy"), M - 5)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("relation", RELATIONS)
def test_the_stated_share_of_the_documents_passes(data, relation, share):
    filters = data.filters(relation, share)
    assert len(filters) == len(data.queries("report")) == M - 5
    for chosen in filters:
        assert np.count_nonzero(chosen.mask) == max(1, round(share * N))
        np.testing.assert_array_equal(chosen.mask, data.columns[chosen.column] < chosen.bound)
        assert sorted(data.columns[chosen.column]) == list(range(N))


def test_filters_are_near_the_query_or_far_from_it(data):
    queries = data.queries("report")
    far_off = {
        relation: np.mean(
            [
                np.linalg.norm(data.base[chosen.mask] - query, axis=1).mean()
                for chosen, query in zip(data.filters(relation, 0.04), queries, strict=True)
            ]
        )
        for relation in RELATIONS
    }
    assert far_off["correlated"] < 0.7 * far_off["independent"]
    assert far_off["anti-correlated"] > 1.2 * far_off["independent"]
    for relation in RELATIONS[1:]:
        for chosen, query in zip(data.filters(relation, 0.04), queries, strict=True):
            distances = np.linalg.norm(data.centres - query, axis=1)
            place = distances.argmin() if relation == "correlated" else distances.argmax()
            own = np.linalg.norm(data.base - data.centres[place], axis=1)
            assert own[chosen.mask].max() <= own[~chosen.mask].min() * (1 + 1e-5)


@pytest.mark.parametrize("k", [10, 100])
@pytest.mark.parametrize("share", [0.5, 0.01, 0.001])
@pytest.mark.parametrize("relation", RELATIONS)
def test_recall_is_that_of_brute_force(data, relation, share, k):
    cell, queries = Cell(relation, share, k), data.queries("report")
    filters = data.filters(relation, share)
    best = np.full((len(queries), k), -1)
    for row, (chosen, query) in enumerate(zip(filters, queries, strict=True)):
        passing = np.flatnonzero(chosen.mask)
        order = np.argsort(((data.base[passing].astype(np.float64) - query) ** 2).sum(axis=1))[:k]
        best[row, : len(order)] = passing[order]
    n_true = min(k, max(1, round(share * N)))
    assert data.recall(cell, best).tolist() == [1.0] * len(queries)
    half = np.where(np.arange(k) < n_true // 2, best, -1)
    np.testing.assert_allclose(data.recall(cell, half), (n_true // 2) / n_true)
    twice = np.where(np.arange(k) < n_true, best[:, :1], -1)
    np.testing.assert_allclose(data.recall(cell, twice), 1 / n_true)
    others = np.array([np.flatnonzero(~chosen.mask)[:k] for chosen in filters])
    assert not data.recall(cell, others).any()  # they do not pass


def test_without_a_filter_all_neighbours_count(data):
    queries = data.queries("choose")
    distances = np.linalg.norm(queries[:, None] - data.base[None], axis=2)
    best = np.argsort(distances, axis=1)[:, :10]
    assert data.unfiltered_recall(10, best, "choose") == 1.0
    assert data.unfiltered_recall(10, np.where(np.arange(10) < 4, best, -1), "choose") == pytest.approx(0.4)
