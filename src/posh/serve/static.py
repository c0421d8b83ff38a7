"""The page and its files: read once, each with a route of its own, so that no path can lead elsewhere."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import Response

__all__ = ["PageFiles"]

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
    """Answers for the files of the folder ``page``, and for ``pages``: texts in HTML, by their addresses."""

    def __init__(self, pages: Mapping[str, str], folder: Traversable | None = None) -> None:
        self._files = dict(_walk(folder or files("posh.serve") / "page", "/"))
        self._files["/"] = self._files["/index.html"]
        for path, text in pages.items():
            self._files[path] = _described(text.encode(), TYPES[".html"])

    @property
    def paths(self) -> list[str]:
        """The addresses of all files."""
        return list(self._files)

    async def __call__(self, request: Request) -> Response:
        """The file of this name."""
        content, headers = self._files[request.scope["path"]]
        if request.headers.get("if-none-match") == headers["etag"]:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers)


def _walk(folder: Traversable, prefix: str) -> list[tuple[str, tuple[bytes, dict[str, str]]]]:
    found = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _walk(entry, f"{prefix}{entry.name}/")
        elif (kind := TYPES.get(f".{entry.name.rpartition('.')[2]}")) is not None:
            found.append((prefix + entry.name, _described(entry.read_bytes(), kind)))
    return found


def _described(content: bytes, kind: str) -> tuple[bytes, dict[str, str]]:
    return content, {
        "content-type": kind,
        "content-security-policy": POLICY,
        "cache-control": "no-cache",
        "etag": f'"{hashlib.sha256(content).hexdigest()[:32]}"',
    }
