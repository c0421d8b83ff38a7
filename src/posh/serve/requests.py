"""Requests: the models of bodies, and reading them within the limits.

The models parse bodies from bytes and describe them in OpenAPI. ``limit_field`` names the bound of
:class:`posh.serve.capacity.Limits` for a field.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeAlias, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.requests import Request
from starlette.types import Receive, Scope

from posh._wire import NAME_PATTERN, unpack_vectors
from posh.hashers import HASHERS
from posh.index.choices import METRICS, OPTIMIZE, REFINER_NAMES, SCORINGS, STORES, STRUCTURE_NAMES
from posh.preprocess import Float32
from posh.serve.capacity import Limits, MemoryBudget, MemoryShare
from posh.serve.middleware import get_header
from posh.serve.responses import LimitError, ProblemError

__all__ = [
    "Backup",
    "Body",
    "Calibrate",
    "Count",
    "Create",
    "Delete",
    "FieldNames",
    "Fit",
    "Get",
    "IndexOptions",
    "IndexText",
    "Items",
    "Metadata",
    "Packed",
    "Reader",
    "Reindex",
    "Restore",
    "Sample",
    "Search",
    "SearchRadius",
    "UpdatePayload",
    "Upsert",
    "Vectors",
    "unpack_rows",
    "wait_for_disconnect",
]

Id = Annotated[int, Field(ge=-(2**63), lt=2**63)] | Annotated[str, Field(min_length=1, max_length=512)]
Row = Annotated[list[float], Field(fail_fast=True)]
FieldNames = list[Literal["payload", "vector", "code"]]
if TYPE_CHECKING:  # type checkers do not accept names from a table
    Method: TypeAlias = str
    Structure: TypeAlias = str
    Scoring: TypeAlias = str
    Refine: TypeAlias = str
    Metric: TypeAlias = str
    Store: TypeAlias = str
    Optimize: TypeAlias = str
else:
    Method, Structure, Scoring, Refine, Metric, Store, Optimize = (
        Literal[tuple(table)]
        for table in (HASHERS, STRUCTURE_NAMES, SCORINGS, REFINER_NAMES, METRICS, STORES, OPTIMIZE)
    )
TextFields = Annotated[list[str], Field(min_length=1, max_length=32)]
FILTER = {"label": {"in": [3, 5]}, "price": {"gte": 10, "lt": 20}}


def limit_field(name: str, **options: Any) -> Any:
    """Return a field whose value or length a limit bounds."""
    return Field(json_schema_extra={"x-limit": name}, **options)


class Body(BaseModel):
    """Base of all bodies: no unknown fields, no conversions, no NaN."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())
    field_limits: ClassVar[tuple[tuple[str, str], ...]] = ()  # fields, and the names of their limits
    nested: ClassVar[tuple[str, ...]] = ()  # fields that are bodies themselves
    size_limit: ClassVar[str] = "body_bytes"  # the limit of the bytes of this body

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        extras = {name: field.json_schema_extra for name, field in cls.model_fields.items()}
        cls.field_limits = tuple(
            (name, str(extra["x-limit"]))
            for name, extra in extras.items()
            if isinstance(extra, dict) and "x-limit" in extra
        )
        kinds = {name: field.annotation for name, field in cls.model_fields.items()}
        cls.nested = tuple(
            name for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, Body)
        )


def make_example(value: dict[str, Any]) -> ConfigDict:
    """Return the settings of a body with an example."""
    return ConfigDict(json_schema_extra={"examples": [value]})


class Packed(Body):
    """Vectors as bytes: base64 of little-endian float32, row by row."""

    model_config = make_example({"shape": [1, 2], "float32": "AACAPwAAAEA="})
    shape: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=2, max_length=2)]
    float32: str = Field(json_schema_extra={"contentEncoding": "base64"})


Vectors = Annotated[
    Annotated[list[Row], Field(fail_fast=True)] | Packed,
    Field(union_mode="left_to_right", description="Rows of numbers, or packed."),
]
Ids = Annotated[list[Id], Field(fail_fast=True)]
Payloads = Annotated[list[dict[str, Any]], Field(fail_fast=True)]


