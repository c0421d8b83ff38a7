"""Fields and maps: what a collection has in it."""

from __future__ import annotations

import asyncio
import base64
import json
import time

import httpx
import numpy as np
import pytest

import posh
from posh._wire import unpack_vectors
from posh.serve import overview
from posh.serve.capacity import CallQueue, Limits, make_executor
from posh.serve.layout import arrange, find_neighbours
from posh.serve.overview import (
    MOST_FIELDS,
    MOST_VALUES,
    CachedOverview,
    OverviewCache,
    compute_plane,
    shorten_payload,
    summarise,
    write_map,
)
from tests.collection.implementations import DATA, SPARSE
from tests.collection.reference import ReferenceCollection
from tests.serve.service import MemorySource, running

BOOKS = [
    {
        "title": f"Book {i}",
        "summary": "A long story of a man and a fish in a sea that does not care. " * 2,
        "pages": 100 + i,
        "genre": ["crime", "travel", "poetry"][i % 3],
        "tags": ["old", f"tag-{i}"],
        "sold": i % 2 == 0,
        "cover": "/covers/7.png",
        "maker": {"name": "x"},
    }
    for i in range(30)
]


def field(summary, name):
    (found,) = [one for one in summary["fields"] if one["name"] == name]
    return found


def test_fields_have_types_values_and_ranges():
    found = summarise(BOOKS, {})
    assert found["sampled"] == 30
    types = {one["name"]: one["type"] for one in found["fields"]}
    assert types == {
        "title": "string",
        "summary": "string",
        "pages": "number",
        "genre": "string",
        "tags": "list",
        "sold": "boolean",
        "cover": "string",
        "maker": "object",
    }
    assert field(found, "genre")["values"] == [
        {"value": name, "count": 10} for name in ("crime", "travel", "poetry")
    ]
    assert (field(found, "pages")["low"], field(found, "pages")["high"]) == (100, 129)
    assert field(found, "tags")["values"][0] == {"value": "old", "count": 30}
    assert field(found, "summary")["values"] == []


def test_fields_know_what_they_are_for():
    found = summarise(BOOKS, {})
    assert [found[role] for role in ("title", "text", "image", "group")] == [
        "title",
        "summary",
        "cover",
        "genre",
    ]
    bare = summarise([{"a": 1.5}, {"a": 2.5}], {})
    assert [bare[role] for role in ("title", "text", "image", "group")] == [None] * 4


def test_the_metadata_decides():
    metadata = {"name": "genre", "label": {"field": "sold", "values": [True, False]}}
    found = summarise(BOOKS, metadata)
    assert (found["title"], found["group"]) == ("genre", "sold")
    assert summarise(BOOKS, {"name": "no such field"})["title"] == "title"


def test_a_title_is_found_by_what_it_is():
    found = summarise([{"kind": "fish", "sort": f"Pike number {i}"} for i in range(10)], {})
    assert found["title"] == "sort"


def test_large_payloads_are_shortened_before_they_are_looked_at():
    large = {"text": "x" * 10_000, "tags": ["a", "b" * 1000], "maker": {"name": "c" * 1000}, "n": 3}
    found = shorten_payload(large | {f"field-{i}": "d" * 1000 for i in range(200)})
    assert len(found) == MOST_FIELDS
    assert (found["tags"], found["maker"], found["n"]) == (["a"], {}, 3)
    assert max(len(str(value)) for value in found.values()) == 300


def test_true_is_not_one():
    values = field(summarise([{"a": True}, {"a": 1}, {"a": 1}], {}), "a")["values"]
    assert [(type(one["value"]), one["count"]) for one in values] == [(int, 2), (bool, 1)]


def test_what_is_told_of_fields_is_bounded():
    found = summarise([{f"field-{i}": i for i in range(200)}, {"word": "x" * 101}], {})
    assert len(found["fields"]) == MOST_FIELDS
    many = field(summarise([{"a": i} for i in range(100)], {}), "a")
    assert (len(many["values"]), many["distinct"]) == (MOST_VALUES, 100)


@pytest.mark.parametrize("shape", [(200, 30), (20, 300), (50, 2)])
def test_a_plane_is_that_of_the_singular_vectors(shape):
    rng = np.random.default_rng(1)
    X = (rng.normal(size=shape) * np.linspace(3, 0.5, shape[1]) ** 2 + 5).astype(np.float32)
    plane = compute_plane(X)
    expected = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:2]
    assert np.abs(np.sum(plane.axes * expected, axis=1)) == pytest.approx([1, 1], abs=1e-3)
    np.testing.assert_allclose(plane.mean, X.mean(axis=0), rtol=1e-5)


