"""A document: blocks that can be written as Markdown or as a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["NO_RECORDS", "Block", "Contents", "Figure", "Heading", "Table", "Text", "anchor"]


@dataclass(frozen=True)
class Heading:
    """A title of the given level, 1 to 3."""

    level: int
    text: str


@dataclass(frozen=True)
class Contents:
    """Links to these headings."""

    headings: Sequence[str]


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
    """A PNG file: its name, its content, and a caption."""

    name: str
    content: bytes
    caption: str


NO_RECORDS = Text.of("No records yet.")

Block: TypeAlias = Heading | Contents | Text | Table | Figure


def anchor(heading: str) -> str:
    """The name that links to a heading use, on this page and where Markdown is shown as GitHub does.

    >>> anchor("Figure 3: MAP@1000 of eight methods")
    'figure-3-map1000-of-eight-methods'
    """
    kept = "".join(c for c in heading.lower() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")
