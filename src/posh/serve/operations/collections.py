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
from posh.serve.shelf import Served

__all__ = ["CollectionOperations"]

_VERSION = version("posh-ann")  # reads files, so once: everybody may ask for /health


class CollectionOperations(Operations):
    """Health, metrics, and making, describing and dropping collections."""

    async def health(self, request: Request) -> Response:
        """Whether the service is up."""
        return answer({"status": "ok", "version": _VERSION, "collections": len(self._shelf)})

    async def metrics(self, request: Request) -> Response:
        """Counters in the text format of Prometheus."""
        with self._shelf.all_in_use() as served:
            counts = await self._shelf.overviews.run(
                lambda: {one.name: one.collection.count() for one in served}
            )
        return Response(self._shelf.metrics.text(counts), media_type=CONTENT_TYPE)

    async def list_collections(self, request: Request) -> Response:
        """All collections."""
        with self._shelf.all_in_use() as served:
            infos = await self._shelf.overviews.run(lambda: [self._info(one) for one in served])
        return answer({"collections": infos})

    async def create_collection(self, request: Request) -> Response:
        """Make a collection."""
        body = await self._reader.parse(request, models.Create)
        options = body.index.model_dump(exclude_unset=True)
        served = await self._shelf.changes.run(
            self._shelf.create, request.path_params["name"], body.metadata, options
        )
        with served.in_use():
            return answer(await self._shelf.overviews.run(self._info, served), 201)

    async def get_collection(self, request: Request, served: Served) -> Response:
        """What a collection is."""
        return answer(await self._shelf.overviews.run(self._info, served))

    async def drop_collection(self, request: Request) -> Response:
        """Delete a collection for ever."""
        await self._shelf.drop(request.path_params["name"])
        return Response(status_code=204)

    async def set_metadata(self, request: Request, served: Served) -> Response:
        """Replace the metadata of a collection."""
        body = await self._reader.parse(request, models.Metadata)
        await served.writes.run(served.collection.set_metadata, body.metadata)
        return Response(status_code=204)

    async def compact(self, request: Request, served: Served) -> Response:
        """Give back the room of what was deleted or replaced."""
        await served.long_work.run(served.collection.compact)
        return Response(status_code=204)

    def _info(self, served: Served) -> dict[str, Any]:
        collection = served.collection
        return {
            "name": served.name,
            "count": collection.count(),
            "n_features": collection.n_features,
            "hasher": None if collection.hasher is None else _hasher_info(collection.hasher),
            "index": collection.index_options,
            "metadata": collection.metadata,
            "memory_bytes": collection.memory_usage(),
            "disk_bytes": self._shelf.engine.disk_bytes(served.name),
            "indexing": {"state": served.indexing.state, "message": served.indexing.message},
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