@pytest.mark.parametrize("X", [np.zeros((0, 3)), np.ones((1, 3)), np.ones((5, 1)), np.full((4, 3), 1e30)])
def test_a_plane_of_nothing_much(X):
    plane = compute_plane(X.astype(np.float32))
    assert plane.axes.shape == (2, X.shape[1])
    assert not plane.axes.any()


class Counting(ReferenceCollection):
    """Counts how often it is sampled."""

    n_sampled = 0

    def _sample_items(self, n):
        self.n_sampled += 1
        return super()._sample_items(n)


@pytest.fixture
def books():
    collection = Counting(SPARSE, metadata={"title": "Books"})
    return collection.upsert([*range(29), "last"], DATA[:30], BOOKS)


@pytest.fixture
def http(books):
    with (
        running(MemorySource(books=books), limits=Limits(map=20, fields=10)) as address,
        httpx.Client(base_url=f"{address}/v1/collections/books") as client,
    ):
        yield client


def test_fields_are_asked_for(http, books):
    found = http.get("/fields").json()
    items = list(books.sample_items(10))
    examples = found.pop("examples")
    assert found == summarise([item.payload for item in items], {})
    assert found["sampled"] == 10
    assert sorted(map(str, examples)) == sorted(str(item.id) for item in items)
    first = [item.payload["genre"] for one in examples[:3] for item in items if item.id == one]
    assert sorted(first) == ["crime", "poetry", "travel"]


def test_a_map_has_items_fields_and_coordinates(http, books):
    found = http.get("/map").json()
    items = list(books.sample_items(20))
    assert found["ids"] == [item.id for item in items]
    assert np.shape(found["points"]) == (20, 2)
    check_coordinates(found, np.array([item.vector for item in items]))
    assert found["titles"] == [item.payload["title"] for item in items]
    fields = {field["name"]: field for field in found["fields"]}
    assert set(fields) == {"genre", "pages", "sold"}
    genre, pages = fields["genre"], fields["pages"]
    assert [genre["values"][i] for i in genre["of"]] == [item.payload["genre"] for item in items]
    assert pages["of"] == [item.payload["pages"] for item in items]
    assert min(pages["of"]) < pages["low"] < pages["high"] < max(pages["of"])
    assert (found["count"], found["by_direction"]) == (30, False)


def check_coordinates(found, vectors):
    axes = unpack_vectors(found["axes"]["shape"], found["axes"]["float32"])
    packed = found["coordinates"]
    rough = np.frombuffer(base64.b64decode(packed["int8"]), np.int8).reshape(packed["shape"])
    exact = (vectors - np.array(found["mean"])) @ axes.T
    np.testing.assert_allclose(rough * packed["scale"], exact, atol=packed["scale"])


def test_directions_are_compared_if_the_metric_is_the_cosine():
    collection = ReferenceCollection(metric="cosine").upsert(range(30), DATA[:30])
    with running(MemorySource(all=collection)) as address:
        found = httpx.get(f"{address}/v1/collections/all/map").json()
    assert found["by_direction"]
    check_coordinates(found, DATA[:30] / np.linalg.norm(DATA[:30], axis=1, keepdims=True))
    assert (found["fields"], found["titles"]) == ([], [None] * 30)


def share_of_neighbours(places, of, k=5):
    """The share of the k nearest items on a map that are of the same group."""
    apart = np.linalg.norm(places[:, None] - places, axis=2)
    np.fill_diagonal(apart, np.inf)
    return np.mean(of[np.argsort(apart, axis=1)[:, :k]] == of[:, None])


def test_a_layout_separates_what_a_plane_mixes():
    rng = np.random.default_rng(0)
    of = np.arange(300) % 6
    vectors = (4 * rng.normal(size=(6, 20))[of] + rng.normal(size=(300, 20))).astype(np.float32)
    start = rng.normal(size=(300, 2)).astype(np.float32)
    places = arrange(find_neighbours(vectors, 10, "euclidean", None), start)
    assert share_of_neighbours(start, of) < 0.3
    assert share_of_neighbours(places, of) > 0.95
    np.testing.assert_array_equal(places, arrange(find_neighbours(vectors, 10, "euclidean", None), start))
    assert not np.array_equal(places, arrange(find_neighbours(vectors, 10, "euclidean", None), start, seed=1))


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "dot", None])
def test_neighbours_are_those_of_the_metric(metric):
    X = DATA[:100]
    compared = X / np.linalg.norm(X, axis=1, keepdims=True) if metric in ("cosine", "dot") else X
    apart = np.linalg.norm(compared[:, None].astype(np.float64) - compared, axis=2)
    np.fill_diagonal(apart, np.inf)
    found = np.take_along_axis(apart, find_neighbours(X, 4, metric, None), axis=1)
    np.testing.assert_allclose(found, np.sort(apart, axis=1)[:, :4], rtol=1e-4)


