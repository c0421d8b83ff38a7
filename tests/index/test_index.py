"""The index against a plain one, through any sequence of operations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sklearn.exceptions import NotFittedError

import posh
from posh.index.codes.refine import choose_learning_size
from tests.conftest import CASES, clusters
from tests.index.reference import PlainIndex

DATA = clusters(3000, 16)
SPARSE = posh.POSH(64, 6, n_epochs=2, random_state=0).fit(DATA)
DENSE = posh.LSH(20, random_state=0).fit(DATA)
QUERIES = clusters(20, 16, seed=1)


def same(hits: posh.Hits, expected: tuple[np.ndarray, np.ndarray]) -> None:
    np.testing.assert_array_equal(hits.ids, expected[0])
    np.testing.assert_array_equal(hits.scores, expected[1])


class Operations(RuleBasedStateMachine):
    """Additions, removals, updates and compactions in any order; every search equals the plain one's."""

    @initialize(dense=st.booleans(), kernel=st.sampled_from(posh.kernels.available()))
    def begin(self, dense, kernel):
        posh.kernels.use(kernel)
        hasher = DENSE if dense else SPARSE
        self.index, self.plain = posh.CodeIndex(hasher), PlainIndex(hasher)

    @rule(start=st.integers(0, 2000), n=st.integers(0, 600))
    def add(self, start, n):
        X = DATA[start : start + n]
        self.index.add(X)
        self.plain.add(X)

    @rule(start=st.integers(0, 2000), n=st.integers(1, 20), seed=st.integers(0, 99))
    def add_with_ids(self, start, n, seed):
        X = DATA[start : start + n]
        free = self.plain.next_id + np.random.default_rng(seed).permutation(3 * n)[:n]
        self.index.add(X, ids=free)
        self.plain.add(X, ids=free)

    @rule(data=st.data())
    def delete(self, data):
        present = [number for number, _ in self.plain.documents]
        if present:
            ids = data.draw(st.lists(st.sampled_from(present), max_size=30, unique=True))
            self.index.delete(ids)
            self.plain.delete(ids)

    @rule(data=st.data())
    def update(self, data):
        present = [number for number, _ in self.plain.documents]
        if present:
            ids = data.draw(st.lists(st.sampled_from(present), max_size=10, unique=True))
            self.index.update(DATA[: len(ids)], ids)
            self.plain.update(DATA[: len(ids)], ids)

    @rule()
    def compact(self):
        self.index.compact()

    @rule(k=st.integers(1, 50), n_threads=st.sampled_from([1, 2]))
    def search(self, k, n_threads):
        same(self.index.search(QUERIES, k, n_threads=n_threads), self.plain.search(QUERIES, k))

    @rule(k=st.integers(1, 50), seed=st.integers(0, 99), as_mask=st.booleans(), share=st.floats(0, 1))
    def search_with_filter(self, k, seed, as_mask, share):
        mask = np.random.default_rng(seed).random(self.plain.next_id + 1) < share
        wanted = mask if as_mask else np.flatnonzero(mask)
        allowed = set(np.flatnonzero(mask).tolist())
        same(self.index.search(QUERIES[:3], k, filter=wanted), self.plain.search(QUERIES[:3], k, allowed))

    @invariant()
    def agrees_on_what_is_in_it(self):
        if hasattr(self, "index"):
            assert len(self.index) == len(self.plain.documents)
            assert self.index.ids.tolist() == [number for number, _ in self.plain.documents]

    def teardown(self):
        posh.kernels.use(None)


TestOperations = Operations.TestCase
TestOperations.settings = settings(
    max_examples=CASES, stateful_step_count=12, deadline=None, derandomize=True
)


@pytest.mark.parametrize("document_active", [None, 1, 20])
@pytest.mark.parametrize("query_active", [None, 1, 64])
def test_documents_and_queries_may_differ_in_active_bits(document_active, query_active):
    index = posh.CodeIndex(SPARSE, document_active=document_active, query_active=query_active).add(DATA[:700])
    plain = PlainIndex(SPARSE, document_active=document_active, query_active=query_active)
    plain.add(DATA[:700])
    same(index.search(QUERIES, 30), plain.search(QUERIES, 30))


@pytest.mark.parametrize("kernel", posh.kernels.available())
def test_asymmetric_scores_are_sums_of_projections(kernel):
    posh.kernels.use(kernel)
    try:
        index = posh.CodeIndex(SPARSE, scoring="asymmetric").add(DATA[:2500]).delete([3, 5])
        hits = index.search(QUERIES, 20, filter=np.arange(2000))
    finally:
        posh.kernels.use(None)
    plain = PlainIndex(SPARSE, scoring="asymmetric")
    plain.add(DATA[:2500])
    plain.delete([3, 5])
    _, scores = plain.search(QUERIES, 20, set(range(2000)))
    np.testing.assert_allclose(hits.scores, scores, atol=1e-3)
    assert hits.kind == "asymmetric"
    codes = SPARSE.encode(DATA).to_dense(float)
    for ids, row, query in zip(hits.ids, hits.scores, SPARSE.project(QUERIES), strict=True):
        np.testing.assert_allclose(codes[ids] @ query, row, atol=1e-3)


