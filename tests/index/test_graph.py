"""The graph of ``posh.Index(optimize="latency")``: kernels, searches, writes, files."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from benchmarks.promise_data import DISTRIBUTIONS

import posh
from posh import _native, kernels
from posh.collection import indexing
from posh.index.nearest.graph import DEGREE, MOST_NEW, Graph, GraphEffort, Transform
from posh.index.nearest.options import NearestParams
from tests.index.test_metric import plain_scores

N = 3000
METRICS = ["cosine", "euclidean", "dot"]


def draw(n: int, d: int = 40, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(9).normal(size=(30, d))
    return (centres[rng.integers(0, 30, n)] + 0.6 * rng.normal(size=(n, d))).astype(np.float32)


QUERIES = draw(100, seed=1)


@pytest.fixture(scope="module", params=METRICS)
def built(request):
    return posh.Index.build(draw(N), metric=request.param, optimize="latency")


def graph_of(index: posh.Index) -> Graph:
    return index.snapshot().lists.graph


def uses_graph(index: posh.Index, k: int = 10, **params) -> bool:
    return index.snapshot().lists.choose_graph_effort(NearestParams(k, **params)) is not None


def share_found(index: posh.Index, queries: np.ndarray, k: int) -> float:
    exact, found = index.search(queries, k, exact=True), index.search(queries, k)
    last = exact.scores[:, -1:]
    return float((found.scores >= last - 1e-6 * np.abs(last)).mean())


# Kernels --------------------------------------------------------------------------------------------------


def plan(n: int, n_columns: int, seed: int):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, n_columns)).astype(np.float32) * rng.uniform(
        0.1, 2.0, (1, n_columns)
    ).astype("f4")
    candidates = rng.integers(-1, n, (n, 40)).astype(np.int32)
    return vectors, rng.random(n).astype(np.float32), candidates, np.arange(0, n, 7, dtype=np.uint32)


def build_records(shape, parts, kernel: str, n_threads: int = 1) -> np.ndarray:
    records = np.full((len(parts[0]), shape.stride), 255, np.uint8)
    _native.build_graph(shape, *parts, 1.1, records, n_threads, kernel)
    return records


@pytest.mark.parametrize(
    ("n_columns", "n_bits", "degree"), [(64, 2, 32), (128, 1, 64), (192, 1, 32), (512, 2, 96)]
)
def test_kernels_build_the_same_records_and_find_the_same(n_columns, n_bits, degree):
    shape = _native.GraphShape(n_columns, n_bits, degree)
    parts = plan(300, n_columns, seed=n_columns)
    records = build_records(shape, parts, "scalar")
    rng = np.random.default_rng(0)
    rows, vectors = rng.normal(size=(n_columns, 50)).astype("f4"), rng.normal(size=(310, 50)).astype("f4")
    graph = _native.Graph(
        shape, records, np.arange(300, dtype=np.uint32), np.arange(0, 300, 7, dtype=np.uint32), rows,
        rng.normal(size=50).astype("f4"), rng.normal(size=n_columns).astype("f4"), 0.0, 300, True,
    )  # fmt: skip
    stored = _native.BlockVectors(vectors, None, 310)
    results = {}
    for kernel in kernels.available():
        np.testing.assert_array_equal(build_records(shape, parts, kernel, n_threads=2), records)
        for k in (1, 10, 40):
            ids, scores, n_visited = (
                np.empty((20, k), np.int64),
                np.empty((20, k), "f4"),
                np.empty(20, np.uint32),
            )
            settings, skipped = _native.GraphSettings(64, 1.2, k + 5), np.full(20, -1)
            graph.search(settings, vectors[:20], stored, None, skipped, ids, scores, n_visited, 2, kernel)
            for one, other in zip(
                (ids, scores, n_visited), results.setdefault(k, (ids, scores, n_visited)), strict=True
            ):
                np.testing.assert_array_equal(one, other)
    assert (results[10][2] > 5).all()


def test_estimates_are_close_to_distances():
    """A record, read as ``native/graph.h`` describes it, gives the distances of a node's neighbours."""
    shape = _native.GraphShape(64, 2, 32)
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(200, 64)).astype("f4")
    candidates = np.tile(np.arange(200, dtype=np.int32)[:45], (200, 1))
    record = build_records(
        shape, (vectors, np.zeros(200, "f4"), candidates, np.zeros(1, np.uint32)), "scalar"
    )[100]
    numbers = record[:64].view(np.int8).astype(float)
    head = record[shape.head :][:24].view("f4")
    n_neighbours = int(record[shape.head + 24 :][:4].view(np.uint32)[0])
    nodes = record[shape.nodes :][: 4 * DEGREE].view(np.uint32)[:n_neighbours]
    rows = record[64 : 64 + 32 * 16].reshape(32, 16)
    four_bits = np.concatenate([rows & 15, rows >> 4], axis=1).T[:n_neighbours]  # (n, 32)
    levels = np.stack([four_bits & 3, four_bits >> 2], axis=2).reshape(n_neighbours, 64) - 1.5
    at = 64 + 32 * 16
    adds, factors = record[at : at + 64].reshape(2, 32)[:, :n_neighbours].astype(float)
    query = rng.normal(size=64)
    node = head[1] * numbers
    estimates = (
        ((query - node) ** 2).sum()
        + head[2]
        + head[3] * adds
        + (head[4] + head[5] * factors) * (levels @ query)
    )
    true = ((query - vectors[nodes]) ** 2).sum(axis=1)
    assert n_neighbours == DEGREE
    assert np.corrcoef(estimates, true)[0, 1] > 0.85
    np.testing.assert_allclose(estimates.mean(), true.mean(), rtol=0.02)


