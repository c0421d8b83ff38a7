"""Fitting, bringing and taking hashers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from posh._wire import pack_vectors
from posh.collection.base import NO_HASHER
from posh.hashers import make_hasher
from posh.hashers.base import Hasher
from posh.serve import models
from posh.serve.costs import fit_bytes, index_bytes
from posh.serve.indexing import read_hasher, within_limits
from posh.serve.operations.base import Operations, answer, written
from posh.serve.problems import ProblemError
from posh.serve.registry import OpenCollection

__all__ = ["HasherOperations"]


class HasherOperations(Operations):
    """The hasher of a collection."""

    async def fit(self, request: Request, opened: OpenCollection) -> Response:
        """Fit a hasher on a sample of the stored vectors, in the background; then search by its codes.

        How it went is told by ``indexing`` of the collection.
        """
        body = await self._reader.parse(request, models.Fit)
        hasher = within_limits(make_hasher(body.method, body.params), self._limits)
        given = body.index.model_dump(exclude_unset=True)
        options = opened.collection.index_options | given
        n_bytes = await self._registry.overviews.run(
            fit_bytes, hasher, opened.collection, options, self._limits
        )
        give_back = self._registry.memory.take(n_bytes)
        try:
            opened.indexing.fit(lambda: opened.collection.fit(hasher, **given), give_back)
        except ProblemError:
            give_back()
            raise
        return answer({"state": opened.indexing.state, "message": None}, 202)

    async def cancel_fit(self, request: Request, opened: OpenCollection) -> Response:
        """Cancel what indexes the collection, which stays as it is; the answer says what came of it.

        Its state is still running if the work could not be stopped within the time of a request.
        """
        opened.indexing.cancel()
        await opened.indexing.ended(self._limits.seconds)
        return answer({"state": opened.indexing.state, "message": opened.indexing.message})

    async def get_hasher(self, request: Request, opened: OpenCollection) -> Response:
        """The hasher, as a model file."""
        hasher = opened.collection.hasher
        if hasher is None:
            raise ProblemError(404, "no-hasher", NO_HASHER)

        def content() -> bytes:
            self._reader.grow(request.scope, 3 * 4 * hasher.n_bits * hasher.n_features_in_)
            return hasher.to_bytes()

        return Response(await opened.reads.run(content), media_type="application/octet-stream")

    async def put_hasher(self, request: Request, opened: OpenCollection) -> Response:
        """Search by the codes of this hasher, a model file, from now on; the answer comes when that is so.

        The query parameter ``index`` may hold index options as JSON.
        """
        options = models.IndexOptions.model_validate_json(request.query_params.get("index", "{}"))
        self._reader.check_limits(options, "index.")
        content = await self._reader.read_file(request)

        def reindex() -> None:
            self._reindex(opened, read_hasher(content, self._limits), options)

        await opened.long_work.run(reindex)
        return Response(status_code=204)

    async def reindex(self, request: Request, opened: OpenCollection) -> Response:
        """Make the index again, trained and measured on the items that there are now.

        The answer comes when searches use it. The hasher stays, unless options bring a metric, or change the
        metric or its structure.
        """
        body = await self._reader.parse(request, models.Reindex)
        await opened.long_work.run(self._reindex, opened, None, body.index)
        return Response(status_code=204)

    async def report(self, request: Request, opened: OpenCollection) -> Response:
        """What the index of a metric is, what its searches find, and what they cost. Takes about a second."""
        return answer(asdict(await opened.long_work.run(opened.collection.report)))

    def _reindex(
        self, opened: OpenCollection, hasher: Hasher[Any] | None, options: models.IndexOptions
    ) -> None:
        """In a thread, with memory for it."""
        collection, given = opened.collection, options.model_dump(exclude_unset=True)
        n_bytes = index_bytes(hasher, collection, collection.index_options | given, self._limits)
        give_back = self._registry.memory.take(n_bytes)
        try:
            opened.indexing.run(lambda: collection.reindex(hasher, **given))
        finally:
            give_back()

    async def sample(self, request: Request, opened: OpenCollection) -> Response:
        """Up to n stored vectors, drawn at random, but alike for the same items; fewer if they are large."""
        body = await self._reader.parse(request, models.Sample)
        columns = opened.collection.n_features or 0
        most = self._limits.answer_bytes // (6 * max(1, columns))  # base64 makes 4 bytes into nearly 6
        n = min(body.n, most)

        def packed() -> bytes:
            self._reader.grow(request.scope, 4 * 4 * n * columns)  # vectors, bytes, base64, JSON
            vectors = opened.collection.sample(n)
            return orjson.dumps(pack_vectors(vectors.reshape(len(vectors), columns)))

        return written(await opened.reads.run(packed))
