"""The reference of HTTP, written from the OpenAPI description of the service."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from posh.serve.app import describe, list_operations
from posh.serve.capacity import Limits
from posh.serve.metrics import Metrics
from posh.serve.registry import Registry
from posh.serve.requests import Reader
from posh.serve.sources import Folder


@cache
def description() -> dict[str, Any]:
    """The description of a service with a token and the default limits."""
    limits = Limits()
    with tempfile.TemporaryDirectory() as folder:
        registry = Registry(Folder(Path(folder)), limits, Metrics())
        return describe(list_operations(registry, Reader(limits)), limits, with_token=True)


def description_text() -> str:
    """The same as JSON."""
    return json.dumps(description(), indent=1)


def page() -> str:
    """Every operation with its body and its answers, as Markdown."""
    paths = description()["paths"]
    lines = ["The description is here as [a file](openapi.json), too."]
    lines += [line for path in paths for method in paths[path] for line in _operation(method, path)]
    lines += ["", "## Bodies and answers", ""]
    for name in sorted(description()["components"]["schemas"]):
        lines += _schema(name)
    return "\n".join(lines)


def _operation(method: str, path: str) -> Iterator[str]:
    one = description()["paths"][path][method]
    yield from ("", f"## {method.upper()} {path} {{: #{_anchor(method, path)} }}", "", one["summary"])
    if "description" in one:
        yield from ("", one["description"])
    yield from ("", "| | |", "|---|---|")
    if "requestBody" in one:
        yield f"| body | {_content(one['requestBody']['content'])} |"
    for parameter in one.get("parameters", []):
        if parameter["in"] == "query":
            kind = _type(parameter["schema"]) if "schema" in parameter else _content(parameter["content"])
            yield f"| parameter `{parameter['name']}` | {kind} |"
    for status, answer in one["responses"].items():
        content = f" Answer: {_content(answer['content'])}." if "content" in answer else ""
        yield f"| {status} | {answer['description']}{content} |"


def _anchor(method: str, path: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", f"{method}{path}").strip("-")


def _content(content: dict[str, Any]) -> str:
    ((media, what),) = content.items()
    return _type(what["schema"]) if "json" in media else f"`{media}`"


def _schema(name: str) -> Iterator[str]:
    schema = description()["components"]["schemas"][name]
    yield from ("", f"### {name} {{: #schema-{name.lower()} }}", "", _prose(schema.get("description", "")))
    if "properties" not in schema:
        yield from ("", _type(schema))
        return
    required = schema.get("required", [])
    yield from ("", "| field | type | |", "|---|---|---|")
    for field, what in schema["properties"].items():
        needed = "needed. " if field in required else ""
        default = f" Default: `{json.dumps(what['default'])}`." if what.get("default") is not None else ""
        yield f"| `{field}` | {_type(what)} | {needed}{_prose(what.get('description', ''))}{default} |"


def _prose(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _type(what: dict[str, Any]) -> str:
    """The type of a value in words, with links to those that have a name."""
    if "$ref" in what:
        name = what["$ref"].rpartition("/")[2]
        return f"[{name}](#schema-{name.lower()})"
    if "anyOf" in what or "oneOf" in what:
        return " or ".join(dict.fromkeys(map(_type, what.get("anyOf", what.get("oneOf")))))
    if "enum" in what or "const" in what:
        return ", ".join(f"`{json.dumps(value)}`" for value in what.get("enum", [what.get("const")]))
    bounds = [
        f"{sign} {what[key]:,}"
        for key, sign in _BOUNDS.items()
        if isinstance(what.get(key), int | float) and abs(what[key]) < 2**62
    ]
    shown = f" ({', '.join(bounds)})" if bounds else ""
    if what.get("type") == "array":
        return f"list of {_type(what.get('items', {}))}{shown}"
    return f"{what.get('type', 'anything')}{shown}"


_BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
_BOUNDS |= {"minItems": "at least", "maxItems": "at most", "minLength": "at least", "maxLength": "at most"}