def test_a_transformation_keeps_distances():
    for metric in METRICS:
        X = draw(500)
        radius = float(np.linalg.norm(X, axis=1).max())
        transform = Transform.train(metric, X, radius, np.random.default_rng(0))
        columns, lost = transform.apply(X)
        between = ((columns[:100, None] - columns[None, 100:200]) ** 2).sum(axis=2)
        true = ((X[:100, None] - X[None, 100:200]) ** 2).sum(axis=2)
        if metric == "dot":
            missing = np.sqrt(np.maximum(radius**2 - (X**2).sum(axis=1), 0))
            true += (missing[:100, None] - missing[None, 100:200]) ** 2
        np.testing.assert_allclose(between, true, rtol=0.2)
        assert lost.mean() < 0.06 * true.mean()


# Searching ------------------------------------------------------------------------------------------------


def test_a_search_of_all_nodes_is_exact(built):
    lists = built.snapshot().lists
    known = lists.space.metric.prepare_queries(QUERIES)
    found, scores = np.empty((100, 20), np.int64), np.empty((100, 20), np.float32)
    graph_of(built).native.search(
        _native.GraphSettings(N, 100.0, N), known.vectors, lists.stored.native, None, np.full(100, -1),
        found, scores, np.empty(100, np.uint32), 1, kernels.active(),
    )  # fmt: skip
    np.testing.assert_array_equal(found, built.search(QUERIES, 20, exact=True).ids)


@pytest.mark.parametrize("k", [1, 3, 10, 60])
def test_recall_is_kept(built, k):
    assert uses_graph(built, k)
    assert share_found(built, QUERIES, k) >= 0.93
    found = built.search(QUERIES, k)
    true = plain_scores(built.options.metric, QUERIES, draw(N))
    np.testing.assert_allclose(
        found.scores, np.take_along_axis(true, found.ids, axis=1), rtol=1e-5, atol=1e-5
    )


def test_a_query_gets_the_same_results_alone_in_a_batch_and_with_threads(built):
    together = built.search(QUERIES, 10, n_threads=1)
    np.testing.assert_array_equal(built.search(QUERIES, 10, n_threads=4).ids, together.ids)
    for row, query in enumerate(QUERIES[:20]):
        alone = built.search(query, 10)
        np.testing.assert_array_equal(alone.ids[0], together.ids[row])
        np.testing.assert_array_equal(alone.scores[0], together.scores[row])
    as_lists = built.search(QUERIES.tolist(), 10)  # the general path, which validates
    np.testing.assert_array_equal(as_lists.ids, together.ids)


def test_a_seed_gives_the_same_graph_with_any_number_of_threads(monkeypatch):
    records, used = [], []

    def build(*plan):
        used.append(plan[-2])
        return build_graph(*plan)

    build_graph = _native.build_graph
    monkeypatch.setattr(_native, "build_graph", build)
    for n in (1, 3):
        for module in ("graph", "lists", "measuring", "space"):
            path = f"posh.index.nearest.{module}.resolve_threads"
            monkeypatch.setattr(path, lambda n_threads=None, n=n: n_threads or n)
        records.append(graph_of(posh.Index.build(draw(N), optimize="latency")).records)
    assert used == [1, 3]
    np.testing.assert_array_equal(*records)


def test_searches_that_the_graph_does_not_serve(built):
    assert not uses_graph(built, exact=True)
    assert not uses_graph(built, n_probe=3)
    assert not uses_graph(built, k=101)
    assert not uses_graph(built, recall=1.0)
    allowed = np.arange(0, N, 3)
    found = built.search(QUERIES, 5, filter=allowed)
    assert np.isin(found.ids, allowed).all()
    np.testing.assert_array_equal(built.search(QUERIES, 300).ids.shape, (100, 300))


