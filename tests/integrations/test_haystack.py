"""The document store beyond the suites of Haystack: retrieval, pipelines, existing collections."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest
from haystack import Document, Pipeline
from haystack.dataclasses import ByteStream, SparseEmbedding
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy, FilterPolicy
from haystack.errors import FilterError

import posh
from posh.errors import MissingExtraError, find_install_command
from posh.integrations.haystack import PoshDocumentStore, PoshEmbeddingRetriever, translate_filters

VECTORS = np.eye(4)
LATE = {"field": "meta.page", "operator": ">", "value": 1}


@pytest.fixture
def store(tmp_path):
    with PoshDocumentStore(tmp_path / "store") as store:
        store.write_documents(
            [
                Document(id=f"{i}", content=f"text {i}", embedding=VECTORS[i].tolist(), meta={"page": i})
                for i in range(4)
            ]
        )
        yield store


def ids(documents) -> list[str]:
    return [document.id for document in documents]


def test_the_nearest_come_first_with_scores(store):
    documents = store.retrieve([0.0, 1.0, 0.5, 0.0], top_k=2)
    assert ids(documents) == ["1", "2"]
    assert [one.score for one in documents] == pytest.approx([1 / np.sqrt(1.25), 0.5 / np.sqrt(1.25)])
    assert documents[0].embedding == [0.0, 1.0, 0.0, 0.0]
    assert documents[0].meta == {"page": 1}


def test_filters_and_options_of_a_search(store):
    assert ids(store.retrieve(VECTORS[0], filters=LATE, top_k=10)) == ["2", "3"]
    assert ids(store.retrieve(VECTORS[0], min_score=0.5)) == ["0"]


def test_documents_without_embedding_are_not_retrieved(store):
    store.write_documents([Document(id="none", content="no embedding", meta={"page": 9})])
    assert store.count_documents() == 5
    assert sorted(ids(store.retrieve(VECTORS[0], top_k=10))) == ["0", "1", "2", "3"]
    assert ids(store.retrieve(VECTORS[0], top_k=10, filters=LATE)) == ["2", "3"]
    assert [one.embedding for one in store.filter_documents() if one.id == "none"] == [None]


def test_the_width_of_the_first_documents_without_embedding():
    with PoshDocumentStore(embedding_dim=3) as store:
        store.write_documents([Document(id="none", content="no embedding")])
        store.write_documents([Document(id="one", embedding=[0.0, 0.0, 1.0])])
        assert ids(store.retrieve([0.0, 0.0, 1.0])) == ["one"]


def test_all_parts_of_a_document_are_kept(tmp_path):
    document = Document(
        content="text",
        blob=ByteStream(b"abc", mime_type="text/plain"),
        sparse_embedding=SparseEmbedding([1, 5], [0.5, 0.25]),
        embedding=[1.0, 0.0],
        meta={"tags": ["a"], "inner": {"b": None}},
    )
    with PoshDocumentStore(tmp_path / "store") as store:
        store.write_documents([document])
    with PoshDocumentStore(tmp_path / "store") as store:
        assert store.filter_documents() == [document]


def test_existing_collections_and_other_fields_of_text(tmp_path):
    with posh.create(tmp_path / "books", metric="cosine", text=["title"]) as books:
        books.upsert([1, 2], VECTORS[:2], [{"title": "On flies"}, {"title": "On codes"}])
        store = PoshDocumentStore(books, text_field="title")
        assert [one.content for one in store.retrieve(VECTORS[1], top_k=1)] == ["On codes"]
        assert [one.content for one in store.retrieve(VECTORS[1], top_k=1, text="flies")] == ["On flies"]
        store.delete_documents(["1"])
        assert books.count() == 1
        assert (
            store.count_documents_by_filter({"field": "content", "operator": "==", "value": "On codes"}) == 1
        )


@pytest.mark.parametrize("policy", list(DuplicatePolicy))
def test_repeated_ids_in_one_call(store, policy):
    documents = [Document(id="x", content=text, embedding=[1.0] * 4) for text in ("first", "second")]
    if policy in (DuplicatePolicy.NONE, DuplicatePolicy.FAIL):
        with pytest.raises(DuplicateDocumentError, match="expected documents with new ids"):
            store.write_documents(documents, policy)
        assert store.count_documents() == 4
        return
    assert store.write_documents(documents, policy) == 1
    found = [one.content for one in store.filter_documents() if one.id == "x"]
    assert found == ["first" if policy is DuplicatePolicy.SKIP else "second"]


def test_fields_that_the_store_uses_are_refused(store):
    for name in ("text", "haystack"):
        with pytest.raises(ValueError, match=f"expected metadata without the field '{name}'"):
            store.write_documents([Document(meta={name: 1}, embedding=[1.0] * 4)])


@pytest.mark.parametrize(
    "filters",
    [
        {"field": "meta.a", "operator": "like", "value": "x"},
        {"field": "meta.a", "operator": "==", "value": {"b": 1}},
        {"operator": "XOR", "conditions": []},
        {"operator": "AND", "conditions": [3]},
        {"field": "meta.a", "operator": ">", "value": True},
    ],
)
def test_filters_that_are_malformed(filters):
    with pytest.raises(FilterError, match="expected"):
        translate_filters(filters)


def test_a_pipeline_survives_serialisation(tmp_path):
    with PoshDocumentStore(tmp_path / "store", recall=0.9) as store:
        store.write_documents([Document(id=f"{i}", embedding=VECTORS[i].tolist()) for i in range(4)])
        retriever = PoshEmbeddingRetriever(store, top_k=2, filters=LATE, filter_policy=FilterPolicy.MERGE)
        pipeline = Pipeline()
        pipeline.add_component("retriever", retriever)
        text = pipeline.dumps()
    again = Pipeline.loads(text, allowed_modules=["posh.integrations.haystack"])
    loaded = again.get_component("retriever")
    with loaded.document_store as store:
        assert (loaded.top_k, loaded.filters, loaded.filter_policy) == (2, LATE, FilterPolicy.MERGE)
        assert store.collection.index_options["recall"] == 0.9
        query = {"query_embedding": VECTORS[2].tolist(), "top_k": 1}
        assert again.run({"retriever": query})["retriever"]["documents"] == []
        store.update_by_filter({"field": "meta.page", "operator": "==", "value": None}, {"page": 5})
        assert ids(again.run({"retriever": query})["retriever"]["documents"]) == ["2"]


async def test_the_retriever_can_be_awaited(store):
    retriever = PoshEmbeddingRetriever(store)
    found = await retriever.run_async(VECTORS[3].tolist(), top_k=1, filters=LATE, options={"exact": True})
    assert ids(found["documents"]) == ["3"]


def test_a_store_of_an_open_collection_cannot_be_serialised(tmp_path):
    with posh.create(tmp_path / "store", metric="cosine") as collection:
        with pytest.raises(ValueError, match="expected a store of a folder to serialise"):
            PoshDocumentStore(collection).to_dict()
        with pytest.raises(TypeError, match="expected index options with a folder only, got recall"):
            PoshDocumentStore(collection, recall=0.9)


def test_without_the_extra_the_pip_line_is_printed(monkeypatch):
    monkeypatch.delitem(sys.modules, "posh.integrations.haystack")
    monkeypatch.setitem(sys.modules, "haystack", None)
    with pytest.raises(MissingExtraError, match=re.escape(find_install_command("haystack"))):
        import posh.integrations.haystack  # noqa: F401
