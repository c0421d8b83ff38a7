"""The bodies of answers, for the description: they are written without these models, which is faster.

The tests compare what is answered with what is described.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from posh.index.report import IndexReport
from posh.serve.info import Indexing, Info

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
__all__ += ["IndexReport", "Sampled", "SearchResults", "Updated", "Written"]

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
