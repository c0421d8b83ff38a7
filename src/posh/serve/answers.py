"""The bodies of answers, for the description: they are written without these models, which is faster.

The tests compare what is answered with what is described.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from posh._wire import Indexing, Info
from posh.index.nearest.report import IndexReport

__all__ = [
    "Collections",
    "Counted",
    "Deleted",
    "Health",
    "Indexing",
    "Info",
    "ItemsFound",
    "ItemsPage",
    "Problem",
]
__all__ += ["CollectionMap", "Fields", "IndexReport", "Sampled", "SearchResults", "Updated", "Written"]

Id = int | str


class Problem(BaseModel):
    """An error, as in RFC 9457."""

    type: str = Field(description="A name of the kind of error.", examples=["urn:posh:invalid-argument"])
    title: str
    status: int
    detail: str = Field(description="What was expected, what came, and what to do.")


class Health(BaseModel):
    """The service is up."""

    status: Literal["ok"]
    version: str
    collections: int


class Collections(BaseModel):
    """All collections, by name."""

    collections: list[Info]


class Written(BaseModel):
    """How many items were written."""

    upserted: int


class Deleted(BaseModel):
    """How many of the items were there."""

    deleted: int
    more: bool = Field(description="Whether more items may pass the filter: then ask again.")


class Updated(BaseModel):
    """How many payloads were changed."""

    updated: int


class Counted(BaseModel):
    """How many items there are."""

    count: int


class Item(BaseModel):
    """An item, with what was asked for."""

    id: Id
    payload: dict[str, Any] | None = None
    vector: list[float] | None = None
    code: list[int] | None = Field(None, description="The numbers of the set bits; null without a hasher.")


class ItemsFound(BaseModel):
    """Items in the order of the ids; null where there is none."""

    items: list[Item | None]


class ItemsPage(BaseModel):
    """A page of items."""

    items: list[Item]
    next: Id | None = Field(description="What to give as after for the next page; null on the last one.")


class Hit(Item):
    """An item that was found."""

    score: float | None = Field(description="Higher is better; null if it is not finite.")


class Result(BaseModel):
    """The hits of one query, best first."""

    hits: list[Hit]
    code: list[int] | None = Field(None, description="The code of the query, if codes are included.")


class SearchResults(BaseModel):
    """A result for each query."""

    results: list[Result]
    kind: str = Field(description="What the scores are, as in posh.Hits.", examples=["overlap"])
    seconds: float = Field(description="Time from the parsed request to its result, including the queue.")


class Sampled(BaseModel):
    """Vectors as bytes: base64 of little-endian float32, row by row."""

    shape: list[int] = Field(min_length=2, max_length=2)
    float32: str


class FieldValue(BaseModel):
    """A value, and how many items of the sample have it."""

    value: str | int | float | bool
    count: int


class FieldSummary(BaseModel):
    """What the sample has of a field."""

    name: str
    type: Literal["string", "number", "boolean", "list", "object", "null"] = Field(
        description="Of most values."
    )
    count: int = Field(description="Items of the sample that have the field.")
    distinct: int = Field(description="Different short values.")
    values: list[FieldValue] = Field(description="The most frequent short values; of lists, their elements.")
    low: float | None = Field(description="The smallest number.")
    high: float | None = Field(description="The largest number.")


class Fields(BaseModel):
    """The fields of payloads, and which of them are worth showing first."""

    sampled: int
    title: str | None
    text: str | None
    image: str | None
    group: str | None = Field(description="A field with a few values, for colours.")
    fields: list[FieldSummary]
    examples: list[Id] = Field(description="A few items of the sample, from all groups.")


class CollectionMap(BaseModel):
    """Items in a plane: ``points[i]`` is ``axes @ (vector - mean)`` of the item ``ids[i]``.

    If ``by_direction`` is true, vectors were divided by their lengths before.
    """

    count: int = Field(description="Items of the collection.")
    by_direction: bool
    mean: list[float]
    axes: list[list[float]]
    ids: list[Id]
    points: list[list[float]]
    titles: list[str | None]
    group: str | None = Field(description="The field that colours items.")
    groups: list[str | int | float | bool] = Field(description="Its values.")
    group_of: list[int] = Field(description="For each item the number of its value; -1 for none.")
