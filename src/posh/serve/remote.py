"""A collection of a service, to be used like any other."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import islice
from typing import Any, Protocol, Self

import numpy as np

from posh.collection.base import BaseCollection, Id, Include, Item, Payload
from posh.collection.filters import Filter
from posh.hashers.base import Hasher
from posh.index.hits import Hits
from posh.index.params import SearchParams
from posh.index.report import IndexReport
from posh.preprocess import Float32
from posh.serve.batches import MAX_ITEMS, batches
from posh.serve.info import Indexing, Info
from posh.serve.limits import checked_name
from posh.serve.vectors import from_base64, pack

__all__ = ["RemoteCollection"]

_ID_BYTES = 50  # of an id in a request
_PAGE = 1000  # items fetched in one go, or fewer
_NUMBERS = 1 << 20  # of vectors, of all items of a page: about 12 MB of an answer


class Request(Protocol):
    """Sends one request; see :meth:`posh.serve.client.Client.request`."""

    def __call__(self, method: str, path: str, body: Any = None, **params: str) -> Any:
        """Return the answer."""


class RemoteCollection(BaseCollection):
    """What :meth:`posh.serve.client.Client.collection` returns.

    Arguments are checked here, in the words of every collection, and again by the service. How many threads a
    search takes is the service's choice. What is more than one request may hold is written or deleted in
    parts: each part is written completely or not at all, in order.
    """

    def __init__(self, request: Request, path: str) -> None:
        self._request, self._path = request, path
        self._features: int | None = None
        self._closed = False

    def __repr__(self) -> str:
        closed = ", closed" if self._closed else ""
        return f"RemoteCollection({self._path.rpartition('/')[2]!r}{closed})"

    def info(self) -> Info:
        """What the service says of the collection: counts, sizes, hasher, options, and how indexing goes."""
        return Info.from_json(self._ask("GET", ""))

    @property
    def n_features(self) -> int | None:
        """The number of columns of all vectors; None until the first vectors or a hasher decide it."""
        self._require_open()
        if self._features is None:
            self._features = self.info().n_features
        return self._features

    @property
    def hasher(self) -> Hasher[Any] | None:
        """The hasher whose codes are searched, as a copy."""
        if self.info().hasher is None:
            return None
        return Hasher.from_bytes(self._ask("GET", "/hasher"), "the hasher of the service")

    @property
    def metadata(self) -> Payload:
        """A small JSON object that is kept with the collection."""
        return self.info().metadata

    @property
    def index_options(self) -> dict[str, Any]:
        """The options of :class:`posh.Index`, as far as the service knows them."""
        return dict(self.info().index)

    def memory_usage(self) -> int | None:
        """Bytes of memory that the index takes in the service; None if the service does not know."""
        return self.info().memory_bytes

    def cancel_fit(self) -> Indexing:
        """Cancel what indexes the collection in the service, which stays as it is; what came of it."""
        return Indexing.from_json(self._ask("DELETE", "/fit"))

    def compact(self) -> Self:
        """Give back the room of what was deleted or replaced."""
        self._ask("POST", "/compact")
        return self

    def backup(self, name: str) -> None:
        """Have the service copy the collection, as it is now, to the folder ``name`` of its backups.

        The name must be new, of at most 64 of a-z, 0-9, _ and -. The service must have been started with
        ``--backups``. Searches and writes go on meanwhile. A copy that takes longer than the client's
        ``timeout`` is an error here, and is made nevertheless.
        """
        self._ask("POST", "/backup", {"name": checked_name(name)})

    def close(self) -> None:
        """End the use of this object; the connection is the client's."""
        self._closed = True

    # How it is asked -----------------------------------------------------------------------------------

    def _ask(self, method: str, path: str, body: Any = None, **params: str) -> Any:
        self._require_open()
        return self._request(method, self._path + path, body, **params)

    def _set_metadata(self, metadata: Payload) -> None:
        self._ask("PUT", "/metadata", {"metadata": metadata})

    def _upsert(self, ids: list[Id], vectors: Float32, payloads: list[Payload]) -> None:
        for part in batches(payloads, 6 * vectors.shape[1] + _ID_BYTES):  # base64 makes 4 bytes into nearly 6
            body = {"ids": ids[part], "vectors": pack(vectors[part]), "payloads": payloads[part]}
            self._ask("POST", "/upsert", body)

    def _delete(self, ids: list[Id]) -> int:
        parts = (ids[start : start + MAX_ITEMS] for start in range(0, len(ids) or 1, MAX_ITEMS))
        return sum(int(self._ask("POST", "/delete", {"ids": part})["deleted"]) for part in parts)

    def _delete_where(self, where: Filter, limit: int | None) -> int:
        n_deleted, more = 0, True
        while more and n_deleted != limit:
            body: dict[str, Any] = {"filter": where.source}
            if limit is not None:
                body["limit"] = limit - n_deleted
            answer = self._ask("POST", "/delete", body)
            n_deleted, more = n_deleted + int(answer["deleted"]), answer["more"]
        return n_deleted

    def _update_payload(self, ids: list[Id], payloads: list[Payload], *, replace: bool) -> None:
        for part in batches(
            payloads, 4 * (self.n_features or 1) + _ID_BYTES
        ):  # the service reads the vectors
            body = {"ids": ids[part], "payloads": payloads[part], "replace": replace}
            self._ask("POST", "/payloads", body)

    def _get(self, ids: list[Id]) -> list[Item | None]:
        found: list[Item | None] = []
        at_once = max(1, min(_PAGE, _NUMBERS // (self.n_features or 1)))
        for start in range(0, len(ids), at_once):
            part = ids[start : start + at_once]
            answer = self._ask("POST", "/get", {"ids": part, "include": ["payload", "vector"]})
            found += [None if item is None else _item(item) for item in answer["items"]]
        return found

    def _require_searchable(self, params: SearchParams) -> None:
        """The service does this: asking it for its hasher first would take longer than a search."""

    def _search(self, vectors: Float32, params: SearchParams, where: Filter | None, include: Include) -> Hits:
        return self._ask_search({"vectors": pack(vectors)}, params, where, include)

    def _search_like(
        self, ids: list[Id], params: SearchParams, where: Filter | None, include: Include
    ) -> Hits:
        return self._ask_search({"ids": ids}, params, where, include)

    def _ask_search(
        self, query: dict[str, Any], params: SearchParams, where: Filter | None, include: Include
    ) -> Hits:
        asked = params.as_arguments()
        asked.pop("n_threads", None)  # the service's choice
        fields = [name for name, wanted in zip(("payload", "vector"), include, strict=True) if wanted]
        body = {"filter": None if where is None else where.source, "include": fields}
        return _hits(self._ask("POST", "/search", asked | query | body), params.k, include)

    def _count(self, where: Filter | None) -> int:
        body = {"filter": None if where is None else where.source}
        return int(self._ask("POST", "/count", body)["count"])

    def _items(self, where: Filter | None, after: Id | None, limit: int | None) -> Iterator[Item]:
        self._require_open()
        return self._iterate(None if where is None else where.source, after, limit)

    def _iterate(self, filter: Any, after: Id | None, limit: int | None) -> Iterator[Item]:  # noqa: A002
        # Ids first, because they are of one moment; what is deleted before it is fetched is left out.
        ids = islice(self._ids(filter, after, limit), limit)
        while page := list(islice(ids, _PAGE)):
            yield from (item for item in self._get(page) if item is not None)

    def _ids(self, filter: Any, after: Id | None, limit: int | None) -> Iterator[Id]:  # noqa: A002
        few = limit if limit is not None and limit <= _PAGE else None  # else as many as the service gives
        while few != 0:
            body = {"filter": filter, "after": after, "limit": few, "include": []}
            page = self._ask("POST", "/items", body)
            yield from (item["id"] for item in page["items"])
            after = page["next"]
            if after is None:
                return

    def _sample(self, n: int) -> Float32:
        packed = self._ask("POST", "/sample", {"n": n})
        return np.array(from_base64(packed["shape"], packed["float32"]), np.float32)

    def _reindex(self, hasher: Hasher[Any] | None, options: Mapping[str, Any]) -> None:
        if hasher is None:
            self._ask("POST", "/reindex", {"index": dict(options)})
        else:
            self._ask("PUT", "/hasher", hasher.to_bytes(), index=json.dumps(dict(options)))

    def _report(self) -> IndexReport:
        answer = self._ask("GET", "/report")
        return IndexReport(**{field.name: answer[field.name] for field in fields(IndexReport)})

    def _require_open(self) -> None:
        if self._closed:
            raise ValueError("expected an open collection, got a closed one: ask the client for it again")


def _item(fields: dict[str, Any]) -> Item:
    return Item(fields["id"], np.array(fields["vector"], np.float32), fields["payload"])


def _hits(answer: dict[str, Any], k: int, include: Include) -> Hits:
    rows = [result["hits"] for result in answer["results"]]
    ids = np.full((len(rows), k), None, object)
    scores = np.full((len(rows), k), -np.inf, np.float32)
    for i, hits in enumerate(rows):
        ids[i, : len(hits)] = [hit["id"] for hit in hits]
        scores[i, : len(hits)] = [np.nan if hit["score"] is None else hit["score"] for hit in hits]
    payloads = [[hit["payload"] for hit in row] for row in rows] if include.payloads else None
    vectors = None
    if include.vectors:
        vectors = [[np.array(hit["vector"], np.float32) for hit in row] for row in rows]
    return Hits(ids, scores, answer["kind"], payloads, vectors)
