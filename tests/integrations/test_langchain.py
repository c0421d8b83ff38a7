"""What users of LangChain expect of a vector store, beyond its standard suite."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import warnings

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_core.indexing import InMemoryRecordManager, index
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_core.vectorstores.utils import maximal_marginal_relevance

import posh
from posh.errors import find_install_command
from posh.integrations.langchain import PoshVectorStore, _choose_diverse

WORDS = [f"word {i}" for i in range(60)]
METADATAS = [{"n": i, "even": i % 2 == 0} for i in range(60)]
EMBEDDING = DeterministicFakeEmbedding(size=16)


@pytest.fixture
def store():
    with PoshVectorStore.from_texts(WORDS, EMBEDDING, METADATAS, ids=[f"id-{i}" for i in range(60)]) as made:
        yield made


@pytest.fixture
def reference():
    """LangChain's own store, which compares all vectors by cosine."""
    return InMemoryVectorStore.from_texts(WORDS, EMBEDDING, METADATAS, ids=[f"id-{i}" for i in range(60)])


def test_searches_give_what_the_store_of_langchain_gives(store, reference):
    vector = EMBEDDING.embed_query("a question")
    expected = reference.similarity_search_with_score("a question", k=10)
    found = store.similarity_search_with_score("a question", k=10)
    assert [document for document, _ in found] == [document for document, _ in expected]
    np.testing.assert_allclose([score for _, score in found], [score for _, score in expected], atol=1e-6)
    assert store.similarity_search_with_score_by_vector(vector, k=10) == found
    assert store.similarity_search("a question", k=10) == [document for document, _ in expected]
    assert store.similarity_search_by_vector(vector, k=10) == [document for document, _ in expected]
    assert len(store.similarity_search("a question")) == 4
    assert len(store.similarity_search("a question", k=100)) == 60


def test_async_searches_give_the_same(store):
    async def searches():
        vector = await EMBEDDING.aembed_query("a question")
        return [
            await store.asimilarity_search("a question", k=5),
            await store.asimilarity_search_by_vector(vector, k=5),
            [document for document, _ in await store.asimilarity_search_with_score("a question", k=5)],
            [
                document
                for document, _ in await store.asimilarity_search_with_relevance_scores("a question", k=5)
            ],
        ]

    for found in asyncio.run(searches()):
        assert found == store.similarity_search("a question", k=5)


@pytest.mark.parametrize("lambda_mult", [0.0, 0.3, 0.5, 1.0])
def test_documents_unlike_each_other_are_those_of_langchain(store, reference, lambda_mult):
    options = {"k": 6, "fetch_k": 30, "lambda_mult": lambda_mult}
    expected = reference.max_marginal_relevance_search("a question", **options)
    assert store.max_marginal_relevance_search("a question", **options) == expected
    assert asyncio.run(store.amax_marginal_relevance_search("a question", **options)) == expected
    vector = EMBEDDING.embed_query("a question")
    assert store.max_marginal_relevance_search_by_vector(vector, **options) == expected


def test_the_choice_of_unlike_vectors_is_that_of_langchain():
    rng = np.random.default_rng(0)
    for n, k in [(1, 3), (2, 2), (40, 7), (40, 60)]:
        query, vectors = rng.normal(size=5), rng.normal(size=(n, 5))
        for share in (0.0, 0.4, 1.0):
            assert _choose_diverse(query, vectors, k, share) == maximal_marginal_relevance(
                query, vectors, share, k
            )
    assert _choose_diverse([1.0, 0.0], [[0.0, 0.0], [2.0, 0.0]], 2, 0.5) == [1, 0]
    with pytest.raises(ValueError, match=r"expected lambda_mult in \[0, 1\], got 2"):
        _choose_diverse([1.0], [[1.0]], 1, 2.0)
    with pytest.raises(ValueError, match="expected k at least 1, got 0"):
        _choose_diverse([1.0], [[1.0]], 0, 0.5)


def test_unlike_documents_of_an_empty_store_are_none():
    with PoshVectorStore(EMBEDDING) as empty:
        assert empty.max_marginal_relevance_search("a question") == []


