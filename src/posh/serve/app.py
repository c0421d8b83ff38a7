"""The application: the table of operations, its router, and its OpenAPI description."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import fields
from functools import partial
from importlib.metadata import version
from inspect import getdoc
from typing import Any, NamedTuple

import orjson
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from posh._wire import NAME_PATTERN, READS
from posh.serve import requests, responses
from posh.serve.capacity import Limits
from posh.serve.handlers import (
    CollectionOperations,
    HasherOperations,
    ItemOperations,
    OverviewOperations,
    SearchOperations,
)
from posh.serve.middleware import LOOPBACK, AccessMiddleware
from posh.serve.registry import OpenCollection, Registry
from posh.serve.requests import Reader
from posh.serve.responses import ProblemError, make_problem
from posh.serve.static import PageFiles, write_docs
from posh.serve.tokens import Tokens

__all__ = ["OPEN_PATHS", "Operation", "create_app", "describe", "list_operations"]

_COLLECTIONS = "/v1/collections/"


def create_app(
    registry: Registry,
    *,
    tokens: Tokens | None = None,
    hosts: Collection[str] = LOOPBACK,
    slow_seconds: float = 1.0,
) -> AccessMiddleware:
    """Return the ASGI application over a registry of collections; see :class:`.AccessMiddleware`."""
    tokens = tokens or Tokens.of()
    reader, metrics = Reader(registry.limits), registry.metrics
    metrics.expect_refusals(field.name for field in fields(Limits))
    metrics.watch_requests(lambda: registry.n_requests)
    metrics.watch_bytes("fits", lambda: registry.memory.taken)
    for budget, count in reader.budgets().items():
        metrics.watch_bytes(budget, count)
    table = list_operations(registry, reader)
    description = describe(table, registry.limits, with_token=bool(tokens))
    content = orjson.dumps(description)

    async def openapi(request: Request) -> Response:
        return Response(content, media_type="application/json")

    page = PageFiles({"/docs": write_docs(description)})
    files = [Operation(method, path, page, None, None) for path in page.paths for method in ("GET", "HEAD")]
    router = Router([*table, Operation("GET", "/openapi.json", openapi, None, None), *files], reader)
    open_paths = [*OPEN_PATHS, *page.paths]
    return AccessMiddleware(router, metrics, tokens, open_paths, hosts, registry.limits, slow_seconds)


class Router:
    """Runs the operation of a request, and turns its errors into responses.

    Paths are looked up in a dictionary, with the name of a collection replaced by ``{name}``. The routers of
    FastAPI and Starlette try one pattern after the other, which takes as long as the rest of a request.
    """

    def __init__(self, table: Iterable[Operation], reader: Reader) -> None:
        self._reader = reader
        self._by_path: dict[str, dict[str, Operation]] = {}
        for operation in table:
            self._by_path.setdefault(operation.path, {})[operation.method] = operation

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            scope["route"] = operation = self._find(scope)
            if scope.get("posh.access") == "read" and not operation.only_reads:
                raise ProblemError(403, "read-only-token", READ_ONLY)
            response = await operation.handler(Request(scope, receive, send))
        except Exception as error:
            # Without its traceback, which refers to this frame: a cycle would keep the connection open.
            problem = scope["posh.problem"] = make_problem(error).with_traceback(None)
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
            raise ProblemError(
                404, "not-found", f"expected an address of this service, got {_format_request(scope)}"
            )
        if method not in by_method:
            allowed = ", ".join(by_method)
            detail = f"expected {allowed}, got {_format_request(scope)}"
            raise ProblemError(405, "method-not-allowed", detail, {"allow": allowed})
        return by_method[method]


def list_operations(registry: Registry, reader: Reader) -> list[Operation]:
    """Return the table of all operations."""
    search, items = SearchOperations(registry, reader), ItemOperations(registry, reader)
    hashers, collections = HasherOperations(registry, reader), CollectionOperations(registry, reader)
    overview = OverviewOperations(registry, reader)
    one, file, on = "/v1/collections/{name}", "application/octet-stream", partial(_with_collection, registry)
    return [
        Operation("POST", f"{one}/search", on(search.search), requests.Search, responses.SearchResults),
        Operation(
            "POST",
            f"{one}/search_radius",
            on(search.search_radius),
            requests.SearchRadius,
            responses.RadiusResults,
        ),
        Operation("POST", f"{one}/upsert", on(items.upsert), requests.Upsert, responses.Upserted),
        Operation("POST", f"{one}/delete", on(items.delete), requests.Delete, responses.Deleted),
        Operation(
            "POST", f"{one}/payloads", on(items.update_payload), requests.UpdatePayload, responses.Updated
        ),
        Operation("POST", f"{one}/get", on(items.get), requests.Get, responses.ItemList),
        Operation("POST", f"{one}/items", on(items.items), requests.Items, responses.ItemsPage),
        Operation("POST", f"{one}/count", on(items.count), requests.Count, responses.ItemCount),
        Operation("POST", f"{one}/sample", on(hashers.sample), requests.Sample, responses.VectorSample),
        Operation("POST", f"{one}/fit", on(hashers.fit), requests.Fit, responses.Indexing, 202),
        Operation("DELETE", f"{one}/fit", on(hashers.cancel_fit), None, responses.Indexing),
        Operation("GET", f"{one}/hasher", on(hashers.get_hasher), None, file),
        Operation("PUT", f"{one}/hasher", on(hashers.put_hasher), file, None, 204, requests.IndexOptions),
        Operation("POST", f"{one}/reindex", on(hashers.reindex), requests.Reindex, None, 204),
        Operation("PUT", f"{one}/text", on(hashers.index_text), requests.IndexText, None, 204),
        Operation("POST", f"{one}/calibrate", on(hashers.calibrate), requests.Calibrate, None, 204),
        Operation("GET", f"{one}/report", on(hashers.report), None, responses.IndexReport),
        Operation("GET", f"{one}/fields", on(overview.fields), None, responses.Fields),
        Operation("GET", f"{one}/map", on(overview.map), None, responses.CollectionMap),
        Operation("POST", f"{one}/compact", on(collections.compact), None, None, 204),
        Operation("POST", f"{one}/backup", on(collections.backup), requests.Backup, None, 204),
        Operation("PUT", f"{one}/restore", collections.restore, requests.Restore, responses.Info),
        Operation("PUT", f"{one}/metadata", on(collections.set_metadata), requests.Metadata, None, 204),
        Operation("GET", "/v1/collections", collections.list_collections, None, responses.Collections),
        Operation("POST", "/v1/read", collections.read_table, file, responses.FileTable, query="name"),
        Operation("PUT", one, collections.create_collection, requests.Create, responses.Info, 201),
        Operation("GET", one, on(collections.get_collection), None, responses.Info),
        Operation("DELETE", one, collections.drop_collection, None, None, 204),
        Operation("GET", "/health", collections.health, None, responses.Health),
        Operation("GET", "/metrics", collections.metrics, None, "text/plain"),
    ]


def _with_collection(
    registry: Registry, handler: Callable[[Request, OpenCollection], Awaitable[Response]]
) -> Handler:
    """Return a handler with the collection of the path, which stays open until the response is ready."""

    async def handle(request: Request) -> Response:
        name = request.path_params["name"]
        await registry.wait_until_open(name)
        opened = registry.get(name)
        opened.begin_request()
        try:
            return await handler(request, opened)
        finally:
            opened.end_request()

    handle.__name__, handle.__doc__ = handler.__name__, handler.__doc__
    return handle


def _format_request(scope: Scope) -> str:
    return f"{scope['method']} {scope['path']!r:.80}"


Handler = Callable[[Request], Awaitable[Response]]


class Operation(NamedTuple):
    """A method at a path; ``body`` and ``answer`` are models, or media types, or None.

    ``options`` is the model of the query parameter ``index``, ``query`` the name of one that is a text. A
    read-only token allows operations that only read.
    """

    method: str
    path: str
    handler: Handler
    body: type | str | None
    answer: type | str | None
    status: int = 200
    options: type | None = None
    query: str | None = None

    @property
    def only_reads(self) -> bool:
        """Whether it changes nothing."""
        return self.method in ("GET", "HEAD") or self.path.rpartition("/")[2] in READS


READ_ONLY = "expected the token for everything, got the one for reading: this operation writes"
OPEN_PATHS = ("/health", "/openapi.json")  # with or without a token
_REF = "#/components/schemas/{model}"
_PROBLEM = {"application/problem+json": {"schema": {"$ref": _REF.format(model="Problem")}}}
_DESCRIPTIONS = {
    400: "The body is not JSON.",
    401: "A token is needed.",
    403: "The request comes from another site, or its token is for reading only.",
    404: "There is no such collection or item.",
    408: "The body took too long to arrive.",
    409: "The collection or backup already exists, has no hasher yet, or is being indexed.",
    413: "The body, or the response, is too large.",
    415: "The body has an unexpected type.",
    422: "An argument is wrong.",
    500: "The service failed.",
    503: "The service is too busy, or its storage read-only.",
    504: "The work took too long.",
    507: "The storage is full.",
}
_WITH_BODY = (400, 408, 413, 415, 422)
_WITH_NAME = (404, 409, 422, 507)
_ALWAYS = (403, 500, 503, 504)
_BOUNDS = {"array": "maxItems", "integer": "maximum", "number": "maximum", "string": "maxLength"}


def describe(table: Sequence[Operation], limits: Limits, *, with_token: bool) -> dict[str, Any]:
    """Return the OpenAPI description of a service with these limits."""
    used = [m for operation in table for m in (operation.body, operation.answer) if isinstance(m, type)]
    models = dict.fromkeys([*used, responses.Problem])
    adapters: list[Any] = [(model.__name__, "validation", TypeAdapter(model)) for model in models]
    _, schemas = TypeAdapter.json_schemas(adapters, ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for operation in table:
        methods = paths.setdefault(operation.path, {})
        methods[operation.method.lower()] = _describe_operation(operation, with_token)
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "POSH",
            "version": version("posh-ann"),
            "description": "Collections of vectors, searched by sparse binary codes.",
        },
        "paths": paths,
        "components": {"schemas": schemas["$defs"]},
    }
    if with_token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    _put_limits(document, limits)
    return document


def _describe_operation(operation: Operation, with_token: bool) -> dict[str, Any]:
    summary, _, rest = (getdoc(operation.handler) or "").partition("\n\n")
    is_protected = with_token and operation.path not in OPEN_PATHS
    description: dict[str, Any] = {
        "operationId": getattr(operation.handler, "__name__", operation.path),
        "summary": summary,
        "responses": _describe_responses(operation, is_protected),
    }
    if rest:
        description["description"] = rest
    if "{name}" in operation.path:
        description["parameters"] = [{**_NAME, "name": "name", "in": "path", "required": True}]
    if operation.options is not None:
        content = _describe_content(operation.options)
        description["parameters"].append({"name": "index", "in": "query", "content": content})
    if operation.query is not None:
        text = {"name": operation.query, "in": "query", "required": True, "schema": {"type": "string"}}
        description["parameters"] = [text]
    if operation.body is not None:
        description["requestBody"] = {"required": True, "content": _describe_content(operation.body)}
    if is_protected:
        description["security"] = [{"token": []}]
    return description


_NAME = {"schema": {"type": "string", "pattern": f"^{NAME_PATTERN}$", "examples": ["digits"]}}


def _describe_responses(operation: Operation, is_protected: bool) -> dict[str, Any]:
    success: dict[str, Any] = {"description": "Success."}
    if operation.answer is not None:
        success["content"] = _describe_content(operation.answer)
    codes = {*_ALWAYS, *(_WITH_BODY if operation.body else ())}
    codes |= {*(_WITH_NAME if "{name}" in operation.path else ()), *((401,) if is_protected else ())}
    problems = {
        str(code): {"description": _DESCRIPTIONS[code], "content": _PROBLEM} for code in sorted(codes)
    }
    return {str(operation.status): success} | problems


def _describe_content(content: type | str) -> dict[str, Any]:
    if isinstance(content, str):
        return {content: {"schema": {"type": "string"}}}
    return {"application/json": {"schema": {"$ref": _REF.format(model=content.__name__)}}}


def _put_limits(node: Any, limits: Limits) -> None:
    """Replace the names of limits with bounds, in place."""
    if isinstance(node, list):
        for part in node:
            _put_limits(part, limits)
    elif isinstance(node, dict):
        name = node.pop("x-limit", None)
        if name is not None:
            for schema in (node, *node.get("anyOf", [])):
                if schema.get("type") in _BOUNDS:
                    schema[_BOUNDS[schema["type"]]] = getattr(limits, name)
        for part in node.values():
            _put_limits(part, limits)
