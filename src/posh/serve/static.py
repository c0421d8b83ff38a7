"""Static files: the web page, each file with its own route, and ``/docs``, built from the description.

Files are read once, when the service starts, so that no path can lead elsewhere. ``/docs`` has no scripts and
loads nothing from other sites.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from html import escape
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

__all__ = ["PageFiles", "write_docs"]

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class PageFiles:
    """Handler of the files in the folder ``page``, and of ``pages``: HTML by path."""

    def __init__(self, pages: Mapping[str, str], folder: Traversable | None = None) -> None:
        self._files = dict(_walk(folder or files("posh.serve") / "page", "/"))
        self._files["/"] = self._files["/index.html"]
        for path, text in pages.items():
            self._files[path] = _add_headers(text.encode(), TYPES[".html"])

    @property
    def paths(self) -> list[str]:
        """The paths of all files."""
        return list(self._files)

    async def __call__(self, request: Request) -> Response:
        """Return the file at the path of a request."""
        content, headers = self._files[request.scope["path"]]
        if request.headers.get("if-none-match") == headers["etag"]:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers)


def _walk(folder: Traversable, prefix: str) -> list[tuple[str, tuple[bytes, dict[str, str]]]]:
    files = []
    for entry in folder.iterdir():
        if entry.is_dir():
            files += _walk(entry, f"{prefix}{entry.name}/")
        elif (kind := TYPES.get(f".{entry.name.rpartition('.')[2]}")) is not None:
            files.append((prefix + entry.name, _add_headers(entry.read_bytes(), kind)))
    return files


def _add_headers(content: bytes, kind: str) -> tuple[bytes, dict[str, str]]:
    return content, {
        "content-type": kind,
        "content-security-policy": POLICY,
        "cache-control": "no-cache",
        "etag": f'"{hashlib.sha256(content).hexdigest()[:32]}"',
    }


_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}: HTTP interface</title>
<link rel="icon" href="/icon.svg"><link rel="stylesheet" href="/docs.css">
</head><body><main><h1>{title} <small>{version}</small></h1><p>{description} All operations are below, with an
example for each; programs can read <a href="/openapi.json">/openapi.json</a>. The Python client is
<code>posh.client.Client</code>. <a href="/">Search in the browser.</a></p>
"""


def write_docs(description: dict[str, Any]) -> str:
    """Return an OpenAPI description as HTML, see :func:`posh.serve.app.describe`."""
    schemas = description["components"]["schemas"]
    has_token = "securitySchemes" in description["components"]
    parts = [_HEAD.format(**{key: escape(value) for key, value in description["info"].items()})]
    operations = [
        (method.upper(), path, operation)
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]
    links = (
        f'<li><a href="#{_format_anchor(operation)}"><b>{method}</b> {escape(path)}</a></li>'
        for method, path, operation in operations
    )
    parts += ["<nav><ul>", *links, "</ul></nav>"]
    for method, path, operation in operations:
        parts += _write_operation(method, path, operation, schemas, has_token)
    return "\n".join([*parts, "</main></body></html>\n"])


def _format_anchor(operation: dict[str, Any]) -> str:
    return escape(operation["operationId"])


def _write_operation(
    method: str, path: str, operation: dict[str, Any], schemas: dict[str, Any], has_token: bool
) -> Iterator[str]:
    yield f'<section id="{_format_anchor(operation)}"><h2><b>{method}</b> <code>{escape(path)}</code></h2>'
    yield f"<p>{escape(operation['summary'])} {escape(operation.get('description', ''))}</p>"
    body = _find_schema(operation.get("requestBody", {}).get("content", {}), schemas)
    yield from _write_fields("Request", body, schemas)
    example = (body or {}).get("examples", [None])[0]
    yield f"<pre><code>{escape(_format_curl(method, path, example, has_token))}</code></pre>"
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            answer = _find_schema(response.get("content", {}), schemas)
            yield from _write_fields(f"Response, {status}", answer, schemas)
    errors = [
        f"<li><b>{escape(status)}</b> {escape(response['description'])}</li>"
        for status, response in operation["responses"].items()
        if not status.startswith("2")
    ]
    yield f"<details><summary>Errors</summary><ul>{''.join(errors)}</ul></details></section>"


def _find_schema(content: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any] | None:
    name = content.get("application/json", {}).get("schema", {}).get("$ref", "").rpartition("/")[2]
    schema: dict[str, Any] | None = schemas.get(name)
    return schema


def _format_curl(method: str, path: str, example: Any, has_token: bool) -> str:
    token = " -H 'Authorization: Bearer TOKEN'" if has_token else ""
    request = "" if method == "GET" else f" -X {method}"
    body = "" if example is None else f" -H 'Content-Type: application/json' \\\n  -d '{json.dumps(example)}'"
    return f"curl{request} http://HOST:PORT{path.replace('{name}', 'digits')}{token}{body}"


def _write_fields(title: str, schema: dict[str, Any] | None, schemas: dict[str, Any]) -> Iterator[str]:
    if schema is None:
        return
    yield f"<h3>{escape(title)}</h3><p>{escape(schema.get('description', ''))}</p>"
    yield "<table><tr><th>field</th><th>type</th><th></th></tr>"
    for name, field in schema.get("properties", {}).items():
        notes = [field.get("description", ""), "required" if name in schema.get("required", []) else ""]
        note = " ".join(escape(part) for part in notes if part)
        kind = escape(_format_type(field, schemas))
        yield f"<tr><td><code>{escape(name)}</code></td><td>{kind}</td><td>{note}</td></tr>"
    yield "</table>"


def _format_type(field: dict[str, Any], schemas: dict[str, Any]) -> str:
    """Return the type of a field in words, with its bounds."""
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(_format_type(choice, schemas) for choice in field["anyOf"]))
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"{name} {{{', '.join(schemas[name].get('properties', {}))}}}"
    if "enum" in field or "const" in field:
        return ", ".join(json.dumps(value) for value in field.get("enum", [field.get("const")]))
    kind = str(field.get("type", "anything"))
    if kind == "array":
        kind = f"list of {_format_type(field.get('items', {}), schemas)}"
    bounds = [f"{word} {field[key]:,}" for key, word in _BOUNDS.items() if key in field]
    return f"{kind} ({', '.join(bounds)})" if bounds else kind


_BOUNDS = {"minimum": "at least", "maximum": "at most", "maxItems": "at most"}