def test_filters_and_other_options_of_a_search(store):
    found = store.similarity_search("a question", k=60, filter={"even": True, "n": {"lt": 20}})
    assert sorted(document.metadata["n"] for document in found) == list(range(0, 20, 2))
    assert store.similarity_search("a question", k=60, filter={"n": 61}) == []
    found = store.max_marginal_relevance_search("a question", k=3, filter={"n": {"gte": 57}})
    assert sorted(document.metadata["n"] for document in found) == [57, 58, 59]
    assert store.similarity_search("a question", exact=True) == store.similarity_search("a question")
    with pytest.raises(TypeError, match="nothing_like_that"):
        store.similarity_search("a question", nothing_like_that=1)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_relevance_is_between_0_and_1_and_falls(metric):
    with (
        PoshVectorStore.from_texts(WORDS, EMBEDDING, metric=metric) as store,
        warnings.catch_warnings(action="error"),
    ):
        found = store.similarity_search_with_relevance_scores("word 7", k=60)
        relevance = [value for _, value in found]
        assert found[0][0].page_content == "word 7"
        assert relevance[0] == pytest.approx(1.0, abs=1e-3)
        assert relevance == sorted(relevance, reverse=True)
        assert all(0.0 <= value <= 1.0 for value in relevance)
        likely = store.similarity_search_with_relevance_scores("word 7", k=60, score_threshold=relevance[9])
        assert likely == found[:10]


def test_relevance_of_opposite_vectors_is_0():
    class Signs(Embeddings):
        def embed_documents(self, texts):
            return [self.embed_query(text) for text in texts]

        def embed_query(self, text):
            return [1.0, 3.0] if text == "yes" else [-1.0, -3.0]

    with PoshVectorStore.from_texts(["yes", "no"], Signs()) as store:
        found = store.similarity_search_with_relevance_scores("yes", k=2)
        assert [(document.page_content, round(value, 6)) for document, value in found] == [
            ("yes", 1.0),
            ("no", 0.0),
        ]


def test_scores_without_bounds_need_a_function():
    with (
        PoshVectorStore.from_texts(WORDS, EMBEDDING, metric="dot") as store,
        pytest.raises(ValueError, match="got dot: give the store a relevance_score_fn"),
    ):
        store.similarity_search_with_relevance_scores("word 7")
    with PoshVectorStore(EMBEDDING, metric="dot", relevance_score_fn=lambda score: 0.25) as store:
        store.add_texts(WORDS)
        assert [value for _, value in store.similarity_search_with_relevance_scores("word 7", k=2)] == [
            0.25
        ] * 2


@pytest.mark.parametrize(
    ("refine", "first"), [("cosine", 1.0), ("vectors", 1.0)], ids=["refined by cosine", "by distance"]
)
def test_relevance_in_a_collection_that_is_searched_by_codes(tmp_path, refine, first):
    vectors = np.array(EMBEDDING.embed_documents(WORDS))
    hasher = posh.FruitFly(64, 4, random_state=0).fit(vectors)
    with posh.Collection(tmp_path / "codes", hasher, refine=refine) as collection:
        store = PoshVectorStore.from_texts(WORDS, EMBEDDING, collection=collection)
        found = store.similarity_search_with_relevance_scores("word 7", k=1)
        assert found[0][1] == pytest.approx(first, abs=1e-3)


def test_retrievers_of_all_kinds(store):
    best = store.similarity_search("a question", k=3)
    assert store.as_retriever(search_kwargs={"k": 3}).invoke("a question") == best
    assert asyncio.run(store.as_retriever(search_kwargs={"k": 3}).ainvoke("a question")) == best
    filtered = store.as_retriever(search_kwargs={"k": 9, "filter": {"n": {"lt": 5}}})
    assert len(filtered.invoke("a question")) == 5
    likely = store.as_retriever(
        search_type="similarity_score_threshold", search_kwargs={"score_threshold": 0.99}
    )
    assert [document.id for document in likely.invoke("word 7")] == ["id-7"]
    unlike_each_other = store.as_retriever(search_type="mmr", search_kwargs={"k": 2, "fetch_k": 10})
    assert unlike_each_other.invoke("a question") == store.max_marginal_relevance_search(
        "a question", k=2, fetch_k=10
    )


