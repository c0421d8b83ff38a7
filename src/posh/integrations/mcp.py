"""A server of the Model Context Protocol over collections. Needs the extra ``mcp``.

``posh mcp FOLDER`` runs it, so that assistants can search collections.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import version
from itertools import islice
from typing import Annotated, Any

import numpy as np

from posh.collection.base import BaseCollection, Payload
from posh.collection.embedded import Collection
from posh.errors import MissingExtraError, PoshError
from posh.index.hits import Hits

try:
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.types import ToolAnnotations
    from pydantic import Field
except ImportError as error:
    raise MissingExtraError("mcp", "mcp", "posh.integrations.mcp") from error

__all__ = ["make_server"]

_INSTRUCTIONS = """\
Collections of items, each with an id, a vector and a payload (a JSON object). Call list_collections first: it
names the collections, the fields of their payloads, and the fields that search_text looks through. A filter
is an object such as {"year": {"gte": 2020}, "tags": {"any": ["red"]}}, with the operators eq, ne, in, nin,
gt, gte, lt, lte, prefix, contains, any and exists, and with and, or and not. Higher scores are better."""
_EXAMPLES = 20  # items whose payloads name the fields

Name = Annotated[str, Field(description="The name of a collection, as in list_collections.")]
Ids = Annotated[list[int | str], Field(description="Ids of items.", max_length=1000)]
Limit = Annotated[int, Field(description="The number of hits.", ge=1, le=100)]
Where = Annotated[Payload | None, Field(description='A filter, such as {"year": {"gte": 2020}}.')]
Vector = Annotated[list[float], Field(description="As many numbers as the collection has columns.")]


def make_server(collections: Mapping[str, BaseCollection], *, write: bool = False) -> MCPServer[Any]:
    """Return a server whose tools search and read collections, by their names.

    With ``write``, tools change and delete items, too. Collections that are open read-only are refreshed
    before each call.

    >>> import asyncio, posh, tempfile
    >>> async def main(server):
    ...     result = await server.call_tool("search_text", {"collection": "shop", "text": "hat"})
    ...     return result.structured_content["hits"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with posh.create(folder, metric="cosine", text="title") as shop:
    ...         _ = shop.upsert(["a"], [[1.0, 0.0]], [{"title": "A hat"}])
    ...         hit, = asyncio.run(main(make_server({"shop": shop})))
    >>> hit["id"], hit["payload"]
    ('a', {'title': 'A hat'})
    """
    tools = _Tools(collections)
    server: MCPServer[Any] = MCPServer(
        "posh", instructions=_INSTRUCTIONS, version=version("posh-ann"), log_level="WARNING"
    )
    reads: list[Callable[..., Any]] = [
        tools.list_collections,
        tools.search_text,
        tools.search_vector,
        tools.search_similar,
        tools.get_items,
        tools.count_items,
    ]
    for tool in reads:
        _add(server, tool, ToolAnnotations(read_only_hint=True, open_world_hint=False))
    if write:
        for tool in (tools.upsert_items, tools.update_payloads, tools.delete_items):
            _add(server, tool, ToolAnnotations(read_only_hint=False, open_world_hint=False))
    return server


def _add(server: MCPServer[Any], tool: Callable[..., Any], annotations: ToolAnnotations) -> None:
    server.add_tool(tool, annotations=annotations)


class _Tools:
    """The tools; their docstrings and types describe them to clients."""

    def __init__(self, collections: Mapping[str, BaseCollection]) -> None:
        self._collections = dict(collections)

    def list_collections(self) -> dict[str, Any]:
        """List the collections: numbers of items and columns, fields of payloads, fields of text."""
        names = list(self._collections)
        return {"collections": [_describe(name, self._find(name)) for name in names]}

    def search_text(self, collection: Name, text: str, k: Limit = 10, filter: Where = None) -> dict[str, Any]:  # noqa: A002
        """Find the items whose text has words; the collection needs fields of text."""
        return self._search(collection, {"text": text}, k, filter)

    def search_vector(
        self,
        collection: Name,
        vector: Vector,
        k: Limit = 10,
        filter: Where = None,  # noqa: A002
    ) -> dict[str, Any]:
        """Find the items nearest to a vector."""
        return self._search(collection, {"queries": np.array(vector, np.float32)}, k, filter)

    def search_similar(
        self,
        collection: Name,
        item_id: Annotated[int | str, Field(description="The id of a stored item.")],
        k: Limit = 10,
        filter: Where = None,  # noqa: A002
    ) -> dict[str, Any]:
        """Find the items nearest to a stored item, without that item."""
        return self._search(collection, {"ids": [item_id]}, k, filter)

    def get_items(self, collection: Name, ids: Ids) -> dict[str, Any]:
        """Return the payloads of items; null for ids that do not exist."""
        items = self._call(self._find(collection).get, ids)
        return {
            "items": [None if item is None else {"id": item.id, "payload": item.payload} for item in items]
        }

    def count_items(self, collection: Name, filter: Where = None) -> dict[str, Any]:  # noqa: A002
        """Count the items, or those that pass a filter."""
        return {"count": self._call(self._find(collection).count, filter)}

    def upsert_items(
        self,
        collection: Name,
        ids: Ids,
        vectors: Annotated[list[list[float]], Field(description="One vector for each id.")],
        payloads: Annotated[list[Payload] | None, Field(description="One object for each id.")] = None,
    ) -> dict[str, Any]:
        """Write items, and replace those that have the same ids; all or none."""
        self._call(self._find(collection).upsert, ids, np.array(vectors, np.float32), payloads)
        return {"upserted": len(ids)}

    def update_payloads(
        self,
        collection: Name,
        ids: Ids,
        payloads: Annotated[list[Payload], Field(description="New fields for each id; others stay.")],
    ) -> dict[str, Any]:
        """Change fields of the payloads of items; vectors and other fields stay."""
        self._call(self._find(collection).update_payload, ids, payloads)
        return {"updated": len(ids)}

    def delete_items(self, collection: Name, ids: Ids) -> dict[str, Any]:
        """Delete items by their ids, and return how many there were."""
        return {"deleted": self._call(self._find(collection).delete, ids)}

    def _search(self, name: str, query: dict[str, Any], k: int, where: Payload | None) -> dict[str, Any]:
        hits: Hits = self._call(self._find(name).search, k=k, filter=where, payloads=True, **query)
        found = [{"id": hit.id, "score": hit.score, "payload": hit.payload} for hit in hits[0]]
        return {"hits": found, "kind": hits.kind}

    def _find(self, name: str) -> BaseCollection:
        """Return a collection in its newest state."""
        if name not in self._collections:
            raise ToolError(
                f"expected one of {', '.join(self._collections) or 'no collections'}, got {name!r:.80}"
            )
        collection = self._collections[name]
        if isinstance(collection, Collection):
            self._call(collection.refresh)
        return collection

    def _call(self, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call a method of a collection; its errors are for the client."""
        try:
            return call(*args, **options)
        except (PoshError, ValueError, TypeError, LookupError, TimeoutError) as error:
            raise ToolError(str(error.args[0] if error.args else error)) from error


def _describe(name: str, collection: BaseCollection) -> dict[str, Any]:
    examples = islice(collection.items(limit=_EXAMPLES), _EXAMPLES)
    fields = dict.fromkeys(field for item in examples for field in item.payload)
    return {
        "name": name,
        "items": collection.count(),
        "columns": collection.n_features,
        "about": collection.metadata,
        "fields": list(fields),
        "text_fields": [] if collection.text is None else list(collection.text.fields),
    }
