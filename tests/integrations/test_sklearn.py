"""The transformer for scikit-learn: its checks, its exact neighbours, its pipelines."""

from __future__ import annotations

import pickle
import warnings
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import neighbors
from sklearn.base import clone
from sklearn.cluster import DBSCAN
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError, SkipTestWarning
from sklearn.manifold import TSNE, Isomap, trustworthiness
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from posh.integrations.sklearn import KNeighborsTransformer, RadiusNeighborsTransformer
from tests.conftest import clusters

METRICS = ["euclidean", "cosine"]
FEW, MANY = 500, 3000  # vectors: compared one by one, and searched through lists


@parametrize_with_checks(
    [
        KNeighborsTransformer(n_neighbors=2),
        KNeighborsTransformer(n_neighbors=2, mode="connectivity", metric="cosine"),
        RadiusNeighborsTransformer(),
        RadiusNeighborsTransformer(radius=0.5, mode="connectivity", metric="cosine"),
    ]
)
def test_scikit_learn_conventions(estimator, check):
    with warnings.catch_warnings():
        # scikit-learn's own note that a check does not apply, e.g. because pandas is not installed.
        warnings.simplefilter("ignore", category=SkipTestWarning)
        check(estimator)


def rows(graph):
    """Indices and values of a graph with as many entries in each row, (m, k)."""
    k = graph.nnz // graph.shape[0]
    assert (np.diff(graph.indptr) == k).all()
    return graph.indices.reshape(-1, k), graph.data.reshape(-1, k)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("mode", ["distance", "connectivity"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_few_vectors_give_what_scikit_learn_gives(metric, mode, dtype):
    X = clusters(FEW + 50, 16).astype(dtype)
    base, queries = X[:FEW], X[FEW:]
    ours = KNeighborsTransformer(mode=mode, n_neighbors=7, metric=metric).fit(base)
    theirs = neighbors.KNeighborsTransformer(mode=mode, n_neighbors=7, metric=metric, algorithm="brute")
    theirs.fit(base)
    for one, other in [
        (ours.transform(queries), theirs.transform(queries)),
        (ours.transform(base), theirs.transform(base)),
        (ours.kneighbors_graph(), theirs.kneighbors_graph()),
        (ours.kneighbors_graph(mode="distance"), theirs.kneighbors_graph(mode="distance")),
        (ours.kneighbors_graph(queries, 3), theirs.kneighbors_graph(queries, 3)),
    ]:
        assert one.shape == other.shape
        assert one.format == "csr"
        (indices, values), (expected, distances) = rows(one), rows(other)
        assert (np.sort(indices) == np.sort(expected)).mean() > 0.999  # equal but for ties in float32
        np.testing.assert_allclose(values, distances, rtol=1e-5, atol=1e-6)
        assert (np.diff(values) >= 0).all()
        assert (values >= 0).all()
    for one, other in [
        (ours.kneighbors(queries), theirs.kneighbors(queries)),
        (ours.kneighbors(n_neighbors=4), theirs.kneighbors(n_neighbors=4)),
    ]:
        np.testing.assert_allclose(one[0], other[0], rtol=1e-5, atol=1e-6)
        assert (one[1] == other[1]).mean() > 0.999
        assert one[0].dtype == dtype
    np.testing.assert_array_equal(
        ours.kneighbors(queries, return_distance=False), ours.kneighbors(queries)[1]
    )


MANY_VECTORS = clusters(MANY, 16)


@cache
def fitted(metric, recall, seed=0):
    return KNeighborsTransformer(n_neighbors=10, metric=metric, recall=recall, random_state=seed).fit(
        MANY_VECTORS
    )


@pytest.mark.parametrize("metric", METRICS)
def test_many_vectors_are_found_with_the_recall_that_was_asked_for(metric):
    theirs = neighbors.NearestNeighbors(n_neighbors=10, metric=metric, algorithm="brute").fit(MANY_VECTORS)
    expected, true = theirs.kneighbors()
    share = {}
    for recall in (0.5, 0.95, 0.999):
        distances, found = fitted(metric, recall).kneighbors()
        share[recall] = np.mean([len({*a} & {*b}) / 10 for a, b in zip(found, true, strict=True)])
        assert not (found == np.arange(MANY)[:, None]).any()
        assert (np.diff(distances) >= 0).all()
        same = found[:, 0] == true[:, 0]
        np.testing.assert_allclose(distances[same, 0], expected[same, 0], rtol=1e-4, atol=1e-6)
    assert share[0.95] > 0.94
    assert share[0.5] < share[0.999]


@pytest.mark.parametrize(("mode", "k"), [("distance", 6), ("connectivity", 5)])
def test_each_of_many_vectors_is_its_own_first_neighbour(mode, k):
    """Also with a recall at which searches miss some of them."""
    ours = fitted("cosine", 0.5)
    assert (ours.kneighbors(MANY_VECTORS, 6)[1] != np.arange(MANY)[:, None]).all(axis=1).any()
    graph = clone(ours).set_params(mode=mode, n_neighbors=5).fit_transform(MANY_VECTORS)
    indices, values = rows(graph)
    assert indices.shape == (MANY, k)
    np.testing.assert_array_equal(indices[:, 0], np.arange(MANY))
    assert (values[:, 0] == (mode == "connectivity")).all()
    assert (np.diff(values) >= 0).all()
    np.testing.assert_array_equal(indices[:, 1:], ours.kneighbors(n_neighbors=k - 1)[1])


def test_the_random_state_decides_which_of_many_are_found():
    one, other = (fitted("cosine", 0.5, seed).kneighbors()[1] for seed in (0, 1))
    assert (one != other).any()


@pytest.mark.parametrize("metric", METRICS)
def test_equal_vectors_are_no_neighbours_of_themselves(metric):
    X = np.repeat([[1.0, 2.0], [2.0, 1.0]], 6, axis=0)
    distances, found = KNeighborsTransformer(n_neighbors=3, metric=metric).fit(X).kneighbors()
    assert not (found == np.arange(12)[:, None]).any()
    np.testing.assert_allclose(distances, 0.0, atol=1e-6)
    assert ((found < 6) == (np.arange(12) < 6)[:, None]).all()


def test_a_zero_vector_has_cosine_distance_1():
    X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    ours = KNeighborsTransformer(n_neighbors=3, metric="cosine").fit(X)
    theirs = neighbors.NearestNeighbors(n_neighbors=3, metric="cosine").fit(X)
    np.testing.assert_allclose(ours.kneighbors(X[:1])[0], theirs.kneighbors(X[:1])[0])
    np.testing.assert_allclose(ours.kneighbors(X[:1])[0], 1.0)


def test_vectors_far_from_the_origin_keep_their_distances():
    X = clusters(FEW, 8) + 1e6
    theirs = neighbors.NearestNeighbors(n_neighbors=5, algorithm="kd_tree").fit(X)
    distances, found = KNeighborsTransformer().fit(X).kneighbors()
    np.testing.assert_allclose(distances, theirs.kneighbors()[0], rtol=1e-5)
    assert (found == theirs.kneighbors()[1]).mean() > 0.999


def test_one_more_neighbour_in_distances_than_in_connections():
    X = clusters(FEW, 8)
    graph = KNeighborsTransformer(mode="connectivity", n_neighbors=5).fit_transform(X)
    assert graph.nnz == 5 * FEW
    assert set(graph.data) == {1.0}
    assert KNeighborsTransformer(mode="connectivity", n_neighbors=1).fit_transform(X).nnz == FEW
    assert KNeighborsTransformer(n_neighbors=5).fit_transform(X).nnz == 6 * FEW


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"mode": "edges"}, ValueError, "expected mode to be one of 'distance', 'connectivity', got 'edges'"),
        ({"metric": "dot"}, ValueError, "expected metric to be one of 'euclidean', 'cosine', got 'dot'"),
        ({"n_neighbors": 0}, ValueError, "expected n_neighbors at least 1, got 0"),
        ({"n_neighbors": 2.5}, TypeError, "expected n_neighbors to be an integer, got 2.5"),
        ({"recall": 1.5}, ValueError, "recall"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_wrong_parameters_are_refused(params, error, message):
    with pytest.raises(error, match=message):
        KNeighborsTransformer(**params).fit(clusters(20, 4))


def test_more_neighbours_than_vectors_are_refused():
    X = clusters(5, 4)
    ours = KNeighborsTransformer().fit(X)
    with pytest.raises(ValueError, match="expected n_neighbors <= 5, because n_samples_fit = 5, got 6"):
        ours.transform(X)
    with pytest.raises(ValueError, match="expected n_neighbors <= 4, because n_samples_fit = 5, got 5"):
        ours.kneighbors()
    assert ours.kneighbors(X)[1].shape == (5, 5)
    with pytest.raises(ValueError, match="expected mode to be one of"):
        ours.kneighbors_graph(mode="edges")
    for ask in (KNeighborsTransformer().transform, KNeighborsTransformer().kneighbors):
        with pytest.raises(NotFittedError):
            ask(X)


def test_a_pickle_finds_the_same():
    X = clusters(FEW, 8)
    ours = KNeighborsTransformer().fit(X)
    copied = pickle.loads(pickle.dumps(ours))
    np.testing.assert_array_equal(copied.transform(X).toarray(), ours.transform(X).toarray())
    assert list(copied.get_feature_names_out()[:2]) == ["kneighborstransformer0", "kneighborstransformer1"]


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:1300], X[1300:], y[:1300], y[1300:]


