"""What the service says of a collection, for its description and for the client.

Plain dataclasses: the client does without the packages of the service.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, Self

__all__ = ["HasherInfo", "Indexing", "Info"]


class _Known:
    @classmethod
    def from_json(cls, answer: dict[str, Any]) -> Self:
        """The object of an answer; fields that a newer service adds are left out."""
        return cls(**{field.name: answer[field.name] for field in fields(cls)})  # type: ignore[arg-type]


@dataclass(frozen=True)
class HasherInfo(_Known):
    """The hasher whose codes are searched; ``n_active`` is null for dense codes."""

    method: str
    n_bits: int
    n_active: int | None
    params: dict[str, int | float | str | bool | None]


@dataclass(frozen=True)
class Indexing(_Known):
    """What the last fit came to."""

    state: Literal["idle", "running", "failed"]
    message: str | None


@dataclass(frozen=True)
class Info(_Known):
    """A collection; ``index`` says how codes are searched.

    Without ``has_items`` hits are ids and scores, and nothing else can be read.
    """

    name: str
    count: int
    n_features: int | None
    hasher: HasherInfo | None
    index: dict[str, int | float | str | None]
    metadata: dict[str, Any]
    memory_bytes: int | None
    disk_bytes: int | None
    indexing: Indexing
    has_items: bool

    @classmethod
    def from_json(cls, answer: dict[str, Any]) -> Self:
        """The object of an answer, with what is in it."""
        hasher = None if answer["hasher"] is None else HasherInfo.from_json(answer["hasher"])
        return super().from_json(
            answer | {"hasher": hasher, "indexing": Indexing.from_json(answer["indexing"])}
        )
