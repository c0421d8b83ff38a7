"""k-means for lists: against exact k-means, and on data that is hard on it."""

from __future__ import annotations

import signal
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posh import _native, kernels
from posh._runtime import cancel_on
from posh.errors import CancelledError
from posh.index import kmeans
from tests.conftest import clusters, interrupted_after

METRICS = ["cosine", "euclidean", "dot"]
every_metric = pytest.mark.parametrize("metric", METRICS)

pytestmark = pytest.mark.usefixtures("fastest_again")


def train(X, n_lists, metric, *, seed=0, n_threads=1, **options):
    rng = np.random.default_rng(seed)
    return kmeans.train_lists(X, n_lists, metric=metric, rng=rng, n_threads=n_threads, **options)


def unit(X: np.ndarray) -> np.ndarray:
    X = X.astype(np.float64)
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-300)


def exact_lists(X: np.ndarray, centroids: np.ndarray, metric: str) -> np.ndarray:
    if metric == "cosine":
        return np.argmax(unit(X) @ unit(centroids).T, axis=1)
    C = centroids.astype(np.float64)
    return np.argmax(X.astype(np.float64) @ C.T - 0.5 * np.square(C).sum(axis=1), axis=1)


def residual(X: np.ndarray, centroids: np.ndarray, lists: np.ndarray, metric: str) -> float:
    """Mean squared distance of the vectors (their directions, for cosine) from their centroids."""
    X, C = (unit(X), unit(centroids)) if metric == "cosine" else (X, centroids)
    return float(np.square(X - C[lists], dtype=np.float64).sum(axis=1).mean())


@every_metric
@pytest.mark.parametrize("offset", [0.0, 30.0])
@pytest.mark.parametrize("scale", [1.0, 1e-25, 1e25])
def test_lists_are_those_of_exact_numbers(metric, offset, scale):
    X = ((clusters(3000, 32, 50) - 3.0 + offset) * scale).astype(np.float32)
    centroids = train(X, 60, metric)
    lists = kmeans.assign(X, centroids, metric, 2)
    assert lists.dtype == np.int32
    expected = exact_lists(X / np.float32(scale), centroids / (1.0 if metric == "cosine" else scale), metric)
    assert (lists == expected).mean() > 0.97
    X, centroids = X / np.float32(scale), centroids / np.float32(1.0 if metric == "cosine" else scale)
    worse = residual(X, centroids, lists, metric) / residual(X, centroids, expected, metric)
    assert worse < 1.001


@every_metric
def test_training_is_as_good_as_exact_k_means(metric):
    X = clusters(4000, 16, 300).astype(np.float32)
    exact = X if metric != "cosine" else unit(X).astype(np.float32)
    C = exact[np.random.default_rng(1).permutation(len(X))[:100]]
    for _ in range(8):
        lists = exact_lists(exact, C, metric)
        C = np.array([exact[lists == i].mean(axis=0) if (lists == i).any() else C[i] for i in range(100)])
    best = residual(X, C, exact_lists(X, C, metric), metric)
    own = train(X, 100, metric)
    assert residual(X, own, exact_lists(X, own, metric), metric) < 1.03 * best


@every_metric
def test_neither_threads_nor_batches_matter_and_the_seed_decides(metric):
    X = clusters(20_000, 12, 40).astype(np.float32)
    centroids = train(X, 50, metric)
    for n_threads in (2, 5):
        np.testing.assert_array_equal(train(X, 50, metric, n_threads=n_threads), centroids)
    lists = kmeans.assign(X, centroids, metric, 1)
    np.testing.assert_array_equal(kmeans.assign(X, centroids, metric, 3), lists)
    for rows in (slice(0, 1), slice(17, 9000), slice(19_999, 20_000)):
        np.testing.assert_array_equal(kmeans.assign(X[rows], centroids, metric, 2), lists[rows])
    assert (train(X, 50, metric, seed=1) != centroids).any()


def test_sample_and_epochs_change_the_result():
    X = clusters(2000, 12, 40).astype(np.float32)
    results = [
        train(X, 20, "euclidean", **options) for options in ({}, {"sample_per_list": 20}, {"epochs": 2})
    ]
    assert not any((results[0] == other).all() for other in results[1:])


