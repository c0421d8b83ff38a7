"""A document: blocks that can be written as Markdown or as a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Block", "Figure", "Heading", "Table", "Text"]


@dataclass(frozen=True)
class Heading:
    """A title of the given level, 1 to 3."""

    level: int
    text: str


@dataclass(frozen=True)
class Text:
    """A paragraph, or items of a list. `Code` is between backticks, **strong** between stars."""

    lines: Sequence[str]
    is_list: bool = False

    @classmethod
    def of(cls, *sentences: str) -> Text:
        """A paragraph."""
        return cls([" ".join(sentences)])


@dataclass(frozen=True)
class Table:
    """Cells of text; a line break within a cell is kept."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Figure:
    """A PNG file by its name, its content, and what it shows in words."""

    name: str
    content: bytes
    caption: str


Block: TypeAlias = Heading | Text | Table | Figure
