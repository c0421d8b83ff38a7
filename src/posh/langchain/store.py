"""The vector store: what LangChain calls, over a collection."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables.config import run_in_executor
from langchain_core.vectorstores import VectorStore

from posh.collection.base import BaseCollection, Item
from posh.langchain.items import Batch, batches, document, item_ids
from posh.langchain.opening import open_collection
from posh.langchain.relevance import relevance_of, unlike
from posh.preprocess import Float32

__all__ = ["PoshVectorStore"]

Vector = Sequence[float] | Float32
Place = BaseCollection | str | os.PathLike[str]


class PoshVectorStore(VectorStore):
    """A LangChain vector store over a collection.

    The payload of an item is the metadata of its document, with the text in one more field. So filters,
    ``posh serve`` and its page see the fields of the metadata.

    Parameters
    ----------
    embedding : what makes vectors of texts.
    collection : a folder, whose collection is opened, or made if there is none; or an open collection, also
        a remote one, which :meth:`close` leaves open. Without it, documents are in a temporary folder, which
        is removed with the store.
    text_field : the field of a payload that has the text of the document; metadata must not have it.
    relevance_score_fn : turns a score into a relevance from 0 to 1. By default a cosine c becomes
        (1 + c) / 2, and a distance d becomes 1 / (1 + d). Other scores have no default.
    index_options : options of :class:`posh.Index`, if a folder is given; a new collection has by default
        ``metric="cosine", recall=0.95``.

    Scores are those of the collection: higher is better. Searches take ``filter`` and the other options of
    :meth:`posh.Collection.search`. An id of LangChain is a string: ``"7"`` is the item ``"7"``, or the item
    ``7`` if there is no item ``"7"``.

    Examples
    --------
    >>> from langchain_core.embeddings import DeterministicFakeEmbedding
    >>> from posh.langchain import PoshVectorStore
    >>> texts, pages = ["a fly", "a fish", "a fox"], [{"page": 1}, {"page": 2}, {"page": 2}]
    >>> store = PoshVectorStore.from_texts(texts, DeterministicFakeEmbedding(size=8), pages)
    >>> store.similarity_search("a fish", k=1)[0].page_content
    'a fish'
    >>> sorted(document.page_content for document in store.similarity_search("a fly", filter={"page": 2}))
    ['a fish', 'a fox']
    >>> store.close()

    """

    def __init__(
        self,
        embedding: Embeddings,
        collection: Place | None = None,
        *,
        text_field: str = "text",
        relevance_score_fn: Callable[[float], float] | None = None,
        **index_options: Any,
    ) -> None:
        self.embedding = embedding
        self.text_field = text_field
        self.relevance_score_fn = relevance_score_fn
        if isinstance(collection, BaseCollection):
            if index_options:
                raise TypeError(
                    f"expected options of an index for a folder only, got {', '.join(index_options)} "
                    "for an open collection: call its reindex"
                )
            self.collection, self._close = collection, None
            return
        self.collection, close = open_collection(collection, index_options)
        self._close = weakref.finalize(self, close)

    @property
    def embeddings(self) -> Embeddings:
        """What makes vectors of texts."""
        return self.embedding

    def close(self) -> None:
        """Close the collection that the store has opened, and remove a temporary folder."""
        if self._close is not None:
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # Writing ------------------------------------------------------------------------------------------

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        collection: Place | None = None,
        **kwargs: Any,
    ) -> Self:
        """Make a store, see the class for its parameters, and add texts to it."""
        store = cls(embedding, collection, **kwargs)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    @classmethod
    async def afrom_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        collection: Place | None = None,
        **kwargs: Any,
    ) -> Self:
        """Make a store, see the class for its parameters, and add texts to it."""
        store = await run_in_executor(None, lambda: cls(embedding, collection, **kwargs))
        await store.aadd_texts(texts, metadatas, ids=ids)
        return store

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Write documents in place of those with the same ids, and return the ids.

        Without an id, a document gets a new UUID. ``batch_size`` texts are embedded and written at once, by
        default all of them: then all are written or none.
        """
        _refuse(kwargs)
        parts = batches(texts, metadatas, ids, self.text_field, batch_size)
        for batch in parts:
            self._write(batch, self.embedding.embed_documents(batch.texts))
        return [item_id for batch in parts for item_id in batch.ids]

    async def aadd_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Write documents as :meth:`add_texts` does."""
        _refuse(kwargs)
        parts = batches(texts, metadatas, ids, self.text_field, batch_size)
        for batch in parts:
            vectors = await self.embedding.aembed_documents(batch.texts)
            await run_in_executor(None, self._write, batch, vectors)
        return [item_id for batch in parts for item_id in batch.ids]

    def delete(self, ids: Sequence[str] | None = None, **kwargs: Any) -> bool:
        """Delete documents by id, and all documents without ``ids``; ids without a document are ignored."""
        _refuse(kwargs)
        own = [item.id for item in self.collection.items()] if ids is None else item_ids(self.collection, ids)
        self.collection.delete(list(dict.fromkeys(own)))
        return True

    # Reading ------------------------------------------------------------------------------------------

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return the documents with these ids, in this order; ids without a document are left out."""
        items = self.collection.get(item_ids(self.collection, ids))
        return [document(item, self.text_field) for item in items if item is not None]

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the k documents that are nearest to a text, best first."""
        return self.similarity_search_by_vector(self.embedding.embed_query(query), k, **kwargs)

    async def asimilarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the k documents that are nearest to a text, best first."""
        vector = await self.embedding.aembed_query(query)
        return await self.asimilarity_search_by_vector(vector, k, **kwargs)

    def similarity_search_by_vector(self, embedding: Vector, k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the k documents that are nearest to a vector (d,), best first."""
        return [found for found, _ in self.similarity_search_with_score_by_vector(embedding, k, **kwargs)]

    def similarity_search_with_score(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Return the k documents that are nearest to a text, with scores, best first."""
        return self.similarity_search_with_score_by_vector(self.embedding.embed_query(query), k, **kwargs)

    async def asimilarity_search_with_score(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Return the k documents that are nearest to a text, with scores, best first."""
        vector = await self.embedding.aembed_query(query)
        return await run_in_executor(None, self.similarity_search_with_score_by_vector, vector, k, **kwargs)

    def similarity_search_with_score_by_vector(
        self, embedding: Vector, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Return the k documents that are nearest to a vector (d,), with scores, best first."""
        return [
            (document(item, self.text_field), score) for item, score in self._nearest(embedding, k, kwargs)
        ]

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Return k documents that are near to a text and unlike each other.

        See :meth:`max_marginal_relevance_search_by_vector`.
        """
        vector = self.embedding.embed_query(query)
        return self.max_marginal_relevance_search_by_vector(vector, k, fetch_k, lambda_mult, **kwargs)

    async def amax_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Return k documents that are near to a text and unlike each other."""
        vector = await self.embedding.aembed_query(query)
        return await self.amax_marginal_relevance_search_by_vector(vector, k, fetch_k, lambda_mult, **kwargs)

    def max_marginal_relevance_search_by_vector(
        self, embedding: Vector, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Return k documents that are near to a vector (d,) and unlike each other.

        They are chosen one by one from the ``fetch_k`` nearest, by ``lambda_mult`` times the cosine with the
        vector, minus 1 - ``lambda_mult`` times the largest cosine with a document that was chosen before.
        """
        items = [item for item, _ in self._nearest(embedding, fetch_k, kwargs)]
        if not items:
            return []
        vectors = np.stack([item.vector for item in items])
        chosen = unlike(embedding, vectors, k, lambda_mult)
        return [document(items[number], self.text_field) for number in chosen]

    # How it is done ------------------------------------------------------------------------------------

    def _write(self, batch: Batch, vectors: list[list[float]]) -> None:
        ids = item_ids(self.collection, batch.ids)
        self.collection.upsert(ids, np.asarray(vectors, np.float32), batch.payloads)

    def _nearest(self, vector: Vector, k: int, options: Mapping[str, Any]) -> list[tuple[Item, float]]:
        matches = self.collection.search(np.asarray(vector, np.float32), k, **options)
        scores = {
            item_id: float(score)
            for item_id, score in zip(matches.ids[0], matches.scores[0], strict=True)
            if item_id is not None
        }
        items = self.collection.get(list(scores))  # without those that were deleted since
        return [(item, scores[item.id]) for item in items if item is not None]

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return self.relevance_score_fn or relevance_of(self.collection.index_options)


def _refuse(options: Mapping[str, Any]) -> None:
    """LangChain's methods take any options; those that nobody reads are mistakes."""
    if options:
        raise TypeError(f"expected no other options, got {', '.join(options)}")
