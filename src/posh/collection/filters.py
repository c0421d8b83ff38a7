"""The language of filters: which payloads pass, in the same way for every engine.

A filter is a dictionary, as in JSON::

    {"label": 3}                                    a field equals a value
    {"label": {"in": [3, 5]}}                       … is one of several
    {"price": {"gte": 10, "lt": 20}}                … is in a range: gt, gte, lt, lte
    {"label": 3, "price": {"lt": 20}}               all of these
    {"and": [F, G]}   {"or": [F, G]}   {"not": F}   combinations of filters; {} passes everything

Fields are those at the top of a payload. Values are strings, numbers, booleans and null. They are compared
within their type only: ``3`` equals ``3.0`` and nothing else. Numbers are ordered by size, strings by code
points. A condition on a field that is missing, or that holds a list or an object, is false; its ``not`` is
true. Filters cannot ask for fields with the names ``and``, ``or`` and ``not``.

:func:`parse` turns a dictionary into a :class:`Filter`. Engines translate its tree or send its source.
:func:`passes` defines what a tree means.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any

import numpy as np

__all__ = ["All", "AnyOf", "Filter", "FilterLimits", "Not", "OneOf", "Range", "Scalar", "Tree"]
__all__ += ["leaves", "parse", "passes", "require_storable", "scalar_type"]

Scalar = str | int | float | bool | None

_BOUNDS = ("gt", "gte", "lt", "lte")
_OPERATORS = ("eq", "in", *_BOUNDS)
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class OneOf:
    """The field equals one of these values."""

    field: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True)
class Range:
    """The field is on the right side of the bound: ``operator`` is gt, gte, lt or lte."""

    field: str
    operator: str
    bound: str | int | float


@dataclass(frozen=True)
class All:
    """Every part passes; without parts, everything."""

    parts: tuple[Tree, ...]


@dataclass(frozen=True)
class AnyOf:
    """At least one part passes; without parts, nothing."""

    parts: tuple[Tree, ...]


@dataclass(frozen=True)
class Not:
    """The part does not pass."""

    part: Tree


Tree = OneOf | Range | All | AnyOf | Not


@dataclass(frozen=True)
class Filter:
    """A filter that was parsed: its tree, and a copy of the dictionary it was made from, as JSON."""

    tree: Tree
    source: dict[str, Any]


@dataclass(frozen=True)
class FilterLimits:
    """How large a filter may be.

    ``depth`` bounds the levels, ``values`` the values and bounds of all conditions together. The embedded
    engine reads the rows of a field once, whatever the number of its conditions, so ``fields`` bounds the
    time. It makes a mask of one byte per item for each condition, so ``conditions`` bounds the memory.
    """

    depth: int = 16
    values: int = 1000
    conditions: int = 100
    fields: int = 20


_LIMITS = FilterLimits()


def parse(source: Any, limits: FilterLimits = _LIMITS) -> Filter:
    """Parse a filter; a wrong or too large one is a ``ValueError``.

    >>> parse({"label": {"in": (3, 5)}})
    Filter(tree=OneOf(field='label', values=(3, 5)), source={'label': {'in': [3, 5]}})
    >>> parse({"not": {"price": {"lt": 20}}}).tree
    Not(part=Range(field='price', operator='lt', bound=20))
    >>> parse({"label": {"in": [3, 5]}}, FilterLimits(values=1))
    Traceback (most recent call last):
    ValueError: expected a filter of at most 1 values and bounds, got 2: use ranges
    """
    tree = _tree(source, "filter", 1, limits)
    _require_within(tree, limits)
    return Filter(tree, _as_json(source))


def _as_json(value: Any) -> Any:
    """Return a copy of what was parsed, with types of JSON only."""
    if isinstance(value, Mapping):
        return {key: _as_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(part) for part in value]
    return value.item() if isinstance(value, np.generic) else value


def leaves(tree: Tree) -> Iterator[OneOf | Range]:
    """Yield the conditions of a tree, from left to right.

    >>> [leaf.field for leaf in leaves(parse({"not": {"label": 3, "price": {"lt": 20}}}).tree)]
    ['label', 'price']
    """
    match tree:
        case All(parts) | AnyOf(parts):
            for part in parts:
                yield from leaves(part)
        case Not(part):
            yield from leaves(part)
        case OneOf() | Range():
            yield tree


def passes(tree: Tree, payload: Mapping[str, Any]) -> bool:
    """Whether a payload passes. This defines the meaning of the language.

    >>> passes(parse({"price": {"gte": 10, "lt": 20}}).tree, {"price": 12.5})
    True
    """
    match tree:
        case All(parts):
            return all(passes(part, payload) for part in parts)
        case AnyOf(parts):
            return any(passes(part, payload) for part in parts)
        case Not(part):
            return not passes(part, payload)
        case OneOf(field, values):
            kind = scalar_type(payload.get(field, ...))
            return kind is not None and any(
                kind == scalar_type(value) and payload[field] == value for value in values
            )
        case Range(field, operator, bound):
            kind = scalar_type(payload.get(field, ...))
            return kind == scalar_type(bound) and _compare(payload[field], operator, bound)


_SCALAR_TYPES = {NoneType: "null", bool: "boolean", int: "number", float: "number", str: "string"}


def scalar_type(value: Any) -> str | None:
    """Return ``"null"``, ``"boolean"``, ``"number"`` or ``"string"``; None if the value is no scalar."""
    kind = _SCALAR_TYPES.get(type(value))
    if kind is None:  # perhaps a subclass: this is slower, and rare
        kind = next((name for base, name in _SCALAR_TYPES.items() if isinstance(value, base)), None)
    return kind


def _compare(value: Any, operator: str, bound: Any) -> bool:
    match operator:
        case "gt":
            return bool(value > bound)
        case "gte":
            return bool(value >= bound)
        case "lt":
            return bool(value < bound)
        case _:
            return bool(value <= bound)


def _require_within(tree: Tree, limits: FilterLimits) -> None:
    conditions = list(leaves(tree))
    values = sum(max(1, len(leaf.values)) if isinstance(leaf, OneOf) else 1 for leaf in conditions)
    fields = len({leaf.field for leaf in conditions})
    for found, most, what, remedy in (
        (values, limits.values, "values and bounds", "use ranges"),
        (len(conditions), limits.conditions, "conditions", "use 'in' for several values of a field"),
        (fields, limits.fields, "fields", "leave some out"),
    ):
        if found > most:
            raise ValueError(f"expected a filter of at most {most} {what}, got {found}: {remedy}")


def _tree(source: Any, where: str, depth: int, limits: FilterLimits) -> Tree:
    if not isinstance(source, Mapping):
        raise ValueError(f"expected {where} to be an object like {{'label': 3}}, got {source!r:.80}")
    if depth > limits.depth:
        raise ValueError(f"expected a filter of at most {limits.depth} levels, got more: make it flatter")
    parts = tuple(_entry(key, value, where, depth, limits) for key, value in source.items())
    return parts[0] if len(parts) == 1 else All(parts)


def _entry(key: Any, value: Any, where: str, depth: int, limits: FilterLimits) -> Tree:
    if not isinstance(key, str):
        raise ValueError(f"expected the fields in {where} to be strings, got {key!r:.80}")
    if key == "not":
        return Not(_tree(value, f"{where}.not", depth + 1, limits))
    if key in ("and", "or"):
        parts = tuple(
            _tree(part, f"{where}.{key}[{i}]", depth + 1, limits)
            for i, part in enumerate(_list(value, where, key))
        )
        return All(parts) if key == "and" else AnyOf(parts)
    if isinstance(value, Mapping):
        return _condition(key, value, f"{where}.{key}")
    return OneOf(key, (_scalar(value, f"{where}.{key}"),))


def _condition(field: str, operators: Mapping[Any, Any], where: str) -> Tree:
    if not operators:
        raise ValueError(f"expected at least one of {', '.join(_OPERATORS)} in {where}, got none")
    parts = tuple(_term(field, operator, value, where) for operator, value in operators.items())
    return parts[0] if len(parts) == 1 else All(parts)


def _term(field: str, operator: Any, value: Any, where: str) -> Tree:
    if operator not in _OPERATORS:
        raise ValueError(f"expected one of {', '.join(_OPERATORS)} in {where}, got {operator!r:.80}")
    where = f"{where}.{operator}"
    if operator == "eq":
        return OneOf(field, (_scalar(value, where),))
    if operator == "in":
        return OneOf(field, tuple(_scalar(one, where) for one in _list(value, where, operator)))
    if scalar_type(value) not in ("number", "string"):
        raise ValueError(f"expected {where} to be a number or a string, got {value!r:.80}")
    bound = _scalar(value, where)
    assert isinstance(bound, str | int | float)
    return Range(field, operator, bound)


def _list(value: Any, where: str, key: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"expected {key!r} in {where} to be a list, got {value!r:.80}")
    return value


def _scalar(value: Any, where: str) -> Scalar:
    if isinstance(value, np.generic):
        value = value.item()
    if scalar_type(value) is None:
        raise ValueError(f"expected {where} to be a string, a number, true, false or null, got {value!r:.80}")
    require_storable(value, where)
    return value  # type: ignore[no-any-return]


def require_storable(value: Scalar, where: str) -> None:
    """Raise for a value that cannot be written and read back: NaN, 2**64, half a surrogate pair."""
    if isinstance(value, str):
        if not (value.isascii() or _is_unicode(value)):
            raise ValueError(f"expected {where} to be valid Unicode, got {value!r:.80}")
    elif isinstance(value, int):
        if not _SMALLEST <= value <= _LARGEST:
            raise ValueError(
                f"expected {where} to be an integer of at most 64 bits, got {value!r:.80}: use a string"
            )
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"expected {where} to be finite, got {value!r}: use null")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
