"""Filters as expressions of Milvus: a first sieve, never the last word.

Milvus compares values of JSON in ways that differ from :func:`posh.collection.filters.passes`, and that
differ between its versions: some of them take ``true`` for 1, and some lack ``not``. So an expression selects
all items that pass the filter and perhaps more. Whoever asks Milvus applies the filter to the payloads that
come back.

What cannot be said for sure is left out, and then Milvus selects everything: ``not``, ``null``, integers of
more than 53 bits, names and strings with control characters. Strings of users enter an expression as
literals, in which quotes and backslashes are escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from posh.collection.filters import All, AnyOf, Contains, Not, OneOf, Range, Tree
from posh.collection.values import Scalar

__all__ = ["NOTHING", "sieve"]

NOTHING = 'id == ""'  # no key is empty
_TERMS = 200  # comparisons of one condition: more would make the parser slow
_DOTS = 3  # in the name of a field; each doubles the number of paths
_EXACT = 2**53
_SMALL = 1e-30  # some parsers refuse numbers that are much smaller
_OPERATORS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}


def sieve(tree: Tree) -> str:
    """Return an expression that every item that passes the filter passes; "" stands for all items.

    >>> from posh.collection.filters import parse
    >>> print(sieve(parse({"label": {"in": [3, "it's"]}, "not": {"sold": True}}).tree))
    payload["label"] == 3 or payload["label"] == "it's"
    >>> print(sieve(parse({"size.width": {"gte": 10}}).tree))
    payload["size.width"] >= 10 or payload["size"]["width"] >= 10
    """
    return _sieve(tree) or ""


def _sieve(tree: Tree) -> str | None:
    """The expression, or None if it would have to select everything."""
    match tree:
        case All(parts):
            return _joined("and", [part for part in map(_sieve, parts) if part is not None])
        case AnyOf(parts):
            return _any_of([_sieve(part) for part in parts])
        case Not():
            return None
        case OneOf(field, values):
            literals = [_literal(value) for value in values]
            return _any_of([_compared(field, "==", literal) for literal in literals])
        case Contains(field, value):
            return _contains(field, _literal(value))
        case Range(field, operator, bound):
            return _compared(field, _OPERATORS[operator], _literal(bound))


def _any_of(parts: Sequence[str | None]) -> str | None:
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or len(known) > _TERMS:
        return None
    return _joined("or", known) or NOTHING


def _joined(word: str, parts: Sequence[str]) -> str | None:
    if len(parts) < 2:
        return parts[0] if parts else None
    if word == "or" and not any(" and " in part for part in parts):
        return " or ".join(parts)
    return f" {word} ".join(f"({part})" for part in parts)


def _compared(field: str, operator: str, literal: str | None) -> str | None:
    if literal is None or not _is_plain(field) or field.count(".") > _DOTS:
        return None
    return " or ".join(f"{path} {operator} {literal}" for path in _paths(field))


def _contains(field: str, literal: str | None) -> str | None:
    if literal is None or not _is_plain(field) or field.count(".") > _DOTS:
        return None
    return " or ".join(f"json_contains({path}, {literal})" for path in _paths(field))


def _paths(field: str) -> Iterator[str]:
    """Yield all places that a name with dots may mean, see :func:`posh.collection.values.values_of`."""
    yield f"payload[{_quoted(field)}]"
    start = field.find(".")
    while start >= 0:
        outer = f"payload[{_quoted(field[:start])}]"
        yield from (outer + inner.removeprefix("payload") for inner in _paths(field[start + 1 :]))
        start = field.find(".", start + 1)


def _literal(value: Scalar) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case str():
            return _quoted(value) if value == "" or value.isprintable() else None
        case int():
            return str(value) if abs(value) <= _EXACT else None
        case float():
            if value.is_integer() and abs(value) <= _EXACT:
                return str(int(value))
            return repr(float(value)) if _SMALL < abs(value) < _EXACT else None


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _is_plain(field: str) -> bool:
    """Whether Milvus finds the field whatever its version: letters, digits, ``_``, ``-``, spaces and dots."""
    return all(part and part.replace("-", "_").replace(" ", "_").isidentifier() for part in field.split("."))
