"""Searching: the busiest operation, so that nothing in it is done twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import orjson
from starlette.requests import Request
from starlette.responses import Response

from posh.collection import arguments
from posh.collection.base import NO_HASHER, Id
from posh.index.hits import Hits
from posh.index.params import search_params
from posh.preprocess import Float32
from posh.serve import models
from posh.serve.coalesce import SharedOptions
from posh.serve.costs import require_affordable_search, require_filter_bytes
from posh.serve.items import joined, set_bits
from posh.serve.operations.base import Operations, written
from posh.serve.problems import ProblemError
from posh.serve.registry import OpenCollection
from posh.serve.requests import is_gone

__all__ = ["SearchOperations"]

_LARGE = 256 << 10  # bytes of a request whose vectors are unpacked in a thread
_MANY = 5_000  # hits that are written in a thread
_ITEM_BYTES = 600  # of an item in memory, beside the fields that were asked for

Row = list[tuple[Id, float]]


class SearchOperations(Operations):
    """Search by vectors or by stored items."""

    async def search(self, request: Request, opened: OpenCollection) -> Response:
        """The nearest items of each query. Searches of many clients at once are run together."""
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
        params = search_params(
            k,
            body.scoring,
            body.oversample,
            body.n_probe,
            None,
            body.slack,
            body.exact,
            body.recall,
            body.min_score,
        )
        own = opened.collection.index_options
        require_affordable_search(opened.collection, own, len(vectors), params, self._limits)
        itself = body.ids is not None  # an item is not its own neighbour: one more is needed
        key = None if body.filter is None else require_filter_bytes(body.filter, self._limits)
        options = SharedOptions(params.with_k(k + itself), body.filter, key)
        found = await opened.coalescer.search(vectors, options, lambda: not is_gone(request.receive))
        rows = partial(_hits, found, k, body.ids)
        if include:
            results = await opened.reads.run(self._completed, request, opened, include, rows, vectors)
        elif found.ids.size <= _MANY:
            results = _results(rows())
        else:
            results = await opened.reads.run(_results, rows())
        end = orjson.dumps({"kind": found.kind, "seconds": time.perf_counter() - start})
        return written(joined(b'{"results":[', results, b"]," + end[1:]))

    async def _queries(self, opened: OpenCollection, body: models.Search, *, large: bool) -> Float32:
        collection = opened.collection
        if collection.hasher is None and collection.index_options.get("metric") is None:
            raise ProblemError(409, "no-hasher", NO_HASHER)
        if body.vectors is not None:
            call = partial(self._checked, body.vectors, collection.n_features)
            return await opened.reads.run(call) if large else call()
        ids: list[Id] = body.ids or []
        items = await opened.reads.run(collection.get, ids)
        for number, item in zip(ids, items, strict=True):
            if item is None:
                raise KeyError(f"expected ids of stored items, got {number!r:.80}, which is not there")
        vectors = [item.vector for item in items if item is not None]
        return np.array(vectors, np.float32).reshape(len(ids), collection.n_features or 1)

    def _checked(self, vectors: Any, n_features: int | None) -> Float32:
        return arguments.vectors(self._vectors(vectors), n_features)

    def _completed(
        self,
        request: Request,
        opened: OpenCollection,
        include: models.Include,
        rows: Callable[[], Iterator[Row]],
        vectors: Float32,
    ) -> list[bytes]:
        """The results with what was asked for; in a thread."""
        distinct = list({number: None for row in rows() for number, _ in row})
        writer = self._writer(request, opened, include, _ITEM_BYTES * len(distinct))
        there = writer.by_id(distinct)
        hasher, results = opened.collection.hasher, []
        codes: list[bytes] | None = None
        if "code" in include and hasher is not None:
            codes = set_bits(hasher, vectors, self._n_active(opened, "query_active"))
        for i, row in enumerate(rows()):
            kept = [hit for hit in row if hit[0] in there]  # or deleted meanwhile
            writer.charge(sum(there[number].n_bytes for number, _ in kept))
            hits = [{"id": number, "score": score, **there[number].fields} for number, score in kept]
            code = {} if codes is None else {"code": orjson.Fragment(codes[i])}
            results.append(orjson.dumps({"hits": hits, **code}))
        return results


def _included(opened: OpenCollection, body: models.Search) -> models.Include:
    """What comes with the hits; by default nothing of a collection that has only ids and scores."""
    if opened.collection.has_items:
        return body.include
    if body.include and "include" in body.model_fields_set:
        raise ValueError(
            f"expected a search without include, got {body.include}: this collection has ids and scores "
            "only; leave include out, or import the vectors into a collection with 'posh import'"
        )
    return []


def _hits(found: Hits, k: int, own: list[Id] | None) -> Iterator[Row]:
    """The hits of each query, at most k, without places that are empty or the query itself."""
    for i in range(len(found.ids)):
        itself = None if own is None else own[i]
        pairs = zip(found.ids[i].tolist(), found.scores[i].tolist(), strict=True)
        yield [pair for pair in pairs if pair[0] is not None and pair[0] != itself][:k]


def _results(rows: Iterator[Row]) -> list[bytes]:
    return [orjson.dumps({"hits": [{"id": number, "score": score} for number, score in row]}) for row in rows]