def test_a_folder_keeps_documents(tmp_path):
    documents = [Document(page_content=word, metadata={"n": i}) for i, word in enumerate(WORDS)]
    with PoshVectorStore.from_documents(documents, EMBEDDING, collection=tmp_path / "kept") as store:
        expected = store.similarity_search_with_score("a question")
    with PoshVectorStore(EMBEDDING, tmp_path / "kept") as store:
        assert store.similarity_search_with_score("a question") == expected
        assert store.collection.index_options["metric"] == "cosine"
    with pytest.raises(ValueError, match="expected the options that this collection has"):
        PoshVectorStore(EMBEDDING, tmp_path / "kept", metric="dot")


def test_a_temporary_folder_goes_with_its_store():
    store = PoshVectorStore.from_texts(WORDS, EMBEDDING)
    folder = store.collection.path
    assert folder.exists()
    del store
    gc.collect()
    assert not folder.exists()


def test_a_store_that_cannot_be_opened_leaves_no_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ValueError, match="metric"):
        PoshVectorStore(EMBEDDING, metric="wrong")
    assert list(tmp_path.iterdir()) == []


def test_an_open_collection_stays_open_and_its_items_are_documents(tmp_path):
    vectors = EMBEDDING.embed_documents(WORDS)
    with posh.Collection(tmp_path / "own", metric="cosine") as collection:
        collection.upsert(range(60), vectors, [{"title": word, "n": i} for i, word in enumerate(WORDS)])
        with PoshVectorStore(EMBEDDING, collection, text_field="title") as store:
            (found,) = store.similarity_search("word 7", k=1)
            assert found == Document(id="7", page_content="word 7", metadata={"n": 7})
            with pytest.raises(TypeError, match="with an open collection: call its reindex"):
                PoshVectorStore(EMBEDDING, collection, metric="dot")
            with pytest.raises(ValueError, match="expected the text of item 7 in the field 'text', got None"):
                PoshVectorStore(EMBEDDING, collection).similarity_search("word 7", k=1)
        assert len(collection) == 60


def test_numbers_as_ids(tmp_path):
    """``"7"`` is the item ``"7"``, or the item ``7`` if there is no other."""
    with posh.Collection(tmp_path / "own", metric="cosine") as collection:
        collection.upsert(
            [7, 8, -3], EMBEDDING.embed_documents(["a", "b", "c"]), [{"text": t} for t in "abc"]
        )
        store = PoshVectorStore(EMBEDDING, collection)
        assert [one.page_content for one in store.get_by_ids(["8", "7", "-3", "9", "08"])] == ["b", "a", "c"]
        store.add_texts(["A"], ids=["7"])
        assert collection.get([7])[0].payload == {"text": "A"}
        assert "7" not in collection
        store.add_texts(["new"], ids=["9"])
        assert "9" in collection
        assert 9 not in collection
        collection.upsert(["8"], EMBEDDING.embed_documents(["text"]), [{"text": "text"}])
        store.delete(["8", "8", "10", str(2**70)])
        assert "8" not in collection
        assert 8 in collection
        store.delete(["8"])
        assert 8 not in collection


def test_delete_without_ids_deletes_everything(store):
    assert store.delete(["id-3"])
    assert len(store.collection) == 59
    assert asyncio.run(store.adelete())
    assert len(store.collection) == 0
    with pytest.raises(TypeError, match="expected no other options, got filter"):
        store.delete(filter={"n": 3})


class Counting(DeterministicFakeEmbedding):
    """Counts the texts of each call, and of each asynchronous call."""

    calls: list = []  # noqa: RUF012  # a field of pydantic

    def embed_documents(self, texts):
        self.calls.append(("sync", len(texts)))
        return super().embed_documents(texts)

    async def aembed_documents(self, texts):
        self.calls.append(("async", len(texts)))
        return DeterministicFakeEmbedding.embed_documents(self, texts)