def unpack_rows(vectors: list[list[float]] | Packed) -> Float32:
    """Return vectors as an array (n, d), float32; numbers that are too large become inf."""
    if not isinstance(vectors, list):
        return unpack_vectors(vectors.shape, vectors.float32)
    if not vectors:
        raise ValueError(
            "expected at least one vector, got none: give rows, or packed vectors of shape [0, d]"
        )
    lengths = {len(row) for row in vectors}
    if len(lengths) > 1:
        raise ValueError(f"expected vectors of equal length, got {min(lengths)} to {max(lengths)} numbers")
    with np.errstate(over="ignore"):
        return np.array(vectors, np.float32)


class IndexOptions(Body):
    """Options of ``posh.Index`` or ``posh.CodeIndex``; omitted ones keep their values."""

    model_config = make_example({"refine": "vectors", "oversample": 4.0})
    structure: Structure | None = None
    scoring: Scoring | None = None
    refine: Refine | None = None
    document_active: int | None = Field(None, ge=1)
    query_active: int | None = Field(None, ge=1)
    n_lists: int | None = Field(None, ge=1, le=65_536)
    n_probe: int | None = limit_field("n_probe", default=None, ge=1)
    oversample: float | None = limit_field("oversample", default=None, ge=1)
    random_state: int | None = Field(None, ge=0)
    metric: Metric | None = None
    store: Store | None = None
    recall: float | None = Field(
        None, gt=0, le=1, description="With a metric: the share of the nearest items to find."
    )
    optimize: Optimize | None = None


NO_OPTIONS: Any = Field(default_factory=lambda: IndexOptions.model_validate({}))


class Create(Body):
    """A new collection."""

    size_limit = "metadata_bytes"
    model_config = make_example(
        {"metadata": {"title": "digits"}, "index": {"metric": "cosine", "recall": 0.95}}
    )
    metadata: dict[str, Any] = Field({}, description="A small object that is stored with the collection.")
    index: IndexOptions = NO_OPTIONS
    text: TextFields | None = Field(None, description="Fields of payloads to search by their words.")
    tokenizer: str | None = Field(None, description="A tokenizer of SQLite's FTS5.")


class IndexText(Body):
    """Fields of payloads to index as text; without any, the text index is built again."""

    size_limit = "metadata_bytes"
    model_config = make_example({"fields": ["title", "summary"]})
    fields: TextFields | None = None
    tokenizer: str | None = Field(None, description="A tokenizer of SQLite's FTS5.")


class Upsert(Body):
    """Items to write, replacing those that have the same ids."""

    model_config = make_example(
        {"ids": [1, "b"], "vectors": [[0.1, 0.2], [0.3, 0.4]], "payloads": [{"label": 3}, {}]}
    )
    ids: Ids = limit_field("items")
    vectors: Vectors = limit_field("items")
    payloads: Payloads | None = limit_field("items", default=None)


class Delete(Body):
    """Items to delete, by ids, of which those without an item are ignored, or by a filter."""

    model_config = make_example({"ids": [1, "b"]})
    ids: Ids | None = limit_field("items", default=None)
    filter: dict[str, Any] | None = Field(None, description="Deletes up to the service's limit of items.")
    limit: int | None = Field(None, ge=1, description="With a filter: a lower limit.")

    @model_validator(mode="after")
    def _require_one(self) -> Self:
        if (self.ids is None) == (self.filter is None):
            raise ValueError("expected either ids or a filter of items to delete, got both or neither")
        if self.ids is not None and self.limit is not None:
            raise ValueError("limit is for a filter: leave it out with ids")
        return self


class UpdatePayload(Body):
    """New fields for the payloads of items; their vectors stay unchanged."""

    model_config = make_example({"ids": [1, "b"], "payloads": [{"label": 4}, {"sold": True}]})
    ids: Ids = limit_field("items")
    payloads: Payloads = limit_field("items")
    replace: bool = Field(False, description="Whether to remove all other fields.")


class Get(Body):
    """Ids of items to get."""

    model_config = make_example({"ids": [1, "b"], "include": ["payload", "code"]})
    ids: Ids = limit_field("items")
    include: FieldNames = ["payload"]


