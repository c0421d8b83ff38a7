"""The standard suite of langchain-tests, sync and async, over every kind of collection."""

from __future__ import annotations

import pytest
from langchain_core.vectorstores import VectorStore
from langchain_tests.integration_tests import VectorStoreIntegrationTests

import posh
from posh.integrations.langchain import PoshVectorStore
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