@pytest.mark.parametrize("n_probe", [1, 3, 12])
def test_ivf_searches_exactly_within_its_lists(n_probe):
    index = posh.CodeIndex(SPARSE, structure="ivf", n_lists=12, n_probe=n_probe).add(DATA[:1500])
    index.add(DATA[1500:]).delete(np.arange(0, 3000, 7))
    lists = index.snapshot().structure.lists
    hits = index.search(QUERIES, 40)
    overlap = SPARSE.encode(QUERIES).overlap(SPARSE.encode(DATA))
    similarity = SPARSE.preprocess_(QUERIES) @ lists.centroids.T
    for row, ids in enumerate(hits.ids):
        probed = np.sort(np.argsort(-similarity[row], kind="stable")[:n_probe])
        inside = np.isin(lists.assignment, probed) & (np.arange(3000) % 7 != 0)
        best = -np.sort(-overlap[row][inside], kind="stable")[:40]
        np.testing.assert_array_equal(hits.scores[row][: len(best)], best)
        assert np.isin(ids[ids >= 0], np.flatnonzero(inside)).all()
        np.testing.assert_array_equal(overlap[row][ids[ids >= 0]], best)
    if n_probe == 12:
        exact = posh.CodeIndex(SPARSE).add(DATA).delete(np.arange(0, 3000, 7)).search(QUERIES, 40)
        np.testing.assert_array_equal(hits.scores, exact.scores)


def test_ivf_with_filter_threads_asymmetric_and_compaction():
    index = posh.CodeIndex(SPARSE, structure="ivf", n_lists=5, n_probe=5).add(DATA).delete([1, 2])
    even = np.arange(0, 3000, 2)
    exact = posh.CodeIndex(SPARSE).add(DATA).delete([1, 2]).search(QUERIES, 10, filter=even)
    one = index.search(QUERIES, 10, filter=even, n_threads=1)
    np.testing.assert_array_equal(one.scores, exact.scores)
    np.testing.assert_array_equal(index.search(QUERIES, 10, filter=even, n_threads=2).ids, one.ids)
    np.testing.assert_array_equal(index.compact().search(QUERIES, 10, filter=even).ids, one.ids)
    asymmetric = posh.CodeIndex(
        SPARSE, structure="ivf", scoring="asymmetric", n_lists=5, n_probe=5, oversample=300.0
    )
    full = posh.CodeIndex(SPARSE, scoring="asymmetric").add(DATA).search(QUERIES, 10)
    np.testing.assert_allclose(asymmetric.add(DATA).search(QUERIES, 10).scores, full.scores, atol=1e-4)


def test_decoder_refinement_is_distance_to_the_decoded_candidates():
    index = posh.CodeIndex(SPARSE, refine="decoder").add(DATA)
    hits = index.search(QUERIES, 10, oversample=3.0)
    candidates = posh.CodeIndex(SPARSE).add(DATA).search(QUERIES, 30).ids
    codes, n = SPARSE.encode(DATA), choose_learning_size(len(DATA))
    decoded = posh.LinearDecoder(ridge=None).fit(codes[:n], DATA[:n]).decode(codes)
    for query, ids, scores, among in zip(QUERIES, hits.ids, hits.scores, candidates, strict=True):
        distance = np.square(query - decoded[among]).sum(axis=1)
        np.testing.assert_allclose(scores, -np.sort(distance)[:10], rtol=1e-4, atol=1e-4)
        assert set(ids.tolist()) <= set(among.tolist())
    assert hits.kind == "decoder"


@pytest.mark.parametrize(("refine", "kind"), [("vectors", "euclidean"), ("cosine", "cosine")])
@pytest.mark.parametrize("hasher", [SPARSE, DENSE], ids=["sparse", "dense"])
def test_refinement_by_vectors_is_exact_when_everything_is_a_candidate(refine, kind, hasher):
    index = posh.CodeIndex(hasher, refine=refine).add(DATA[:500])
    hits = index.search(QUERIES, 10, oversample=50.0)
    X = DATA[:500]
    if refine == "cosine":
        value = (QUERIES / np.linalg.norm(QUERIES, axis=1)[:, None]) @ (
            X / np.linalg.norm(X, axis=1)[:, None]
        ).T
    else:
        value = -np.square(QUERIES[:, None] - X[None]).sum(axis=2)
    np.testing.assert_array_equal(hits.ids, np.argsort(-value, axis=1)[:, :10])
    np.testing.assert_allclose(hits.scores, -np.sort(-value, axis=1)[:, :10], rtol=1e-3, atol=1e-4)
    assert hits.kind == kind


