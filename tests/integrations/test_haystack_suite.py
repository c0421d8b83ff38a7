"""The suites of ``haystack.testing``, sync and async, over every kind of collection."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from haystack import Document
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.testing import document_store as suites
from haystack.testing import document_store_async as async_suites

from posh.integrations.haystack import PoshDocumentStore
from tests.serve.service import create_remote


class Sync(
    suites.DocumentStoreBaseExtendedTests,
    suites.CountDocumentsByFilterTest,
    suites.CountUniqueMetadataByFilterTest,
    suites.GetMetadataFieldMinMaxTest,
    suites.GetMetadataFieldsInfoTest,
    suites.GetMetadataFieldUniqueValuesTest,
):
    """All synchronous suites, with embeddings compared in float32."""

    @staticmethod
    def assert_documents_are_equal(received: list[Document], expected: list[Document]) -> None:
        assert [replace(one, embedding=None) for one in received] == [
            replace(one, embedding=None) for one in expected
        ]
        for one, other in zip(received, expected, strict=True):
            assert (one.embedding is None) == (other.embedding is None)
            if one.embedding is not None:
                np.testing.assert_array_equal(one.embedding, np.array(other.embedding, np.float32))

    def test_write_documents(self, document_store):
        """By default an id that exists is an error."""
        document = Document(content="test doc")
        assert document_store.write_documents([document]) == 1
        with pytest.raises(DuplicateDocumentError):
            document_store.write_documents([document])
        self.assert_documents_are_equal(document_store.filter_documents(), [document])


class Async(
    async_suites.CountDocumentsAsyncTest,
    async_suites.CountDocumentsByFilterAsyncTest,
    async_suites.CountUniqueMetadataByFilterAsyncTest,
    async_suites.DeleteAllAsyncTest,
    async_suites.DeleteByFilterAsyncTest,
    async_suites.DeleteDocumentsAsyncTest,
    async_suites.FilterDocumentsAsyncTest,
    async_suites.GetMetadataFieldMinMaxAsyncTest,
    async_suites.GetMetadataFieldsInfoAsyncTest,
    async_suites.GetMetadataFieldUniqueValuesAsyncTest,
    async_suites.UpdateByFilterAsyncTest,
    async_suites.WriteDocumentsAsyncTest,
):
    """All asynchronous suites."""

    assert_documents_are_equal = staticmethod(Sync.assert_documents_are_equal)

    async def test_write_documents_async(self, document_store):
        """By default an id that exists is an error."""
        document = Document(content="test doc")
        assert await document_store.write_documents_async([document]) == 1
        with pytest.raises(DuplicateDocumentError):
            await document_store.write_documents_async([document])


class InFolder:
    """A store that opens its folder."""

    @pytest.fixture
    def document_store(self, tmp_path):
        with PoshDocumentStore(tmp_path / "store") as store:
            yield store


class OverService:
    """A store over a collection of a service."""

    @pytest.fixture
    def document_store(self, tmp_path):
        with create_remote(tmp_path / "store", metric="cosine") as collection:
            yield PoshDocumentStore(collection)


class TestFolder(InFolder, Sync):
    pass


class TestFolderAsync(InFolder, Async):
    pass


class TestRemoteCollection(OverService, Sync):
    pass


class TestRemoteCollectionAsync(OverService, Async):
    pass
