"""Search: the most frequent operation."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np
import orjson
from starlette.requests import Request
from starlette.responses import Response

from posh.collection import base
from posh.collection.base import NO_HASHER, Id, Include
from posh.collection.filters import parse
from posh.index.hits import Hits
from posh.preprocess import Float32
from posh.serve import models
from posh.serve.coalesce import LargeResultError, SharedOptions
from posh.serve.costs import require_affordable_search, require_filter_bytes
from posh.serve.items import joined
from posh.serve.operations.base import Operations, written
from posh.serve.problems import ProblemError
from posh.serve.registry import OpenCollection
from posh.serve.requests import wait_for_disconnect

__all__ = ["SearchOperations"]

_LARGE = 256 << 10  # bytes of a request whose vectors are unpacked in a thread
_MANY = 5_000  # hits that are written on the event loop, without payloads


class SearchOperations(Operations):
    """Search by vectors or by stored items."""

    async def search(self, request: Request, opened: OpenCollection) -> Response:
        """Return the nearest items of each query. Concurrent searches run as one batch."""
        body = await self._reader.parse(request, models.Search)
        include = _included(opened, body)
        start = time.perf_counter()
        vectors = await self._queries(opened, body, large=request.scope["posh.bytes"] > _LARGE)
        k = min(body.k, self._limits.k)
        if len(vectors) * k > self._limits.hits:
            raise ValueError(
                f"expected at most {self._limits.hits:,} hits of all queries, got {len(vectors)} queries of "
                f"{k} each: ask for less at once"
            )
        params = opened.collection._make_params(
            k,
            scoring=body.scoring,
            oversample=body.oversample,
            n_probe=body.n_probe,
            slack=body.slack,
            exact=body.exact,
            recall=body.recall,
            min_score=body.min_score,
        )
        own = opened.collection.index_options
        require_affordable_search(opened.collection, own, len(vectors), params, self._limits)
        where = None if body.filter is None else parse(body.filter)
        key = None if body.filter is None else require_filter_bytes(body.filter, self._limits)
        if body.ids is not None:  # an item is not its own neighbour: one more is needed
            params = params.with_k(k + 1)
        needs_vectors = not {"vector", "code"}.isdisjoint(include)
        options = SharedOptions(params, where, key, Include("payload" in include, needs_vectors))
        hits = await self._search(request, opened, vectors, options)
        if body.ids is not None:
            hits = hits.without(body.ids)
        writer = self._writer(request, opened, include)
        write = partial(writer.write_results, hits, vectors, self._n_active(opened, "query_active"))
        # A batch bounds the payloads of one query, whose hits are distinct items.
        is_small = (include == ["payload"] and len(vectors) == 1) or (not include and hits.ids.size <= _MANY)
        results = write() if is_small else await opened.reads.run(write)
        end = orjson.dumps({"kind": hits.kind, "seconds": time.perf_counter() - start})
        return written(joined(b'{"results":[', results, b"]," + end[1:]))

    async def _search(
        self, request: Request, opened: OpenCollection, vectors: Float32, options: SharedOptions
    ) -> Hits:
        """Search in a batch; large results are read alone, with a share of the memory for answers."""
        try:
            return await opened.coalescer.search(
                vectors, options, partial(wait_for_disconnect, request.receive)
            )
        except LargeResultError:
            return await opened.reads.run(self._search_alone, request, opened, vectors, options)

    def _search_alone(
        self, request: Request, opened: OpenCollection, vectors: Float32, options: SharedOptions
    ) -> Hits:
        charge = self._writer(request, opened, ["payload"]).charge
        include = options.include._replace(charge=charge)
        return opened.collection._search(vectors, options.params, options.where, include)

    async def _queries(self, opened: OpenCollection, body: models.Search, *, large: bool) -> Float32:
        collection = opened.collection
        if collection.hasher is None and collection.index_options.get("metric") is None:
            raise ProblemError(409, "no-hasher", NO_HASHER)
        if body.vectors is not None:
            call = partial(self._validate, body.vectors, collection.n_features)
            return await opened.reads.run(call) if large else call()
        ids: list[Id] = body.ids or []
        items = await opened.reads.run(collection.get, ids)
        for number, item in zip(ids, items, strict=True):
            if item is None:
                raise KeyError(f"expected ids of stored items, got {number!r:.80}, which is not there")
        vectors = [item.vector for item in items if item is not None]
        return np.array(vectors, np.float32).reshape(len(ids), collection.n_features or 1)

    def _validate(self, vectors: Any, n_features: int | None) -> Float32:
        return base.validate_vectors(self._vectors(vectors), n_features)


def _included(opened: OpenCollection, body: models.Search) -> models.Include:
    """Return the fields to send with each hit. Collections of shards have none."""
    if opened.collection.has_items:
        return body.include
    if body.include and "include" in body.model_fields_set:
        raise ValueError(
            f"expected a search without include, got {body.include}: this collection has ids and scores "
            "only; leave include out, or import the vectors into a collection with 'posh import'"
        )
    return []