def test_sbiht_refinement_orders_by_its_decoder():
    index = posh.CodeIndex(SPARSE, refine="sbiht").add(DATA[:384])
    hits = index.search(QUERIES[:3], 5)
    linear = posh.LinearDecoder(ridge=None).fit(SPARSE.encode(DATA[:384]), DATA[:384])
    decoder = posh.SBIHT(SPARSE, linear)
    for query, ids, scores in zip(QUERIES, hits.ids, hits.scores, strict=False):
        distance = np.square(query - decoder.decode(SPARSE.encode(DATA[ids]))).sum(axis=1)
        np.testing.assert_allclose(scores, -distance, rtol=1e-3)
    assert hits.kind == "sbiht"


def test_oversample_and_n_probe_change_the_result():
    index = posh.CodeIndex(SPARSE, refine="vectors").add(DATA)
    assert (
        index.search(QUERIES, 5, oversample=1.0).ids != index.search(QUERIES, 5, oversample=20.0).ids
    ).any()
    lists = posh.CodeIndex(SPARSE, structure="ivf", n_lists=30).add(DATA)
    assert (lists.search(QUERIES, 50, n_probe=1).ids != lists.search(QUERIES, 50, n_probe=30).ids).any()


def test_one_vector_and_an_empty_index():
    index = posh.CodeIndex(SPARSE)
    assert index.search(DATA[0], k=3).ids.tolist() == [[-1, -1, -1]]
    assert len(index) == 0
    index.add(DATA[:2]).add(np.empty((0, 16)))
    hits = index.search(DATA[0], k=3)
    assert hits.ids.tolist() == [[0, 1, -1]]
    assert hits.scores[0, 2] == -np.inf
    assert index.search(np.empty((0, 16)), k=3).ids.shape == (0, 3)


def test_memory_is_told_and_estimated():
    lists = {"structure": "ivf", "n_lists": 10}
    for options in ({}, {"refine": "vectors"}, lists, {"refine": "decoder"}):
        index = posh.CodeIndex(SPARSE, **options)
        assert index.memory_usage()["total"] == 0
        X = np.resize(DATA, (40_000, 16))
        expected = index.estimate_memory(len(X))
        assert index.add(X).memory_usage()["total"] == pytest.approx(expected, rel=0.8)
    assert repr(index) == (
        "CodeIndex(40,000 documents, POSH 6 of 64 bits, structure='exact', scoring='overlap', "
        "refine='decoder')"
    )


def test_a_failed_addition_changes_nothing():
    index = posh.CodeIndex(SPARSE).add(DATA[:10])
    bad = DATA[:5].copy()
    bad[2, 3] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        index.add(bad)
    with pytest.raises(ValueError, match="got 3, which is in the index: use update"):
        index.add(DATA[:2], ids=[50, 3])
    with pytest.raises(KeyError, match="got 77, which is not in it"):
        index.delete([1, 77])
    assert index.ids.tolist() == list(range(10))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda i: i.search(DATA[:, :5]), ValueError, "expected vectors with 16 columns"),
        (lambda i: i.search(DATA[:2], k=0), ValueError, "expected k at least 1, got 0"),
        (
            lambda i: i.search(DATA[:2], filter=np.ones(3, bool)),
            ValueError,
            r"longer than the largest id \(9\), got length 3",
        ),
        (lambda i: i.search(DATA[:2], filter=[0.5]), ValueError, "boolean mask by id or a 1-D array of ids"),
        (
            lambda i: i.search(DATA[:2], oversample=0.5),
            ValueError,
            r"expected oversample in \[1, inf\), got 0.5",
        ),
        (lambda i: i.search(DATA[:2], n_probe=0), ValueError, "expected n_probe at least 1"),
        (lambda i: i.add(DATA[:2], ids=[1]), ValueError, r"expected as many ids as vectors \(2\), got 1"),
        (lambda i: i.add(DATA[:2], ids=[20, 20]), ValueError, "expected distinct ids, got 20 more than once"),
        (lambda i: i.add(DATA[:2], ids=[-1, 20]), ValueError, r"expected ids in 0 \.\. 2\^63 - 1"),
        (lambda i: i.update(DATA[:1], [1, 2]), ValueError, r"expected as many ids as vectors \(1\), got 2"),
        (
            lambda i: posh.CodeIndex(SPARSE, structure="tree"),
            ValueError,
            "structure to be one of 'exact', 'ivf', got 'tree'",
        ),
        (lambda i: posh.CodeIndex(SPARSE, refine="magic"), ValueError, "refine to be one of None, 'decoder'"),
        (
            lambda i: posh.CodeIndex(SPARSE, query_active=65),
            ValueError,
            r"expected query_active between 1 and 64 \(n_bits\)",
        ),
        (
            lambda i: posh.CodeIndex(DENSE, structure="ivf"),
            ValueError,
            "structure='ivf' needs sparse codes, got LSH",
        ),
        (
            lambda i: posh.CodeIndex(DENSE, refine="decoder"),
            ValueError,
            "refine='decoder' needs sparse codes",
        ),
        (lambda i: posh.CodeIndex(posh.POSH()), NotFittedError, "not fitted"),
    ],
)
def test_bad_input_is_named(call, error, message):
    index = posh.CodeIndex(SPARSE).add(DATA[:10])
    with pytest.raises(error, match=message):
        call(index)
