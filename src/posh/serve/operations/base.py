"""What all handlers share."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.responses import Response

from posh.serve.items import NUMPY, ItemWriter
from posh.serve.models import Include
from posh.serve.requests import Reader
from posh.serve.shelf import Served, Shelf
from posh.serve.vectors import unpack

__all__ = ["Operations", "answer"]


def answer(content: Any, status: int = 200) -> Response:
    """An answer of JSON."""
    return Response(orjson.dumps(content, option=NUMPY), status, media_type="application/json")


class Operations:
    """Handlers over a shelf of collections."""

    def __init__(self, shelf: Shelf, reader: Reader) -> None:
        self._shelf, self._reader, self._limits = shelf, reader, shelf.limits

    def _writer(self, served: Served, include: Include) -> ItemWriter:
        return ItemWriter(
            served.collection, include, self._limits.answer_bytes, self._n_active(served, "document_active")
        )

    def _n_active(self, served: Served, option: str) -> int | None:
        n_active: int | None = self._shelf.engine.index_options(served.name).get(option)
        return n_active

    def _vectors(self, vectors: Any) -> Any:
        array = unpack(vectors)
        if array.shape[1] > self._limits.n_features:
            raise ValueError(
                f"expected vectors of at most {self._limits.n_features} columns in this service, "
                f"got {array.shape[1]}"
            )
        return array
