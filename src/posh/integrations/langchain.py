"""A vector store and an index of documents for LangChain. Needs the extra ``langchain``."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from posh._validate import validate_integer, validate_real
from posh.collection.base import BaseCollection, Item, Payload
from posh.errors import MissingExtraError
from posh.integrations._stores import CollectionHolder, resolve_ids
from posh.preprocess import Float32

try:
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.indexing import DeleteResponse, UpsertResponse
    from langchain_core.indexing.base import DocumentIndex
    from langchain_core.runnables.config import run_in_executor
    from langchain_core.vectorstores import VectorStore
    from pydantic import Field
except ImportError as error:
    raise MissingExtraError("langchain-core", "langchain", "posh.integrations.langchain") from error

__all__ = ["PoshIndex", "PoshVectorStore"]

Vector = Sequence[float] | Float32
Place = BaseCollection | str | os.PathLike[str]


class PoshVectorStore(CollectionHolder, VectorStore):
    """A LangChain vector store over a collection.

    The payload of an item holds the metadata of its document and, in one more field, the text. Filters,
    ``posh serve`` and its page therefore see the metadata fields.

    Parameters
    ----------
    embedding : Embeddings
        Model that turns texts into vectors.
    collection : str, path, collection or None
        Folder of a collection, which is created if it does not exist, or an open collection (embedded or
        remote), which :meth:`close` leaves open. With None, documents are stored in a temporary folder,
        which is removed with the store.
    text_field : str
        Payload field that holds the text of a document. Metadata must not use it.
    relevance_score_fn : callable or None
        Function from a score to a relevance from 0 to 1. By default a cosine c becomes (1 + c) / 2 and a
        distance d becomes 1 / (1 + d). Other scores have no default.
    index_options : Any
        Options of :class:`posh.Index` for a folder. A new collection gets ``metric="cosine", recall=0.95``
        unless they say otherwise.

    Scores are those of the collection: higher is better. Searches take ``filter`` and the other options of
    :meth:`posh.Collection.search`. An id of LangChain is a string: ``"7"`` is the item ``"7"``, or the item
    ``7`` if there is no item ``"7"``.

    Examples
    --------
    >>> from langchain_core.embeddings import DeterministicFakeEmbedding
    >>> from posh.integrations.langchain import PoshVectorStore
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
        self._hold(collection, index_options)

    @property
    def embeddings(self) -> Embeddings:
        """Return the model that turns texts into vectors."""
        return self.embedding

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
        """Create a store (see the class for its parameters) and add texts to it."""
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
        """Create a store (see the class for its parameters) and add texts to it."""
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
        """Write documents, replacing those with the same ids, and return the ids.

        A document without an id gets a new UUID. ``batch_size`` texts are embedded and written together. By
        default that is all of them, so either all are written or none.
        """
        _require_no_options(kwargs)
        batches = _split_into_batches(texts, metadatas, ids, self.text_field, batch_size)
        for batch in batches:
            self._write(batch, self.embedding.embed_documents(batch.texts))
        return [item_id for batch in batches for item_id in batch.ids]

    async def aadd_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Write documents; see :meth:`add_texts`."""
        _require_no_options(kwargs)
        batches = _split_into_batches(texts, metadatas, ids, self.text_field, batch_size)
        for batch in batches:
            vectors = await self.embedding.aembed_documents(batch.texts)
            await run_in_executor(None, self._write, batch, vectors)
        return [item_id for batch in batches for item_id in batch.ids]

    def delete(self, ids: Sequence[str] | None = None, **kwargs: Any) -> bool:
        """Delete documents by id, or all documents if ``ids`` is None; unknown ids are ignored."""
        _require_no_options(kwargs)
        if ids is None:
            stored = [item.id for item in self.collection.items()]
        else:
            stored = resolve_ids(self.collection, ids)
        self.collection.delete(list(dict.fromkeys(stored)))
        return True

    # Reading ------------------------------------------------------------------------------------------

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return the documents with these ids, in this order, without unknown ids."""
        items = self.collection.get(resolve_ids(self.collection, ids))
        return [_build_document(item, self.text_field) for item in items if item is not None]

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the k documents nearest to a text, best first."""
        return self.similarity_search_by_vector(self.embedding.embed_query(query), k, **kwargs)

    async def asimilarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the k documents nearest to a text, best first."""
        vector = await self.embedding.aembed_query(query)
        return await self.asimilarity_search_by_vector(vector, k, **kwargs)

    def similarity_search_by_vector(self, embedding: Vector, k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the k documents nearest to a vector (d,), best first."""
        return [
            document for document, _ in self.similarity_search_with_score_by_vector(embedding, k, **kwargs)
        ]

    def hybrid_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the k documents best by the meaning and the words of a text, best first.

        The collection must have a text index of ``text_field``: a store that creates its collection makes one
        with ``text=["text"]``. Other options are those of :meth:`posh.Collection.search`, such as ``fusion``.

        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from posh.integrations.langchain import PoshVectorStore
        >>> texts = ["a fly", "a fish", "a fox"]
        >>> with PoshVectorStore.from_texts(texts, DeterministicFakeEmbedding(size=8), text="text") as store:
        ...     [document.page_content for document in store.hybrid_search("a fox", k=1)]
        ['a fox']
        """
        return [document for document, _ in self.hybrid_search_with_score(query, k, **kwargs)]

    async def ahybrid_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the k documents best by meaning and words; see :meth:`hybrid_search`."""
        vector = await self.embedding.aembed_query(query)
        options = {"text": query, **kwargs}
        return await run_in_executor(None, self.similarity_search_by_vector, vector, k, **options)

    def hybrid_search_with_score(self, query: str, k: int = 4, **kwargs: Any) -> list[tuple[Document, float]]:
        """Return the k documents best by meaning and words, with their fused scores."""
        return self.similarity_search_with_score(query, k, **{"text": query, **kwargs})

    def text_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the k documents best by the words of a text alone, which is not embedded."""
        return [
            _build_document(item, self.text_field)
            for item, _ in self._search(None, k, {"text": query, **kwargs})
        ]

    def similarity_search_with_score(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Return the k documents nearest to a text, with scores, best first."""
        return self.similarity_search_with_score_by_vector(self.embedding.embed_query(query), k, **kwargs)

    async def asimilarity_search_with_score(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Return the k documents nearest to a text, with scores, best first."""
        vector = await self.embedding.aembed_query(query)
        return await run_in_executor(None, self.similarity_search_with_score_by_vector, vector, k, **kwargs)

    def similarity_search_with_score_by_vector(
        self, embedding: Vector, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Return the k documents nearest to a vector (d,), with scores, best first."""
        return [
            (_build_document(item, self.text_field), score)
            for item, score in self._search(embedding, k, kwargs)
        ]

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Return k documents near a text and dissimilar to each other.

        See :meth:`max_marginal_relevance_search_by_vector`.
        """
        vector = self.embedding.embed_query(query)
        return self.max_marginal_relevance_search_by_vector(vector, k, fetch_k, lambda_mult, **kwargs)

    async def amax_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Return k documents near a text and dissimilar to each other."""
        vector = await self.embedding.aembed_query(query)
        return await self.amax_marginal_relevance_search_by_vector(vector, k, fetch_k, lambda_mult, **kwargs)

    def max_marginal_relevance_search_by_vector(
        self, embedding: Vector, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Return k documents near a vector (d,) and dissimilar to each other.

        They are chosen one by one from the ``fetch_k`` nearest documents. Each choice maximises
        ``lambda_mult`` times the cosine with the vector minus (1 - ``lambda_mult``) times the largest cosine
        with an earlier choice.
        """
        items = [item for item, _ in self._search(embedding, fetch_k, kwargs)]
        if not items:
            return []
        vectors = np.stack([item.vector for item in items])
        rows = _choose_diverse(embedding, vectors, k, lambda_mult)
        return [_build_document(items[row], self.text_field) for row in rows]

    # Internals -----------------------------------------------------------------------------------------

    def _write(self, batch: _Batch, vectors: list[list[float]]) -> None:
        ids = resolve_ids(self.collection, batch.ids)
        self.collection.upsert(ids, np.asarray(vectors, np.float32), batch.payloads)

    def _search(self, vector: Vector | None, k: int, options: Mapping[str, Any]) -> list[tuple[Item, float]]:
        query = None if vector is None else np.asarray(vector, np.float32)
        hits = self.collection.search(query, k, **options)
        scores = {
            item_id: float(score)
            for item_id, score in zip(hits.ids[0], hits.scores[0], strict=True)
            if item_id is not None
        }
        items = self.collection.get(list(scores))  # None for items deleted since the search
        return [(item, scores[item.id]) for item in items if item is not None]

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return self.relevance_score_fn or _get_relevance_function(self.collection.index_options)


class PoshIndex(DocumentIndex):
    """A LangChain retriever over a store, which also writes, reads and deletes documents.

    Use it where LangChain takes a ``BaseRetriever`` or a ``DocumentIndex``. Documents that are written
    replace those with the same ids.

    Attributes
    ----------
    store : PoshVectorStore
        Store of the documents.
    k : int
        Number of documents to retrieve; ``invoke(query, k=…)`` overrides it.
    search_options : dict
        Other options of :meth:`PoshVectorStore.similarity_search`, such as ``{"filter": {"page": 2}}``.

    Examples
    --------
    >>> from langchain_core.documents import Document
    >>> from langchain_core.embeddings import DeterministicFakeEmbedding
    >>> from posh.integrations.langchain import PoshIndex, PoshVectorStore
    >>> with PoshVectorStore(DeterministicFakeEmbedding(size=8)) as store:
    ...     index = PoshIndex(store=store, k=1)
    ...     _ = index.upsert([Document(id="fly", page_content="a fly"), Document(page_content="a fox")])
    ...     [document.page_content for document in index.invoke("a fly")]
    ['a fly']

    """

    store: PoshVectorStore
    k: int = 4
    search_options: dict[str, Any] = Field(default_factory=dict)

    def upsert(self, items: Sequence[Document], /, **kwargs: Any) -> UpsertResponse:
        """Write documents, replacing those with the same ids; one without an id gets a new UUID."""
        return {"succeeded": self.store.add_documents(list(items), **kwargs), "failed": []}

    async def aupsert(self, items: Sequence[Document], /, **kwargs: Any) -> UpsertResponse:
        """Write documents; see :meth:`upsert`."""
        return {"succeeded": await self.store.aadd_documents(list(items), **kwargs), "failed": []}

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> DeleteResponse:
        """Delete documents by id; ids without a document are left out of the response."""
        _require_no_options(kwargs)
        if ids is None:
            raise ValueError("expected ids of documents to delete, got none: use the store's delete for all")
        present = [document.id for document in self.store.get_by_ids(ids) if document.id is not None]
        self.store.delete(present)
        return {"succeeded": present, "num_deleted": len(present), "failed": [], "num_failed": 0}

    def get(self, ids: Sequence[str], /, **kwargs: Any) -> list[Document]:
        """Return the documents with these ids, without unknown ids."""
        _require_no_options(kwargs)
        return self.store.get_by_ids(ids)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        return self.store.similarity_search(query, **{"k": self.k, **self.search_options, **kwargs})

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        return await self.store.asimilarity_search(query, **{"k": self.k, **self.search_options, **kwargs})


def _require_no_options(options: Mapping[str, Any]) -> None:
    """Raise TypeError for options that a method with LangChain's ``**kwargs`` would ignore."""
    if options:
        raise TypeError(f"expected no other options, got {', '.join(options)}: remove them")


# Documents and items -----------------------------------------------------------------------------------


class _Batch(NamedTuple):
    """Documents that are embedded and written together."""

    ids: list[str]
    texts: list[str]
    payloads: list[Payload]


def _split_into_batches(
    texts: Iterable[str],
    metadatas: Sequence[Mapping[str, Any]] | None,
    ids: Sequence[str | None] | None,
    text_field: str,
    batch_size: int | None,
) -> list[_Batch]:
    """Split documents into batches and generate missing ids."""
    texts = list(texts)
    size = max(1, len(texts)) if batch_size is None else validate_integer("batch_size", batch_size, 1)
    metadatas = [{}] * len(texts) if metadatas is None else metadatas
    optional_ids = [None] * len(texts) if ids is None else ids
    for values, name in ((metadatas, "metadatas"), (optional_ids, "ids")):
        if len(values) != len(texts):
            raise ValueError(f"expected as many {name} as texts ({len(texts)}), got {len(values)}")
    complete = [str(uuid4()) if item_id is None else item_id for item_id in optional_ids]
    payloads = [_build_payload(text, meta, text_field) for text, meta in zip(texts, metadatas, strict=True)]
    return [
        _Batch(*(values[start : start + size] for values in (complete, texts, payloads)))  # type: ignore[arg-type]
        for start in range(0, len(texts), size)
    ]


def _build_payload(text: str, metadata: Mapping[str, Any], text_field: str) -> Payload:
    if text_field in metadata:
        raise ValueError(
            f"expected metadata without the field {text_field!r}, which holds the text, got "
            f"{metadata[text_field]!r:.80}: rename it, or give the store another text_field"
        )
    return {text_field: text, **metadata}


def _build_document(item: Item, text_field: str) -> Document:
    """Build a document from the text of an item, with the rest of its payload as metadata."""
    metadata = dict(item.payload)
    text = metadata.pop(text_field, None)
    if not isinstance(text, str):
        raise ValueError(
            f"expected the text of item {item.id!r} in the field {text_field!r}, got {text!r:.80}: "
            f"give the store the text_field of this collection, one of {', '.join(map(repr, metadata))}"
        )
    return Document(id=str(item.id), page_content=text, metadata=metadata)


# Relevance ---------------------------------------------------------------------------------------------


def _convert_cosine(score: float) -> float:
    return min(1.0, max(0.0, (1.0 + score) / 2.0))  # rounding makes some cosines slightly larger than 1


def _convert_negated_square(score: float) -> float:
    return 1.0 / (1.0 + math.sqrt(-score))


_RELEVANCE = {"cosine": _convert_cosine}
_RELEVANCE |= dict.fromkeys(("euclidean", "vectors", "decoder", "sbiht"), _convert_negated_square)


def _get_relevance_function(index_options: Mapping[str, Any]) -> Callable[[float], float]:
    """Return the function that turns scores of an index with these options into relevance from 0 to 1.

    >>> _get_relevance_function({"metric": "cosine"})(0.5)
    0.75
    >>> _get_relevance_function({"metric": "euclidean"})(-9.0)
    0.25
    """
    names = [index_options.get(name) for name in ("metric", "refine", "scoring")]
    kind = next((name for name in names if name is not None), None)
    if kind not in _RELEVANCE:
        raise ValueError(
            f"expected scores of one of {', '.join(_RELEVANCE)} for relevance from 0 to 1, got {kind}: "
            "give the store a relevance_score_fn"
        )
    return _RELEVANCE[kind]


def _choose_diverse(query: npt.ArrayLike, vectors: npt.ArrayLike, k: int, lambda_mult: float) -> list[int]:
    """Return the rows of up to k vectors (n, d) near the query (d,) and dissimilar to each other.

    This is maximal marginal relevance (Carbonell and Goldstein, 1998) by cosine. The first is the nearest.
    """
    weight = validate_real("lambda_mult", lambda_mult, 0.0, 1.0)
    n_rows = validate_integer("k", k, 1)
    units = _normalize(np.asarray(vectors, np.float64))
    relevance = units @ _normalize(np.asarray(query, np.float64)[None])[0]
    rows = [int(np.argmax(relevance))]
    redundancy = units @ units[rows[0]]
    while len(rows) < min(n_rows, len(units)):
        values = weight * relevance - (1.0 - weight) * redundancy
        values[rows] = -np.inf
        rows.append(int(np.argmax(values)))
        redundancy = np.maximum(redundancy, units @ units[rows[-1]])
    return rows


def _normalize(vectors: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Scale vectors to length 1; zero vectors stay zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0.0, lengths, 1.0))
