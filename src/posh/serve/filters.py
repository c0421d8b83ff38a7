"""Filters as JSON again: what :func:`posh.collection.filters.parse` made a tree of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from posh.collection.filters import All, AnyOf, Filter, Not, OneOf, Range

__all__ = ["unparse"]

Part = OneOf | Range | AnyOf | Not


def unparse(tree: Filter) -> dict[str, Any]:
    """A filter that means the same, and is not nested deeper than the one that was parsed.

    >>> unparse(All((Range("price", "gte", 10), Range("price", "lt", 20), OneOf("label", (3,)))))
    {'price': {'gte': 10, 'lt': 20}, 'label': {'in': [3]}}
    """
    merged: dict[str, Any] = {}
    others = []
    # An object has a key once. The deepest part takes it, so that only shallower ones go one level down.
    for part in sorted(map(_single, _parts(tree)), key=_depth, reverse=True):
        ((key, value),) = part.items()
        if key not in merged:
            merged[key] = value
        elif key not in ("not", "or") and not merged[key].keys() & value.keys():
            merged[key] = merged[key] | value
        else:
            others.append(part)
    return merged | ({"and": others} if others else {})


def _parts(tree: Filter) -> Iterator[Part]:
    if isinstance(tree, All):
        for part in tree.parts:
            yield from _parts(part)
    else:
        yield tree


def _single(tree: Part) -> dict[str, Any]:
    match tree:
        case OneOf(field, values):
            return {field: {"in": list(values)}}
        case Range(field, operator, bound):
            return {field: {operator: bound}}
        case Not(part):
            return {"not": unparse(part)}
        case AnyOf(parts):
            return {"or": [unparse(part) for part in parts]}


def _depth(source: dict[str, Any]) -> int:
    inner = [*source.get("and", []), *source.get("or", []), *([source["not"]] if "not" in source else [])]
    return 1 + max(map(_depth, inner), default=0)