@pytest.mark.parametrize("metric", METRICS)
def test_in_a_pipeline_with_classifiers_and_regressors(digits, metric):
    base, queries, base_labels, labels = digits
    for plain in (KNeighborsClassifier(), KNeighborsRegressor(weights="distance")):
        expected = clone(plain).set_params(metric=metric).fit(base, base_labels).predict(queries)
        model = make_pipeline(
            KNeighborsTransformer(n_neighbors=6, metric=metric), clone(plain).set_params(metric="precomputed")
        )
        found = model.fit(base, base_labels).predict(queries)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert np.mean(np.rint(found) == labels) > 0.8


def test_before_isomap():
    X = np.random.default_rng(0).normal(size=(300, 4))
    model = make_pipeline(KNeighborsTransformer(n_neighbors=10), Isomap(n_neighbors=10, metric="precomputed"))
    expected = Isomap(n_neighbors=10).fit(X[:280])
    error = model.fit(X[:280])[-1].reconstruction_error()
    assert error == pytest.approx(expected.reconstruction_error(), rel=1e-4)
    found = np.abs(model.transform(X[280:]))  # the signs of the axes are arbitrary
    np.testing.assert_allclose(found, np.abs(expected.transform(X[280:])), rtol=1e-3, atol=1e-3)


