"""The OpenAPI description, written from the table of operations and the models."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import version
from inspect import getdoc
from typing import Any, NamedTuple

from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import Response

from posh._wire import NAME_PATTERN
from posh.serve import answers
from posh.serve.limits import Limits

__all__ = ["OPEN_PATHS", "Handler", "Operation", "describe"]

Handler = Callable[[Request], Awaitable[Response]]


class Operation(NamedTuple):
    """A method at an address; ``body`` and ``answer`` are models, or media types, or None.

    ``options`` is the model of the query parameter ``index``.
    """

    method: str
    path: str
    handler: Handler
    body: type | str | None
    answer: type | str | None
    status: int = 200
    options: type | None = None


OPEN_PATHS = ("/health", "/openapi.json")  # for everybody, with or without a token
_REF = "#/components/schemas/{model}"
_PROBLEM = {"application/problem+json": {"schema": {"$ref": _REF.format(model="Problem")}}}
_WORDS = {
    400: "The body is not JSON.",
    401: "A token is needed.",
    403: "The request comes from another site.",
    404: "There is no such collection or item.",
    408: "The body took too long to arrive.",
    409: "The collection or backup is there already, has no hasher yet, or is being indexed.",
    413: "The body, or the answer, is too large.",
    415: "The body has another type.",
    422: "An argument is wrong.",
    500: "The service failed.",
    503: "The service is too busy, or its storage read-only.",
    504: "The work took too long.",
    507: "The storage is full.",
}
_WITH_BODY = (400, 408, 413, 415, 422)
_WITH_NAME = (404, 409, 422, 507)
_ALWAYS = (403, 500, 503, 504)
_BOUNDS = {"array": "maxItems", "integer": "maximum", "number": "maximum"}


def describe(table: Sequence[Operation], limits: Limits, *, with_token: bool) -> dict[str, Any]:
    """The description of a service with these limits."""
    models = [m for one in table for m in (one.body, one.answer) if isinstance(m, type)] + [answers.Problem]
    adapters: list[Any] = [(m.__name__, "validation", TypeAdapter(m)) for m in dict.fromkeys(models)]
    _, schemas = TypeAdapter.json_schemas(adapters, ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for one in table:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, with_token)
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


def _operation(one: Operation, with_token: bool) -> dict[str, Any]:
    summary, _, rest = (getdoc(one.handler) or "").partition("\n\n")
    protected = with_token and one.path not in OPEN_PATHS
    described: dict[str, Any] = {
        "operationId": getattr(one.handler, "__name__", one.path),
        "summary": summary,
        "responses": _responses(one, protected),
    }
    if rest:
        described["description"] = rest
    if "{name}" in one.path:
        described["parameters"] = [{**_NAME, "name": "name", "in": "path", "required": True}]
    if one.options is not None:
        described["parameters"].append({"name": "index", "in": "query", "content": _content(one.options)})
    if one.body is not None:
        described["requestBody"] = {"required": True, "content": _content(one.body)}
    if protected:
        described["security"] = [{"token": []}]
    return described


_NAME = {"schema": {"type": "string", "pattern": f"^{NAME_PATTERN}$", "examples": ["digits"]}}


def _responses(one: Operation, protected: bool) -> dict[str, Any]:
    found: dict[str, Any] = {str(one.status): {"description": "Done."}}
    if one.answer is not None:
        found[str(one.status)]["content"] = _content(one.answer)
    codes = {*_ALWAYS, *(_WITH_BODY if one.body else ()), *(_WITH_NAME if "{name}" in one.path else ())}
    if protected:
        codes |= {401}
    for code in sorted(codes):
        found[str(code)] = {"description": _WORDS[code], "content": _PROBLEM}
    return found


def _content(what: type | str) -> dict[str, Any]:
    if isinstance(what, str):
        return {what: {"schema": {"type": "string"}}}
    return {"application/json": {"schema": {"$ref": _REF.format(model=what.__name__)}}}


def _put_limits(node: Any, limits: Limits) -> None:
    """Replace the names of limits by bounds, in place."""
    if isinstance(node, list):
        for part in node:
            _put_limits(part, limits)
    elif isinstance(node, dict):
        name = node.pop("x-limit", None)
        if name is not None:
            for one in (node, *node.get("anyOf", [])):
                if one.get("type") in _BOUNDS:
                    one[_BOUNDS[one["type"]]] = getattr(limits, name)
        for part in node.values():
            _put_limits(part, limits)