def test_neighbours_of_codes_share_bits():
    index = posh.CodeIndex(SPARSE).add(DATA[:100])
    found = find_neighbours(DATA[:100], 4, None, SPARSE)
    expected = index.search(DATA[:100], k=5).ids
    assert all(i not in row for i, row in enumerate(found))
    assert all(set(row) <= set(other) for row, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_few_items_and_equal_ones_have_places(n):
    vectors = np.ones((n, 3), np.float32)
    places = arrange(find_neighbours(vectors, 10, "euclidean", None), np.zeros((n, 2), np.float32))
    assert places.shape == (n, 2)
    assert np.isfinite(places).all()


def test_the_first_field_is_the_label_or_the_one_that_tells_most_about_neighbours():
    rng = np.random.default_rng(0)
    of = np.arange(60) % 3
    vectors = 5 * rng.normal(size=(3, 8))[of] + rng.normal(size=(60, 8))
    payloads = [
        {"coin": rng.integers(2).item(), "group": "abc"[i], "ratio": rng.random(), "tags": ["x"]} for i in of
    ]
    for metadata, first in (({}, "group"), ({"label": {"field": "coin", "values": [0, 1]}}, "coin")):
        collection = ReferenceCollection(metric="euclidean", metadata=metadata)
        collection.upsert(range(60), vectors, payloads)
        fields = json.loads(write_map(collection, 100))["fields"]
        assert fields[0]["name"] == first
        assert {field["name"] for field in fields} == {"coin", "group", "ratio"}


def test_rare_values_are_grey():
    payloads = [{"kind": f"kind {min(i % 40, 15)}"} for i in range(400)]
    collection = ReferenceCollection(metric="euclidean").upsert(range(400), DATA[:400], payloads)
    (field,) = json.loads(write_map(collection, 400))["fields"]
    assert len(field["values"]) == 11
    assert "kind 15" in field["values"]
    assert {field["values"][i] for i in field["of"] if i >= 0} == set(field["values"])
    assert field["of"].count(-1) == 50


def test_an_empty_collection_has_a_map_of_nothing():
    with running(MemorySource(none=ReferenceCollection())) as address:
        found = httpx.get(f"{address}/v1/collections/none/map").json()
    assert (found["ids"], found["points"], found["count"]) == ([], [], 0)


def test_an_overview_is_made_once_until_something_is_written(http, books, monkeypatch):
    monkeypatch.setattr(overview, "_SHARE", 1.0)  # else it stays for minutes if its making was held up
    first = [http.get("/map").content for _ in range(3)]
    assert len(set(first)) == 1
    assert books.n_sampled == 1
    http.post("/upsert", json={"ids": ["new"], "vectors": DATA[40:41].tolist()})
    assert http.post("/search", json={"ids": [1]}).status_code == 200
    deadline = time.monotonic() + 30
    while http.get("/map").json()["count"] != 31:  # the answer of before is given for a moment
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert books.n_sampled == 2


def test_a_failure_is_told_to_all_who_wait_and_not_remembered():
    async def story():
        answer = CachedOverview(OverviewCache(2), CallQueue(make_executor(), 1, 60, 60), lambda: 0)

        def fail():
            raise ValueError("no")

        failed = await asyncio.gather(*[answer.get(fail) for _ in range(2)], return_exceptions=True)
        assert [str(error) for error in failed] == ["no", "no"]
        assert await answer.get(lambda: b"yes") == b"yes"
        assert await answer.get(fail) == b"yes"

    asyncio.run(story())


def test_what_was_not_asked_for_longest_is_forgotten():
    cache = OverviewCache(2)
    for key in "ab":
        cache.put(key, key.encode())
    assert cache.get("a") == b"a"
    cache.put("c", b"c")
    assert [cache.get(key) for key in "abc"] == [b"a", None, b"c"]
    cache.evict("a")
    assert cache.get("a") is None