def test_an_index_that_optimizes_throughput_has_no_graph():
    assert graph_of(posh.Index.build(draw(N))) is None


def test_few_documents_have_no_graph():
    index = posh.Index.build(draw(500), optimize="latency")
    assert graph_of(index) is None
    np.testing.assert_array_equal(index.search(QUERIES, 5).ids, index.search(QUERIES, 5, exact=True).ids)


def test_wrong_queries_are_refused(built):
    for wrong in (np.full((1, 40), np.nan), np.full(40, np.inf)):
        with pytest.raises(ValueError, match=r"finite|NaN|infin"):
            built.search(wrong, 3)
    with pytest.raises(ValueError, match="40 columns"):
        built.search(np.zeros((1, 41)), 3)


def test_options_are_validated():
    with pytest.raises(ValueError, match=r"expected optimize.*throughput.*latency.*'speed'"):
        posh.Index(optimize="speed")
    with pytest.raises(ValueError, match=r"store='float16' or 'float32'"):
        posh.Index(optimize="latency", store="int8")


@pytest.mark.parametrize("name", ["uneven clusters", "duplicates", "heavy tails", "two scales", "ties"])
def test_the_promise_on_hard_data(name):
    rng = np.random.default_rng(0)
    draw_rows = DISTRIBUTIONS[name](rng)
    for metric in METRICS:
        index = posh.Index.build(draw_rows(rng, 6000), metric=metric, optimize="latency")
        for k in (1, 10, 100):
            assert share_found(index, draw_rows(rng, 1000), k) >= 0.93, (metric, k)


def test_half_precision():
    index = posh.Index.build(draw(N), store="float16", optimize="latency")
    assert uses_graph(index)
    assert share_found(index, QUERIES, 10) >= 0.93


# Writes ---------------------------------------------------------------------------------------------------


def test_a_few_new_documents_are_found_at_once(built):
    index = copy.copy(built)
    new = QUERIES[:5] * np.float32(3.0 if index.options.metric == "dot" else 1.0)
    index.add(new, ids=np.arange(10_000, 10_005))
    assert uses_graph(index)
    assert (index.search(QUERIES[:5], 1).ids[:, 0] >= 10_000).sum() >= 4
    assert share_found(index, QUERIES, 10) >= 0.93
    assert share_found(built, QUERIES, 10) >= 0.93  # which has none of them