class Items(Body):
    """A page of items, in the order of writing."""

    size_limit = "filter_bytes"
    model_config = make_example({"filter": FILTER, "limit": 20, "include": ["payload"]})
    filter: dict[str, Any] | None = None
    after: Id | None = Field(None, description="Start after the item with this id.")
    limit: int | None = limit_field("page", default=100, ge=1, description="Null: the service's limit.")
    include: FieldNames = ["payload"]


class Count(Body):
    """Items to count."""

    size_limit = "filter_bytes"
    model_config = make_example({"filter": FILTER})
    filter: dict[str, Any] | None = None


class Expression(Body):
    """A text query in the language of SQLite's FTS5."""

    model_config = make_example({"fts5": "title : wool NOT cotton"})
    fts5: str = limit_field("text_characters")


Words = Annotated[str, limit_field("text_characters")]


class Search(Body):
    """Queries, as vectors, text, both, or ids of stored items, which are omitted from their own hits."""

    model_config = make_example({"vectors": [[0.1, 0.2]], "k": 10, "filter": {"label": 3}})
    vectors: Vectors | None = limit_field("queries", default=None)
    ids: Ids | None = limit_field("queries", default=None)
    text: Words | Expression | list[Words | Expression] | None = Field(
        None, description="Words, an expression of FTS5, or one for each query."
    )
    fusion: dict[str, int | float] | None = Field(
        None, description="With vectors and text: constant, vectors and text (weights), depth."
    )
    k: int = limit_field("k", default=10, ge=1)
    filter: dict[str, Any] | None = None
    scoring: Scoring | None = Field(None, description="By default the collection's.")
    oversample: float | None = limit_field("oversample", default=None, ge=1)
    n_probe: int | None = limit_field("n_probe", default=None, ge=1)
    slack: float | None = Field(
        None, ge=0, le=100, description="With a metric: higher is slower and finds more."
    )
    exact: bool = Field(False, description="With a metric: compare all vectors.")
    recall: float | None = Field(
        None, gt=0, le=1, description="With a metric: the share of the nearest items to find."
    )
    min_score: float | None = Field(None, description="Omit hits with lower scores.")
    include: FieldNames = ["payload"]

    @model_validator(mode="after")
    def _require_one(self) -> Self:
        if self.text is not None and self.ids is not None:
            raise ValueError("expected text with vectors or alone, got it with ids: leave ids out")
        if self.text is None and (self.vectors is None) == (self.ids is None):
            raise ValueError("expected either vectors or ids, or text")
        if self.fusion is not None and (self.text is None or self.vectors is None):
            raise ValueError("fusion is for a search by vectors and text: leave it out")
        return self


class SearchRadius(Body):
    """Queries as vectors, and the score that all hits must reach."""

    model_config = make_example({"vectors": [[0.1, 0.2]], "min_score": 0.8, "limit": 100})
    vectors: Vectors = limit_field("queries")
    min_score: float
    limit: int | None = limit_field(
        "k", default=None, ge=1, description="Hits of one query, the best ones. Null: as many as allowed."
    )
    filter: dict[str, Any] | None = None
    exact: bool = Field(False, description="Compare all vectors.")
    recall: float | None = Field(None, gt=0, le=1, description="The share of the hits to find.")
    include: FieldNames = ["payload"]


class Fit(Body):
    """A method and its parameters, as in Python."""

    size_limit = "metadata_bytes"
    model_config = make_example(
        {"method": "POSH", "params": {"n_bits": 1024, "n_active": 32, "random_state": 0}}
    )
    method: Method
    params: dict[str, int | float | str | bool | None] = {}
    index: IndexOptions = NO_OPTIONS


class Reindex(Body):
    """Options for rebuilding the index; without a metric the collection must have a hasher."""

    size_limit = "metadata_bytes"
    model_config = make_example({"index": {"metric": "cosine", "recall": 0.98}})
    index: IndexOptions = NO_OPTIONS


class Calibrate(Body):
    """A sample of the queries to come; null returns to held-out items."""

    model_config = make_example({"queries": {"shape": [1, 2], "float32": "AACAPwAAAEA="}})
    queries: Vectors | None = limit_field("items")


