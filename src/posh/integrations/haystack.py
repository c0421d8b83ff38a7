"""A document store and a retriever for Haystack over a collection. Needs the extra ``haystack``."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import wraps
from typing import Any

import numpy as np

from posh.collection.base import BaseCollection, Item, Payload
from posh.errors import MissingExtraError
from posh.index.hits import Hit
from posh.integrations._stores import CollectionHolder, resolve_ids

try:
    from haystack import component, default_from_dict, default_to_dict
    from haystack.dataclasses import Document
    from haystack.document_stores.errors import DuplicateDocumentError
    from haystack.document_stores.types import DuplicatePolicy, FilterPolicy, apply_filter_policy
    from haystack.errors import FilterError
except ImportError as error:
    raise MissingExtraError("haystack-ai", "haystack", "posh.integrations.haystack") from error

__all__ = ["PoshDocumentStore", "PoshEmbeddingRetriever"]

_OWN = "haystack"  # the field of a payload with the parts of a document that are neither text nor metadata
_NO_EMBEDDING = {f"{_OWN}.embedded": False}
_PAGE = 1000  # items written in one call


def _in_thread(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a coroutine function that calls a method in a thread."""

    @wraps(method)
    async def call(*args: Any, **options: Any) -> Any:
        return await asyncio.to_thread(method, *args, **options)

    return call


