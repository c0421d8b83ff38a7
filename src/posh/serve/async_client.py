"""The client for programs with an event loop: the same calls, to be awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from itertools import islice
from typing import Any, Self, TypeVar

from posh.collection.base import BaseCollection
from posh.collection.types import Id, Item
from posh.hashers.base import Hasher
from posh.serve.client import Client
from posh.serve.info import Info
from posh.serve.remote import RemoteCollection

__all__ = ["AsyncClient", "AsyncCollection"]

T = TypeVar("T")
_AT_ONCE = 100  # items that a thread takes from an iteration in one go


def _awaited(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that calls that of the collection in a thread; what returns itself does so here too."""

    @wraps(method)
    async def call(self: AsyncCollection, *args: Any, **options: Any) -> Any:
        found = await self._run(getattr(self._collection, method.__name__), *args, **options)
        return self if found is self._collection else found

    return call


class AsyncCollection:
    """A collection whose methods are awaited, see :class:`posh.BaseCollection`; threads do the work.

    What :meth:`AsyncClient.collection` returns. Any collection can be given, an embedded one too.

    >>> import asyncio, posh, tempfile
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> async def main(folder):
    ...     with ThreadPoolExecutor(2) as threads, posh.create(folder, metric="cosine") as collection:
    ...         shop = AsyncCollection(collection, threads)
    ...         await shop.upsert(["a", "b"], [[1.0, 0.0], [1.0, 1.0]])
    ...         return (await shop.search([1.0, 0.1], k=1)).ids.tolist()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     asyncio.run(main(folder))
    [['a']]
    """

    def __init__(self, collection: BaseCollection, threads: ThreadPoolExecutor) -> None:
        self._collection, self._threads = collection, threads

    upsert = _awaited(BaseCollection.upsert)
    update_payload = _awaited(BaseCollection.update_payload)
    delete = _awaited(BaseCollection.delete)
    get = _awaited(BaseCollection.get)
    search = _awaited(BaseCollection.search)
    count = _awaited(BaseCollection.count)
    sample = _awaited(BaseCollection.sample)
    fit = _awaited(BaseCollection.fit)
    reindex = _awaited(BaseCollection.reindex)
    report = _awaited(BaseCollection.report)
    set_metadata = _awaited(BaseCollection.set_metadata)
    compact = _awaited(BaseCollection.compact)
    backup = _awaited(RemoteCollection.backup)

    async def items(
        self,
        filter: Mapping[str, Any] | None = None,  # noqa: A002
        *,
        after: Id | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[Item]:
        """Yield items in the order of writing, see :meth:`posh.BaseCollection.items`."""
        items = self._collection.items(filter, after=after, limit=limit)
        while part := await self._run(lambda: list(islice(items, _AT_ONCE))):
            for item in part:
                yield item

    async def _run(self, call: Callable[..., T], *args: Any, **options: Any) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(call, *args, **options))

    def __repr__(self) -> str:
        return f"AsyncCollection({self._collection!r})"


class AsyncClient:
    """A connection to ``posh serve`` whose calls are awaited, see :class:`posh.serve.client.Client`.

    At most ``n_threads`` requests are under way at once; others wait for them.

    >>> async def main():
    ...     async with AsyncClient("http://127.0.0.1:8765", token="secret") as client:
    ...         shop = client.collection("shop")
    ...         return await shop.search(ids=["a"], k=10, payloads=True)
    """

    def __init__(
        self, url: str, token: str | None = None, *, timeout: float = 60.0, n_threads: int = 16
    ) -> None:
        self._client = Client(url, token, timeout=timeout)
        self._threads = ThreadPoolExecutor(n_threads, "posh-client")

    async def collections(self) -> list[Info]:
        """What collections there are."""
        return await self._run(self._client.collections)

    async def create(
        self,
        name: str,
        hasher: Hasher[Any] | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> AsyncCollection:
        """Make a collection, see :meth:`posh.serve.client.Client.create`."""
        made = await self._run(partial(self._client.create, name, hasher, metadata=metadata, **options))
        return AsyncCollection(made, self._threads)

    def collection(self, name: str) -> AsyncCollection:
        """The collection of this name, which need not exist yet."""
        return AsyncCollection(self._client.collection(name), self._threads)

    async def delete(self, name: str) -> None:
        """Delete a collection for ever."""
        await self._run(partial(self._client.delete, name))

    async def close(self) -> None:
        """Close the connection, after the requests that are under way."""
        await asyncio.to_thread(self._threads.shutdown)
        self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def __repr__(self) -> str:
        return f"Async{self._client!r}"
