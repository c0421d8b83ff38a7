"""The application: operations, their addresses and their description, behind the gate."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import orjson
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from posh.serve import answers, models
from posh.serve.gate import LOOPBACK, Gate
from posh.serve.openapi import Handler, Operation, describe
from posh.serve.operations import CollectionOperations, HasherOperations, ItemOperations, SearchOperations
from posh.serve.problems import ProblemError, problem_of
from posh.serve.requests import Reader
from posh.serve.shelf import Shelf
from posh.serve.static import Page

__all__ = ["create_app"]


class _Route(APIRoute):
    """A route that hands the request over as it is: bodies are parsed by the handler, once, from bytes."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        """What answers a request."""
        handler: Handler = self.endpoint

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except Exception as error:
                return _answered(problem_of(error))

        return handle


def create_app(shelf: Shelf, *, token: str | None = None, hosts: Collection[str] = LOOPBACK) -> Gate:
    """The ASGI application over a shelf of collections; see :class:`~posh.serve.gate.Gate`."""
    table = operations(shelf, Reader(shelf.limits))
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.router.route_class = _Route
    app.add_exception_handler(HTTPException, _routing_problem)
    for one in table:
        app.add_api_route(one.path, one.handler, methods=[one.method], response_model=None)
    description = orjson.dumps(describe(table, shelf.limits, with_token=token is not None))

    async def openapi(request: Request) -> Response:
        return Response(description, media_type="application/json")

    app.add_api_route("/openapi.json", openapi, methods=["GET"], response_model=None)
    app.add_api_route("/{path:path}", Page(), methods=["GET", "HEAD"], response_model=None)
    return Gate(app, shelf.metrics, token, hosts)


def operations(shelf: Shelf, reader: Reader) -> list[Operation]:
    """Every operation; the busiest is first, because routes are tried in this order."""
    search, items = SearchOperations(shelf, reader), ItemOperations(shelf, reader)
    hashers, collections = HasherOperations(shelf, reader), CollectionOperations(shelf, reader)
    one, file = "/v1/collections/{name}", "application/octet-stream"
    return [
        Operation("POST", f"{one}/search", search.search, models.Search, answers.SearchResults),
        Operation("POST", f"{one}/upsert", items.upsert, models.Upsert, answers.Written),
        Operation("POST", f"{one}/delete", items.delete, models.Delete, answers.Deleted),
        Operation("POST", f"{one}/get", items.get, models.Get, answers.ItemsFound),
        Operation("POST", f"{one}/items", items.items, models.Items, answers.ItemsPage),
        Operation("POST", f"{one}/count", items.count, models.Count, answers.Counted),
        Operation("POST", f"{one}/sample", hashers.sample, models.Sample, answers.Sampled),
        Operation("POST", f"{one}/fit", hashers.fit, models.Fit, answers.Indexing, 202),
        Operation("GET", f"{one}/hasher", hashers.get_hasher, None, file),
        Operation("PUT", f"{one}/hasher", hashers.put_hasher, file, None, 204),
        Operation("POST", f"{one}/compact", collections.compact, None, None, 204),
        Operation("PUT", f"{one}/metadata", collections.set_metadata, models.Metadata, None, 204),
        Operation("GET", "/v1/collections", collections.list_collections, None, answers.Collections),
        Operation("PUT", one, collections.create_collection, models.Create, answers.Info, 201),
        Operation("GET", one, collections.get_collection, None, answers.Info),
        Operation("DELETE", one, collections.drop_collection, None, None, 204),
        Operation("GET", "/health", collections.health, None, answers.Health),
        Operation("GET", "/metrics", collections.metrics, None, "text/plain"),
    ]


def _answered(problem: ProblemError) -> Response:
    return Response(problem.body(), problem.status, problem.headers)


async def _routing_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    address = f"{request.method} {request.url.path!r:.80}"
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "another method")
        return _answered(
            ProblemError(405, "method-not-allowed", f"expected {allowed}, got {address}", error.headers)
        )
    return _answered(
        ProblemError(error.status_code, "not-found", f"expected an address of this service, got {address}")
    )