def test_many_new_documents_are_searched_in_lists_and_then_in_a_new_graph(built):
    index = copy.copy(built).add(draw(MOST_NEW + 1, seed=2))
    assert not uses_graph(index)
    assert share_found(index, QUERIES, 10) >= 0.93
    index.add(draw(N // 4, seed=3))
    assert uses_graph(index)
    assert len(graph_of(index).slots) == len(index)
    assert share_found(index, QUERIES, 10) >= 0.93


def test_deleted_documents_are_never_found(built):
    index = copy.copy(built)
    gone = index.search(QUERIES, 3).ids[:, 0]
    index.delete(np.unique(gone))
    assert uses_graph(index)
    found = index.search(QUERIES, 10)
    assert not np.isin(found.ids, gone).any()
    assert share_found(index, QUERIES, 10) >= 0.93
    index.delete(np.setdiff1d(index.ids, gone)[: N // 2])
    assert not np.isin(index.search(QUERIES, 10).ids, gone).any()


def test_compact_builds_a_graph_without_deleted_documents(built):
    index = copy.copy(built).delete(np.arange(0, 300)).compact()
    assert uses_graph(index)
    assert len(graph_of(index).slots) == N - 300
    assert share_found(index, QUERIES, 10) >= 0.93


def test_replaced_documents(built):
    index = copy.copy(built)
    index.update(draw(N, seed=5), np.arange(N))
    assert share_found(index, draw(100, seed=6), 10) >= 0.93


# Files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mmap", [False, True])
def test_a_saved_graph_finds_the_same(built, tmp_path, mmap):
    built.save(tmp_path / "index")
    opened = posh.Index.load(tmp_path / "index", mmap=mmap)
    assert opened.options == built.options
    np.testing.assert_array_equal(graph_of(opened).records, graph_of(built).records)
    np.testing.assert_array_equal(opened.search(QUERIES, 10).ids, built.search(QUERIES, 10).ids)


def test_copies_and_pickles_find_the_same(built):
    for other in (copy.deepcopy(built), pickle.loads(pickle.dumps(built))):
        np.testing.assert_array_equal(other.search(QUERIES, 10).ids, built.search(QUERIES, 10).ids)


def test_records_of_deleted_documents_are_not_saved(built, tmp_path):
    copy.copy(built).delete([5]).save(tmp_path / "index")
    opened = posh.Index.load(tmp_path / "index")
    assert graph_of(opened) is None
    assert share_found(opened, QUERIES, 10) >= 0.93
    assert uses_graph(opened.compact())


def test_a_collection_with_a_graph(tmp_path, monkeypatch):
    monkeypatch.setattr(indexing, "WORTH", 100)  # so that closing saves the index
    with posh.create(tmp_path / "shop", metric="cosine", optimize="latency") as shop:
        shop.upsert(range(N), draw(N), [{"odd": bool(i % 2)} for i in range(N)])
        found = shop.search(QUERIES, 5)
        assert shop._store.snapshot.index.lists.graph is not None
        hits = shop.search(QUERIES[0], 5, filter={"odd": True}, payloads=True)[0]
        assert [hit.payload for hit in hits] == [{"odd": True}] * 5
    with posh.open(tmp_path / "shop") as shop:
        assert shop._store.snapshot.index.lists.graph is not None
        np.testing.assert_array_equal(shop.search(QUERIES, 5).ids, found.ids)


def test_a_collection_without_its_saved_index_builds_the_graph_at_the_next_write(tmp_path):
    with posh.create(tmp_path / "shop", metric="cosine", optimize="latency") as shop:
        shop.upsert(range(N), draw(N))
    with posh.open(tmp_path / "shop") as shop:
        exact, found = shop.search(QUERIES, 5, exact=True), shop.search(QUERIES, 5)
        assert (found.ids == exact.ids).mean() > 0.9
        shop.upsert([N], QUERIES[:1])
        assert shop._store.snapshot.index.lists.graph is not None


def lie(arrays: dict, name: str, change) -> dict:
    changed = arrays[name].copy()
    change(changed)
    return arrays | {name: changed}


LIES = {
    "a slot without a document": ("graph_slots", lambda a: a.__setitem__(3, N)),
    "an entry without a node": ("graph_entries", lambda a: a.__setitem__(0, N)),
    "a negative radius": ("graph_numbers", lambda a: a.__setitem__(0, -1)),
    "more documents than there are": ("graph_numbers", lambda a: a.__setitem__(1, N + 1)),
    "a stop that is not a number": ("graph_measured", lambda a: a.__setitem__((0, 2), np.nan)),
    "a huge pool": ("graph_measured", lambda a: a.__setitem__((0, 1), 1e12)),
}


@pytest.mark.parametrize("name", LIES)
def test_files_that_lie(built, name):
    arrays = lie(graph_of(built).to_arrays(), *LIES[name])
    with pytest.raises(ValueError, match=r"expected|found"):
        Graph.from_arrays(arrays, 40, N, is_distance=False)


def test_records_that_lie_cannot_lead_outside(built):
    """Whatever the records say, searches read no memory outside and return documents of the index."""
    lists = built.snapshot().lists
    rng = np.random.default_rng(0)
    for _ in range(30):
        records = graph_of(built).records.copy()
        rows = rng.integers(0, N, 500)
        records[rows] = rng.integers(0, 256, (500, records.shape[1]))
        records[rows[:250], -40:] = 255  # not a number
        graph = Graph.from_arrays(
            graph_of(built).to_arrays() | {"graph_records": records}, 40, N, lists.space.metric.is_distance
        )
        ids, scores = np.empty((100, 5), np.int64), np.empty((100, 5), np.float32)
        metric, stored = lists.space.metric.native, lists.stored.native
        settings = _native.GraphSettings(200, 1.5, 10)
        graph.native.nearest(settings, metric, QUERIES, stored, None, ids, scores, 1, kernels.active())
        assert ((ids >= -1) & (ids < N)).all()


# Reports --------------------------------------------------------------------------------------------------


def test_report_and_memory(built):
    report = built.report()
    assert report.nodes_visited is not None
    assert report.recall >= 0.95
    assert "nodes of the graph" in str(report)
    usage = built.memory_usage()
    assert usage["graph"] == graph_of(built).nbytes
    assert usage["total"] <= built.estimate_memory(N) * 1.05


def test_an_effort_suits_both_of_the_measured_numbers_of_results(built):
    graph = graph_of(built)
    assert graph.choose_effort(0.95, 10) is not None
    for k in (2, 9, 50):
        effort = graph.choose_effort(0.95, k)
        assert isinstance(effort, GraphEffort)
        assert effort.n_keep >= k
    assert graph.choose_effort(0.9999, 10) is None
    assert graph.choose_effort(0.9, 1000) is None
