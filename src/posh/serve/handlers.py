"""Handlers of all operations: search, items, hashers, overviews, and collections themselves."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
import orjson
from starlette.requests import Request
from starlette.responses import Response

from posh._wire import pack_vectors
from posh.collection.base import (
    NO_HASHER,
    Id,
    Include,
    has_no_hits,
    make_search_params,
    validate_ids,
    validate_vectors,
)
from posh.collection.filters import Filter, parse
from posh.collection.text import parse_fusion
from posh.hashers import make_hasher
from posh.hashers.base import Hasher, SparseHasher
from posh.index.hits import Hits, RadiusHits
from posh.index.nearest.options import RadiusParams
from posh.preprocess import Float32
from posh.serve import requests
from posh.serve.capacity import require_affordable_search, require_filter_bytes
from posh.serve.coalesce import LargeResultError, SharedOptions
from posh.serve.indexing import estimate_fit_bytes, estimate_index_bytes, read_hasher, require_limits
from posh.serve.metrics import CONTENT_TYPE, CollectionState
from posh.serve.overview import write_fields, write_map
from posh.serve.registry import OpenCollection, Registry
from posh.serve.requests import FieldNames, Reader, unpack_rows, wait_for_disconnect
from posh.serve.responses import (
    ItemWriter,
    LimitError,
    PageOfItems,
    ProblemError,
    dump_json,
    join_json,
    respond,
    respond_json,
)
from posh.serve.uploads import write_table

__all__ = [
    "CollectionOperations",
    "HasherOperations",
    "ItemOperations",
    "OverviewOperations",
    "SearchOperations",
]

_LARGE = 256 << 10  # bytes of a request from which on vectors are unpacked in a thread
_MANY = 5_000  # hits without payloads up to which a response is written on the event loop
_SEARCH_OPTIONS = ("scoring", "oversample", "n_probe", "slack", "recall", "min_score")
_VERSION = version("posh-ann")  # reads files, so only once


class Operations:
    """Base of the handlers: the registry of collections, the reader of requests, and the limits."""

    def __init__(self, registry: Registry, reader: Reader) -> None:
        self._registry, self._reader, self._limits = registry, reader, registry.limits

    def _make_writer(
        self, request: Request, opened: OpenCollection, include: FieldNames, n_active: int | None = None
    ) -> ItemWriter:
        """Return a writer of items, which takes memory from the budget if the response becomes large."""
        most = self._limits.answer_bytes
        grow = partial(self._reader.hold_response, request.scope, 2 * most)  # the parts, and the whole
        return ItemWriter(opened.collection, include, most, n_active, grow)

    def _unpack(self, vectors: Any) -> Float32:
        array = unpack_rows(vectors)
        if array.shape[1] > self._limits.n_features:
            raise LimitError(
                "n_features",
                f"expected vectors of at most {self._limits.n_features} columns in this service, "
                f"got {array.shape[1]}",
            )
        return array


class SearchOperations(Operations):
    """Search by vectors or by stored items."""

    async def search(self, request: Request, opened: OpenCollection) -> Response:
        """Return the nearest items of each query. Concurrent searches run as one batch."""
        body = await self._reader.parse(request, requests.Search)
        include = _choose_fields(opened, body)
        start = time.perf_counter()
        if body.text is not None:
            return await self._search_by_text(request, opened, body, include, start)
        collection = opened.collection
        hasher, index_options = collection.hasher, collection.index_options
        _require_index(hasher, index_options)
        vectors = await self._read_queries(request, opened, body)
        k = min(body.k, self._limits.k)
        if len(vectors) * k > self._limits.hits:
            raise LimitError(
                "hits",
                f"expected at most {self._limits.hits:,} hits of all queries, got {len(vectors)} queries of "
                f"{k} each: ask for less at once",
            )
        options = {name: value for name in _SEARCH_OPTIONS if (value := getattr(body, name)) is not None}
        if body.exact:
            options["exact"] = True
        params = make_search_params(k, hasher, options)
        require_affordable_search(collection, index_options, len(vectors), params, self._limits)
        where = None if body.filter is None else parse(body.filter)
        key = None if body.filter is None else require_filter_bytes(body.filter, self._limits)
        if body.ids is not None:  # one more hit: an item is not its own neighbour
            params = params.with_k(k + 1)
        needs_vectors = not {"vector", "code"}.isdisjoint(include)
        shared = SharedOptions(params, where, key, Include("payload" in include, needs_vectors))
        hits = await self._search(request, opened, vectors, shared)
        if body.ids is not None:
            hits = hits.without(body.ids)
        writer = self._make_writer(request, opened, include, index_options.get("document_active"))
        write = partial(writer.write_results, hits, vectors, index_options.get("query_active"))
        # The payloads of a single query are small: a batch bounds them.
        is_small = (include == ["payload"] and len(vectors) == 1) or (not include and hits.ids.size <= _MANY)
        results = write() if is_small else await opened.reads.run(write)
        hint = await _find_hint(opened, where, is_empty=where is not None and has_no_hits(hits))
        end = orjson.dumps({"kind": hits.kind, **hint, "seconds": time.perf_counter() - start})
        return respond_json(join_json(b'{"results":[', results, b"]," + end[1:]))

    async def _search_by_text(
        self,
        request: Request,
        opened: OpenCollection,
        body: requests.Search,
        include: FieldNames,
        start: float,
    ) -> Response:
        """Search by text, or by vectors and text; not in a batch, as texts have nothing to share."""
        collection, index_options = opened.collection, opened.collection.index_options
        fusion: dict[str, Any] | None = None
        if body.vectors is not None:
            fusion = {"depth": min(parse_fusion(None).depth, self._limits.k)} | (body.fusion or {})
        depth = max(body.k, parse_fusion(fusion).depth if fusion is not None else 0)
        texts = self._read_texts(body, depth)
        options = {name: getattr(body, name) for name in _SEARCH_OPTIONS if name != "min_score"}
        options["exact"] = body.exact
        vectors = None
        if body.vectors is not None:
            _require_index(collection.hasher, index_options)
            vectors = await self._read_queries(request, opened, body)
            given = {name: value for name, value in options.items() if value not in (None, False)}
            params = make_search_params(depth, collection.hasher, given)
            require_affordable_search(collection, index_options, len(vectors), params, self._limits)
        where = None if body.filter is None else parse(body.filter)
        if body.filter is not None:
            require_filter_bytes(body.filter, self._limits)
        needs_vectors = not {"vector", "code"}.isdisjoint(include)
        writer = self._make_writer(request, opened, include, index_options.get("document_active"))
        fields = Include("payload" in include, needs_vectors, self._make_writer(request, opened, []).charge)

        def search() -> tuple[Hits, list[bytes]]:
            arguments = (texts, vectors, body.k, fusion, options, body.min_score, where, fields)
            hits = collection._search_by_text(*arguments)
            return hits, writer.write_results(hits, vectors, index_options.get("query_active"))

        hits, results = await opened.reads.run(search)
        hint = await _find_hint(opened, where, is_empty=has_no_hits(hits))
        end = orjson.dumps({"kind": hits.kind, **hint, "seconds": time.perf_counter() - start})
        return respond_json(join_json(b'{"results":[', results, b"]," + end[1:]))

    def _read_texts(self, body: requests.Search, depth: int) -> list[str | dict[str, str]]:
        """Return the texts of a request, each with ``depth`` hits, within the limits."""
        parts = body.text if isinstance(body.text, list) else [body.text]
        texts = [part if isinstance(part, str) else part.model_dump() for part in parts if part is not None]
        longest = max((len(text if isinstance(text, str) else text["fts5"]) for text in texts), default=0)
        for limit, name, found in (
            ("queries", "texts", len(texts)),
            ("text_characters", "characters of a text", longest),
            ("k", "for k and depth", depth),
            ("hits", "hits of all texts", len(texts) * depth),
        ):
            most = getattr(self._limits, limit)
            if found > most:
                message = f"expected at most {most:,} {name}, got {found:,}: ask for less at once"
                raise LimitError(limit, message)
        return texts

    async def search_radius(self, request: Request, opened: OpenCollection) -> Response:
        """Return all items whose score reaches a bound, up to a limit for each query.

        The collection must have a metric.
        """
        body = await self._reader.parse(request, requests.SearchRadius)
        include = _choose_fields(opened, body)
        start = time.perf_counter()
        collection, options = opened.collection, opened.collection.index_options
        vectors = await opened.reads.run(self._validate, body.vectors, collection.n_features)
        most = min(self._limits.k, self._limits.hits // max(1, len(vectors)))
        if body.limit is not None and body.limit > most:
            raise LimitError(
                "hits",
                f"expected at most {self._limits.hits:,} hits of all queries, got {len(vectors)} queries of "
                f"{body.limit} each: ask for less at once",
            )
        params = RadiusParams(body.min_score, body.limit or max(1, most), body.recall, body.exact)
        require_affordable_search(collection, options, len(vectors), params.as_search, self._limits)
        if body.filter is not None:
            require_filter_bytes(body.filter, self._limits)
        where = None if body.filter is None else parse(body.filter)
        charge = self._make_writer(request, opened, []).charge
        fields = Include("payload" in include, "vector" in include, charge)

        def find() -> tuple[list[bytes], RadiusHits]:
            collection.require_metric()
            found = collection._search_radius(vectors, params, where, fields)
            writer = self._make_writer(request, opened, include)
            return writer.write_results(found, vectors, None), found

        results, found = await opened.reads.run(find)
        hint = await _find_hint(opened, where, is_empty=has_no_hits(found))
        end = orjson.dumps({"kind": found.kind, **hint, "seconds": time.perf_counter() - start})
        return respond_json(join_json(b'{"results":[', results, b"]," + end[1:]))

    async def _search(
        self, request: Request, opened: OpenCollection, vectors: Float32, options: SharedOptions
    ) -> Hits:
        """Search in a batch; large results are read alone, with a share of the memory for responses."""
        try:
            return await opened.coalescer.search(
                vectors, options, partial(wait_for_disconnect, request.receive)
            )
        except LargeResultError:
            include = options.include._replace(charge=self._make_writer(request, opened, []).charge)
            return await opened.reads.run(
                opened.collection._search, vectors, options.params, options.where, include
            )

    async def _read_queries(self, request: Request, opened: OpenCollection, body: requests.Search) -> Float32:
        """Return the vectors of a request, or those of the items that it names, validated, (m, d)."""
        collection = opened.collection
        if body.vectors is not None:
            call = partial(self._validate, body.vectors, collection.n_features)
            return await opened.reads.run(call) if request.scope["posh.bytes"] > _LARGE else call()
        ids: list[Id] = body.ids or []
        items = await opened.reads.run(collection.get, ids)
        for item_id, item in zip(ids, items, strict=True):
            if item is None:
                raise KeyError(f"expected ids of stored items, got {item_id!r:.80}, which is not there")
        vectors = [item.vector for item in items if item is not None]
        return np.array(vectors, np.float32).reshape(len(ids), collection.n_features or 1)

    def _validate(self, vectors: Any, n_features: int | None) -> Float32:
        return validate_vectors(self._unpack(vectors), n_features)


def _require_index(hasher: Hasher[Any] | None, options: Mapping[str, Any]) -> None:
    """Raise a problem if a collection cannot be searched by vectors."""
    if hasher is None and options.get("metric") is None:
        raise ProblemError(409, "no-hasher", NO_HASHER)


async def _find_hint(opened: OpenCollection, where: Filter | None, *, is_empty: bool) -> dict[str, str]:
    """Return the member ``hint`` of a response if a filter passed nothing because no item can pass it."""
    if where is None or not is_empty:
        return {}
    hint = await opened.reads.run(opened.collection._explain_nothing, where)
    return {} if hint is None else {"hint": hint}


def _choose_fields(opened: OpenCollection, body: requests.Search | requests.SearchRadius) -> FieldNames:
    """Return the fields to send with each hit. Shard collections have none."""
    if opened.collection.has_items:
        return body.include
    if body.include and "include" in body.model_fields_set:
        raise ValueError(
            f"expected a search without include, got {body.include}: this collection has ids and scores "
            "only; leave include out, or import the vectors into a collection with 'posh import'"
        )
    return []


class ItemOperations(Operations):
    """Write, delete, read and browse items."""

    async def upsert(self, request: Request, opened: OpenCollection) -> Response:
        """Write items, all or none; the response is sent when they are durable."""
        body = await self._reader.parse(request, requests.Upsert)

        def upsert() -> None:
            self._require_small_payloads(request, body.payloads or [])
            opened.collection.upsert(body.ids, self._unpack(body.vectors), body.payloads)

        await opened.writes.run(upsert)
        return respond({"upserted": len(body.ids)})

    def _require_small_payloads(self, request: Request, payloads: list[dict[str, Any]]) -> None:
        most = self._limits.payload_bytes
        if request.scope["posh.bytes"] <= most:  # no payload is larger than its request
            return
        for i, payload in enumerate(payloads):
            n_bytes = len(orjson.dumps(payload))
            if n_bytes > most:
                raise LimitError(
                    "payload_bytes",
                    f"expected payloads of at most {most:,} bytes, got {n_bytes:,} for payloads[{i}]: keep "
                    "large content elsewhere",
                )

    async def delete(self, request: Request, opened: OpenCollection) -> Response:
        """Delete items by their ids or by a filter.

        A filter deletes at most the service's limit of items, in the order of writing.
        """
        body = await self._reader.parse(request, requests.Delete)
        if body.filter is None:
            n = await opened.writes.run(opened.collection.delete, body.ids)
            return respond({"deleted": n, "more": False})
        require_filter_bytes(body.filter, self._limits)
        limit = min(body.limit or self._limits.items, self._limits.items)
        where = parse(body.filter)
        n = await opened.writes.run(opened.collection._delete_where, where, limit)
        return respond({"deleted": n, "more": n == limit, **await _find_hint(opened, where, is_empty=not n)})

    async def update_payload(self, request: Request, opened: OpenCollection) -> Response:
        """Change the payloads of items, all or none, and keep their vectors.

        Fields replace those of the same name; other fields stay unchanged.
        """
        body = await self._reader.parse(request, requests.UpdatePayload)
        n_numbers, most = len(body.ids) * (opened.collection.n_features or 0), self._limits.body_bytes // 4
        if n_numbers > most:  # the vectors are rewritten: allow as many as in an upsert
            raise LimitError(
                "body_bytes",
                f"expected items with at most {most:,} numbers in their vectors, got {n_numbers:,}: "
                "ask for less at once",
            )

        def update() -> None:
            self._require_small_payloads(request, body.payloads)
            opened.collection.update_payload(body.ids, body.payloads, replace=body.replace)

        await opened.writes.run(update)
        return respond({"updated": len(body.ids)})

    async def get(self, request: Request, opened: OpenCollection) -> Response:
        """Return items by id."""
        body = await self._reader.parse(request, requests.Get)

        def write() -> bytes:
            writer = self._make_item_writer(request, opened, body.include)
            return join_json(b'{"items":[', writer.write_items(body.ids), b"]}")

        return respond_json(await opened.reads.run(write))

    async def items(self, request: Request, opened: OpenCollection) -> Response:
        """Return a page of items, in the order of writing."""
        body = await self._reader.parse(request, requests.Items)

        where = None if body.filter is None else parse(body.filter)
        after = None if body.after is None else validate_ids([body.after])[0]

        def write() -> PageOfItems:
            limit = min(body.limit or self._limits.page, self._limits.page)
            items = opened.collection._items(where, after, limit + 1)
            return self._make_item_writer(request, opened, body.include).write_page(items, limit)

        page = await opened.reads.run(write)
        hint = await _find_hint(opened, where, is_empty=not page.items and body.after is None)
        end = orjson.dumps({"next": None if page.is_complete else page.last, **hint})
        return respond_json(join_json(b'{"items":[', page.items, b"]," + end[1:]))

    def _make_item_writer(self, request: Request, opened: OpenCollection, include: FieldNames) -> ItemWriter:
        n_active = opened.collection.index_options.get("document_active")
        return self._make_writer(request, opened, include, n_active)

    async def count(self, request: Request, opened: OpenCollection) -> Response:
        """Return the number of items, or of those that pass a filter."""
        body = await self._reader.parse(request, requests.Count)
        where = None if body.filter is None else parse(body.filter)
        n_items = await opened.reads.run(opened.collection._count, where)
        return respond({"count": n_items, **await _find_hint(opened, where, is_empty=not n_items)})


class HasherOperations(Operations):
    """Fit, upload and download hashers; rebuild indexes."""

    async def fit(self, request: Request, opened: OpenCollection) -> Response:
        """Fit a hasher on a sample of the stored vectors, in the background; then search by its codes.

        ``indexing`` of the collection has the progress and the result.
        """
        body = await self._reader.parse(request, requests.Fit)
        hasher = make_hasher(body.method, body.params)
        require_limits(hasher, self._limits)
        collection, options = opened.collection, body.index.model_dump(exclude_unset=True)
        n_bytes = await self._registry.overviews.run(
            estimate_fit_bytes, hasher, collection, collection.index_options | options, self._limits
        )
        release = partial(self._registry.memory.release, n_bytes)
        self._registry.memory.take(n_bytes)
        try:
            opened.indexing.fit(lambda: collection.fit(hasher, **options), release)
        except ProblemError:
            release()
            raise
        return respond({"state": opened.indexing.state, "message": None}, 202)

    async def cancel_fit(self, request: Request, opened: OpenCollection) -> Response:
        """Cancel the current fit or reindexing; the collection stays unchanged. Returns the final state.

        The state is still running if the work could not be stopped within the time of a request.
        """
        opened.indexing.cancel()
        await opened.indexing.wait_until_idle(self._limits.seconds)
        return respond({"state": opened.indexing.state, "message": opened.indexing.message})

    async def get_hasher(self, request: Request, opened: OpenCollection) -> Response:
        """Return the hasher as a model file."""
        hasher = opened.collection.hasher
        if hasher is None:
            raise ProblemError(404, "no-hasher", NO_HASHER)

        def write() -> bytes:
            self._reader.hold_response(request.scope, 3 * 4 * hasher.n_bits * hasher.n_features_in_)
            return hasher.to_bytes()

        return Response(await opened.reads.run(write), media_type="application/octet-stream")

    async def put_hasher(self, request: Request, opened: OpenCollection) -> Response:
        """Search by the codes of this hasher, a model file; the response is sent when searches use it.

        The query parameter ``index`` may have index options as JSON.
        """
        options = requests.IndexOptions.model_validate_json(request.query_params.get("index", "{}"))
        self._reader.require_limits(options, "index.")
        content = await self._reader.read_file(request)

        def reindex() -> None:
            self._reindex(opened, read_hasher(content, self._limits), options)

        await opened.long_work.run(reindex)
        return Response(status_code=204)

    async def index_text(self, request: Request, opened: OpenCollection) -> Response:
        """Index fields of payloads as text, in place of the present ones; without any, build it again.

        The response is sent when searches use it. Writes wait for it.
        """
        body = await self._reader.parse(request, requests.IndexText)
        await opened.long_work.run(
            lambda: opened.collection.index_text(body.fields, tokenizer=body.tokenizer)
        )
        return Response(status_code=204)

    async def reindex(self, request: Request, opened: OpenCollection) -> Response:
        """Rebuild the index, trained and measured on the current items.

        The response is sent when searches use it. The hasher stays, unless the options have a metric, or
        change the metric or its structure.
        """
        body = await self._reader.parse(request, requests.Reindex)
        await opened.long_work.run(self._reindex, opened, None, body.index)
        return Response(status_code=204)

    def _reindex(
        self, opened: OpenCollection, hasher: Hasher[Any] | None, index: requests.IndexOptions
    ) -> None:
        """Reindex in a thread, within the memory for fits."""
        collection, options = opened.collection, index.model_dump(exclude_unset=True)
        n_bytes = estimate_index_bytes(hasher, collection, collection.index_options | options, self._limits)
        with self._registry.memory.hold(n_bytes):
            opened.indexing.run(lambda: collection.reindex(hasher, **options))

    async def calibrate(self, request: Request, opened: OpenCollection) -> Response:
        """Calibrate searches by a metric with a sample of your queries, for which the recall then holds.

        At least 50 of them must differ. The response is sent when searches use it.
        """
        body = await self._reader.parse(request, requests.Calibrate)

        def calibrate() -> None:
            collection = opened.collection
            queries = None if body.queries is None else self._unpack(body.queries)
            n_bytes = estimate_index_bytes(None, collection, collection.index_options, self._limits)
            with self._registry.memory.hold(n_bytes):
                opened.indexing.run(lambda: collection.calibrate(queries))

        await opened.long_work.run(calibrate)
        return Response(status_code=204)

    async def report(self, request: Request, opened: OpenCollection) -> Response:
        """Summarise the index of a metric: structure, measured recall, time per query. Takes a second."""
        return respond(asdict(await opened.long_work.run(opened.collection.report)))

    async def sample(self, request: Request, opened: OpenCollection) -> Response:
        """Return up to n random stored vectors, the same for the same items; fewer if they are large."""
        body = await self._reader.parse(request, requests.Sample)
        columns = opened.collection.n_features or 0
        most = self._limits.answer_bytes // (6 * max(1, columns))  # base64 expands 4 bytes to nearly 6
        n = min(body.n, most)

        def write() -> bytes:
            self._reader.hold_response(request.scope, 4 * 4 * n * columns)  # vectors, bytes, base64, JSON
            vectors = opened.collection.sample(n)
            return dump_json(pack_vectors(vectors.reshape(len(vectors), columns)))

        return respond_json(await opened.reads.run(write))


class OverviewOperations(Operations):
    """Overviews of a collection, computed from samples of its items and cached until it changes."""

    async def fields(self, request: Request, opened: OpenCollection) -> Response:
        """Summarise the fields of payloads, from a sample of items: their types, frequent values and ranges.

        The result is cached until the collection changes.
        """
        collection, limits = opened.collection, self._limits
        # One request can get all examples.
        compute = partial(write_fields, collection, limits.fields, limits.items)
        return respond_json(await opened.fields.get(compute))

    async def map(self, request: Request, opened: OpenCollection) -> Response:
        """Arrange a sample of items in a plane so that nearest neighbours are close.

        The layout takes seconds, and continues in the background if the client disconnects. The result is
        cached until the collection changes.
        """
        return respond_json(await opened.map.get(partial(write_map, opened.collection, self._limits.map)))


class CollectionOperations(Operations):
    """The service itself, and its collections: create, describe, back up and drop."""

    async def health(self, request: Request) -> Response:
        """Return the state of the service."""
        n_open, n_opening = len(self._registry), self._registry.n_opening
        return respond(
            {"status": "ok", "version": _VERSION, "collections": n_open + n_opening, "opening": n_opening}
        )

    async def metrics(self, request: Request) -> Response:
        """Return counters in the text format of Prometheus."""
        with self._registry.all_in_use() as collections:
            times = await self._registry.overviews.run(self._registry.source.backup_times)
            states = await self._registry.overviews.run(
                lambda: [self._describe_state(opened, times) for opened in collections]
            )
        return Response(self._registry.metrics.dump(states), media_type=CONTENT_TYPE)

    async def list_collections(self, request: Request) -> Response:
        """Describe all collections."""
        await self._registry.wait_until_open()
        with self._registry.all_in_use() as collections:
            infos = await self._registry.overviews.run(
                lambda: [self._describe(opened) for opened in collections]
            )
        return respond({"collections": infos})

    async def read_table(self, request: Request) -> Response:
        """Convert a Parquet or Arrow file, the body, to rows and packed vectors; nothing is stored.

        The query parameter ``name`` is the name of the file. Every vector is validated.
        """
        content = await self._reader.read_file(request)

        def convert() -> bytes:
            most = self._limits.answer_bytes
            self._reader.hold_response(request.scope, 3 * most)
            return write_table(content, request.query_params.get("name", ""), most)

        return respond_json(await self._registry.overviews.run(convert))

    async def create_collection(self, request: Request) -> Response:
        """Create a collection."""
        body = await self._reader.parse(request, requests.Create)
        options = body.index.model_dump(exclude_unset=True)
        options |= body.model_dump(include={"text", "tokenizer"}, exclude_none=True)
        opened = await self._registry.changes.run(
            self._registry.create, request.path_params["name"], body.metadata, options
        )
        with opened.in_use():
            return respond(await self._registry.overviews.run(self._describe, opened), 201)

    async def get_collection(self, request: Request, opened: OpenCollection) -> Response:
        """Describe a collection."""
        return respond(await self._registry.overviews.run(self._describe, opened))

    async def drop_collection(self, request: Request) -> Response:
        """Delete a collection permanently."""
        await self._registry.wait_until_open(request.path_params["name"])
        await self._registry.drop(request.path_params["name"])
        return Response(status_code=204)

    async def restore(self, request: Request) -> Response:
        """Replace a collection by a backup, or create it from one; other collections are not affected.

        The response is sent when searches use it. Requests to the collection wait during the last step.
        """
        body = await self._reader.parse(request, requests.Restore)
        name = request.path_params["name"]
        await self._registry.wait_until_open(name)
        opened = await self._registry.restore(name, body.name)
        with opened.in_use():
            return respond(await self._registry.overviews.run(self._describe, opened))

    async def set_metadata(self, request: Request, opened: OpenCollection) -> Response:
        """Replace the metadata of a collection."""
        body = await self._reader.parse(request, requests.Metadata)
        await opened.writes.run(opened.collection.set_metadata, body.metadata)
        return Response(status_code=204)

    async def compact(self, request: Request, opened: OpenCollection) -> Response:
        """Release the space of deleted and replaced items."""
        await opened.long_work.run(opened.collection.compact)
        return Response(status_code=204)

    async def backup(self, request: Request, opened: OpenCollection) -> Response:
        """Copy a collection to the service's folder of backups."""
        body = await self._reader.parse(request, requests.Backup)
        await opened.long_work.run(self._registry.source.backup, opened.collection, body.name)
        return Response(status_code=204)

    def _describe_state(self, opened: OpenCollection, times: Mapping[str, float]) -> CollectionState:
        disk_bytes = self._registry.source.disk_bytes(opened.name)
        return opened.describe_state(disk_bytes, times.get(opened.name))

    def _describe(self, opened: OpenCollection) -> dict[str, Any]:
        collection = opened.collection
        # Read first: a client that sees a finished fit must see its hasher.
        indexing = {"state": opened.indexing.state, "message": opened.indexing.message}
        return {
            "name": opened.name,
            "count": collection.count(),
            "n_features": collection.n_features,
            "hasher": None if collection.hasher is None else _describe_hasher(collection.hasher),
            "index": collection.index_options,
            "metadata": collection.metadata,
            "memory_bytes": collection.memory_usage(),
            "disk_bytes": self._registry.source.disk_bytes(opened.name),
            "indexing": indexing,
            "has_items": collection.has_items,
            "text": None if collection.text is None else asdict(collection.text),
        }


def _describe_hasher(hasher: Hasher[Any]) -> dict[str, Any]:
    params = hasher.get_params(deep=False)
    return {
        "method": type(hasher).__name__,
        "n_bits": hasher.n_bits,
        "n_active": hasher.n_active if isinstance(hasher, SparseHasher) else None,
        "params": {
            key: value if isinstance(value, int | float | str | None) else str(value)
            for key, value in params.items()
        },
    }