def test_batches():
    embedding = Counting(size=4)
    with PoshVectorStore(embedding) as store:
        ids = store.add_texts(iter(WORDS), batch_size=25)
        assert len(set(ids)) == len(store.collection) == 60
        store.add_texts(WORDS)
        assert asyncio.run(store.aadd_texts(WORDS[:4], ids=ids[:4], batch_size=3)) == ids[:4]
        assert store.add_texts([]) == []
        assert embedding.calls == [
            ("sync", 25),
            ("sync", 25),
            ("sync", 10),
            ("sync", 60),
            ("async", 3),
            ("async", 1),
        ]
        assert len(store.collection) == 120


def test_a_store_is_made_asynchronously():
    documents = [Document(id="a", page_content="word 1"), Document(page_content="word 2")]
    with asyncio.run(PoshVectorStore.afrom_documents(documents, EMBEDDING, text_field="words")) as store:
        assert store.similarity_search("word 1", k=1)[0].id == "a"
        assert store.collection.get(["a"])[0].payload == {"words": "word 1"}
        assert store.embeddings is EMBEDDING


def test_wrong_documents_are_refused_and_nothing_is_written(store):
    before = store.collection.count()
    for options, message in [
        ({"metadatas": [{}]}, r"expected as many metadatas as texts \(2\), got 1"),
        ({"ids": ["a"]}, r"expected as many ids as texts \(2\), got 1"),
        ({"ids": ["a", "a"]}, "expected distinct ids, got 'a' more than once"),
        ({"metadatas": [{"text": 3}, {}]}, "expected metadata without the field 'text'.*got 3: rename it"),
        ({"metadatas": [{"of": object()}, {}]}, "to contain only types of JSON, got object"),
        ({"batch_size": 0}, "expected batch_size at least 1, got 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            store.add_texts(["one", "two"], **options)
        with pytest.raises(ValueError, match=message):
            asyncio.run(store.aadd_texts(["one", "two"], **options))
    with pytest.raises(TypeError, match="expected no other options, got batches"):
        store.add_texts(["one"], batches=3)
    assert store.collection.count() == before


def test_the_indexing_of_langchain(store):
    """LangChain's ``index`` writes what is new, and deletes what is gone."""
    manager = InMemoryRecordManager("posh")
    manager.create_schema()
    documents = [Document(page_content=word, metadata={"source": word}) for word in WORDS[:5]]
    options = {"cleanup": "full", "source_id_key": "source", "key_encoder": "sha256", "batch_size": 2}
    first = index(documents, manager, store, **options)
    again = index(documents[1:], manager, store, **options)
    assert (first["num_added"], first["num_deleted"]) == (5, 0)
    assert (again["num_added"], again["num_skipped"], again["num_deleted"]) == (0, 4, 1)
    assert len(store.collection) == 64


def test_without_the_extra_the_error_says_what_to_install():
    code = (
        "import sys; sys.modules['langchain_core'] = None\n"
        "import posh\n"
        "try: import posh.integrations.langchain\n"
        "except posh.MissingExtraError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    install = find_install_command("langchain")
    assert done.stdout == f"posh.integrations.langchain needs langchain-core: {install}\n"


# Words -------------------------------------------------------------------------------------------------


def test_hybrid_searches_are_those_of_the_collection():
    with PoshVectorStore.from_texts(WORDS, EMBEDDING, METADATAS, text="text") as store:
        vector = np.array(EMBEDDING.embed_query("word 7"), np.float32)
        hits = store.collection.search(vector, 5, text="word 7", payloads=True)[0]
        found = store.hybrid_search_with_score("word 7", k=5)
        assert [(document.id, score) for document, score in found] == [(hit.id, hit.score) for hit in hits]
        assert store.hybrid_search("word 7", k=5) == [document for document, _ in found]
        assert asyncio.run(store.ahybrid_search("word 7", k=5)) == [document for document, _ in found]
        assert store.text_search("7", k=3)[0].page_content == "word 7"
        even = store.hybrid_search("word", k=60, filter={"even": True}, fusion={"text": 2.0})
        assert {document.metadata["n"] % 2 for document in even} == {0}


def test_a_store_without_a_text_index_says_how_to_make_one(store):
    with pytest.raises(ValueError, match=r"create it with posh.create\(path, text="):
        store.hybrid_search("word 7")
