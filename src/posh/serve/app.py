"""The application: operations, their addresses and their description, behind the gate."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Any

import orjson
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from posh.serve import answers, models
from posh.serve.gate import LOOPBACK, Gate
from posh.serve.openapi import OPEN, Handler, Operation, describe
from posh.serve.operations import CollectionOperations, HasherOperations, ItemOperations, SearchOperations
from posh.serve.problems import ProblemError, problem_of
from posh.serve.requests import Reader
from posh.serve.shelf import Served, Shelf
from posh.serve.static import Page

__all__ = ["create_app"]

_COLLECTIONS = ["", "v1", "collections"]


class _Route(APIRoute):
    """A route that hands the request over as it is: bodies are parsed by the handler, once, from bytes."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        """What answers a request."""
        handler: Handler = self.endpoint
        return handler


def create_app(shelf: Shelf, *, token: str | None = None, hosts: Collection[str] = LOOPBACK) -> Gate:
    """The ASGI application over a shelf of collections; see :class:`~posh.serve.gate.Gate`."""
    reader = Reader(shelf.limits)
    table = operations(shelf, reader)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.router.route_class = _Route
    app.add_exception_handler(HTTPException, _routing_problem)
    description = orjson.dumps(describe(table, shelf.limits, with_token=token is not None))

    async def openapi(request: Request) -> Response:
        return Response(description, media_type="application/json")

    def add(path: str, handler: Handler, *methods: str) -> None:
        app.add_api_route(path, _guarded(handler, reader), methods=list(methods), response_model=None)

    for one in table:
        add(one.path, one.handler, one.method)
    add("/openapi.json", openapi, "GET")
    page = Page()
    for path in page.paths:
        add(path, page, "GET", "HEAD")
    quick = [one._replace(handler=_guarded(one.handler, reader)) for one in table if one.method == "POST"]
    return Gate(_Shortcut(app, quick), shelf.metrics, token, [*OPEN, *page.paths], hosts)


class _Shortcut:
    """Finds what is asked of a collection by POST without the routes, which take a third of the time."""

    def __init__(self, app: ASGIApp, table: Sequence[Operation]) -> None:
        self._app = app
        self._by_name = {one.path.removeprefix("/v1/collections/{name}/"): one for one in table}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        parts = scope["path"].split("/") if scope.get("method") == "POST" else []
        found = self._by_name.get(parts[4]) if len(parts) == 5 and parts[:3] == _COLLECTIONS else None
        if found is None:
            await self._app(scope, receive, send)
            return
        scope["path_params"], scope["route"] = {"name": parts[3]}, found
        response = await found.handler(Request(scope, receive, send))
        await response(scope, receive, send)


def operations(shelf: Shelf, reader: Reader) -> list[Operation]:
    """Every operation."""
    search, items = SearchOperations(shelf, reader), ItemOperations(shelf, reader)
    hashers, collections = HasherOperations(shelf, reader), CollectionOperations(shelf, reader)
    one, file, on = "/v1/collections/{name}", "application/octet-stream", partial(_with_collection, shelf)
    return [
        Operation("POST", f"{one}/search", on(search.search), models.Search, answers.SearchResults),
        Operation("POST", f"{one}/upsert", on(items.upsert), models.Upsert, answers.Written),
        Operation("POST", f"{one}/delete", on(items.delete), models.Delete, answers.Deleted),
        Operation("POST", f"{one}/get", on(items.get), models.Get, answers.ItemsFound),
        Operation("POST", f"{one}/items", on(items.items), models.Items, answers.ItemsPage),
        Operation("POST", f"{one}/count", on(items.count), models.Count, answers.Counted),
        Operation("POST", f"{one}/sample", on(hashers.sample), models.Sample, answers.Sampled),
        Operation("POST", f"{one}/fit", on(hashers.fit), models.Fit, answers.Indexing, 202),
        Operation("DELETE", f"{one}/fit", on(hashers.cancel_fit), None, answers.Indexing),
        Operation("GET", f"{one}/hasher", on(hashers.get_hasher), None, file),
        Operation("PUT", f"{one}/hasher", on(hashers.put_hasher), file, None, 204, models.IndexOptions),
        Operation("POST", f"{one}/compact", on(collections.compact), None, None, 204),
        Operation("PUT", f"{one}/metadata", on(collections.set_metadata), models.Metadata, None, 204),
        Operation("GET", "/v1/collections", collections.list_collections, None, answers.Collections),
        Operation("PUT", one, collections.create_collection, models.Create, answers.Info, 201),
        Operation("GET", one, on(collections.get_collection), None, answers.Info),
        Operation("DELETE", one, collections.drop_collection, None, None, 204),
        Operation("GET", "/health", collections.health, None, answers.Health),
        Operation("GET", "/metrics", collections.metrics, None, "text/plain"),
    ]


def _with_collection(shelf: Shelf, handler: Callable[[Request, Served], Awaitable[Response]]) -> Handler:
    """A handler that is given the collection of the address, which stays open until the answer is there."""

    async def handle(request: Request) -> Response:
        served = shelf.get(request.path_params["name"])
        served.begin_request()
        try:
            return await handler(request, served)
        finally:
            served.end_request()

    handle.__name__, handle.__doc__ = handler.__name__, handler.__doc__
    return handle


def _guarded(handler: Handler, reader: Reader) -> Handler:
    """A handler whose errors are answers."""

    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except Exception as error:
            return _answered(problem_of(error))
        finally:
            reader.release(request.scope)

    return handle


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
