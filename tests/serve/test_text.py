"""Searching by text over HTTP: the answers and errors of the library."""

from __future__ import annotations

import re

import numpy as np
import pytest

import posh
from posh.client import Client
from posh.collection.text import TOKENIZER, TextOptions
from posh.serve.capacity import Limits
from posh.serve.sources import Folder
from tests.collection.implementations import DATA, SPARSE
from tests.serve.service import MemorySource, running

TITLES = [
    f"{'red wool' if i % 3 == 0 else 'blue'} {'scarf' if i % 2 else 'hat'} number{i}" for i in range(60)
]
PAYLOADS = [{"title": title, "n": i % 5} for i, title in enumerate(TITLES)]
LIMITS = Limits(k=100, hits=300, queries=4, text_characters=100, answer_bytes=60_000)
QUERIES = [
    "red scarf",
    '"wool hat"',
    "numb*",
    "",
    "'\";--\0\ud7ff😀",
    {"fts5": "title : red NOT hat"},
]


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    with running(Folder(folder, filter_seconds=10.0), limits=LIMITS) as address, Client(address) as client:
        client.create("shop", metric="euclidean", text=["title"]).upsert(range(60), DATA[:60], PAYLOADS)
        client.create("plain", metric="euclidean").upsert(range(9), DATA[:9])
        yield client


@pytest.fixture(scope="module")
def embedded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("embedded")
    with posh.create(folder, metric="euclidean", text="title") as shop:
        yield shop.upsert(range(60), DATA[:60], PAYLOADS)


def require_same(found, expected):
    assert found.kind == expected.kind
    assert found.ids.tolist() == expected.ids.tolist()
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-12)
    for i in range(len(expected)):
        for hit, other in zip(found[i], expected[i], strict=True):
            assert hit.payload == other.payload
            assert hit.vector_score == pytest.approx(other.vector_score)
            assert hit.text_score == pytest.approx(other.text_score)


@pytest.mark.parametrize("where", [None, {"n": {"lt": 3}}], ids=str)
@pytest.mark.parametrize("query", QUERIES, ids=lambda query: ascii(query)[:20])
def test_hits_are_those_of_the_library(client, embedded, query, where):
    shop, options = client.collection("shop"), {"filter": where, "payloads": True, "text": query}
    require_same(shop.search(k=7, **options), embedded.search(k=7, **options))
    require_same(shop.search(DATA[3], 7, **options), embedded.search(DATA[3], 7, **options))
    fusion = {"constant": 10, "text": 2.0, "vectors": 0.5, "depth": 9}
    options |= {"fusion": fusion, "exact": True, "vectors": True}
    require_same(shop.search(DATA[3], 7, **options), embedded.search(DATA[3], 7, **options))


def test_a_collection_with_a_hasher(client, tmp_path):
    remote = client.create("codes", SPARSE, text="title").upsert(range(60), DATA[:60], PAYLOADS)
    assert remote.text == TextOptions(("title",), TOKENIZER)
    with posh.create(tmp_path / "codes", SPARSE, text="title") as local:
        local.upsert(range(60), DATA[:60], PAYLOADS)
        for options in ({}, {"scoring": "asymmetric"}):
            found = remote.search(DATA[3], 7, text="red scarf", **options)
            require_same(found, local.search(DATA[3], 7, text="red scarf", **options))
    body = {"text": "red", "vectors": DATA[:1].tolist(), "include": ["code"]}
    answer = client.request("POST", "/v1/collections/codes/search", body)
    assert (
        len(answer["results"][0]["code"]) == len(answer["results"][0]["hits"][0]["code"]) == SPARSE.n_active
    )
    answer = client.request("POST", "/v1/collections/codes/search", {"text": "red", "include": ["code"]})
    assert "code" not in answer["results"][0]
    client.delete("codes")


