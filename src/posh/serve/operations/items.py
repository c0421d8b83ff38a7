"""Writing, deleting, getting and browsing items."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from posh.serve import models
from posh.serve.costs import require_filter_bytes
from posh.serve.items import joined
from posh.serve.operations.base import Operations, answer, written
from posh.serve.registry import OpenCollection

__all__ = ["ItemOperations"]


class ItemOperations(Operations):
    """The items of a collection."""

    async def upsert(self, request: Request, opened: OpenCollection) -> Response:
        """Write items, all or none; they are safe when the answer comes."""
        body = await self._reader.parse(request, models.Upsert)

        def upsert() -> None:
            if request.scope["posh.bytes"] > self._limits.payload_bytes:  # else no payload can be too large
                self._check_payloads(body.payloads or [])
            opened.collection.upsert(body.ids, self._vectors(body.vectors), body.payloads)

        await opened.writes.run(upsert)
        return answer({"upserted": len(body.ids)})

    def _check_payloads(self, payloads: list[dict[str, Any]]) -> None:
        most = self._limits.payload_bytes
        for i, payload in enumerate(payloads):
            n_bytes = len(orjson.dumps(payload))
            if n_bytes > most:
                raise ValueError(
                    f"expected payloads of at most {most:,} bytes, got {n_bytes:,} for payloads[{i}]: keep "
                    "large content elsewhere"
                )

    async def delete(self, request: Request, opened: OpenCollection) -> Response:
        """Delete items by their ids or by a filter.

        A filter deletes at most as many items as one request may have, those that were written first.
        """
        body = await self._reader.parse(request, models.Delete)
        if body.filter is None:
            return answer(
                {"deleted": await opened.writes.run(opened.collection.delete, body.ids), "more": False}
            )
        require_filter_bytes(body.filter, self._limits)
        limit = min(body.limit or self._limits.items, self._limits.items)
        n = await opened.writes.run(opened.collection.delete, filter=body.filter, limit=limit)
        return answer({"deleted": n, "more": n == limit})

    async def update_payload(self, request: Request, opened: OpenCollection) -> Response:
        """Change the payloads of items, all or none, and keep their vectors.

        Fields take the place of those with the same names; other fields stay.
        """
        body = await self._reader.parse(request, models.UpdatePayload)
        n_numbers, most = len(body.ids) * (opened.collection.n_features or 0), self._limits.body_bytes // 4
        if n_numbers > most:  # the vectors are written again: no more of them than an upsert can bring
            raise ValueError(
                f"expected items with at most {most:,} numbers in their vectors, got {n_numbers:,}: "
                "ask for less at once"
            )

        def update() -> None:
            if request.scope["posh.bytes"] > self._limits.payload_bytes:
                self._check_payloads(body.payloads)
            opened.collection.update_payload(body.ids, body.payloads, replace=body.replace)

        await opened.writes.run(update)
        return answer({"updated": len(body.ids)})

    async def get(self, request: Request, opened: OpenCollection) -> Response:
        """Items by id."""
        body = await self._reader.parse(request, models.Get)

        def found() -> bytes:
            return joined(b'{"items":[', self._writer(request, opened, body.include).listed(body.ids), b"]}")

        return written(await opened.reads.run(found))

    async def items(self, request: Request, opened: OpenCollection) -> Response:
        """A page of items, in the order of writing."""
        body = await self._reader.parse(request, models.Items)

        def page() -> bytes:
            limit = min(body.limit or self._limits.page, self._limits.page)
            more = opened.collection.items(body.filter, after=body.after, limit=limit + 1)
            found = self._writer(request, opened, body.include).page(more, limit)
            following = orjson.dumps(None if found.is_complete else found.last)
            return joined(b'{"items":[', found.items, b'],"next":%b}' % following)

        return written(await opened.reads.run(page))

    async def count(self, request: Request, opened: OpenCollection) -> Response:
        """How many items there are, or pass a filter."""
        body = await self._reader.parse(request, models.Count)
        return answer({"count": await opened.reads.run(opened.collection.count, body.filter)})