class Sample(Body):
    """The number of vectors to draw."""

    model_config = make_example({"n": 1000})
    n: int = limit_field("sample", ge=0)


class Backup(Body):
    """The name of a copy of the collection."""

    size_limit = "metadata_bytes"
    model_config = make_example({"name": "digits-2026-11-17"})
    name: str = Field(pattern=f"^{NAME_PATTERN}$")


class Restore(Backup):
    """The name of a backup, which replaces the collection."""

    model_config = make_example({"name": "digits-2026-11-17"})


class Metadata(Body):
    """The metadata that replaces the current one."""

    size_limit = "metadata_bytes"
    model_config = make_example({"metadata": {"title": "digits"}})
    metadata: dict[str, Any]


B = TypeVar("B", bound=Body)
Content = bytes | bytearray
_TINY = 16 << 10  # bytes up to which values are not counted
_SMALL = 256 << 10  # bytes up to which a body is parsed on the event loop
_PART = 1 << 20  # bytes whose values are counted per call
_SEPARATORS = b",[{"  # every value but the first follows one of these
# Memory of a parsed body: its bytes, about as many for strings, as many for vectors, and 120 for each value.
_TIMES, _VALUE_BYTES = 3, 120
_FILE_TIMES = 6  # memory of a model file: bytes and arrays, of the request and of the collection's copy


