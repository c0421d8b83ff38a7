"""The graph of ``posh.Index``: kernels, searches, writes, files."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

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


def test_records_and_vectors_begin_at_cache_lines(built, tmp_path):
    built.save(tmp_path / "index")
    extended = posh.Index.load(tmp_path / "index").add(draw(600, seed=5))
    for index in (built, posh.Index.load(tmp_path / "index"), extended):
        lists = index.snapshot().lists
        assert lists.graph.records.ctypes.data % 64 == 0
        assert lists.stored.rows.rows.ctypes.data % 64 == 0


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
            settings, skipped = _native.GraphSettings(1.2, k + 5), np.full(20, -1)
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
        _native.GraphSettings(100.0, N), known.vectors, lists.stored.native, None, np.full(100, -1),
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


@pytest.mark.parametrize("metric", METRICS)
def test_filters_that_many_documents_pass_are_applied_in_the_graph(metric, monkeypatch):
    n = 9000
    index = posh.Index.build(draw(n), metric=metric, optimize="latency")
    lists = index.snapshot().lists
    in_graph = []
    prepare = type(lists)._prepare_graph
    monkeypatch.setattr(
        type(lists), "_prepare_graph", lambda self, *args: in_graph.append(True) or prepare(self, *args)
    )
    random = np.random.default_rng(1).permutation(n)
    near_first = index.search(QUERIES[:1], n // 2, exact=True).ids[0]  # depends on the vectors
    for allowed, wanted in ((random[: n // 2], True), (random[: n // 4 - 1], False), (near_first, False)):
        for k in (1, 10):
            in_graph.clear()
            found = index.search(QUERIES, k, filter=allowed)
            assert bool(in_graph) == wanted
            assert np.isin(found.ids, allowed).all()
            last = index.search(QUERIES, k, filter=allowed, exact=True).scores[:, -1:]
            assert (found.scores >= last - 1e-6 * np.abs(last)).mean() >= 0.93
            alone = np.concatenate([index.search(query, k, filter=allowed).ids for query in QUERIES[:5]])
            np.testing.assert_array_equal(found.ids[:5], alone)


@pytest.mark.parametrize(
    ("optimize", "few_dimensions", "many_dimensions"),
    [
        ("balanced", True, False),
        ("latency", True, False),
        ("throughput", True, False),
        ("memory", False, False),
        ("build", False, False),
    ],
)
def test_the_local_dimension_decides_about_a_graph(optimize, few_dimensions, many_dimensions):
    rng = np.random.default_rng(0)
    for d, wanted in ((8, few_dimensions), (100, many_dimensions)):
        index = posh.Index.build(rng.normal(size=(N, d)), optimize=optimize)
        assert (graph_of(index) is not None) == wanted, d
        assert ("a graph" in str(index.report())) == wanted


def test_the_local_dimension_is_that_of_the_data():
    rng = np.random.default_rng(0)
    for d in (2, 6, 12):
        plane = rng.normal(size=(5000, d)) @ rng.normal(size=(d, 30))
        lists = posh.Index.build(plane, metric="euclidean", optimize="build").snapshot().lists
        assert lists.tuning.dimension == pytest.approx(d, rel=0.25)


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
    with pytest.raises(ValueError, match=r"expected optimize.*balanced.*latency.*'speed'"):
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


def test_many_new_documents_extend_the_graph(built):
    index = copy.copy(built).add(draw(MOST_NEW, seed=2))
    assert len(graph_of(index).slots) == N
    index.add(draw(1, seed=3))
    assert uses_graph(index)
    assert len(graph_of(index).slots) == len(index)
    assert share_found(index, QUERIES, 10) >= 0.93
    index.add(draw(N // 4, seed=4))
    assert uses_graph(index)
    assert len(graph_of(index).slots) == len(index)
    assert share_found(index, QUERIES, 10) >= 0.93


def test_many_new_documents_of_a_large_graph_are_searched_in_lists_and_then_in_the_graph(built, monkeypatch):
    monkeypatch.setattr("posh.index.nearest.graph._GROWN", 0.1)
    index = copy.copy(built).add(draw(MOST_NEW + 1, seed=2))
    assert not uses_graph(index)
    assert share_found(index, QUERIES, 10) >= 0.93
    index.add(draw(N // 10 - MOST_NEW, seed=3))
    assert uses_graph(index)
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


# Extending ------------------------------------------------------------------------------------------------


def neighbours_of(shape, records: np.ndarray) -> list[np.ndarray]:
    counts = records[:, shape.head + 24 : shape.head + 28].copy().view(np.uint32).ravel()
    nodes = records[:, shape.nodes : shape.nodes + 4 * 32].copy().view(np.uint32)
    return [row[:n] for row, n in zip(nodes, counts.tolist(), strict=True)]


def reached(shape, records: np.ndarray, entries: np.ndarray) -> np.ndarray:
    edges = neighbours_of(shape, records)
    is_reached = np.zeros(len(records), bool)
    waiting = np.unique(entries)
    while len(waiting):
        is_reached[waiting] = True
        waiting = np.unique(np.concatenate([edges[node] for node in waiting.tolist()]))
        waiting = waiting[~is_reached[waiting]]
    return is_reached


def reached_nodes(graph: Graph) -> np.ndarray:
    shape = _native.GraphShape(len(graph.transform.rows), graph.transform.n_bits, DEGREE)
    return reached(shape, graph.records, graph.entries)


def extend_records(shape, parts, old: np.ndarray, kernel: str, n_threads: int = 1) -> np.ndarray:
    vectors, lost, candidates, entries = parts
    records = np.full((len(vectors), shape.stride), 255, np.uint8)
    n_old = len(old)
    records[:n_old] = old
    new = vectors[n_old:], lost[n_old:], candidates[n_old:], entries
    _native.build_graph(shape, *new, 1.1, records, n_threads, kernel)
    return records


@pytest.mark.parametrize(("n_columns", "n_bits"), [(64, 2), (128, 1), (320, 1)])
@pytest.mark.parametrize("n_new", [1, 40, 500])
def test_kernels_extend_to_the_same_records(n_columns, n_bits, n_new):
    shape, n_old = _native.GraphShape(n_columns, n_bits, 32), 600
    vectors, lost, candidates, entries = plan(n_old + n_new, n_columns, seed=n_columns)
    parts = vectors, lost, candidates, entries
    old_plan = vectors[:n_old], lost[:n_old], candidates[:n_old] % n_old, entries[entries < n_old]
    old = build_records(shape, old_plan, "scalar")
    records = extend_records(shape, parts, old, "scalar")
    for kernel in kernels.available():
        for n_threads in (1, 3):
            np.testing.assert_array_equal(extend_records(shape, parts, old, kernel, n_threads), records)
    assert reached(shape, records, entries).all()
    before, after = neighbours_of(shape, old), neighbours_of(shape, records)
    is_same = np.array([np.array_equal(a, b) for a, b in zip(before, after, strict=False)])
    np.testing.assert_array_equal(records[:n_old][is_same], old[is_same])
    np.testing.assert_array_equal(records[:n_old, :n_columns], old[:, :n_columns])
    assert not is_same.all()
    assert max(map(np.max, after)) < n_old + n_new
    assert all(len(np.unique(row)) == len(row) and node not in row for node, row in enumerate(after))


def test_an_extension_without_new_nodes_changes_nothing():
    shape, parts = _native.GraphShape(64, 2, 32), plan(300, 64, seed=0)
    old = build_records(shape, parts, "scalar")
    np.testing.assert_array_equal(extend_records(shape, parts, old, "scalar"), old)


def share_of_true(lists, graph: Graph, queries: np.ndarray, stop: float = 1.1) -> float:
    """Return the share of the true ten nearest that a search in the graph finds, without any margin."""
    known = lists.space.metric.prepare_queries(queries).vectors
    live = lists.live.rows.view(np.uint8)
    found, scores = np.empty((len(queries), 10), np.int64), np.empty((len(queries), 10), np.float32)
    graph.native.search(
        _native.GraphSettings(stop, 20), known, lists.stored.native, live, np.full(len(queries), -1),
        found, scores, np.empty(len(queries), np.uint32), 2, kernels.active(),
    )  # fmt: skip
    true = lists.search(queries, NearestParams(10, exact=True), None)
    return float(np.mean([np.isin(a, b).mean() for a, b in zip(found, true.slots, strict=True)]))


@pytest.mark.parametrize("n_steps", [1, 4])
@pytest.mark.parametrize("n_added", [N // 10, 3 * N // 10])
def test_an_extended_graph_finds_as_much_as_a_new_one(built, n_added, n_steps):
    lists, graph = built.snapshot().detach().lists, graph_of(built)
    queries = draw(400, seed=11)
    for rows in np.array_split(draw(n_added, seed=10), n_steps):
        lists = lists.with_vectors(rows)
        graph = graph.extend(lists)
    assert reached_nodes(graph).all()
    np.testing.assert_array_equal(np.sort(graph.slots), np.arange(N + n_added))
    fresh = Graph.build(lists)
    assert share_of_true(lists, graph, queries) >= share_of_true(lists, fresh, queries) - 0.01
    as_queries = draw(n_added, seed=10)  # the new documents themselves
    assert share_of_true(lists, graph, as_queries) >= share_of_true(lists, fresh, as_queries) - 0.01


def test_documents_of_another_kind_are_measured_when_they_extend_the_graph(built):
    other = np.random.default_rng(3).normal(size=(500, 40)).astype(np.float32)
    index = copy.copy(built).add(other[:300])
    assert graph_of(index).measured is not graph_of(built).measured
    assert len(graph_of(index).slots) == N + 300
    assert reached_nodes(graph_of(index)).all()
    newest = np.concatenate([other[300:], draw(240, seed=5)])  # like the newest fifth of the documents
    assert share_found(index, newest, 10) >= 0.93


def test_deleted_documents_of_an_extended_graph(built):
    """Deleted nodes stay; new documents that were deleted do not become nodes."""
    rng = np.random.default_rng(0)
    lists, graph = built.snapshot().detach().lists, graph_of(built)
    for seed in range(3):
        lists = lists.with_vectors(draw(200, seed=20 + seed))
        lists = lists.without(rng.choice(len(lists), 60, replace=False))
        graph = graph.extend(lists)
    is_node = np.zeros(len(lists), bool)
    is_node[graph.slots] = True
    assert is_node[lists.live.rows].all()
    assert len(graph.slots) == is_node.sum() < len(lists)
    assert graph.n_slots == len(lists)
    assert reached_nodes(graph).all()
    assert share_of_true(lists, graph, QUERIES) >= share_of_true(lists, Graph.build(lists), QUERIES) - 0.01
    gone = lists.with_vectors(draw(5)).without(np.arange(len(lists), len(lists) + 5))
    assert graph.extend(gone).records is graph.records


def test_an_extension_of_records_that_lie(built):
    """Whatever the old records say, an extension reads nothing outside and searches find documents."""
    lists = built.snapshot().detach().lists.with_vectors(draw(100, seed=2))
    shape = _native.GraphShape(len(graph_of(built).transform.rows), graph_of(built).transform.n_bits, DEGREE)
    rng = np.random.default_rng(0)
    for lie_of in ("wild neighbours", "new neighbours", "random records", "no neighbours", "many neighbours"):
        records = graph_of(built).records.copy()
        rows = rng.integers(0, N, 1000)
        if lie_of in ("wild neighbours", "new neighbours"):
            high = 2**32 if lie_of == "wild neighbours" else N + 100
            nodes = rng.integers(N, high, (1000, 32), dtype=np.uint32)
            records[rows, shape.nodes : shape.nodes + 128] = nodes.view(np.uint8)
        elif lie_of == "random records":
            records[rows] = rng.integers(0, 256, (1000, records.shape[1]))
            records[rows[:500], shape.head : shape.head + 24] = 255  # not a number
        else:
            count = 0 if lie_of == "no neighbours" else 255
            records[rows, shape.head + 24 : shape.head + 28] = count
        graph = replace(graph_of(built), records=records).extend(lists)
        edges = neighbours_of(shape, graph.records[N:])
        assert all((row < N + 100).all() for row in edges)
        metric, stored = lists.space.metric.native, lists.stored.native
        settings = _native.GraphSettings(1.5, 10)
        search = graph.native.prepare(settings, metric, stored, None, None, 5, 1, kernels.active())
        found, _, _ = search.run(QUERIES)
        assert ((found >= -1) & (found < N + 100)).all()


def test_an_extension_does_not_depend_on_kernels_and_threads(built, monkeypatch):
    lists = built.snapshot().detach().lists.with_vectors(draw(300, seed=2))
    graphs = []
    for kernel, n in [("scalar", 1), (kernels.active(), 3)]:
        monkeypatch.setattr("posh.index.nearest.graph.resolve_threads", lambda n_threads=None, n=n: n)
        with monkeypatch.context() as patch:
            patch.setattr("posh.index.nearest.graph.kernels.active", lambda kernel=kernel: kernel)
            graphs.append(graph_of(built).extend(lists))
    np.testing.assert_array_equal(graphs[0].records, graphs[1].records)
    assert graphs[0].records is not graph_of(built).records


def test_small_additions_keep_the_recall(built):
    """Many small steps: the graph grows by extensions, and is measured again after a fifth of writes."""
    index, n_tables = copy.copy(built), 0
    measured = graph_of(index).measured
    for step in range(18):
        index.add(draw(100, seed=100 + step), ids=np.arange(20_000 + 100 * step, 20_100 + 100 * step))
        n_tables += graph_of(index).measured is not measured
        measured = graph_of(index).measured
        assert uses_graph(index)
        if step % 3 == 2:
            assert share_found(index, QUERIES, 10) >= 0.93
    assert n_tables in (1, 2, 3)
    assert len(index) - len(graph_of(index).slots) <= MOST_NEW
    assert reached_nodes(graph_of(index)).all()


def test_an_extended_graph_is_saved(built, tmp_path):
    index = copy.copy(built).add(draw(400, seed=2))
    index.save(tmp_path / "index")
    opened = posh.Index.load(tmp_path / "index", mmap=True)
    np.testing.assert_array_equal(graph_of(opened).records, graph_of(index).records)
    np.testing.assert_array_equal(opened.search(QUERIES, 10).ids, index.search(QUERIES, 10).ids)
    opened.add(draw(400, seed=3))
    assert len(graph_of(opened).slots) == N + 800


def test_graphs_that_do_not_suit_later_documents_are_built_again(built):
    lists, graph = built.snapshot().detach().lists, graph_of(built)
    assert graph.suits(lists)
    assert graph.suits(lists.with_vectors(draw(N // 3, seed=2)))
    assert not graph.suits(lists.with_vectors(draw(2 * N // 3, seed=2)))
    twice = lists
    for seed in (3, 4):
        twice = twice.with_vectors(draw(2 * N // 5, seed=seed))
        graph = graph.extend(twice)
    assert graph.suits(twice)
    assert not graph.suits(twice.with_vectors(draw(N // 3, seed=5)))
    assert not graph_of(built).suits(lists.without(np.arange(N // 4)))
    if lists.options.metric == "dot":
        assert not graph_of(built).suits(lists.with_vectors(2 * draw(300)))


def test_longer_documents_build_the_graph_again():
    index = posh.Index.build(draw(N), metric="dot", optimize="latency")
    radius = graph_of(index).transform.radius
    index.add(3 * draw(300, seed=2))
    assert graph_of(index).transform.radius > 2.5 * radius
    assert uses_graph(index)
    assert share_found(index, QUERIES, 10) >= 0.93


def test_a_collection_extends_its_graph_in_the_background(tmp_path, monkeypatch):
    monkeypatch.setattr(indexing, "AT_ONCE", 0)
    with posh.create(tmp_path / "shop", metric="cosine", optimize="latency") as shop:
        shop.upsert(range(N), draw(N))
        shop._store.wait_until_measured()
        before = shop._store.snapshot.index.lists
        shop.upsert(range(N, N + 300), draw(300, seed=2))
        shop._store.wait_until_measured()
        after = shop._store.snapshot.index.lists
        assert len(after.graph.slots) == N + 300
        assert after.graph.measured is before.graph.measured
        assert after.calibration is before.calibration
        assert (after.drift.n_docs, after.drift.n_written) == (N, 300)
        exact = shop.search(QUERIES, 10, exact=True)
        last = exact.scores[:, -1:]
        assert (shop.search(QUERIES, 10).scores >= last - 1e-6 * np.abs(last)).mean() > 0.93
    with posh.open(tmp_path / "shop") as shop:
        assert shop._store.snapshot.index.lists.drift.n_written == 300


def test_an_extension_is_handed_to_later_states(built):
    """Writes go on while the graph is extended."""
    before = built.snapshot().detach().lists.with_vectors(draw(300, seed=2))
    extended = before.measure_if_due()
    assert extended.graph.n_slots == N + 300
    now = before.with_vectors(draw(10, seed=3)).without(np.array([0, N]))
    later = now.with_measurements(before, extended)
    assert later.graph is extended.graph
    assert later.drift == now.drift
    assert later.with_measurements(before, extended) is None
    found = later.search(QUERIES, NearestParams(10), None)
    assert not np.isin(found.slots, [0, N]).any()


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
    "a stop that is not a number": ("graph_measured", lambda a: a.__setitem__((0, 1), np.nan)),
    "a huge number of vectors": ("graph_measured", lambda a: a.__setitem__((0, 2), 1e12)),
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
        metric, stored = lists.space.metric.native, lists.stored.native
        settings = _native.GraphSettings(1.5, 10)
        search = graph.native.prepare(settings, metric, stored, None, None, 5, 1, kernels.active())
        ids, _, _ = search.run(QUERIES)
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
