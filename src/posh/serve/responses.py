"""Responses: problems, items as JSON, and the models that describe bodies.

Bodies are written without the models, which is faster; the tests compare the two.
"""

from __future__ import annotations

import errno
import logging
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple

import numpy as np
import orjson
from pydantic import BaseModel, Field, ValidationError
from starlette.responses import Response

from posh._wire import Indexing, Info
from posh.collection import base
from posh.collection.base import BaseCollection, Id
from posh.errors import (
    CancelledError,
    CollectionExistsError,
    FormatError,
    MissingShardsError,
    ServiceError,
    UnknownCollectionError,
)
from posh.hashers.base import Hasher, SparseHasher
from posh.index import hits
from posh.index.nearest.report import IndexReport
from posh.preprocess import Float32

__all__ = [
    "TITLES",
    "CollectionMap",
    "Collections",
    "Deleted",
    "Fields",
    "Health",
    "IndexReport",
    "Indexing",
    "Info",
    "ItemCount",
    "ItemList",
    "ItemWriter",
    "ItemsPage",
    "LimitError",
    "Problem",
    "ProblemError",
    "RadiusResults",
    "SearchResults",
    "Updated",
    "Upserted",
    "VectorSample",
    "dump_json",
    "join_json",
    "log_failure",
    "make_problem",
    "respond",
    "respond_json",
]

# Problems ------------------------------------------------------------------------------------------

TITLES = {
    "not-json": "The body is not JSON",
    "unauthorized": "A token is needed",
    "forbidden": "Requests from other sites are refused",
    "read-only-token": "The token is for reading only",
    "not-found": "There is no such address",
    "unknown-collection": "There is no such collection",
    "unknown-item": "There is no such item",
    "method-not-allowed": "This method is not allowed here",
    "too-slow": "The body took too long to arrive",
    "collection-exists": "The collection already exists",
    "no-hasher": "The collection has no hasher yet",
    "indexing": "The collection is being indexed",
    "too-large": "The request is too large",
    "unsupported-media-type": "The body has an unexpected type",
    "invalid-argument": "An argument is wrong",
    "wrong-type": "An argument is of the wrong type",
    "not-a-hasher": "The body is not a hasher",
    "gone": "The client disconnected",
    "internal": "The service failed",
    "busy": "The service is too busy",
    "missing-shards": "Some shards cannot be searched at the moment",
    "cancelled": "The work was cancelled",
    "too-long": "The work took too long",
    "engine-failed": "The engine of the collection failed",
    "read-only": "The storage cannot be written",
    "storage-failed": "The storage failed",
    "storage-full": "The storage is full",
}
_FULL = (507, "storage-full", "expected room on the service's disk, got none left: nothing was written")
_READ_ONLY = (503, "read-only", "expected a disk that the service may write, got none: nothing was written")
_FAILED = (503, "storage-failed", "expected a disk that works, got an error: see the service's log")
_ENGINE = (503, "engine-failed", "expected an engine that answers, got an error: see the service's log")
_BY_ERRNO = {errno.ENOSPC: _FULL, errno.EDQUOT: _FULL} | dict.fromkeys(
    (errno.EROFS, errno.EACCES, errno.EPERM), _READ_ONLY
)
_BY_SQLITE_CODE = {sqlite3.SQLITE_FULL: _FULL} | dict.fromkeys(
    (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN), _READ_ONLY
)
_log = logging.getLogger("posh.serve")


class ProblemError(Exception):
    """An error as a response, problem-JSON (RFC 9457); ``kind`` is a key of ``TITLES``.

    ``detail`` is the library's message, and never has a path of the service or a traceback. ``limit`` is the
    name of the limit that the request exceeds, if it is one of :class:`posh.serve.capacity.Limits`.
    """

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        headers: Mapping[str, str] | None = None,
        *,
        limit: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.kind, self.detail, self.limit = status, kind, detail, limit
        self.headers = {"content-type": "application/problem+json", **(headers or {})}

    def body(self) -> bytes:
        """Return the problem as JSON."""
        # The detail may quote half a surrogate pair of the client's, which is not UTF-8.
        detail = self.detail.encode("utf-8", "replace").decode()
        content = {"type": f"urn:posh:{self.kind}", "title": TITLES[self.kind]}
        return orjson.dumps(content | {"status": self.status, "detail": detail})


