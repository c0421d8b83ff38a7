"""Clients of ``posh serve``: :class:`Client`, and :class:`AsyncClient` for programs with an event loop.

Needs ``posh-ann[client]``, that is httpx, and none of the service's packages.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from functools import partial, wraps
from itertools import islice
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from posh import errors
from posh._wire import Indexing, Info, pack_vectors, unpack_vectors, validate_name
from posh.collection.base import BaseCollection, Id, Include, Item, Payload
from posh.collection.filters import Filter
from posh.collection.text import Fusion, TextOptions, TextQuery
from posh.hashers.base import Hasher
from posh.index.codes.options import CodeParams
from posh.index.hits import Hits, RadiusHits
from posh.index.nearest.options import NearestParams, RadiusParams
from posh.index.nearest.queries import sample_queries
from posh.index.nearest.report import IndexReport
from posh.index.params import SearchParams
from posh.preprocess import Float32

try:
    import httpx
except ImportError as error:
    raise errors.MissingExtraError("httpx", "client", "posh.client") from error

__all__ = ["AsyncClient", "AsyncCollection", "Client", "RemoteCollection"]

T = TypeVar("T")
# The service closes idle connections after 4 seconds. The client closes them first, so that it sends no
# request over a connection that the service is closing.
_CONNECTIONS = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=3.0)
# Parts of a large write, small enough for a service with default limits:
_MAX_ITEMS = 5_000
_MAX_BYTES = 8 << 20
_MAX_VALUES = 400_000  # separators in the JSON of payloads: the service counts them
_ID_BYTES = 50  # of an id in a request, estimated
_RADIUS_QUERIES, _RADIUS_HITS = 1_000, 100_000  # of one range search: the limits of the service
_PAGE = 1000  # items per request, or fewer
_PAGE_NUMBERS = 1 << 20  # of the vectors of all items of a page: about 12 MB of JSON
_ASYNC_PAGE = 100  # items that a thread takes from an iteration at a time
_ERRORS: dict[str, type[Exception]] = {
    "invalid-argument": ValueError,
    "wrong-type": TypeError,
    "too-large": ValueError,
    "no-hasher": ValueError,
    "unknown-item": KeyError,
    "unknown-collection": errors.UnknownCollectionError,
    "collection-exists": errors.CollectionExistsError,
    "not-a-hasher": errors.FormatError,
    "storage-full": errors.StorageError,
    "read-only": errors.StorageError,
    "storage-failed": errors.StorageError,
}


class Client:
    """A connection to ``posh serve``, for any number of threads.

    Errors raise the library's own exceptions with the same messages. A service that cannot be reached or is
    too busy raises :class:`posh.errors.ServiceError`.

    Parameters
    ----------
    url : str
        The address that the service prints.
    token : str, optional
        The token of the service, if it has one.
    timeout : float
        Seconds to wait for a response.

    Examples
    --------
    >>> with Client("http://127.0.0.1:8765", token="secret") as client:  # doctest: +SKIP
    ...     shop = client.create("shop", hasher=hasher)
    ...     shop.upsert(["a", "b"], vectors, [{"price": 3}, {"price": 5}])
    ...     shop.search(vectors[0], k=10, filter={"price": {"lt": 4}})

    """

    def __init__(self, url: str, token: str | None = None, *, timeout: float = 60.0) -> None:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self._http = httpx.Client(
            base_url=url, headers=headers, timeout=timeout, limits=_CONNECTIONS, trust_env=False
        )

    def __repr__(self) -> str:
        return f"Client({str(self._http.base_url)!r})"

    def __reduce__(self) -> Any:
        """Refuse to pickle: the pickle would contain the token, and connections cannot be pickled."""
        raise TypeError(f"{self!r} cannot be pickled: create another client where it is needed")

    def collections(self) -> list[Info]:
        """Return a description of every collection."""
        content = self.request("GET", "/v1/collections")
        return [Info.from_json(info) for info in content["collections"]]

    def create(
        self,
        name: str,
        hasher: Hasher[Any] | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        text: str | Sequence[str] | None = None,
        tokenizer: str | None = None,
        **options: Any,
    ) -> RemoteCollection:
        """Create a collection; ``hasher`` (fitted) and ``options`` are as in ``reindex``.

        ``text`` names fields of payloads for ``search(text=…)``, see :class:`posh.Collection`.

        Without a hasher, ``metric="cosine", recall=0.95`` builds the index from the first items. Without a
        metric either, the collection stores the options for a later hasher.
        """
        body: dict[str, Any] = {"metadata": dict(metadata or {}), "index": options}
        own = TextOptions.validate(text, tokenizer)
        if own is not None:
            body |= {"text": list(own.fields), "tokenizer": own.tokenizer}
        self.request("PUT", f"/v1/collections/{validate_name(name)}", body)
        collection = self.collection(name)
        if hasher is not None:
            collection.reindex(hasher, **options)
        return collection

    def collection(self, name: str) -> RemoteCollection:
        """Return the collection of this name, which need not exist yet."""
        return RemoteCollection(self.request, f"/v1/collections/{validate_name(name)}")

    def delete(self, name: str) -> None:
        """Delete a collection permanently."""
        self.request("DELETE", f"/v1/collections/{validate_name(name)}")

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def request(self, method: str, path: str, body: Any = None, **params: str) -> Any:
        """Send a request with JSON or bytes, and return the JSON or the bytes of the response."""
        content, headers = None, {}
        if body is not None:
            is_file = isinstance(body, bytes)
            content = body if is_file else json.dumps(body, separators=(",", ":")).encode()
            headers = {"content-type": "application/octet-stream" if is_file else "application/json"}
        try:
            response = self._http.request(method, path, content=content, headers=headers, params=params)
        except httpx.HTTPError as error:
            raise errors.ServiceError(
                f"{self._http.base_url}: expected a response, got none ({error}): check that the service runs"
            ) from error
        if response.is_error:
            raise _parse_error(response)
        is_json = response.headers.get("content-type") == "application/json"
        return json.loads(response.content) if is_json else response.content


def _parse_error(response: httpx.Response) -> Exception:
    """Return the exception that an error response stands for."""
    try:
        problem = response.json()
        kind, detail = problem["type"].removeprefix("urn:posh:"), str(problem["detail"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return errors.ServiceError(
            f"expected a response of posh serve, got status {response.status_code} of another service"
        )
    return _ERRORS.get(kind, errors.ServiceError)(detail)


class Request(Protocol):
    """Sends one request; see :meth:`Client.request`."""

    def __call__(self, method: str, path: str, body: Any = None, **params: str) -> Any:
        """Return the content of the response."""


class RemoteCollection(BaseCollection):
    """A collection of a service, returned by :meth:`Client.collection`.

    Arguments are validated here, with the messages of every collection, and again by the service. The service
    chooses the number of threads of a search. Writes and deletes that exceed the limits of one request are
    split: each part is written completely or not at all, in order.
    """

    def __init__(self, request: Request, path: str) -> None:
        self._request, self._path = request, path
        self._features: int | None = None
        self._closed = False

    def __repr__(self) -> str:
        closed = ", closed" if self._closed else ""
        return f"RemoteCollection({self._path.rpartition('/')[2]!r}{closed})"

    def info(self) -> Info:
        """Return the service's description of the collection: counts, sizes, hasher, options, indexing."""
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
        """A copy of the hasher whose codes are searched."""
        if self.info().hasher is None:
            return None
        return Hasher.from_bytes(self._ask("GET", "/hasher"), "the hasher of the service")

    @property
    def metadata(self) -> Payload:
        """A small JSON object that is stored with the collection."""
        return self.info().metadata

    @property
    def index_options(self) -> dict[str, Any]:
        """The options of the index, as far as the service knows them."""
        return dict(self.info().index)

    def memory_usage(self) -> int | None:
        """Return the bytes of memory that the index takes in the service; None if it does not know."""
        return self.info().memory_bytes

    @property
    def text(self) -> TextOptions | None:
        """The fields and the tokenizer of the text index; None without one."""
        text = self.info().text
        return None if text is None else TextOptions(tuple(text.fields), text.tokenizer)

    def cancel_fit(self) -> Indexing:
        """Cancel a running fit or reindexing in the service, and return its state."""
        return Indexing.from_json(self._ask("DELETE", "/fit"))

    def compact(self) -> Self:
        """Free the space of deleted and replaced items."""
        self._ask("POST", "/compact")
        return self

    def backup(self, name: str) -> None:
        """Have the service copy the collection to the folder ``name`` of its backups.

        The name must be new, of at most 64 of a-z, 0-9, _ and -. The service must have been started with
        ``--backups``. Searches and writes continue concurrently. If the copy takes longer than the client's
        ``timeout``, this raises an error, and the service completes the copy nevertheless.
        """
        self._ask("POST", "/backup", {"name": validate_name(name)})

    def close(self) -> None:
        """Close this object; the connection belongs to the client."""
        self._closed = True

    def _ask(self, method: str, path: str, body: Any = None, **params: str) -> Any:
        self._require_open()
        return self._request(method, self._path + path, body, **params)

    def _set_metadata(self, metadata: Payload) -> None:
        self._ask("PUT", "/metadata", {"metadata": metadata})

    def _upsert(self, ids: list[Id], vectors: Float32, payloads: list[Payload]) -> None:
        n_bytes = 6 * vectors.shape[1] + _ID_BYTES  # base64 makes 4 bytes into nearly 6
        for part in split_items(payloads, n_bytes):
            body = {"ids": ids[part], "vectors": pack_vectors(vectors[part]), "payloads": payloads[part]}
            self._ask("POST", "/upsert", body)

    def _delete(self, ids: list[Id]) -> int:
        parts = (ids[start : start + _MAX_ITEMS] for start in range(0, len(ids) or 1, _MAX_ITEMS))
        return sum(int(self._ask("POST", "/delete", {"ids": part})["deleted"]) for part in parts)

    def _delete_where(self, where: Filter, limit: int | None) -> int:
        n_deleted, has_more = 0, True
        while has_more and n_deleted != limit:
            body: dict[str, Any] = {"filter": where.source}
            if limit is not None:
                body["limit"] = limit - n_deleted
            content = self._ask("POST", "/delete", body)
            n_deleted, has_more = n_deleted + int(content["deleted"]), content["more"]
        return n_deleted

    def _update_payload(self, ids: list[Id], payloads: list[Payload], *, replace: bool) -> None:
        n_bytes = 4 * (self.n_features or 1) + _ID_BYTES  # the service reads and rewrites the vectors
        for part in split_items(payloads, n_bytes):
            body = {"ids": ids[part], "payloads": payloads[part], "replace": replace}
            self._ask("POST", "/payloads", body)

    def _get(self, ids: list[Id]) -> list[Item | None]:
        items: list[Item | None] = []
        step = max(1, min(_PAGE, _PAGE_NUMBERS // (self.n_features or 1)))
        for start in range(0, len(ids), step):
            body = {"ids": ids[start : start + step], "include": ["payload", "vector"]}
            content = self._ask("POST", "/get", body)
            items += [None if item is None else _parse_item(item) for item in content["items"]]
        return items

    def _make_params(self, k: int, **options: Any) -> SearchParams:
        """Return parameters of either kind: the service validates them against its index."""
        given = {name: value for name, value in options.items() if value is not None and value is not False}
        is_nearest = not given.keys() <= CodeParams.__dataclass_fields__.keys()
        return NearestParams(k, **given) if is_nearest else CodeParams(k, **given)

    def _search(self, vectors: Float32, params: SearchParams, where: Filter | None, include: Include) -> Hits:
        return self._ask_search({"vectors": pack_vectors(vectors)}, params, where, include)

    def _search_text(
        self,
        texts: list[TextQuery],
        vectors: Float32 | None,
        params: SearchParams,
        fusion: Fusion,
        where: Filter | None,
        include: Include,
    ) -> Hits:
        query: dict[str, Any] = {"text": [text.source for text in texts]}
        if vectors is not None:
            query |= {"vectors": pack_vectors(vectors), "fusion": fusion.as_arguments()}
        return self._ask_search(query, params, where, include)

    def _search_like(
        self, ids: list[Id], params: SearchParams, where: Filter | None, include: Include
    ) -> Hits:
        return self._ask_search({"ids": ids}, params, where, include)

    def _ask_search(
        self, query: dict[str, Any], params: SearchParams, where: Filter | None, include: Include
    ) -> Hits:
        arguments = params.as_arguments()
        arguments.pop("n_threads", None)  # the service chooses
        names = {"payload": include.payloads, "vector": include.vectors}
        body = {
            "filter": None if where is None else where.source,
            "include": [name for name, is_wanted in names.items() if is_wanted],
        }
        return _parse_hits(self._ask("POST", "/search", arguments | query | body), params.k, include)

    def _search_radius(
        self, vectors: Float32, params: RadiusParams, where: Filter | None, include: Include
    ) -> RadiusHits:
        names = {"payload": include.payloads, "vector": include.vectors}
        body = {
            "vectors": pack_vectors(vectors),
            "min_score": params.min_score,
            "limit": params.limit,
            "recall": params.recall,
            "exact": params.exact,
            "filter": None if where is None else where.source,
            "include": [name for name, is_wanted in names.items() if is_wanted],
        }
        return _parse_radius_hits(self._ask("POST", "/search_radius", body), include)

    def _duplicates_at_once(self, limit: int) -> int:
        return max(1, min(_RADIUS_QUERIES, _RADIUS_HITS // (limit + 1)))

    def _count(self, where: Filter | None) -> int:
        body = {"filter": None if where is None else where.source}
        return int(self._ask("POST", "/count", body)["count"])

    def _explain_nothing(self, where: Filter) -> str | None:
        hint = self._ask("POST", "/count", {"filter": where.source}).get("hint")
        return None if hint is None else str(hint)

    def _items(self, where: Filter | None, after: Id | None, limit: int | None) -> Iterator[Item]:
        self._require_open()
        return self._iterate_items(None if where is None else where.source, after, limit)

    def _iterate_items(self, where: Any, after: Id | None, limit: int | None) -> Iterator[Item]:
        # A page of ids is a consistent snapshot. Items that are deleted before they are fetched are left out.
        ids = islice(self._iterate_ids(where, after, limit), limit)
        while page := list(islice(ids, _PAGE)):
            yield from (item for item in self._get(page) if item is not None)

    def _iterate_ids(self, where: Any, after: Id | None, limit: int | None) -> Iterator[Id]:
        page_size = limit if limit is not None and limit <= _PAGE else None  # None: the service's maximum
        while page_size != 0:
            body = {"filter": where, "after": after, "limit": page_size, "include": []}
            page = self._ask("POST", "/items", body)
            yield from (item["id"] for item in page["items"])
            after = page["next"]
            if after is None:
                return

    def _sample(self, n: int) -> Float32:
        packed = self._ask("POST", "/sample", {"n": n})
        return np.array(unpack_vectors(packed["shape"], packed["float32"]), np.float32)

    def _reindex(self, hasher: Hasher[Any] | None, options: Mapping[str, Any]) -> None:
        if hasher is None:
            self._ask("POST", "/reindex", {"index": dict(options)})
        else:
            self._ask("PUT", "/hasher", hasher.to_bytes(), index=json.dumps(dict(options)))

    def _index_text(self, options: TextOptions | None) -> None:
        body = {} if options is None else {"fields": list(options.fields), "tokenizer": options.tokenizer}
        self._ask("PUT", "/text", body)

    def _calibrate(self, queries: Float32 | None) -> None:
        some = None if queries is None else sample_queries(queries)
        self._ask("POST", "/calibrate", {"queries": None if some is None else pack_vectors(some)})

    def _report(self) -> IndexReport:
        content = self._ask("GET", "/report")
        return IndexReport(**{field.name: content[field.name] for field in fields(IndexReport)})

    def _require_open(self) -> None:
        if self._closed:
            raise ValueError("expected an open collection, got a closed one: ask the client for it again")


def split_items(payloads: Sequence[Payload], item_bytes: int) -> Iterator[slice]:
    """Yield slices of items, in order, each small enough for one request.

    ``item_bytes`` are the bytes of an item in a request without its payload.

    >>> list(split_items([{}] * 12_000, 10))
    [slice(0, 5000, None), slice(5000, 10000, None), slice(10000, 12000, None)]
    """
    start = n_bytes = n_values = 0
    for i, payload in enumerate(payloads):
        text = json.dumps(payload)
        size = len(text) + item_bytes
        values = sum(text.count(separator) for separator in ",[{")
        is_full = i - start >= _MAX_ITEMS or n_bytes + size > _MAX_BYTES or n_values + values > _MAX_VALUES
        if i > start and is_full:
            yield slice(start, i)
            start, n_bytes, n_values = i, 0, 0
        n_bytes, n_values = n_bytes + size, n_values + values
    if len(payloads) > start:
        yield slice(start, len(payloads))


def _parse_item(content: dict[str, Any]) -> Item:
    return Item(content["id"], np.array(content["vector"], np.float32), content["payload"])


def _parse_hits(content: dict[str, Any], k: int, include: Include) -> Hits:
    rows = [result["hits"] for result in content["results"]]
    ids = np.full((len(rows), k), None, object)
    has_parts = content["kind"] == "rrf"
    precision = np.float64 if content["kind"] in ("rrf", "bm25") else np.float32
    scores = np.full((len(rows), k), -np.inf, precision)
    parts = {name: np.full((len(rows), k), np.nan) for name in ("vector_score", "text_score")}
    for i, row in enumerate(rows):
        ids[i, : len(row)] = [hit["id"] for hit in row]
        scores[i, : len(row)] = [np.nan if hit["score"] is None else hit["score"] for hit in row]
        for name, column in parts.items() if has_parts else ():
            column[i, : len(row)] = [np.nan if hit[name] is None else hit[name] for hit in row]
    payloads = [[hit["payload"] for hit in row] for row in rows] if include.payloads else None
    vectors = None
    if include.vectors:
        vectors = [[np.array(hit["vector"], np.float32) for hit in row] for row in rows]
    return Hits(ids, scores, content["kind"], payloads, vectors, *(parts.values() if has_parts else ()))


def _parse_radius_hits(content: dict[str, Any], include: Include) -> RadiusHits:
    rows = [result["hits"] for result in content["results"]]
    hits = [hit for row in rows for hit in row]
    ids = np.empty(len(hits), object)
    ids[:] = [hit["id"] for hit in hits]
    return RadiusHits(
        np.cumsum([0, *map(len, rows)]),
        ids,
        np.array([hit["score"] for hit in hits], np.float32),
        content["kind"],
        np.array([result["is_cut"] for result in content["results"]], bool),
        [hit["payload"] for hit in hits] if include.payloads else None,
        [np.array(hit["vector"], np.float32) for hit in hits] if include.vectors else None,
    )


def _run_in_thread(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a coroutine function that calls a method of the wrapped collection in a thread.

    If the method returns its collection, the coroutine returns its :class:`AsyncCollection`.
    """

    @wraps(method)
    async def call(self: AsyncCollection, *args: Any, **options: Any) -> Any:
        result = await self._run(getattr(self._collection, method.__name__), *args, **options)
        return self if result is self._collection else result

    return call


class AsyncCollection:
    """A collection whose methods are coroutines, see :class:`posh.BaseCollection`; threads do the work.

    :meth:`AsyncClient.collection` returns one. It can wrap any collection, including an embedded one.

    >>> import asyncio, posh, tempfile
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> async def main(folder):
    ...     with ThreadPoolExecutor(2) as threads, posh.create(folder, metric="cosine") as collection:
    ...         shop = AsyncCollection(collection, threads)
    ...         await shop.upsert(["a", "b"], [[1.0, 0.0], [1.0, 1.0]])
    ...         return (await shop.search([1.0, 0.1], k=1)).ids.tolist()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     asyncio.run(main(folder))
    [['a']]
    """

    def __init__(self, collection: BaseCollection, threads: ThreadPoolExecutor) -> None:
        self._collection, self._threads = collection, threads

    upsert = _run_in_thread(BaseCollection.upsert)
    update_payload = _run_in_thread(BaseCollection.update_payload)
    delete = _run_in_thread(BaseCollection.delete)
    get = _run_in_thread(BaseCollection.get)
    search = _run_in_thread(BaseCollection.search)
    search_radius = _run_in_thread(BaseCollection.search_radius)
    duplicates = _run_in_thread(BaseCollection.duplicates)
    count = _run_in_thread(BaseCollection.count)
    sample = _run_in_thread(BaseCollection.sample)
    fit = _run_in_thread(BaseCollection.fit)
    reindex = _run_in_thread(BaseCollection.reindex)
    index_text = _run_in_thread(BaseCollection.index_text)
    calibrate = _run_in_thread(BaseCollection.calibrate)
    report = _run_in_thread(BaseCollection.report)
    set_metadata = _run_in_thread(BaseCollection.set_metadata)
    compact = _run_in_thread(BaseCollection.compact)
    backup = _run_in_thread(RemoteCollection.backup)

    async def items(
        self,
        filter: Mapping[str, Any] | None = None,  # noqa: A002
        *,
        after: Id | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[Item]:
        """Yield items in the order of writing, see :meth:`posh.BaseCollection.items`."""
        items = self._collection.items(filter, after=after, limit=limit)
        while page := await self._run(lambda: list(islice(items, _ASYNC_PAGE))):
            for item in page:
                yield item

    async def _run(self, call: Callable[..., T], *args: Any, **options: Any) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(call, *args, **options))

    def __repr__(self) -> str:
        return f"AsyncCollection({self._collection!r})"


class AsyncClient:
    """A connection to ``posh serve`` whose methods are coroutines, see :class:`Client`.

    At most ``n_threads`` requests run concurrently; others wait for them.

    >>> async def main():
    ...     async with AsyncClient("http://127.0.0.1:8765", token="secret") as client:
    ...         shop = client.collection("shop")
    ...         return await shop.search(ids=["a"], k=10, payloads=True)
    """

    def __init__(
        self, url: str, token: str | None = None, *, timeout: float = 60.0, n_threads: int = 16
    ) -> None:
        self._client = Client(url, token, timeout=timeout)
        self._threads = ThreadPoolExecutor(n_threads, "posh-client")

    async def collections(self) -> list[Info]:
        """Return a description of every collection."""
        return await self._run(self._client.collections)

    async def create(
        self,
        name: str,
        hasher: Hasher[Any] | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> AsyncCollection:
        """Create a collection, see :meth:`Client.create`."""
        create = partial(self._client.create, name, hasher, metadata=metadata, **options)
        return AsyncCollection(await self._run(create), self._threads)

    def collection(self, name: str) -> AsyncCollection:
        """Return the collection of this name, which need not exist yet."""
        return AsyncCollection(self._client.collection(name), self._threads)

    async def delete(self, name: str) -> None:
        """Delete a collection permanently."""
        await self._run(partial(self._client.delete, name))

    async def close(self) -> None:
        """Wait for running requests, then close the connection."""
        await asyncio.to_thread(self._threads.shutdown)
        self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def __repr__(self) -> str:
        return f"Async{self._client!r}"
