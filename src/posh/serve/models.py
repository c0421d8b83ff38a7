"""The bodies of requests.

These models parse them from bytes and describe them in OpenAPI. ``bounded`` names the bound of
:class:`posh.serve.limits.Limits` that a field keeps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from posh._wire import NAME_PATTERN, unpack_vectors
from posh.hashers import HASHERS
from posh.index.choices import METRICS, REFINER_NAMES, SCORINGS, STORES, STRUCTURE_NAMES

__all__ = [
    "Backup",
    "Body",
    "Count",
    "Create",
    "Delete",
    "Fit",
    "Get",
    "Include",
    "IndexOptions",
    "Items",
    "Metadata",
    "Packed",
]
__all__ += ["Reindex", "Sample", "Search", "UpdatePayload", "Upsert", "Vectors", "unpack"]

Id = Annotated[int, Field(ge=-(2**63), lt=2**63)] | Annotated[str, Field(min_length=1, max_length=512)]
Row = Annotated[list[float], Field(fail_fast=True)]
Include = list[Literal["payload", "vector", "code"]]
if TYPE_CHECKING:  # type checkers do not take the names of a table
    Method: TypeAlias = str
    Structure: TypeAlias = str
    Scoring: TypeAlias = str
    Refine: TypeAlias = str
    Metric: TypeAlias = str
    Store: TypeAlias = str
else:
    Method, Structure, Scoring, Refine, Metric, Store = (
        Literal[tuple(table)]
        for table in (HASHERS, STRUCTURE_NAMES, SCORINGS, REFINER_NAMES, METRICS, STORES)
    )
FILTER = {"label": {"in": [3, 5]}, "price": {"gte": 10, "lt": 20}}


def bounded(name: str, **options: Any) -> Any:
    """A field whose value or length is bounded by a limit."""
    return Field(json_schema_extra={"x-limit": name}, **options)


class Body(BaseModel):
    """What all bodies of requests share: no unknown fields, no conversions, no NaN."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())
    limited: ClassVar[tuple[tuple[str, str], ...]] = ()  # fields, and the names of their limits
    nested: ClassVar[tuple[str, ...]] = ()  # fields that are bodies themselves
    size_limit: ClassVar[str] = "body_bytes"  # the limit of the bytes of this body

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        extras = {name: field.json_schema_extra for name, field in cls.model_fields.items()}
        cls.limited = tuple(
            (name, str(extra["x-limit"]))
            for name, extra in extras.items()
            if isinstance(extra, dict) and "x-limit" in extra
        )
        kinds = {name: field.annotation for name, field in cls.model_fields.items()}
        cls.nested = tuple(
            name for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, Body)
        )


def example(value: dict[str, Any]) -> ConfigDict:
    """The settings of a body with an example."""
    return ConfigDict(json_schema_extra={"examples": [value]})


class Packed(Body):
    """Vectors as bytes: base64 of little-endian float32, row by row."""

    model_config = example({"shape": [1, 2], "float32": "AACAPwAAAEA="})
    shape: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=2, max_length=2)]
    float32: str = Field(json_schema_extra={"contentEncoding": "base64"})


Vectors = Annotated[
    Annotated[list[Row], Field(fail_fast=True)] | Packed,
    Field(union_mode="left_to_right", description="Rows of numbers, or packed."),
]
Ids = Annotated[list[Id], Field(fail_fast=True)]
Payloads = Annotated[list[dict[str, Any]], Field(fail_fast=True)]


def unpack(vectors: list[list[float]] | Packed) -> Any:
    """Return an array (n, d), float32; the collection refuses NaN, and inf, which large numbers become."""
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
    """How codes are searched; see the documentation of ``posh.Index``. What is not given keeps its value."""

    model_config = example({"refine": "vectors", "oversample": 4.0})
    structure: Structure | None = None
    scoring: Scoring | None = None
    refine: Refine | None = None
    document_active: int | None = Field(None, ge=1)
    query_active: int | None = Field(None, ge=1)
    n_lists: int | None = Field(None, ge=1, le=65_536)
    n_probe: int | None = bounded("n_probe", default=None, ge=1)
    oversample: float | None = bounded("oversample", default=None, ge=1)
    random_state: int | None = Field(None, ge=0)
    metric: Metric | None = None
    store: Store | None = None
    recall: float | None = Field(None, gt=0, le=1, description="With a metric, the share to find.")


NO_OPTIONS: Any = Field(default_factory=lambda: IndexOptions.model_validate({}))


