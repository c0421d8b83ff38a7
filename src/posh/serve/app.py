"""The application: the table of operations, and who finds the operation of a request in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from posh.serve import answers, models
from posh.serve.docs_page import docs_page
from posh.serve.middleware import LOOPBACK, AccessMiddleware
from posh.serve.openapi import OPEN_PATHS, Handler, Operation, describe
from posh.serve.operations import (
    CollectionOperations,
    HasherOperations,
    ItemOperations,
    OverviewOperations,
    SearchOperations,
)
from posh.serve.problems import ProblemError, problem_of
from posh.serve.registry import OpenCollection, Registry
from posh.serve.requests import Reader
from posh.serve.static import PageFiles

__all__ = ["create_app"]

_COLLECTIONS = "/v1/collections/"


def create_app(
    registry: Registry, *, token: str | None = None, hosts: Collection[str] = LOOPBACK
) -> AccessMiddleware:
    """The ASGI application over a registry of collections; see :class:`.AccessMiddleware`."""
    reader = Reader(registry.limits)
    table = operations(registry, reader)
    described = describe(table, registry.limits, with_token=token is not None)
    description = orjson.dumps(described)

    async def openapi(request: Request) -> Response:
        return Response(description, media_type="application/json")

    page = PageFiles({"/docs": docs_page(described)})
    files = [Operation(method, path, page, None, None) for path in page.paths for method in ("GET", "HEAD")]
    router = Router([*table, Operation("GET", "/openapi.json", openapi, None, None), *files], reader)
    open_paths = [*OPEN_PATHS, *page.paths]
    return AccessMiddleware(router, registry.metrics, token, open_paths, hosts, registry.limits)


class Router:
    """Runs the operation that a request asks for; its errors are answers.

    Paths are looked up in a dictionary, with the name of a collection replaced by ``{name}``. The routers of
    FastAPI and Starlette try one pattern after the other, which takes as long as all the rest.
    """

    def __init__(self, table: Iterable[Operation], reader: Reader) -> None:
        self._reader = reader
        self._by_path: dict[str, dict[str, Operation]] = {}
        for one in table:
            self._by_path.setdefault(one.path, {})[one.method] = one

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            scope["route"] = found = self._find(scope)
            response = await found.handler(Request(scope, receive, send))
        except Exception as error:
            # Without its traceback, which refers to this frame: a cycle would keep the connection open.
            problem = problem_of(error).with_traceback(None)
            response = Response(problem.body(), problem.status, problem.headers)
        finally:
            self._reader.release(scope)
        await response(scope, receive, send)

    def _find(self, scope: Scope) -> Operation:
        method, path = scope["method"], scope["path"]
        pattern = path
        if path.startswith(_COLLECTIONS):
            name, slash, rest = path[len(_COLLECTIONS) :].partition("/")
            if name:
                scope["path_params"] = {"name": name}
                pattern = f"{_COLLECTIONS}{{name}}{slash}{rest}"
        by_method = self._by_path.get(pattern)
        if by_method is None:
            raise ProblemError(404, "not-found", f"expected an address of this service, got {_shown(scope)}")
        if method not in by_method:
            allowed = ", ".join(by_method)
            detail = f"expected {allowed}, got {_shown(scope)}"
            raise ProblemError(405, "method-not-allowed", detail, {"allow": allowed})
        return by_method[method]


def operations(registry: Registry, reader: Reader) -> list[Operation]:
    """Every operation."""
    search, items = SearchOperations(registry, reader), ItemOperations(registry, reader)
    hashers, collections = HasherOperations(registry, reader), CollectionOperations(registry, reader)
    overview = OverviewOperations(registry, reader)
    one, file, on = "/v1/collections/{name}", "application/octet-stream", partial(_with_collection, registry)
    return [
        Operation("POST", f"{one}/search", on(search.search), models.Search, answers.SearchResults),
        Operation("POST", f"{one}/upsert", on(items.upsert), models.Upsert, answers.Written),
        Operation("POST", f"{one}/delete", on(items.delete), models.Delete, answers.Deleted),
        Operation("POST", f"{one}/payloads", on(items.update_payload), models.UpdatePayload, answers.Updated),
        Operation("POST", f"{one}/get", on(items.get), models.Get, answers.ItemsFound),
        Operation("POST", f"{one}/items", on(items.items), models.Items, answers.ItemsPage),
        Operation("POST", f"{one}/count", on(items.count), models.Count, answers.Counted),
        Operation("POST", f"{one}/sample", on(hashers.sample), models.Sample, answers.Sampled),
        Operation("POST", f"{one}/fit", on(hashers.fit), models.Fit, answers.Indexing, 202),
        Operation("DELETE", f"{one}/fit", on(hashers.cancel_fit), None, answers.Indexing),
        Operation("GET", f"{one}/hasher", on(hashers.get_hasher), None, file),
        Operation("PUT", f"{one}/hasher", on(hashers.put_hasher), file, None, 204, models.IndexOptions),
        Operation("POST", f"{one}/reindex", on(hashers.reindex), models.Reindex, None, 204),
        Operation("GET", f"{one}/report", on(hashers.report), None, answers.IndexReport),
        Operation("GET", f"{one}/fields", on(overview.fields), None, answers.Fields),
        Operation("GET", f"{one}/map", on(overview.map), None, answers.CollectionMap),
        Operation("POST", f"{one}/compact", on(collections.compact), None, None, 204),
        Operation("POST", f"{one}/backup", on(collections.backup), models.Backup, None, 204),
        Operation("PUT", f"{one}/metadata", on(collections.set_metadata), models.Metadata, None, 204),
        Operation("GET", "/v1/collections", collections.list_collections, None, answers.Collections),
        Operation("PUT", one, collections.create_collection, models.Create, answers.Info, 201),
        Operation("GET", one, on(collections.get_collection), None, answers.Info),
        Operation("DELETE", one, collections.drop_collection, None, None, 204),
        Operation("GET", "/health", collections.health, None, answers.Health),
        Operation("GET", "/metrics", collections.metrics, None, "text/plain"),
    ]


def _with_collection(
    registry: Registry, handler: Callable[[Request, OpenCollection], Awaitable[Response]]
) -> Handler:
    """A handler that is given the collection of the address, which stays open until the answer is there."""

    async def handle(request: Request) -> Response:
        opened = registry.get(request.path_params["name"])
        opened.begin_request()
        try:
            return await handler(request, opened)
        finally:
            opened.end_request()

    handle.__name__, handle.__doc__ = handler.__name__, handler.__doc__
    return handle


def _shown(scope: Scope) -> str:
    return f"{scope['method']} {scope['path']!r:.80}"
