"""Searching: the busiest operation, so that nothing in it is done twice."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np
import orjson
from starlette.requests import Request
from starlette.responses import Response

from posh.collection import _arguments
from posh.collection.base import NO_HASHER, Id, Matches
from posh.index.params import SearchParams
from posh.preprocess import Float32
from posh.serve import models
from posh.serve.coalesce import SharedOptions
from posh.serve.costs import require_affordable_search
from posh.serve.items import set_bits
from posh.serve.operations.base import Operations, answer
from posh.serve.problems import ProblemError
from posh.serve.requests import is_gone
from posh.serve.shelf import Served

__all__ = ["SearchOperations"]

_LARGE = 256 << 10  # bytes of a request whose vectors are unpacked in a thread


class SearchOperations(Operations):
    """Search by vectors or by stored items."""

    async def search(self, request: Request, served: Served) -> Response:
        """The nearest items of each query. Searches of many clients at once are run together."""
        body = await self._reader.parse(request, models.Search)
        start = time.perf_counter()
        vectors = await self._queries(served, body, large=request.scope["posh.bytes"] > _LARGE)
        k = min(body.k, self._limits.k)
        if len(vectors) * k > self._limits.hits:
            raise ValueError(
                f"expected at most {self._limits.hits:,} hits of all queries, got {len(vectors)} queries of "
                f"{k} each: ask for less at once"
            )
        params = SearchParams(k, body.scoring, body.oversample, body.n_probe)
        own = self._shelf.engine.index_options(served.name)
        require_affordable_search(served.collection, own, len(vectors), params, self._limits)
        itself = body.ids is not None  # an item is not its own neighbour: one more is needed
        options = SharedOptions(
            params.with_k(k + itself),
            body.filter,
            None if body.filter is None else orjson.dumps(body.filter, option=orjson.OPT_SORT_KEYS),
        )
        found = await served.coalescer.search(vectors, options, lambda: not is_gone(request.receive))
        results: list[dict[str, Any]] = [{"hits": hits} for hits in _hits(found, k, body.ids)]
        if body.include:
            await served.reads.run(self._complete, results, served, body.include, vectors)
        return answer({"results": results, "kind": found.kind, "seconds": time.perf_counter() - start})

    async def _queries(self, served: Served, body: models.Search, *, large: bool) -> Float32:
        collection = served.collection
        if collection.hasher is None:
            raise ProblemError(409, "no-hasher", NO_HASHER)
        if body.vectors is not None:
            call = partial(self._checked, body.vectors, collection.n_features)
            return await served.reads.run(call) if large else call()
        ids: list[Id] = body.ids or []
        items = await served.reads.run(collection.get, ids)
        for number, item in zip(ids, items, strict=True):
            if item is None:
                raise KeyError(f"expected ids of stored items, got {number!r:.80}, which is not there")
        vectors = [item.vector for item in items if item is not None]
        return np.array(vectors, np.float32).reshape(len(ids), collection.n_features or 1)

    def _checked(self, vectors: Any, n_features: int | None) -> Float32:
        return _arguments.vectors(self._vectors(vectors), n_features)

    def _complete(
        self, results: list[dict[str, Any]], served: Served, include: models.Include, vectors: Float32
    ) -> None:
        """Add to the hits what was asked for; in a thread."""
        writer = self._writer(served, include)
        there = writer.by_id(list({hit["id"]: None for result in results for hit in result["hits"]}))
        for result in results:
            result["hits"] = [hit for hit in result["hits"] if hit["id"] in there]  # or deleted meanwhile
            for hit in result["hits"]:
                writer.charge(there[hit["id"]])
                hit.update(there[hit["id"]].fields)
        hasher = served.collection.hasher
        if "code" in include and hasher is not None:
            codes = set_bits(hasher, vectors, self._n_active(served, "query_active"))
            for result, code in zip(results, codes, strict=True):
                result["code"] = orjson.Fragment(code)


def _hits(found: Matches, k: int, own: list[Id] | None) -> list[list[dict[str, Any]]]:
    """The hits of each query, at most k, without places that are empty or the query itself."""
    rows = []
    for i, (ids, scores) in enumerate(zip(found.ids.tolist(), found.scores.tolist(), strict=True)):
        itself = None if own is None else own[i]
        row = [
            {"id": number, "score": score}
            for number, score in zip(ids, scores, strict=True)
            if number is not None and number != itself
        ]
        rows.append(row[:k])
    return rows
