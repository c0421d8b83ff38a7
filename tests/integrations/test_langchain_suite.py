"""The standard suites of langchain-tests, sync and async: vector store, retriever, index of documents."""

from __future__ import annotations

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import VectorStore
from langchain_tests.integration_tests import RetrieversIntegrationTests, VectorStoreIntegrationTests
from langchain_tests.integration_tests.indexer import AsyncDocumentIndexTestSuite, DocumentIndexerTestSuite

import posh
from posh.integrations.langchain import PoshIndex, PoshVectorStore
from tests.serve.service import create_remote


class TestTemporaryFolder(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self) -> VectorStore:
        with PoshVectorStore(self.get_embeddings()) as store:
            yield store


class TestFolder(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, tmp_path) -> VectorStore:
        with PoshVectorStore(self.get_embeddings(), tmp_path / "store", metric="euclidean") as store:
            yield store


class TestOpenCollection(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, tmp_path) -> VectorStore:
        with posh.Collection(tmp_path / "store", metric="cosine") as collection:
            yield PoshVectorStore(self.get_embeddings(), collection)


class TestRemoteCollection(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, tmp_path) -> VectorStore:
        with create_remote(tmp_path / "store", metric="cosine") as collection:
            yield PoshVectorStore(self.get_embeddings(), collection)


EMBEDDING = DeterministicFakeEmbedding(size=16)


class TestRetriever(RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def store(self, tmp_path):
        with PoshVectorStore(EMBEDDING, tmp_path / "store") as self._store:
            self._store.add_documents([Document(page_content=f"text {i}") for i in range(5)])
            yield

    @property
    def retriever_constructor(self) -> type[PoshIndex]:
        return PoshIndex

    @property
    def retriever_constructor_params(self) -> dict:
        return {"store": self._store}

    @property
    def retriever_query_example(self) -> str:
        return "text 3"


@pytest.fixture
def folder_store(tmp_path):
    with PoshVectorStore(EMBEDDING, tmp_path / "store") as store:
        yield store


class TestIndexer(DocumentIndexerTestSuite):
    @pytest.fixture
    def index(self, folder_store):
        return PoshIndex(store=folder_store)


class TestAsyncIndexer(AsyncDocumentIndexTestSuite):
    @pytest.fixture
    async def index(self, folder_store):
        return PoshIndex(store=folder_store)