def test_several_texts(client, embedded):
    shop, texts = client.collection("shop"), [QUERIES[0], QUERIES[5], ""]
    require_same(shop.search(text=texts, k=5), embedded.search(text=texts, k=5))
    require_same(shop.search(DATA[:3], 5, text=texts), embedded.search(DATA[:3], 5, text=texts))
    low = embedded.search(text="red", k=5).scores[0, 2]
    require_same(shop.search(text="red", min_score=low), embedded.search(text="red", min_score=low))


def test_what_a_collection_is(client):
    shop, plain = client.collection("shop"), client.collection("plain")
    assert shop.text == TextOptions(("title",), TOKENIZER)
    assert plain.text is plain.info().text is None
    made = client.create("other", metric="cosine", text=["a", "b"], tokenizer="trigram")
    assert made.text == TextOptions(("a", "b"), "trigram")
    made.upsert(["x"], DATA[:1], [{"c": "woollen"}])
    assert made.index_text("c").search(text="wool").ids[0, 0] is None
    assert made.index_text("c", tokenizer="trigram").index_text().search(text="wool").ids[0, 0] == "x"
    client.delete("other")


def test_errors_are_those_of_the_library(client):
    shop, plain = client.collection("shop"), client.collection("plain")
    for call, message in [
        (lambda: shop.search(text={"fts5": "red AND ("}), "expected an expression of FTS5, got 'red AND ('"),
        (lambda: shop.search(text="x" * 101), "expected at most 100 characters of a text, got 101"),
        (lambda: shop.search(text=["x"] * 5), "expected at most 4 texts, got 5"),
        (lambda: shop.search(text="x", k=101), "expected at most 100"),
        (lambda: shop.search(DATA[:1], text="x", fusion={"depth": 101}), "at most 100 for k and depth"),
        (lambda: shop.search(DATA[:4], text=["x"] * 4, fusion={"depth": 80}), "of all texts, got 320"),
        (lambda: plain.search(text="x"), "got one without: create it with posh.create(path, text="),
        (lambda: plain.search(DATA[0], text="x", fusion={"depth": 9}), "got one without: create it with"),
        (lambda: plain.index_text(), "got one without: create it with"),
    ]:
        with pytest.raises(ValueError, match=re.escape(message)):
            call()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"text": "x", "ids": [1]}, "expected text with vectors or alone"),
        ({"text": "x", "fusion": {"depth": 3}}, "fusion is for a search by vectors and text"),
        ({"vectors": [[0.0] * 8], "fusion": {}}, "fusion is for a search by vectors and text"),
        ({"text": "x", "vectors": [[0.0] * 8], "fusion": {"x": 3}}, "some of constant, vectors, text, depth"),
        ({"text": {"sql": "x"}}, "fts5"),
        ({"text": 3}, "text"),
        ({"text": "x", "recall": 0.5}, "expected recall with queries, got text alone"),
        ({}, "expected either vectors or ids, or text"),
    ],
    ids=str,
)
def test_wrong_bodies(client, body, message):
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        client.request("POST", "/v1/collections/shop/search", body)


def test_a_result_that_is_too_large(client):
    shop = client.collection("shop")
    shop.upsert(["large"], DATA[:1], [{"title": "enormous", "more": "x" * 70_000}])
    with pytest.raises(ValueError, match="expected a response of at most 60000 bytes"):
        shop.search(text="enormous", payloads=True)
    assert shop.search(text="enormous").ids[0, 0] == "large"
    shop.delete(["large"])


def test_an_engine_without_text(tmp_path):
    from tests.collection.reference import ReferenceCollection

    source = MemorySource(things=ReferenceCollection(metric="cosine").upsert([1], DATA[:1]))
    with running(source) as address, Client(address) as client:
        things = client.collection("things")
        with pytest.raises(ValueError, match="expected a collection with a text index, got one without"):
            things.search(text="x")
        with pytest.raises(ValueError, match="expected a collection in a folder for a text index"):
            things.index_text("a")
