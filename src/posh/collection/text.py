"""Text queries, and the fusion of two rankings, with the same meaning for every engine.

A text query is a string of plain words, or an expression of SQLite's FTS5 as ``{"fts5": "…"}``. The type
decides, never the content: whatever a user types into a search box is words, and cannot fail. In words,
``"red wool"`` in quotes is a phrase and ``scar*`` a prefix; the words are alternatives, and bm25 ranks items
with more and rarer ones first.

:func:`parse_texts` validates queries, :class:`TextOptions` describes an index of text, and :func:`fuse`
defines the fusion.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from posh._validate import validate_integer, validate_real, validate_storable
from posh.collection.filters import find_values
from posh.errors import StorageError

__all__ = ["NO_TEXT", "TEXT_TABLE", "TOKENIZER", "Fused", "Fusion", "Ranking", "TextOptions", "TextQuery"]
__all__ += ["fuse", "parse_fusion", "parse_texts", "quote_name"]

NO_TEXT = (
    "expected a collection with a text index, got one without: create it with "
    "posh.create(path, text=['title'], …), or add one to a collection with index_text(['title'])"
)
TOKENIZER = "unicode61 remove_diacritics 2"
TEXT_TABLE = "text_index"  # of the database; a field cannot have this name
_FIELDS, _NAME = 32, 128


@dataclass(frozen=True)
class TextOptions:
    """The fields of payloads that are indexed as text, and the tokenizer, in the notation of FTS5.

    >>> TextOptions.validate("title", None)
    TextOptions(fields=('title',), tokenizer='unicode61 remove_diacritics 2')
    """

    fields: tuple[str, ...]
    tokenizer: str = TOKENIZER

    @classmethod
    def validate(cls, names: Any, tokenizer: Any) -> TextOptions | None:
        """Return options; None without fields. Raise ValueError if FTS5 does not accept them."""
        if names is None:
            if tokenizer is not None:
                raise ValueError(f"tokenizer={tokenizer!r:.80} is for text=['title', …]: leave it out")
            return None
        names = [names] if isinstance(names, str) else names
        if isinstance(names, Mapping) or not isinstance(names, Sequence) or not 1 <= len(names) <= _FIELDS:
            raise ValueError(
                f"expected text as the names of 1 to {_FIELDS} fields of payloads, got {names!r:.80}"
            )
        for name in names:
            _validate_field(name)
        tokenizer = TOKENIZER if tokenizer is None else tokenizer
        if not isinstance(tokenizer, str) or "\0" in tokenizer:
            raise ValueError(f"expected a tokenizer of FTS5 such as {TOKENIZER!r}, got {tokenizer!r:.80}")
        options = cls(tuple(names), tokenizer)
        options._try()
        return options

    def extract(self, payload: Mapping[str, Any]) -> tuple[str, ...]:
        r"""Return the text of each field: strings, and strings in lists of any depth; empty for other values.

        >>> TextOptions(("title", "tags")).extract({"title": "Scarf", "tags": ["red", ["wool"]], "price": 5})
        ('Scarf', 'red\nwool')
        """
        return tuple("\n".join(_iterate_texts(payload, name)) for name in self.fields)

    def statement(self) -> str:
        """Return the statement that creates the table: an index without a copy of the text."""
        columns = ", ".join(map(quote_name, self.fields))
        tokenizer = self.tokenizer.replace("'", "''")
        return f"CREATE VIRTUAL TABLE {TEXT_TABLE} USING fts5({columns}, content='', tokenize='{tokenizer}')"

    def _try(self) -> None:
        """Raise ValueError if SQLite cannot create the table."""
        connection = sqlite3.connect(":memory:")
        try:
            connection.execute(self.statement())
        except sqlite3.OperationalError as error:
            if "no such module" in str(error):
                raise StorageError(
                    "expected an SQLite with FTS5 for a text index, got one without: use another Python"
                ) from error
            raise ValueError(
                f"expected text as different names of fields other than rank, rowid and {TEXT_TABLE}, and a "
                f"tokenizer of FTS5 such as {TOKENIZER!r}, 'porter unicode61' or 'trigram'; got "
                f"{list(self.fields)!r:.200} and {self.tokenizer!r:.80}: {error}"
            ) from error
        finally:
            connection.close()


def _validate_field(name: Any) -> None:
    if not isinstance(name, str) or not 1 <= len(name) <= _NAME or "\0" in name:
        raise ValueError(
            f"expected the names of fields in text, strings of 1 to {_NAME} characters, got {name!r:.80}"
        )
    validate_storable(name, "text")


def quote_name(name: str) -> str:
    """Return an identifier of SQL for the name of a field.

    >>> quote_name("size.width")
    '"size.width"'
    """
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _iterate_texts(payload: Mapping[str, Any], name: str) -> Iterator[str]:
    for value in find_values(payload, name):
        yield from _iterate_strings(value)


def _iterate_strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for part in value:
            yield from _iterate_strings(part)


# Queries -------------------------------------------------------------------------------------------------

# A phrase in quotes or a word, either of them perhaps with a star behind it. A quote without a partner, or
# within a word, separates words.
_PART = re.compile(r'"([^"]*)"(\*?)|([^\s"]+)')
_UNUSABLE = re.compile("[\0\ud800-\udfff]")  # a NUL would end the expression; halves of pairs are not UTF-8


@dataclass(frozen=True)
class TextQuery:
    """A text query: ``source`` as the user gave it, and its expression for FTS5, "" if it has no words."""

    source: str | dict[str, str]
    expression: str


def parse_texts(value: Any) -> list[TextQuery]:
    """Parse one text query, or a list of them; raise ValueError if one is neither words nor an expression.

    >>> parse_texts('red "Merino wool" scar*')[0].expression
    '"red" OR "Merino wool" OR "scar" *'
    >>> parse_texts({"fts5": "title : wool NOT cotton"})[0].expression
    'title : wool NOT cotton'
    """
    return [_parse_text(one) for one in (value if isinstance(value, list | tuple) else [value])]


def _parse_text(value: Any) -> TextQuery:
    if isinstance(value, str):
        return TextQuery(value, _write_expression(value))
    if not isinstance(value, Mapping) or value.keys() != {"fts5"} or not isinstance(value["fts5"], str):
        raise ValueError(
            "expected text as words, such as 'red wool scarf', or as an FTS5 expression, such as "
            f"{{'fts5': 'title : wool NOT cotton'}}, got {value!r:.80}"
        )
    expression = value["fts5"]
    # FTS5 answers expressions that begin with a star with numbers about itself.
    if not expression.strip() or _UNUSABLE.search(expression) or expression.startswith("*"):
        raise ValueError(f"expected an FTS5 expression, got {expression!r:.80}: give words as a string")
    return TextQuery({"fts5": expression}, expression)


def _write_expression(words: str) -> str:
    """Return an expression that matches any of the words; in quotes, nothing in them is an operator."""
    parts: dict[str, None] = {}
    for match in _PART.finditer(_UNUSABLE.sub(" ", words)):
        phrase, star, word = match.groups()
        is_prefix = bool(star) if word is None else word.endswith("*")
        text = phrase if word is None else word.rstrip("*")
        if text.strip():
            parts[f'"{text}"' + (" *" if is_prefix else "")] = None
    return " OR ".join(parts)


# Fusion --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fusion:
    """The parameters of reciprocal rank fusion.

    An item at place r of a ranking, from 1, gets ``weight / (constant + r)`` from it; the score of an item is
    the sum. ``vectors`` and ``text`` are the weights of the two rankings. Each contributes its best
    ``depth`` items, or k if that is more.
    """

    constant: float = 60.0
    vectors: float = 1.0
    text: float = 1.0
    depth: int = 100

    def __post_init__(self) -> None:
        validate_real("fusion['constant']", self.constant, 0.0)
        validate_real("fusion['vectors']", self.vectors, 0.0, open_low=True)
        validate_real("fusion['text']", self.text, 0.0, open_low=True)
        validate_integer("fusion['depth']", self.depth, 1)

    def as_arguments(self) -> dict[str, Any]:
        """Return the parameters by name that differ from the defaults."""
        return {
            field.name: vars(self)[field.name]
            for field in fields(self)
            if vars(self)[field.name] != field.default
        }


def parse_fusion(value: Any) -> Fusion:
    """Return the parameters of a fusion; those that are left out, and all for None, have their defaults.

    >>> parse_fusion({"text": 2.0})
    Fusion(constant=60.0, vectors=1.0, text=2.0, depth=100)
    """
    names = [field.name for field in fields(Fusion)]
    if value is None:
        return Fusion()
    if not isinstance(value, Mapping) or not value.keys() <= set(names):
        raise ValueError(
            f"expected fusion as a dictionary with some of {', '.join(names)}, got {value!r:.80}"
        )
    return Fusion(**value)


class Fused(NamedTuple):
    """The best slots of a fused ranking, (k,), their scores, and those in both rankings, NaN without one."""

    slots: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float64]
    vector_scores: npt.NDArray[np.float64]
    text_scores: npt.NDArray[np.float64]


Ranking = tuple[npt.NDArray[np.int64], npt.NDArray[Any]]  # distinct slots and their scores, best first


def fuse(vectors: Ranking, text: Ranking, fusion: Fusion, k: int) -> Fused:
    """Fuse two rankings by reciprocal ranks (Cormack, Clarke and Büttcher, 2009); of equals, the lower slot.

    >>> by_vector = np.array([4, 2]), np.array([0.9, 0.8])
    >>> by_text = np.array([2, 7]), np.array([3.5, 1.5])
    >>> fuse(by_vector, by_text, Fusion(), k=3).slots
    array([2, 4, 7])
    """
    slots = np.union1d(vectors[0], text[0]).astype(np.int64)
    totals = np.zeros(len(slots))
    columns = []
    for (found, scores), weight in ((vectors, fusion.vectors), (text, fusion.text)):
        places = np.searchsorted(slots, found)
        totals[places] += weight / (fusion.constant + np.arange(1, len(found) + 1))
        column = np.full(len(slots), np.nan)
        column[places] = scores
        columns.append(column)
    order = np.argsort(-totals, kind="stable")[:k]  # slots ascend, so the lower one of equals comes first
    return Fused(slots[order], totals[order], *(column[order] for column in columns))
