"""What all handlers share."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from posh.serve.items import NUMPY, ItemWriter
from posh.serve.models import Include, unpack
from posh.serve.registry import OpenCollection, Registry
from posh.serve.requests import Reader

__all__ = ["Operations", "answer", "written"]


def answer(content: Any, status: int = 200) -> Response:
    """An answer of JSON."""
    return written(orjson.dumps(content, option=NUMPY), status)


def written(content: bytes, status: int = 200) -> Response:
    """An answer that is JSON already."""
    return Response(content, status, media_type="application/json")


class Operations:
    """Handlers over a registry of collections."""

    def __init__(self, registry: Registry, reader: Reader) -> None:
        self._registry, self._reader, self._limits = registry, reader, registry.limits

    def _writer(self, request: Request, opened: OpenCollection, include: Include) -> ItemWriter:
        """Return a writer of items, which takes memory from the budget if the answer gets large."""
        most = self._limits.answer_bytes
        return ItemWriter(
            opened.collection,
            include,
            most,
            self._n_active(opened, "document_active"),
            lambda: self._reader.grow(request.scope, 2 * most),  # the parts, and the whole answer
        )

    def _n_active(self, opened: OpenCollection, option: str) -> int | None:
        n_active: int | None = opened.collection.index_options.get(option)
        return n_active

    def _vectors(self, vectors: Any) -> Any:
        array = unpack(vectors)
        if array.shape[1] > self._limits.n_features:
            raise ValueError(
                f"expected vectors of at most {self._limits.n_features} columns in this service, "
                f"got {array.shape[1]}"
            )
        return array