class LimitError(ValueError):
    """An argument exceeds a limit of the service, whose name is ``limit``."""

    def __init__(self, limit: str, message: str) -> None:
        super().__init__(message)
        self.limit = limit


def make_problem(error: BaseException) -> ProblemError:
    """Return the response to a request that raised this error."""
    match error:
        case ProblemError():
            return error
        case ValidationError():
            return _make_validation_problem(error)
        case UnknownCollectionError():
            return ProblemError(404, "unknown-collection", str(error))
        case CollectionExistsError():
            return ProblemError(409, "collection-exists", str(error))
        case CancelledError():
            return ProblemError(503, "cancelled", str(error))
        case FormatError():
            return log_failure(error)  # a damaged file of the service, not an argument of the client
        case TimeoutError() if error.errno is None:  # otherwise it is the disk's
            return ProblemError(504, "too-long", str(error), limit="filter_seconds")
        case MissingShardsError():
            return ProblemError(503, "missing-shards", str(error), {"retry-after": str(error.seconds)})
        case ServiceError():  # Milvus
            _log.error("the engine failed: %s", error)
            return ProblemError(*_ENGINE)
        case OSError():
            return _make_storage_problem(error)
        case KeyError():
            return ProblemError(404, "unknown-item", str(error.args[0]) if error.args else "")
        case TypeError():
            return ProblemError(422, "wrong-type", str(error))
        case LimitError():
            return ProblemError(422, "invalid-argument", str(error), limit=error.limit)
        case ValueError():
            return ProblemError(422, "invalid-argument", str(error))
        case MemoryError():
            return ProblemError(
                503, "busy", "the service is out of memory: ask for less", {"retry-after": "1"}
            )
    return log_failure(error)


def _make_storage_problem(error: OSError) -> ProblemError:
    """Return a problem of the disk, without the paths in the library's message."""
    _log.error("the storage failed: %s", error)
    code = getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF  # the primary one
    return ProblemError(*(_BY_SQLITE_CODE.get(code) or _BY_ERRNO.get(error.errno or 0) or _FAILED))


def log_failure(error: BaseException) -> ProblemError:
    """Log an unexpected error and return a response that does not reveal it."""
    _log.error("a request failed", exc_info=error)
    return ProblemError(500, "internal", "the service failed to answer: see its log")


def _make_validation_problem(error: ValidationError) -> ProblemError:
    # Every branch of a union reports an error: the deepest is of the branch that was meant.
    first = max(error.errors(include_url=False), key=lambda part: len(part["loc"]))
    if first["type"] == "json_invalid":
        return ProblemError(400, "not-json", f"expected JSON, got something else: {first['ctx']['error']}")
    kind = "wrong-type" if first["type"] == "extra_forbidden" else "invalid-argument"  # as in Python
    return ProblemError(422, kind, _format_validation_error(first, _format_location(first["loc"])))


def _format_validation_error(error: Any, where: str) -> str:
    match error["type"]:
        case "missing":
            return f"expected the field {where}, got none: add it"
        case "extra_forbidden":
            return f"unknown field {where}: leave it out"
        case "value_error":
            return str(error["ctx"]["error"])
        case "literal_error":
            choices = error["ctx"]["expected"].replace(" or ", ", ")
            return f"expected {where} to be one of {choices}, got {error['input']!r:.80}"
        case _:
            _, _, wanted = error["msg"].partition(" should ")
            return f"expected {where or 'the body'} to {wanted or error['msg']}, got {error['input']!r:.80}"


