"""The service itself, and its collections."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from posh.hashers.base import Hasher, SparseHasher
from posh.serve import models
from posh.serve.metrics import CONTENT_TYPE
from posh.serve.operations.base import Operations, answer
from posh.serve.registry import OpenCollection

__all__ = ["CollectionOperations"]

_VERSION = version("posh-ann")  # reads files, so once: everybody may ask for /health


class CollectionOperations(Operations):
    """Health, metrics, and making, describing and dropping collections."""

    async def health(self, request: Request) -> Response:
        """Whether the service is up."""
        return answer({"status": "ok", "version": _VERSION, "collections": len(self._registry)})

    async def metrics(self, request: Request) -> Response:
        """Counters in the text format of Prometheus."""
        with self._registry.all_in_use() as opened:
            counts = await self._registry.overviews.run(
                lambda: {one.name: one.collection.count() for one in opened}
            )
        return Response(self._registry.metrics.text(counts), media_type=CONTENT_TYPE)

    async def list_collections(self, request: Request) -> Response:
        """All collections."""
        with self._registry.all_in_use() as opened:
            infos = await self._registry.overviews.run(lambda: [self._info(one) for one in opened])
        return answer({"collections": infos})

    async def create_collection(self, request: Request) -> Response:
        """Make a collection."""
        body = await self._reader.parse(request, models.Create)
        options = body.index.model_dump(exclude_unset=True)
        opened = await self._registry.changes.run(
            self._registry.create, request.path_params["name"], body.metadata, options
        )
        with opened.in_use():
            return answer(await self._registry.overviews.run(self._info, opened), 201)

    async def get_collection(self, request: Request, opened: OpenCollection) -> Response:
        """What a collection is."""
        return answer(await self._registry.overviews.run(self._info, opened))

    async def drop_collection(self, request: Request) -> Response:
        """Delete a collection for ever."""
        await self._registry.drop(request.path_params["name"])
        return Response(status_code=204)

    async def set_metadata(self, request: Request, opened: OpenCollection) -> Response:
        """Replace the metadata of a collection."""
        body = await self._reader.parse(request, models.Metadata)
        await opened.writes.run(opened.collection.set_metadata, body.metadata)
        return Response(status_code=204)

    async def compact(self, request: Request, opened: OpenCollection) -> Response:
        """Give back the room of what was deleted or replaced."""
        await opened.long_work.run(opened.collection.compact)
        return Response(status_code=204)

    async def backup(self, request: Request, opened: OpenCollection) -> Response:
        """Copy a collection to a new folder beside the other backups of the service."""
        body = await self._reader.parse(request, models.Backup)
        await opened.long_work.run(self._registry.source.backup, opened.collection, body.name)
        return Response(status_code=204)

    def _info(self, opened: OpenCollection) -> dict[str, Any]:
        collection = opened.collection
        return {
            "name": opened.name,
            "count": collection.count(),
            "n_features": collection.n_features,
            "hasher": None if collection.hasher is None else _hasher_info(collection.hasher),
            "index": collection.index_options,
            "metadata": collection.metadata,
            "memory_bytes": collection.memory_usage(),
            "disk_bytes": self._registry.source.disk_bytes(opened.name),
            "indexing": {"state": opened.indexing.state, "message": opened.indexing.message},
            "has_items": collection.has_items,
        }


def _hasher_info(hasher: Hasher[Any]) -> dict[str, Any]:
    params = hasher.get_params(deep=False)
    return {
        "method": type(hasher).__name__,
        "n_bits": hasher.n_bits,
        "n_active": hasher.n_active if isinstance(hasher, SparseHasher) else None,
        "params": {
            key: value if isinstance(value, int | float | str | None) else str(value)
            for key, value in params.items()
        },
    }
