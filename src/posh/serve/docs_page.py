"""``/docs``: the OpenAPI description as a page for people, without scripts and without other sites."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from typing import Any

__all__ = ["docs_page"]

_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}: HTTP interface</title>
<link rel="icon" href="/icon.svg"><link rel="stylesheet" href="/docs.css">
</head><body><main><h1>{title} <small>{version}</small></h1><p>{description} All operations are below, with an
example for each; programs can read <a href="/openapi.json">/openapi.json</a>. The Python client is
<code>posh.client.Client</code>. <a href="/">Search in the browser.</a></p>
"""


def docs_page(description: dict[str, Any]) -> str:
    """Return the page of a description, see :func:`posh.serve.openapi.describe`."""
    schemas = description["components"]["schemas"]
    has_token = "securitySchemes" in description["components"]
    parts = [_HEAD.format(**{key: escape(value) for key, value in description["info"].items()})]
    listed = [
        (method.upper(), path, operation)
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]
    links = (
        f'<li><a href="#{_anchor(one)}"><b>{method}</b> {escape(path)}</a></li>'
        for method, path, one in listed
    )
    parts += ["<nav><ul>", *links, "</ul></nav>"]
    for method, path, operation in listed:
        parts += _operation(method, path, operation, schemas, has_token)
    return "\n".join([*parts, "</main></body></html>\n"])


def _anchor(operation: dict[str, Any]) -> str:
    return escape(operation["operationId"])


def _operation(
    method: str, path: str, operation: dict[str, Any], schemas: dict[str, Any], has_token: bool
) -> Iterator[str]:
    yield f'<section id="{_anchor(operation)}"><h2><b>{method}</b> <code>{escape(path)}</code></h2>'
    yield f"<p>{escape(operation['summary'])} {escape(operation.get('description', ''))}</p>"
    body = _schema(operation.get("requestBody", {}).get("content", {}), schemas)
    yield from _fields("Request", body, schemas)
    example = (body or {}).get("examples", [None])[0]
    yield f"<pre><code>{escape(_curl(method, path, example, has_token))}</code></pre>"
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            answer = _schema(response.get("content", {}), schemas)
            yield from _fields(f"Answer, {status}", answer, schemas)
    errors = [
        f"<li><b>{escape(status)}</b> {escape(response['description'])}</li>"
        for status, response in operation["responses"].items()
        if not status.startswith("2")
    ]
    yield f"<details><summary>Errors</summary><ul>{''.join(errors)}</ul></details></section>"


def _schema(content: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any] | None:
    name = content.get("application/json", {}).get("schema", {}).get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] | None = schemas.get(name)
    return found


def _curl(method: str, path: str, example: Any, has_token: bool) -> str:
    token = " -H 'Authorization: Bearer TOKEN'" if has_token else ""
    request = "" if method == "GET" else f" -X {method}"
    body = "" if example is None else f" -H 'Content-Type: application/json' \\\n  -d '{json.dumps(example)}'"
    return f"curl{request} http://HOST:PORT{path.replace('{name}', 'digits')}{token}{body}"


def _fields(title: str, schema: dict[str, Any] | None, schemas: dict[str, Any]) -> Iterator[str]:
    if schema is None:
        return
    yield f"<h3>{escape(title)}</h3><p>{escape(schema.get('description', ''))}</p>"
    yield "<table><tr><th>field</th><th>type</th><th></th></tr>"
    for name, field in schema.get("properties", {}).items():
        notes = [field.get("description", ""), "required" if name in schema.get("required", []) else ""]
        note = " ".join(escape(part) for part in notes if part)
        kind = escape(_type(field, schemas))
        yield f"<tr><td><code>{escape(name)}</code></td><td>{kind}</td><td>{note}</td></tr>"
    yield "</table>"


def _type(field: dict[str, Any], schemas: dict[str, Any]) -> str:
    """Return the type of a field in words, with its bounds."""
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(_type(one, schemas) for one in field["anyOf"]))
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"{name} {{{', '.join(schemas[name].get('properties', {}))}}}"
    if "enum" in field or "const" in field:
        return ", ".join(json.dumps(value) for value in field.get("enum", [field.get("const")]))
    kind = str(field.get("type", "anything"))
    if kind == "array":
        kind = f"list of {_type(field.get('items', {}), schemas)}"
    bounds = [f"{word} {field[key]:,}" for key, word in _BOUNDS.items() if key in field]
    return f"{kind} ({', '.join(bounds)})" if bounds else kind


_BOUNDS = {"minimum": "at least", "maximum": "at most", "maxItems": "at most"}
