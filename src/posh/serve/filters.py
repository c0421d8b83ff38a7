"""Filters as JSON again: what :func:`posh.collection.filters.parse` made a tree of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from posh.collection.filters import All, AnyOf, Filter, Not, OneOf, Range

__all__ = ["unparse"]


def unparse(tree: Filter) -> dict[str, Any]:
    """A filter that means the same, and is not nested deeper than the one that was parsed.

    >>> unparse(All((Range("price", "gte", 10), Range("price", "lt", 20), OneOf("label", (3,)))))
    {'price': {'gte': 10, 'lt': 20}, 'label': {'in': [3]}}
    """
    parts = list(_parts(tree))
    merged: dict[str, Any] = {}
    for part in parts:
        for key, value in _single(part).items():
            known = merged.setdefault(key, value)
            if known is value:
                continue
            if not _may_merge(key, known, value):
                return {"and": [_single(one) for one in parts]}
            merged[key] = {**known, **value}
    return merged


def _parts(tree: Filter) -> Iterator[Filter]:
    if isinstance(tree, All):
        for part in tree.parts:
            yield from _parts(part)
    else:
        yield tree


def _single(tree: Filter) -> dict[str, Any]:
    match tree:
        case OneOf(field, values):
            return {field: {"in": list(values)}}
        case Range(field, operator, bound):
            return {field: {operator: bound}}
        case Not(part):
            return {"not": unparse(part)}
        case AnyOf(parts):
            return {"or": [unparse(part) for part in parts]}
        case All():
            return unparse(tree)


def _may_merge(key: str, known: Any, value: Any) -> bool:
    return key not in ("not", "or") and not known.keys() & value.keys()