class Reader:
    """Reads the bodies of requests within the limits, of one request and of all together."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._in_work = 0
        # Two budgets: with one, two requests could each hold a part of it, wait for the rest, and deadlock.
        self._bodies, self._responses = (
            MemoryBudget(limits.work_bytes // 2, limits.seconds) for _ in range(2)
        )
        self._parsing = asyncio.Lock()  # for large bodies: parsing blocks all other threads

    async def parse(self, request: Request, model: type[B]) -> B:
        """Return the body of a request as a validated object."""
        _require_type(request.scope, b"application/json")
        body = await self.read(request, model.size_limit)
        if len(body) <= _SMALL:
            n_values = len(body) // 2 if len(body) <= _TINY else self._count_values(body)
            await self._hold_memory(request.scope, _TIMES * len(body) + _VALUE_BYTES * n_values)
            return self._parse(body, model)
        n_values = await asyncio.to_thread(self._count_values, body)
        await self._hold_memory(request.scope, _TIMES * len(body) + _VALUE_BYTES * n_values)
        async with self._parsing:
            return await asyncio.to_thread(self._parse, body, model)

    def _count_values(self, body: Content) -> int:
        """Return about the number of values in the JSON of a body; raise a problem if there are too many."""
        content, n_values = np.frombuffer(body, np.uint8), 0
        for start in range(0, len(content), _PART):
            part = content[start : start + _PART]
            n_values += sum(int(np.count_nonzero(part == separator)) for separator in _SEPARATORS)
            if n_values > self._limits.body_values:
                raise _make_size_problem(
                    "body_values", f"{self._limits.body_values} values in JSON", "pack vectors as base64"
                )
        return n_values

    async def _hold_memory(self, scope: Scope, n_bytes: int) -> None:
        """Wait for memory for a request, then count it instead of the received bytes."""
        share = scope["posh.share"] = MemoryShare(self._bodies)
        await share.wait_for(n_bytes)
        self._in_work -= scope.pop("posh.held", 0)

    def hold_response(self, scope: Scope, n_bytes: int) -> None:
        """Wait in a thread for memory for a large response; further calls for a request do nothing."""
        if "posh.response" not in scope:
            share = scope["posh.response"] = MemoryShare(self._responses)
            share.add(n_bytes)

    def _parse(self, body: Content, model: type[B]) -> B:
        parsed = model.model_validate_json(body)
        self.require_limits(parsed)
        return parsed

    async def read_file(self, request: Request) -> bytes:
        """Return the body of a request that is a file."""
        _require_type(request.scope, b"application/octet-stream")
        content = await self.read(request, "body_bytes")
        await self._hold_memory(request.scope, _FILE_TIMES * len(content))
        return bytes(content)

    async def read(self, request: Request, limit: str) -> Content:
        """Return the bytes of a body, whose number the limit of this name bounds."""
        announced = get_header(request.scope, b"content-length")
        most = getattr(self._limits, limit)
        if announced is not None and (not announced.isdigit() or int(announced) > most):
            raise _make_bytes_problem(limit, most)
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                return await self._receive(request, limit, -1 if announced is None else int(announced))
        except TimeoutError:
            raise ProblemError(
                408,
                "too-slow",
                f"expected the body within {self._limits.body_seconds:g} s, got a part of it",
                limit="body_seconds",
            ) from None

    async def _receive(self, request: Request, limit: str, n_bytes: int) -> Content:
        """Receive a body of ``n_bytes``, or of unknown length if that is negative."""
        body: Content = b""
        while True:
            message = await request.receive()
            if message["type"] == "http.disconnect":
                raise ProblemError(400, "not-json", "expected a complete body, got a part of it")
            part = message.get("body", b"")
            self._hold(request.scope, len(part), limit)
            if not body:
                body = part
            else:
                if isinstance(body, bytes):
                    body = bytearray(body)  # joining parts would need twice the memory
                body += part
            # Receiving the end of a body of known length would be another call to the server's thread.
            if not message.get("more_body", False) or len(body) == n_bytes:
                return body

    def _hold(self, scope: Scope, n_bytes: int, limit: str) -> None:
        """Count received bytes of a request until it holds memory or is answered."""
        self._in_work += n_bytes
        scope["posh.bytes"] = scope["posh.held"] = scope.get("posh.bytes", 0) + n_bytes
        most = getattr(self._limits, limit)
        if scope["posh.bytes"] > most:
            raise _make_bytes_problem(limit, most)
        if self._in_work > self._limits.bytes_in_work:
            raise ProblemError(
                503,
                "busy",
                f"expected at most {self._limits.bytes_in_work} bytes of requests at once, got more: "
                "try again later",
                {"retry-after": "1"},
                limit="bytes_in_work",
            )

    def budgets(self) -> dict[str, Callable[[], int]]:
        """Return a function for each budget of bytes that returns how many are taken."""
        return {
            "received": lambda: self._in_work,
            "bodies": lambda: self._bodies.taken,
            "responses": lambda: self._responses.taken,
        }

    def release(self, scope: Scope) -> None:
        """Release the bytes and the memory of a request that is answered."""
        self._in_work -= scope.pop("posh.held", 0)
        for name in ("posh.share", "posh.response"):
            share: MemoryShare | None = scope.get(name)
            if share is not None:
                share.close()

    def require_limits(self, body: Body, prefix: str = "") -> None:
        """Raise a LimitError if a field exceeds its limit; messages have ``prefix`` before its name."""
        for name, limit in body.field_limits:
            value = getattr(body, name)
            if value is None or name not in body.model_fields_set:
                continue
            size, most = _measure(value), getattr(self._limits, limit)
            if size > most:
                raise LimitError(
                    limit, f"expected at most {most:,} for {prefix}{name}, got {size:,}: ask for less at once"
                )
        for name in body.nested:
            self.require_limits(getattr(body, name), f"{prefix}{name}.")


def _measure(value: Any) -> float:
    if isinstance(value, Packed):
        return value.shape[0]
    return value if isinstance(value, int | float) else len(value)


def _make_bytes_problem(limit: str, most: int) -> ProblemError:
    return _make_size_problem(limit, f"{most} bytes", "send less at once")


def _make_size_problem(limit: str, bound: str, remedy: str) -> ProblemError:
    detail = f"expected a body of at most {bound}, got more: {remedy}"
    return ProblemError(413, "too-large", detail, limit=limit)


def _require_type(scope: Scope, expected: bytes) -> None:
    got = get_header(scope, b"content-type") or b"none"
    if got.partition(b";")[0].strip().lower() != expected:
        raise ProblemError(
            415,
            "unsupported-media-type",
            f"expected the header 'Content-Type: {expected.decode()}', got {got.decode('latin-1')!r:.80}",
        )


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when a client whose body was read has disconnected, or was answered."""
    while (await receive())["type"] != "http.disconnect":
        pass