def _format_location(location: tuple[int | str, ...]) -> str:
    """Return a path such as ``vectors[3][0]``, without the names of types that a union adds."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier() and part not in ("int", "str", "float", "bool", "Packed"):
            path += f".{part}" if path else part
    return path


# JSON ----------------------------------------------------------------------------------------------

_LARGE = 1 << 20  # bytes from which on a response needs a share of the memory for all responses
_AT_ONCE = (
    32  # items fetched per call: payloads may be large, so this bounds the memory in addition to the response
)


def dump_json(content: Any) -> bytes:
    """Return JSON of an object, whose parts may be arrays."""
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)


def respond(content: Any, status: int = 200) -> Response:
    """Return a response with an object as JSON."""
    return respond_json(dump_json(content), status)


def respond_json(content: bytes, status: int = 200) -> Response:
    """Return a response with bytes that are JSON."""
    return Response(content, status, media_type="application/json")


def join_json(before: bytes, parts: list[bytes], after: bytes) -> bytes:
    """Join JSON values into a list with text around it, in one copy.

    >>> join_json(b'{"items":[', [b"1", b"2"], b"]}")
    b'{"items":[1,2]}'
    """
    everything = [b","] * (2 * len(parts) + 1)
    everything[1::2] = parts
    everything[0], everything[-1] = before, after if parts else before + after
    return b"".join(everything)


class _ItemFields(NamedTuple):
    """The requested fields of an item, and their bytes in a response."""

    fields: dict[str, Any]
    n_bytes: int


class PageOfItems(NamedTuple):
    """Items as JSON, the id of the last one, and whether it is the last of the collection."""

    items: list[bytes]
    last: Id | None
    is_complete: bool


class ItemWriter:
    """Writes the requested fields of items as JSON, up to ``max_bytes``.

    Parameters
    ----------
    collection : the collection of the items.
    include : the names of fields: payload, vector and code.
    max_bytes : the bound of the bytes of all fields.
    n_active : the number of set bits of codes, by default the hasher's.
    grow : called once, before the response becomes large; it may wait, or raise.

    """

    def __init__(
        self,
        collection: BaseCollection,
        include: Sequence[str],
        max_bytes: int,
        n_active: int | None = None,
        grow: Callable[[], object] = lambda: None,
    ) -> None:
        self._collection, self._include, self._max_bytes = collection, frozenset(include), max_bytes
        self._n_active, self._grow = n_active, grow
        self._hasher = collection.hasher if "code" in self._include else None
        self._room, self._is_large = max_bytes, False

    def write_results(
        self, found: hits.HitRows, vectors: Float32 | None, query_active: int | None
    ) -> list[bytes]:
        """Return the results of queries (m, d), or of texts, as JSON; hits have the fields to write."""
        codes = None
        if self._hasher is not None and vectors is not None:
            codes = _dump_codes(self._hasher, vectors, query_active)
        results = []
        for i in range(len(found)):
            row = found[i]
            parts: list[dict[str, Any]] = [{"id": hit.id, "score": hit.score} for hit in row]
            if found.vector_scores is not None:
                for part, hit in zip(parts, row, strict=True):
                    part.update(vector_score=hit.vector_score, text_score=hit.text_score)
            if self._include:
                for part, (fields, n_bytes) in zip(parts, self._write_fields(row), strict=True):
                    part.update(fields)
                    self.charge(n_bytes)
            code = {} if codes is None else {"code": orjson.Fragment(codes[i])}
            cut = {"is_cut": bool(found.is_cut[i])} if isinstance(found, hits.RadiusHits) else {}
            results.append(orjson.dumps({"hits": parts, **code, **cut}))
        return results

    def write_items(self, ids: Sequence[Id]) -> list[bytes]:
        """Return stored items as JSON, in the order of the ids; null for an id without an item."""
        written = []
        for start in range(0, len(ids), _AT_ONCE):
            items = self._collection.get(ids[start : start + _AT_ONCE])
            fields = self._write_fields([item for item in items if item is not None])
            for item in items:
                if item is None:
                    written.append(b"null")
                else:
                    content, n_bytes = next(fields)
                    written.append(orjson.dumps({"id": item.id, **content}))
                    self.charge(n_bytes)
        return written

    def write_page(self, items: Iterator[base.Item], limit: int) -> PageOfItems:
        """Write up to ``limit`` items, fewer if the response is full, but at least one.

        ``items`` should have one more, which tells whether the page is the last one.
        """
        written: list[bytes] = []
        last: Id | None = None
        while block := list(islice(items, _AT_ONCE)):
            for item, (fields, n_bytes) in zip(block, self._write_fields(block), strict=True):
                if len(written) == limit or self._room <= 0:
                    return PageOfItems(written, last, is_complete=False)
                written.append(orjson.dumps({"id": item.id, **fields}))
                last = item.id
                self._count(n_bytes)
        return PageOfItems(written, last, is_complete=True)

    def charge(self, n_bytes: int) -> None:
        """Count bytes of the response; raise a problem if it becomes too large."""
        self._count(n_bytes)
        if self._room < 0:
            raise ProblemError(
                413,
                "too-large",
                f"expected a response of at most {self._max_bytes} bytes of payloads, vectors and codes, "
                "got more: ask for less at once",
                limit="answer_bytes",
            )

    def _count(self, n_bytes: int) -> None:
        self._room -= n_bytes
        if not self._is_large and self._max_bytes - self._room > _LARGE:
            self._is_large = True
            self._grow()

    def _write_fields(self, items: Sequence[base.Item | hits.Hit]) -> Iterator[_ItemFields]:
        codes = self._dump_item_codes(items)
        for i, item in enumerate(items):
            parts: dict[str, bytes] = {}
            if "payload" in self._include:
                parts["payload"] = orjson.dumps(item.payload)
            if "vector" in self._include:
                parts["vector"] = dump_json(item.vector)
            if "code" in self._include:
                parts["code"] = codes[i]
            fields = {key: orjson.Fragment(value) for key, value in parts.items()}
            yield _ItemFields(fields, sum(map(len, parts.values())))

    def _dump_item_codes(self, items: Sequence[base.Item | hits.Hit]) -> list[bytes]:
        if self._hasher is None or not items:
            return [b"null"] * len(items)
        return _dump_codes(self._hasher, np.array([item.vector for item in items]), self._n_active)


def _dump_codes(hasher: Hasher[Any], vectors: Float32, n_active: int | None) -> list[bytes]:
    """Return the positions of the set bits of vectors (n, d) as JSON, one list per vector."""
    if isinstance(hasher, SparseHasher):
        return [dump_json(row) for row in hasher.encode(vectors, n_active=n_active).active]
    return [dump_json(np.flatnonzero(row)) for row in hasher.encode(vectors).to_dense()]


# Models, for the description -----------------------------------------------------------------------


class Problem(BaseModel):
    """An error, as in RFC 9457."""

    type: str = Field(description="A name of the kind of error.", examples=["urn:posh:invalid-argument"])
    title: str
    status: int
    detail: str = Field(description="The expected value, the actual one, and a remedy.")


_HINT = (
    "Only if the filter passed nothing because no item has the field, or none a value of the type: the "
    "reason, and often a suggestion."
)


class Health(BaseModel):
    """The service is up."""

    status: Literal["ok"]
    version: str
    collections: int
    opening: int = Field(description="Collections that are not open yet; requests to them wait.")


class Collections(BaseModel):
    """All collections, by name."""

    collections: list[Info]


class Upserted(BaseModel):
    """The number of items that were written."""

    upserted: int


class Deleted(BaseModel):
    """The number of items that were deleted."""

    deleted: int
    more: bool = Field(description="Whether more items may pass the filter: then repeat the request.")
    hint: str | None = Field(None, description=_HINT)


class Updated(BaseModel):
    """The number of payloads that were changed."""

    updated: int


class ItemCount(BaseModel):
    """The number of items."""

    count: int
    hint: str | None = Field(None, description=_HINT)


class Item(BaseModel):
    """An item with the requested fields."""

    id: Id
    payload: dict[str, Any] | None = None
    vector: list[float] | None = None
    code: list[int] | None = Field(None, description="The positions of set bits; null without a hasher.")


class ItemList(BaseModel):
    """Items in the order of the ids; null for an id without an item."""

    items: list[Item | None]


class ItemsPage(BaseModel):
    """A page of items."""

    items: list[Item]
    next: Id | None = Field(description="The value of after for the next page; null on the last one.")
    hint: str | None = Field(None, description=_HINT)


class Hit(Item):
    """An item and its score."""

    score: float | None = Field(description="Higher is better; null if it is not finite.")
    vector_score: float | None = Field(
        None, description="With vectors and text: the score by vectors; null if it is not among the best."
    )
    text_score: float | None = Field(None, description="The same by text.")


class Result(BaseModel):
    """The hits of one query, best first."""

    hits: list[Hit]
    code: list[int] | None = Field(None, description="The code of the query, if codes are included.")


class SearchResults(BaseModel):
    """A result for each query."""

    results: list[Result]
    kind: str = Field(description="The kind of scores, as in posh.Hits.", examples=["overlap"])
    seconds: float = Field(description="Time from the parsed request to its result, including the queue.")
    hint: str | None = Field(None, description=_HINT)


class RadiusResult(Result):
    """All hits of one query within the radius, the best first."""

    is_cut: bool = Field(description="Whether there are more hits than the limit.")


class RadiusResults(BaseModel):
    """A result for each query."""

    results: list[RadiusResult]
    kind: str = Field(description="The kind of scores, as in posh.Hits.", examples=["cosine"])
    seconds: float = Field(description="Time from the parsed request to its result, including the queue.")
    hint: str | None = Field(None, description=_HINT)


class VectorSample(BaseModel):
    """Vectors as bytes: base64 of little-endian float32, row by row."""

    shape: list[int] = Field(min_length=2, max_length=2)
    float32: str


class FieldValue(BaseModel):
    """A value, and the number of items of the sample that have it."""

    value: str | int | float | bool
    count: int


class FieldSummary(BaseModel):
    """A summary of one field in the sample."""

    name: str
    type: Literal["string", "number", "boolean", "list", "object", "null"] = Field(
        description="The type of most values."
    )
    count: int = Field(description="Items of the sample that have the field.")
    distinct: int = Field(description="Different short values.")
    values: list[FieldValue] = Field(description="The most frequent short values; of lists, their elements.")
    low: float | None = Field(description="The smallest number.")
    high: float | None = Field(description="The largest number.")


class Fields(BaseModel):
    """The fields of payloads, and those to show first."""

    sampled: int
    title: str | None
    text: str | None
    image: str | None
    group: str | None = Field(description="A field with a few values, for colours.")
    fields: list[FieldSummary]
    examples: list[Id] = Field(description="A few items of the sample, from all groups.")


class Colours(BaseModel):
    """A field of the items on a map: its most frequent values, or the range of its numbers."""

    name: str
    values: list[str | int | float | bool] | None = None
    low: float | None = None
    high: float | None = None
    of: list[int | float | None] = Field(
        description="For each item the index of its value, -1 for others; or its number."
    )


class NamedVectors(VectorSample):
    """A column of vectors, or columns of numbers."""

    name: str


class FileTable(BaseModel):
    """The rows of a file: their other columns, and each choice for the vector."""

    rows: list[dict[str, Any]]
    columns: list[str]
    vectors: list[NamedVectors]


class RoughRows(BaseModel):
    """Numbers as bytes: base64 of 8-bit integers, row by row, to be multiplied by ``scale``."""

    shape: list[int]
    scale: float
    int8: str


class CollectionMap(BaseModel):
    """A sample of items, arranged in a plane so that nearest neighbours are close.

    ``coordinates[i]`` is ``axes @ (vector - mean)`` of the item ``ids[i]``: other vectors belong where the
    items are whose coordinates are near. If ``by_direction`` is true, vectors are divided by their lengths
    before.
    """

    count: int = Field(description="Items of the collection.")
    ids: list[Id]
    points: list[list[float]]
    titles: list[str | None]
    fields: list[Colours] = Field(description="Fields that can colour the map, the best one first.")
    by_direction: bool
    mean: list[float]
    axes: VectorSample
    coordinates: RoughRows
