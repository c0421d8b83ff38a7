"""What is in a collection: its fields, and a map."""

from __future__ import annotations

import orjson
from starlette.requests import Request
from starlette.responses import Response

from posh._runtime import iterate_cancellable
from posh.serve.fields import examples, shortened, summarise
from posh.serve.operations.base import Operations, written
from posh.serve.projection import map_answer
from posh.serve.registry import OpenCollection

__all__ = ["OverviewOperations"]


class OverviewOperations(Operations):
    """Overviews of a collection, made from samples of its items."""

    async def fields(self, request: Request, opened: OpenCollection) -> Response:
        """The fields of payloads, from a sample of items: their types, frequent values and ranges.

        It is made once and kept until the collection changes.
        """
        collection, n = opened.collection, self._limits.fields

        def made() -> bytes:
            ids, payloads = [], []
            for item in iterate_cancellable(collection.sample_items(n)):
                ids.append(item.id)
                payloads.append(shortened(item.payload))
            summary = summarise(payloads, collection.metadata)
            some = examples(ids, payloads, summary["group"])[: self._limits.items]  # all can be got at once
            return orjson.dumps({**summary, "examples": some})

        return written(await opened.fields.get(made))

    async def map(self, request: Request, opened: OpenCollection) -> Response:
        """A map: a sample of items in the plane of the two largest principal components of their vectors.

        It is made once and kept until the collection changes.
        """
        collection, n = opened.collection, self._limits.map
        return written(await opened.map.get(lambda: map_answer(collection, n)))