def test_centroids_are_means_or_directions():
    X = clusters(100, 8).astype(np.float32)
    np.testing.assert_allclose(train(X, 1, "euclidean")[0], X.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(train(X, 1, "cosine"), unit(unit(X).mean(axis=0)[None]), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(train(X, 30, "cosine"), axis=1), 1.0, atol=1e-6)


@every_metric
def test_empty_lists_begin_again_at_vectors_of_the_largest(metric):
    # Nearly all vectors are equal, so nearly all of the 64 lists begin there, and all but one are empty.
    X = np.vstack([np.ones((5000, 8)), clusters(300, 8) * ([1, -1] * 4)]).astype(np.float32)
    used = [len(np.unique(kmeans.assign(X, train(X, 64, metric, epochs=n), metric, 1))) for n in (0, 8)]
    assert used[0] < 10
    assert used[1] > 45  # the largest list gives some vectors in vain: they are all equal


@every_metric
@pytest.mark.parametrize(
    "X",
    [
        np.ones((1, 3)),
        clusters(5, 3),
        np.repeat(clusters(4, 3), 50, axis=0),
        np.full((3000, 3), 7.25),
        np.zeros((3000, 3)),
        np.vstack([np.zeros((50, 3)), clusters(50, 3)]),
        clusters(500, 1),
        np.vstack([clusters(50, 3), -clusters(50, 3)]),
        clusters(200, 3) * 1e30,
        clusters(200, 3) * 1e-30,
        np.vstack([clusters(200, 3), 1e25 * clusters(3, 3)]),
    ],
    ids=[
        "one",
        "few",
        "duplicates",
        "constant",
        "zeros",
        "zeros-and-others",
        "one-column",
        "opposites",
        "huge",
        "tiny",
        "outliers",
    ],
)
@pytest.mark.parametrize("n_lists", [1, 16, 2000])
@pytest.mark.filterwarnings("error")
def test_data_that_is_hard_on_k_means(X, metric, n_lists):
    X = X.astype(np.float32)
    centroids = train(X, n_lists, metric, epochs=3)
    assert centroids.shape == (n_lists, X.shape[1])
    assert centroids.dtype == np.float32
    assert np.isfinite(centroids).all()
    lists = kmeans.assign(X, centroids, metric, 1)
    assert lists.min() >= 0
    assert lists.max() < n_lists
    _, first, same = np.unique(X, axis=0, return_index=True, return_inverse=True)
    np.testing.assert_array_equal(lists, lists[first[same]])  # equal vectors have equal lists


@pytest.mark.filterwarnings("error")
def test_with_a_list_for_each_vector_nothing_is_left():
    X = clusters(40, 6).astype(np.float32)
    centroids = train(X, 64, "euclidean")
    lists = kmeans.assign(X, centroids, "euclidean", 1)
    np.testing.assert_allclose(centroids[lists], X, atol=1e-5)


def test_a_zero_centroid_does_not_attract_directions():
    centroids = np.float32([[0, 0], [1, 0]])
    X = np.float32([[1, 3], [-1, 3]])
    np.testing.assert_array_equal(kmeans.assign(X, centroids, "cosine", 1), [1, 0])


def test_other_dtypes_and_layouts():
    X = np.round(clusters(300, 6), 2).astype(np.float16)
    centroids = train(X, 8, "cosine")
    expected = kmeans.assign(X.astype(np.float32), centroids, "cosine", 1)
    for given_ in (X, X.astype(np.float64), np.asfortranarray(X)):
        np.testing.assert_array_equal(kmeans.assign(given_, centroids, "cosine", 1), expected)
    assert len(kmeans.assign(X[:0], centroids, "cosine", 1)) == 0


def test_vectors_are_not_changed():
    X = clusters(300, 6).astype(np.float32)
    X.flags.writeable = False
    for metric in METRICS:
        kmeans.assign(X, train(X, 8, metric), metric, 1)


@pytest.mark.parametrize("kernel", kernels.available())
@given(
    n=st.integers(0, 300),
    n_lists=st.integers(1, 70),
    d=st.integers(1, 140),
    n_threads=st.integers(1, 3),
    seed=st.integers(0, 2**32),
)
def test_every_kernel_finds_the_lists_of_the_specification(kernel, n, n_lists, d, n_threads, seed):
    rng = np.random.default_rng(seed)
    # Few different numbers, so that there are ties.
    X = rng.integers(-2, 3, (n, d)).astype(np.float32)
    router = _native.Router(
        rng.integers(-2, 3, (n_lists, d)).astype(np.float32), np.zeros(n_lists, np.float32)
    )
    lists = {}
    for name in ("scalar", kernel):
        lists[name] = np.full(n, -1, np.int32)
        router.nearest(X, lists[name], n_threads, name)
    np.testing.assert_array_equal(lists[kernel], lists["scalar"])


def test_training_can_be_cancelled_and_interrupted(request):
    X = clusters(20_000, 64).astype(np.float32)
    stop = threading.Event()
    stop.set()
    with cancel_on(stop), pytest.raises(CancelledError):
        train(X, 20, "euclidean")
    kernels.use("scalar")  # slow: all of it would take minutes
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background, it may be ignored
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt), interrupted_after(0.5):
        train(X, 1000, "euclidean", epochs=100)
    assert time.monotonic() - start < 20