class PoshDocumentStore(CollectionHolder):
    """A Haystack document store over a collection.

    The payload of an item holds the metadata of its document and, in one more field, the text. Filters of the
    collection, ``posh serve`` and its page therefore see the metadata fields.

    Parameters
    ----------
    collection : str, path, collection or None
        Folder of a collection, which is created if it does not exist, or an open collection (embedded or
        remote), which :meth:`close` leaves open. With None, documents are stored in a temporary folder,
        which is removed with the store.
    text_field : str
        Payload field that holds the text of a document. Metadata must not use it.
    embedding_dim : int
        Length of embeddings. It matters only if the first documents have none: a collection has one vector
        for each item, so documents without an embedding get a vector that no retrieval returns.
    index_options : Any
        Options of :class:`posh.Index` for a folder. A new collection gets ``metric="cosine", recall=0.95``
        unless they say otherwise.

    Each method has an asynchronous version, whose name ends with ``_async``. Embeddings are stored in
    float32. Scores are those of the collection: higher is better.

    Examples
    --------
    >>> from haystack import Document
    >>> from posh.integrations.haystack import PoshDocumentStore
    >>> store = PoshDocumentStore()
    >>> store.write_documents([
    ...     Document(id="fly", content="a fly", embedding=[1.0, 0.0], meta={"page": 1}),
    ...     Document(id="fox", content="a fox", embedding=[0.6, 0.8], meta={"page": 2}),
    ... ])
    2
    >>> late = {"field": "meta.page", "operator": ">", "value": 1}
    >>> [document.content for document in store.retrieve([1.0, 0.0], filters=late)]
    ['a fox']
    >>> store.close()

    """

    def __init__(
        self,
        collection: BaseCollection | str | os.PathLike[str] | None = None,
        *,
        text_field: str = "text",
        embedding_dim: int = 768,
        **index_options: Any,
    ) -> None:
        self.text_field, self.embedding_dim = text_field, embedding_dim
        self._index_options = index_options
        self._path = os.fspath(collection) if isinstance(collection, str | os.PathLike) else None
        self._hold(collection, index_options)

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters; raise ValueError if the collection is not that of a folder."""
        if self._path is None:
            raise ValueError(
                f"expected a store of a folder to serialise, got one of {self.collection!r}: give it a path"
            )
        options = {"text_field": self.text_field, "embedding_dim": self.embedding_dim, **self._index_options}
        return default_to_dict(self, collection=self._path, **options)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PoshDocumentStore:
        """Open a store with the parameters of :meth:`to_dict`."""
        return default_from_dict(cls, data)

    # Writing ------------------------------------------------------------------------------------------

    def write_documents(
        self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE
    ) -> int:
        """Write documents and return their number; by default, an id that exists is an error."""
        if not (isinstance(documents, list) and all(isinstance(one, Document) for one in documents)):
            raise ValueError("expected a list of documents to write, got something else")
        by_id: dict[str, Document] = {}
        for document in documents:
            if policy is DuplicatePolicy.OVERWRITE or document.id not in by_id:
                by_id[document.id] = document
        if policy is not DuplicatePolicy.OVERWRITE:
            present = {str(item.id) for item in self.collection.get(list(by_id)) if item is not None}
            if policy is not DuplicatePolicy.SKIP and (present or len(by_id) < len(documents)):
                named = ", ".join(sorted(present)) or "some of them twice"
                raise DuplicateDocumentError(f"expected documents with new ids, got {named:.200}")
            by_id = {item_id: one for item_id, one in by_id.items() if item_id not in present}
        chosen = list(by_id.values())
        for start in range(0, len(chosen), _PAGE):
            self._upsert(chosen[start : start + _PAGE])
        return len(chosen)

    def _upsert(self, documents: Sequence[Document]) -> None:
        width = next((len(one.embedding) for one in documents if one.embedding is not None), None)
        placeholder = np.eye(1, self.collection.n_features or width or self.embedding_dim)[0].tolist()
        vectors = [placeholder if one.embedding is None else one.embedding for one in documents]
        payloads = [_build_payload(one, self.text_field) for one in documents]
        self.collection.upsert([one.id for one in documents], vectors, payloads)

    def delete_documents(self, document_ids: list[str]) -> None:
        """Delete documents by id; unknown ids are ignored."""
        self.collection.delete(list(dict.fromkeys(resolve_ids(self.collection, document_ids))))

    def delete_all_documents(self) -> None:
        """Delete all documents."""
        self.collection.delete(filter={})

    def delete_by_filter(self, filters: dict[str, Any]) -> int:
        """Delete the documents that pass, and return their number."""
        return self.collection.delete(filter=self._translate(filters))

    def update_by_filter(self, filters: dict[str, Any], meta: dict[str, Any]) -> int:
        """Set fields of metadata in the documents that pass, and return the number of these."""
        _require_free(meta, self.text_field)
        ids = [item.id for item in self.collection.items(self._translate(filters))]
        for start in range(0, len(ids), _PAGE):
            part = ids[start : start + _PAGE]
            self.collection.update_payload(part, [meta] * len(part))
        return len(ids)

    # Reading ------------------------------------------------------------------------------------------

    def count_documents(self) -> int:
        """Return the number of documents."""
        return self.collection.count()

    def count_documents_by_filter(self, filters: dict[str, Any]) -> int:
        """Return the number of documents that pass."""
        return self.collection.count(self._translate(filters))

    def filter_documents(self, filters: dict[str, Any] | None = None) -> list[Document]:
        """Return the documents that pass, in the order of writing."""
        return [self._build_document(item) for item in self.collection.items(self._translate(filters))]

    def retrieve(
        self,
        query_embedding: Sequence[float],
        *,
        top_k: int = 10,
        filters: dict[str, Any] | None = None,
        **options: Any,
    ) -> list[Document]:
        """Return the documents nearest to an embedding, with their scores, best first.

        Other options are those of :meth:`posh.Collection.search`: ``recall=0.99``, or, for a collection with
        a text index, ``text="wool"``, which ranks by vectors and words.
        """
        where = self._translate(filters)
        if self.collection.count(_NO_EMBEDDING):
            where = {"and": [where, {"not": _NO_EMBEDDING}]}
        query = np.asarray(query_embedding, np.float32)
        options |= {"filter": where or None, "payloads": True, "vectors": True}
        hits = self.collection.search(query, top_k, **options)[0]
        return [self._build_document(hit, hit.score) for hit in hits]

    # Metadata -----------------------------------------------------------------------------------------

    def count_unique_metadata_by_filter(
        self, filters: dict[str, Any], metadata_fields: list[str]
    ) -> dict[str, int]:
        """Return the number of different values of each field among the documents that pass."""
        documents = self.filter_documents(filters)
        return {name: len(_collect_values(documents, name)) for name in metadata_fields}

    def get_metadata_fields_info(self) -> dict[str, dict[str, str]]:
        """Return the type of each field of metadata: keyword, boolean, long, float or object."""
        types: dict[str, dict[str, str]] = {}
        for document in self.filter_documents():
            for name, value in document.meta.items():
                if value is not None:
                    types.setdefault(name, {"type": _TYPES.get(type(value), "object")})
        return types

    def get_metadata_field_min_max(self, metadata_field: str) -> dict[str, Any]:
        """Return the least and the greatest value of a field; None for both if no document has it."""
        values = _collect_values(self.filter_documents(), metadata_field)
        return {"min": min(values, default=None), "max": max(values, default=None)}

    def get_metadata_field_unique_values(
        self,
        metadata_field: str,
        search_term: str | None = None,
        from_: int = 0,
        size: int | None = 10,
        filters: dict[str, Any] | None = None,
    ) -> tuple[list[Any], int]:
        """Return a page of the different values of a field, sorted as text, and their total number."""
        values = _collect_values(self.filter_documents(filters), metadata_field)
        if search_term is not None:
            values = [value for value in values if search_term.lower() in str(value).lower()]
        values.sort(key=str)
        return values[from_ : None if size is None else from_ + size], len(values)

    write_documents_async = _in_thread(write_documents)
    delete_documents_async = _in_thread(delete_documents)
    delete_all_documents_async = _in_thread(delete_all_documents)
    delete_by_filter_async = _in_thread(delete_by_filter)
    update_by_filter_async = _in_thread(update_by_filter)
    count_documents_async = _in_thread(count_documents)
    count_documents_by_filter_async = _in_thread(count_documents_by_filter)
    filter_documents_async = _in_thread(filter_documents)
    retrieve_async = _in_thread(retrieve)
    count_unique_metadata_by_filter_async = _in_thread(count_unique_metadata_by_filter)
    get_metadata_fields_info_async = _in_thread(get_metadata_fields_info)
    get_metadata_field_min_max_async = _in_thread(get_metadata_field_min_max)
    get_metadata_field_unique_values_async = _in_thread(get_metadata_field_unique_values)

    def _translate(self, filters: dict[str, Any] | None) -> dict[str, Any]:
        return translate_filters(filters, self.text_field) if filters else {}

    def _build_document(self, item: Item | Hit, score: float | None = None) -> Document:
        meta = dict(item.payload or {})
        own = meta.pop(_OWN, {})
        has_embedding = item.vector is not None and own.get("embedded", True)
        embedding = np.asarray(item.vector).tolist() if has_embedding else None
        parts = {name: own[name] for name in ("blob", "sparse_embedding") if name in own}
        content = {"id": str(item.id), "content": meta.pop(self.text_field, None), "embedding": embedding}
        return Document.from_dict({**content, **parts, "score": score, "meta": meta})


_TYPES = {str: "keyword", bool: "boolean", int: "long", float: "float"}


def _build_payload(document: Document, text_field: str) -> Payload:
    _require_free(document.meta, text_field)
    parts: dict[str, Any] = {}
    if document.embedding is None:
        parts["embedded"] = False
    for name in ("blob", "sparse_embedding"):
        value = getattr(document, name)
        if value is not None:
            parts[name] = value.to_dict()
    text = {} if document.content is None else {text_field: document.content}
    return {**text, **document.meta, **({_OWN: parts} if parts else {})}


def _require_free(meta: Mapping[str, Any], text_field: str) -> None:
    for name in (text_field, _OWN):
        if name in meta:
            raise ValueError(
                f"expected metadata without the field {name!r}, which the store uses, got "
                f"{meta[name]!r:.80}: rename it"
            )


def _collect_values(documents: Iterable[Document], field: str) -> list[Any]:
    """Return the different values of a field of metadata; 1, 1.0, "1" and True differ."""
    name = field.removeprefix("meta.")
    values = (document.meta.get(name) for document in documents)
    return list({(type(value), str(value)): value for value in values if value is not None}.values())


# Filters -----------------------------------------------------------------------------------------------

_RANGES = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}
_COMPARISONS = ("==", "!=", *_RANGES, "in", "not in")
_NOTHING: dict[str, Any] = {"not": {}}


def translate_filters(filters: Mapping[str, Any], text_field: str = "text") -> dict[str, Any]:
    """Return a filter of Haystack as one of a collection; raise FilterError if it is malformed.

    >>> translate_filters({"field": "meta.page", "operator": ">=", "value": 5})
    {'page': {'gte': 5}}
    >>> translate_filters({"operator": "NOT", "conditions": [{"field": "a", "operator": "==", "value": 1}]})
    {'not': {'and': [{'a': {'eq': 1}}]}}
    """
    if not isinstance(filters, Mapping):
        raise FilterError(f"expected a filter as a dictionary, got {filters!r:.80}")
    if "field" in filters:
        return _translate_condition(filters, text_field)
    operator, conditions = _get(filters, "operator"), _get(filters, "conditions")
    parts = [translate_filters(condition, text_field) for condition in conditions]
    match operator:
        case "AND":
            return {"and": parts}
        case "OR":
            return {"or": parts}
        case "NOT":
            return {"not": {"and": parts}}
    raise FilterError(f"expected the operator AND, OR or NOT, got {operator!r:.80}")


def _translate_condition(condition: Mapping[str, Any], text_field: str) -> dict[str, Any]:
    field, operator, value = (_get(condition, name) for name in ("field", "operator", "value"))
    name = text_field if field == "content" else field.removeprefix("meta.")
    match operator:
        case "==":
            return _equals(name, value)
        case "!=":
            return {"not": _equals(name, value)}
        case "in":
            return _is_one_of(name, value)
        case "not in":
            return {"not": _is_one_of(name, value)}
        case _ if operator in _RANGES:
            return _is_in_range(name, operator, value)
    raise FilterError(f"expected an operator of {', '.join(_COMPARISONS)}, got {operator!r:.80}")


def _get(filters: Mapping[str, Any], key: str) -> Any:
    if key not in filters:
        raise FilterError(f"expected {key!r} in a filter, got {', '.join(map(repr, filters)) or 'nothing'}")
    return filters[key]


def _equals(name: str, value: Any) -> dict[str, Any]:
    if value is None:
        return {"not": {"and": [{name: {"exists": True}}, {"not": {name: None}}]}}
    if not isinstance(value, str | int | float | bool):
        raise FilterError(f"expected a value to compare {name} with, got {value!r:.80}")
    return {name: {"eq": value}}


def _is_one_of(name: str, values: Any) -> dict[str, Any]:
    if not isinstance(values, list):
        raise FilterError(f"expected a list of values for {name}, got {values!r:.80}")
    return {"or": [_equals(name, value) for value in values]} if values else _NOTHING


def _is_in_range(name: str, operator: str, value: Any) -> dict[str, Any]:
    """Return a condition on numbers, or on dates as text."""
    if value is None:
        return _NOTHING
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number or (isinstance(value, str) and _is_date(value))):
        raise FilterError(f"expected a number or an ISO date to compare {name} with, got {value!r:.80}")
    return {name: {_RANGES[operator]: value}}


def _is_date(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


# Retriever ---------------------------------------------------------------------------------------------


@component
class PoshEmbeddingRetriever:
    """A component of pipelines that retrieves the documents nearest to an embedding.

    Parameters
    ----------
    document_store : PoshDocumentStore
        Store of the documents.
    filters : dict or None
        Filters of each retrieval.
    top_k : int
        Number of documents.
    filter_policy : FilterPolicy
        Whether filters of a run replace ``filters`` (by default) or are merged with them.

    """

    def __init__(
        self,
        document_store: PoshDocumentStore,
        *,
        filters: dict[str, Any] | None = None,
        top_k: int = 10,
        filter_policy: FilterPolicy = FilterPolicy.REPLACE,
    ) -> None:
        self.document_store, self.filters, self.top_k = document_store, filters, top_k
        self.filter_policy = filter_policy

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters, with those of the store."""
        policy = self.filter_policy.value
        return default_to_dict(
            self,
            document_store=self.document_store.to_dict(),
            filters=self.filters,
            top_k=self.top_k,
            filter_policy=policy,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PoshEmbeddingRetriever:
        """Build a retriever and its store from the parameters of :meth:`to_dict`."""
        parameters = data["init_parameters"]
        store = PoshDocumentStore.from_dict(parameters["document_store"])
        policy = FilterPolicy.from_str(parameters["filter_policy"])
        return default_from_dict(
            cls, {**data, "init_parameters": {**parameters, "document_store": store, "filter_policy": policy}}
        )

    @component.output_types(documents=list[Document])
    def run(
        self,
        query_embedding: list[float],
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
        options: dict[str, Any] | None = None,
    ) -> dict[str, list[Document]]:
        """Return the nearest documents; ``options`` are those of :meth:`PoshDocumentStore.retrieve`."""
        where = apply_filter_policy(self.filter_policy, self.filters, filters)
        k = self.top_k if top_k is None else top_k
        store = self.document_store
        return {"documents": store.retrieve(query_embedding, top_k=k, filters=where, **(options or {}))}

    @component.output_types(documents=list[Document])
    async def run_async(
        self,
        query_embedding: list[float],
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
        options: dict[str, Any] | None = None,
    ) -> dict[str, list[Document]]:
        """Return the nearest documents; see :meth:`run`."""
        return await asyncio.to_thread(self.run, query_embedding, filters, top_k, options)