class Create(Body):
    """A new collection."""

    size_limit = "metadata_bytes"
    model_config = example({"metadata": {"title": "digits"}, "index": {"metric": "cosine", "recall": 0.95}})
    metadata: dict[str, Any] = Field({}, description="A small object that is kept with the collection.")
    index: IndexOptions = NO_OPTIONS


class Upsert(Body):
    """Items to write, replacing those that have the same ids."""

    model_config = example(
        {"ids": [1, "b"], "vectors": [[0.1, 0.2], [0.3, 0.4]], "payloads": [{"label": 3}, {}]}
    )
    ids: Ids = bounded("items")
    vectors: Vectors = bounded("items")
    payloads: Payloads | None = bounded("items", default=None)


class Delete(Body):
    """Which items to delete: ids, of which those that are not there are ignored, or a filter."""

    model_config = example({"ids": [1, "b"]})
    ids: Ids | None = bounded("items", default=None)
    filter: dict[str, Any] | None = Field(None, description="Deletes as many as one request may.")
    limit: int | None = Field(None, ge=1, description="For a filter: delete fewer.")

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.ids is None) == (self.filter is None):
            raise ValueError("expected either ids or a filter of items to delete, got both or neither")
        if self.ids is not None and self.limit is not None:
            raise ValueError("limit is for a filter: leave it out with ids")
        return self


class UpdatePayload(Body):
    """New fields for the payloads of items; their vectors stay."""

    model_config = example({"ids": [1, "b"], "payloads": [{"label": 4}, {"sold": True}]})
    ids: Ids = bounded("items")
    payloads: Payloads = bounded("items")
    replace: bool = Field(False, description="Whether nothing of the old payloads stays.")


class Get(Body):
    """Ids of items to get."""

    model_config = example({"ids": [1, "b"], "include": ["payload", "code"]})
    ids: Ids = bounded("items")
    include: Include = ["payload"]


class Items(Body):
    """A page of items, in the order of writing."""

    size_limit = "filter_bytes"
    model_config = example({"filter": FILTER, "limit": 20, "include": ["payload"]})
    filter: dict[str, Any] | None = None
    after: Id | None = Field(None, description="Begin after the item with this id.")
    limit: int | None = bounded("page", default=100, ge=1, description="Null: as many as allowed.")
    include: Include = ["payload"]


class Count(Body):
    """Which items to count."""

    size_limit = "filter_bytes"
    model_config = example({"filter": FILTER})
    filter: dict[str, Any] | None = None


class Search(Body):
    """Queries, as vectors or as ids of stored items, which are then left out of their own hits."""

    model_config = example({"vectors": [[0.1, 0.2]], "k": 10, "filter": {"label": 3}})
    vectors: Vectors | None = bounded("queries", default=None)
    ids: Ids | None = bounded("queries", default=None)
    k: int = bounded("k", default=10, ge=1)
    filter: dict[str, Any] | None = None
    scoring: Scoring | None = Field(None, description="By default the collection's.")
    oversample: float | None = bounded("oversample", default=None, ge=1)
    n_probe: int | None = bounded("n_probe", default=None, ge=1)
    slack: float | None = Field(None, ge=0, le=100, description="With a metric: more is slower, finds more.")
    exact: bool = Field(False, description="With a metric: compare all vectors.")
    recall: float | None = Field(None, gt=0, le=1, description="With a metric, the share to find.")
    min_score: float | None = Field(None, description="Leave out hits with lower scores.")
    include: Include = ["payload"]

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.vectors is None) == (self.ids is None):
            raise ValueError("expected either vectors or ids")
        return self


class Fit(Body):
    """A method and its parameters, as in Python."""

    size_limit = "metadata_bytes"
    model_config = example({"method": "POSH", "params": {"n_bits": 1024, "n_active": 32, "random_state": 0}})
    method: Method
    params: dict[str, int | float | str | bool | None] = {}
    index: IndexOptions = NO_OPTIONS


class Reindex(Body):
    """Options for an index that is made again; without a metric the collection must have a hasher."""

    size_limit = "metadata_bytes"
    model_config = example({"index": {"metric": "cosine", "recall": 0.98}})
    index: IndexOptions = NO_OPTIONS


class Sample(Body):
    """How many vectors to draw."""

    model_config = example({"n": 1000})
    n: int = bounded("sample", ge=0)


class Backup(Body):
    """What the copy of a collection is to be called."""

    size_limit = "metadata_bytes"
    model_config = example({"name": "digits-2026-11-17"})
    name: str = Field(pattern=f"^{NAME_PATTERN}$")


class Metadata(Body):
    """The metadata that replaces the present one."""

    size_limit = "metadata_bytes"
    model_config = example({"metadata": {"title": "digits"}})
    metadata: dict[str, Any]
