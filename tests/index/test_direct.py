"""The shortest way of a search gives what the way of all searches gives, and leaves wrong vectors to it."""

import copy
import gc
import pickle

import numpy as np
import pytest

import posh
from posh import kernels
from posh.index.nearest.options import NearestParams


@pytest.fixture(scope="module", params=["cosine", "euclidean", "dot"])
def index(request):
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((5000, 24)).astype(np.float32)
    return posh.Index(request.param, n_lists=16).add(vectors, ids=np.arange(5000) + 7)


@pytest.fixture(scope="module")
def queries():
    return np.random.default_rng(1).standard_normal((200, 24)).astype(np.float32)


def directly(index, X, **params):
    return index.snapshot()._id_searches.search(X, NearestParams(**params))


def with_filter(index, X, **params):
    """The way of all searches: a filter that all documents pass asks for as many lists."""
    return index.search(X, filter=index.ids, **params)


@pytest.mark.parametrize("n", [1, 5, 200])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_it_finds_what_the_way_of_all_searches_finds(index, queries, n, dtype):
    X = queries[:n].astype(dtype)
    assert directly(index, X, k=10, n_probe=4) is not None
    hits, expected = index.search(X, 10, n_probe=4), with_filter(index, X, k=10, n_probe=4)
    np.testing.assert_array_equal(hits.ids, expected.ids)
    np.testing.assert_array_equal(hits.scores, expected.scores)
    assert hits.kind == expected.kind


def test_one_vector_is_one_row(index, queries):
    np.testing.assert_array_equal(index.search(queries[0]).ids, index.search(queries[:1]).ids)


def test_min_score(index, queries):
    scores = index.search(queries, 10).scores
    low = float(np.median(scores))
    hits = index.search(queries, 10, min_score=low)
    np.testing.assert_array_equal(hits.scores, np.where(scores < low, -np.inf, scores))
    assert (hits.ids[scores < low] == -1).all()


@pytest.mark.parametrize(
    "form",
    [
        lambda Q: Q.tolist(),
        lambda Q: np.asfortranarray(Q),
        lambda Q: np.repeat(Q, 2, axis=1)[:, ::2],
        lambda Q: Q.astype(">f4"),
        lambda Q: Q.astype(np.float16).astype(np.longdouble),
        lambda Q: np.frombuffer(b"?" + Q.tobytes(), np.float32, offset=1).reshape(Q.shape),  # not aligned
        lambda Q: Q.view(np.memmap),
    ],
)
def test_other_forms_of_vectors_take_the_other_way(index, queries, form):
    X = form(queries)
    assert directly(index, X, k=3) is None
    np.testing.assert_array_equal(
        index.search(X, 3).ids, index.search(np.ascontiguousarray(X, dtype=np.float64), 3).ids
    )


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_that_are_not_finite_are_named(index, queries, value, dtype):
    X = queries.astype(dtype)
    X[3, 5] = value
    with pytest.raises(ValueError, match=r"NaN or inf .* at row 3, column 5"):
        index.search(X)
    with pytest.raises(ValueError, match=r"NaN or inf .* at row 0, column 5"):
        index.search(X[3])


def test_wrong_shapes_are_named(index, queries):
    with pytest.raises(ValueError, match="expected vectors with 24 columns"):
        index.search(queries[:, :20].copy())
    with pytest.raises(ValueError, match="3 dimension"):
        index.search(queries[None])
    assert index.search(queries[:0]).ids.shape == (0, 10)


def test_wrong_parameters_are_named(index, queries):
    with pytest.raises(ValueError, match="expected k"):
        index.search(queries, 0)
    with pytest.raises(TypeError, match="expected n_probe"):
        index.search(queries, n_probe=[4])


def test_searches_that_compare_all_take_the_other_way(index, queries):
    assert directly(index, queries, k=10, exact=True) is None
    assert directly(index, queries, k=5001) is None
    assert index.search(queries[:2], 5001).ids.shape == (2, 5001)


def test_a_change_is_seen(index, queries):
    changed = copy.deepcopy(index)
    first = changed.search(queries, 1).ids.ravel()
    changed.delete(np.unique(first))
    assert not np.isin(changed.search(queries, 10).ids, first).any()


def test_copies_and_pickles_leave_it_out(index, queries):
    index.search(queries)
    other = pickle.loads(pickle.dumps(index))
    assert not {"_id_searches", "_slot_searches"} & vars(other.snapshot()).keys()
    assert not {"_id_searches", "_slot_searches"} & vars(pickle.loads(pickle.dumps(index.snapshot()))).keys()
    np.testing.assert_array_equal(other.search(queries).ids, index.search(queries).ids)


def test_many_parameters_are_not_all_remembered(index, queries):
    for number in range(300):
        index.search(queries[0], min_score=-1e6 - number)
    assert 1 <= len(index.snapshot()._id_searches._by_params) <= 100


def test_another_kernel_is_used_by_later_searches(index, queries, fastest_again):
    expected = index.search(queries, 10)
    for kernel in kernels.available():
        kernels.use(kernel)
        np.testing.assert_array_equal(index.search(queries, 10).ids, expected.ids)
        assert index.snapshot()._id_searches._last[1] == kernel


def test_collections_find_slots(index, queries):
    snapshot = index.snapshot()
    found = snapshot.search_slots(queries, NearestParams(k=10))
    expected = index.search(queries, 10)
    np.testing.assert_array_equal(found.slots + 7, expected.ids)
    np.testing.assert_array_equal(found.scores, expected.scores)


def test_a_prepared_search_keeps_its_documents(index, queries):
    """It outlives the index: no memory that it reads is released."""
    expected = index.search(queries, 10).ids
    other = pickle.loads(pickle.dumps(index))
    search = other.snapshot().lists.prepare(NearestParams(k=10), np.arange(5000) + 7)
    del other
    gc.collect()
    ids, _, n_short = search.run(queries)
    np.testing.assert_array_equal(ids, expected)
    assert n_short == 0


def test_a_prepared_search_among_documents(index, queries):
    search = index.snapshot().lists.prepare(NearestParams(k=10, n_probe=16))
    allowed = np.zeros(5000, np.uint8)
    allowed[3:9] = 1
    slots, scores, n_short = search.run_among(queries, allowed)
    assert n_short == len(queries)
    assert set(np.unique(slots)) == {-1, *range(3, 9)}
    assert np.isneginf(scores[:, 6:]).all()
    with pytest.raises(ValueError, match="allowed"):
        search.run_among(queries, allowed[:-1].copy())


def test_what_is_not_an_array_is_left_to_the_validation(index, queries):
    search = index.snapshot().lists.prepare(NearestParams(k=10))
    for X in (None, "text", 1.0, queries.tolist(), np.float32(1), np.zeros((), np.float32), queries[0, :0]):
        assert search.run(X) is None
    with pytest.raises((TypeError, ValueError)):
        index.search(None)