def test_before_tsne(digits):
    X = digits[0][:300]
    tsne = {"perplexity": 10.0, "init": "random", "random_state": 0, "max_iter": 260}
    model = make_pipeline(
        KNeighborsTransformer(n_neighbors=31), TSNE(metric="precomputed", method="barnes_hut", **tsne)
    )
    found, expected = model.fit_transform(X), TSNE(**tsne).fit_transform(X)
    ours, theirs = (trustworthiness(X, embedding, n_neighbors=10) for embedding in (found, expected))
    assert ours == pytest.approx(theirs, abs=0.02)
    assert ours > 0.9


def test_before_umap(digits):
    umap = pytest.importorskip("umap", reason="UMAP is not installed: pip install umap-learn")
    X = digits[0][:400]
    distances, indices = rows(KNeighborsTransformer(n_neighbors=14).fit_transform(X))[::-1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # UMAP's notes, e.g. that it does not use threads with a seed
        known = umap.UMAP(n_neighbors=15, precomputed_knn=(indices, distances), random_state=0, n_epochs=100)
        plain = umap.UMAP(n_neighbors=15, random_state=0, n_epochs=100)
        ours, theirs = (
            trustworthiness(X, model.fit_transform(X), n_neighbors=10) for model in (known, plain)
        )
    assert ours == pytest.approx(theirs, abs=0.02)
    assert sp.issparse(known.graph_)


# All neighbours within a radius -------------------------------------------------------------------------

RADII = {"euclidean": 3.0, "cosine": 0.02}


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("mode", ["distance", "connectivity"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_radius_of_few_vectors_gives_what_scikit_learn_gives(metric, mode, dtype):
    X = clusters(FEW + 50, 16).astype(dtype)
    base, queries = X[:FEW], X[FEW:]
    radius = RADII[metric]
    options = {"mode": mode, "radius": radius, "metric": metric}
    ours = RadiusNeighborsTransformer(**options).fit(base)
    theirs = neighbors.RadiusNeighborsTransformer(**options, algorithm="brute").fit(base)
    for one, other in [
        (ours.fit_transform(base), theirs.fit_transform(base)),
        (ours.transform(queries), theirs.transform(queries)),
        (ours.radius_neighbors_graph(), theirs.radius_neighbors_graph()),
        (ours.radius_neighbors_graph(mode="distance"), theirs.radius_neighbors_graph(mode="distance")),
        (
            ours.radius_neighbors_graph(queries, radius / 2),
            theirs.radius_neighbors_graph(queries, radius / 2),
        ),
    ]:
        assert one.shape == other.shape
        assert one.dtype == dtype
        assert one.nnz == other.nnz > 0
        assert abs(one - other).max() < 1e-5
    distances, found = ours.radius_neighbors(queries)
    for row, (near, numbers) in enumerate(zip(distances, found, strict=True)):
        assert (np.diff(near) >= 0).all()
        assert sorted(numbers) == sorted(theirs.radius_neighbors(queries[row : row + 1])[1][0])
    assert ours.radius_neighbors(return_distance=False).shape == (FEW,)


def test_a_vector_is_its_own_neighbour_within_any_radius():
    graph = RadiusNeighborsTransformer(radius=0.0).fit_transform(clusters(MANY, 16))
    assert graph.nnz == MANY
    assert (graph.indices == np.arange(MANY)).all()


@pytest.mark.parametrize("metric", METRICS)
def test_dbscan_on_the_graph(metric):
    X = clusters(MANY, 8, n_clusters=30)
    eps = {"euclidean": 1.0, "cosine": 0.004}[metric]
    graph = RadiusNeighborsTransformer(radius=eps, metric=metric, recall=0.99).fit_transform(X)
    labels = DBSCAN(eps=eps, metric="precomputed").fit_predict(graph)
    expected = DBSCAN(eps=eps, metric=metric).fit_predict(X)
    assert adjusted_rand_score(expected, labels) > 0.95
    exact = RadiusNeighborsTransformer(radius=eps, metric=metric, recall=1.0).fit_transform(X)
    assert (DBSCAN(eps=eps, metric="precomputed").fit_predict(exact) == expected).mean() > 0.999


@pytest.mark.parametrize(
    ("options", "words"),
    [({"radius": -1.0}, "radius"), ({"metric": "dot"}, "metric"), ({"mode": "x"}, "mode")],
)
def test_wrong_parameters_of_a_radius(options, words):
    with pytest.raises(ValueError, match=words):
        RadiusNeighborsTransformer(**options).fit(clusters(20, 4))
