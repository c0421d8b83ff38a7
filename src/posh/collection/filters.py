"""The language of filters, with the same meaning for every engine.

A filter is a dictionary, as in JSON::

    {"label": 3}                                    a field equals a value; also {"label": {"eq": 3}}
    {"label": {"in": [3, 5]}}                       … is one of several
    {"label": {"ne": 3}}                            … is missing, or anything but this value
    {"label": {"nin": [3, 5]}}                      … is missing, or anything but these values
    {"price": {"gte": 10, "lt": 20}}                … is in a range: gt, gte, lt, lte
    {"title": {"prefix": "The "}}                   … is a string that starts so
    {"tags": {"contains": "red"}}                   a list has a value
    {"tags": {"any": ["red", "blue"]}}              a list has one of these, or the field is one of them
    {"price": {"exists": true}}                     the payload has the field, whatever its value
    {"size.width": 3}                               a field of an object in the payload
    {"label": 3, "price": {"lt": 20}}               all of these
    {"and": [F, G]}   {"or": [F, G]}   {"not": F}   combinations of filters; {} passes everything

Values are strings, numbers, booleans and null. They are compared within their type only: ``3`` equals
``3.0`` and nothing else. Numbers are ordered by size, strings by code points. A condition on a field that is
missing, or that holds a list or an object, is false; its ``not`` is true. ``ne`` and ``nin`` are the ``not``
of ``eq`` and ``in``, so they pass items without the field, as in MongoDB and with ``must_not`` in Qdrant: add
``{"exists": true}`` to leave those out. ``exists`` counts null, lists and objects as values.

``contains`` is for lists of up to 100 values, and false for everything else; ``any`` looks into the same
lists. Both reach names of up to 128 characters, and so do dots. A dot may be part of a name in the payload,
too: if both ``{"a": {"b": 1}}`` and ``{"a.b": 2}`` are there, one of them must pass. Filters cannot ask for
fields with the names ``and``, ``or`` and ``not``.

:func:`parse` turns a dictionary into a :class:`Filter`. Engines translate its tree or send its source.
:func:`passes` defines what a tree means. :func:`list_fields` returns the fields of a payload as the database
stores them for filters. :func:`explain_nothing` says why a filter that passes nothing cannot pass anything.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any

import numpy as np

from posh._validate import validate_storable

__all__ = [
    "IN_LIST",
    "KINDS",
    "All",
    "AnyOf",
    "Condition",
    "Contains",
    "Exists",
    "Filter",
    "FilterLimits",
    "Holds",
    "Not",
    "OneOf",
    "Prefix",
    "Range",
]
__all__ += ["OTHER", "Scalar", "Tree", "explain_nothing", "find_successor", "find_values", "is_list"]
__all__ += ["iterate_conditions", "iterate_fields", "list_fields", "parse", "passes", "scalar_type"]
__all__ += ["to_stored"]

_BOUNDS = ("gt", "gte", "lt", "lte")
_OPERATORS = ("eq", "ne", "in", "nin", *_BOUNDS, "prefix", "contains", "any", "exists")


Scalar = str | int | float | bool | None

# Each value in a list, and each field of an object, has a row with its name in the index of filters. These
# bounds keep the index in proportion to the payload.
_ELEMENTS = 100
_NAME = 128
_SCALAR_TYPES = {NoneType: "null", bool: "boolean", int: "number", float: "number", str: "string"}


def scalar_type(value: Any) -> str | None:
    """Return ``"null"``, ``"boolean"``, ``"number"`` or ``"string"``; None if the value is not a scalar."""
    kind = _SCALAR_TYPES.get(type(value))
    if kind is None:  # perhaps a subclass: this is slower, and rare
        kind = next((name for base, name in _SCALAR_TYPES.items() if isinstance(value, base)), None)
    return kind


def find_values(payload: Mapping[str, Any], field: str) -> Iterator[Any]:
    """Yield the values of a payload under the name of a field; ``"a.b"`` is also ``b`` in the object ``a``.

    >>> list(find_values({"a": {"b": 3}, "a.b": [4]}, "a.b"))
    [[4], 3]
    """
    if field in payload:
        yield payload[field]
    start = field.find(".") if len(field) <= _NAME else -1
    while start >= 0:
        inner = payload.get(field[:start])
        if isinstance(inner, Mapping):
            yield from find_values(inner, field[start + 1 :])
        start = field.find(".", start + 1)


def iterate_fields(payload: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all fields of a payload with their names, those of objects within it too.

    >>> list(iterate_fields({"a": {"b": 3, "c": [4]}}))
    [('a', {'b': 3, 'c': [4]}), ('a.b', 3), ('a.c', [4])]
    """
    for key, value in payload.items():
        is_short = len(before) + len(key) <= _NAME
        name = f"{before}{key}" if is_short else key
        if is_short or not before:
            yield name, value
        if is_short and isinstance(value, Mapping):
            yield from iterate_fields(value, f"{name}.")


def is_list(name: str, value: Any) -> bool:
    """Whether filters look at the values in a list: up to 100 values, under a name of 128 characters."""
    return isinstance(value, list) and len(value) <= _ELEMENTS and len(name) <= _NAME


Field = tuple[str, int, str | int | float]

_TYPES = {"null": 0, "boolean": 1, "number": 2, "string": 3}
IN_LIST = 4  # added to the type of a value in a list
KINDS = (*_TYPES, *(f"list of {name}s" for name in _TYPES))
"""The kinds of values that filters distinguish, by their number in the database."""


def list_fields(payload: dict[str, Any]) -> list[Field]:
    """Return the fields of a payload that filters can ask for: name, type and value.

    >>> list_fields({"label": 3, "tags": ["a", "b"], "sold": False})
    [('label', 2, 3), ('tags', 7, 'a'), ('tags', 7, 'b'), ('sold', 1, 0)]
    """
    found: dict[Field, None] = {}  # a list, or an object next to a name with a dot, may have a value twice
    for name, value in iterate_fields(payload):
        if scalar_type(value) is not None:
            found[(name, *to_stored(value))] = None
        elif is_list(name, value):
            for one in value:
                if scalar_type(one) is not None:
                    kind, stored = to_stored(one)
                    found[name, kind + IN_LIST, stored] = None
    return list(found)


def to_stored(value: Scalar) -> tuple[int, str | int | float]:
    """Return the number of the type of a scalar, and its value as the database stores it."""
    return _TYPES[scalar_type(value) or "null"], _to_number(value)


def _to_number(value: Scalar) -> str | int | float:
    return int(bool(value)) if value is None or isinstance(value, bool) else value


@dataclass(frozen=True)
class OneOf:
    """The field equals one of these values."""

    field: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True)
class Contains:
    """The field is a list, see :func:`is_list`, and this value is in it."""

    field: str
    value: Scalar


@dataclass(frozen=True)
class Holds:
    """The field equals one of these values, or is a list, see :func:`is_list`, that has one of them."""

    field: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True)
class Prefix:
    """The field is a string that starts with this one."""

    field: str
    start: str


@dataclass(frozen=True)
class Exists:
    """The payload has the field."""

    field: str


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


Condition = OneOf | Contains | Holds | Range | Prefix | Exists
Tree = Condition | All | AnyOf | Not


@dataclass(frozen=True)
class Filter:
    """A filter that was parsed: its tree, and a copy of the dictionary it was made from, as JSON."""

    tree: Tree
    source: dict[str, Any]


@dataclass(frozen=True)
class FilterLimits:
    """Limits on the size of a filter.

    ``depth`` bounds the levels, ``values`` the values and bounds of all conditions together. The embedded
    engine reads the rows of a field once, for any number of conditions, so ``fields`` bounds the
    time. It makes a mask of one byte per item for each condition, so ``conditions`` bounds the memory.
    """

    depth: int = 16
    values: int = 1000
    conditions: int = 100
    fields: int = 20


_LIMITS = FilterLimits()


def parse(source: Any, limits: FilterLimits = _LIMITS) -> Filter:
    """Parse a filter; raise ValueError if it is invalid or too large.

    >>> parse({"label": {"in": (3, 5)}})
    Filter(tree=OneOf(field='label', values=(3, 5)), source={'label': {'in': [3, 5]}})
    >>> parse({"not": {"price": {"lt": 20}}}).tree
    Not(part=Range(field='price', operator='lt', bound=20))
    >>> parse({"label": {"in": [3, 5]}}, FilterLimits(values=1))
    Traceback (most recent call last):
    ValueError: expected a filter of at most 1 values and bounds, got 2: use ranges
    """
    tree = _parse_tree(source, "filter", 1, limits)
    _require_within(tree, limits)
    return Filter(tree, _copy_json(source))


def _copy_json(value: Any) -> Any:
    """Return a copy of the source, with types of JSON only."""
    if isinstance(value, Mapping):
        return {key: _copy_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_copy_json(part) for part in value]
    return value.item() if isinstance(value, np.generic) else value


def iterate_conditions(tree: Tree) -> Iterator[Condition]:
    """Yield the conditions of a tree, from left to right.

    >>> [leaf.field for leaf in iterate_conditions(parse({"not": {"label": 3, "price": {"lt": 20}}}).tree)]
    ['label', 'price']
    """
    match tree:
        case All(parts) | AnyOf(parts):
            for part in parts:
                yield from iterate_conditions(part)
        case Not(part):
            yield from iterate_conditions(part)
        case _:
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
            return any(_is_one_of(found, values) for found in find_values(payload, field))
        case Contains(field, value):
            return any(_has_one_of(field, found, (value,)) for found in find_values(payload, field))
        case Holds(field, values):
            return any(
                _is_one_of(found, values) or _has_one_of(field, found, values)
                for found in find_values(payload, field)
            )
        case Prefix(field, start):
            return any(
                isinstance(found, str) and found.startswith(start) for found in find_values(payload, field)
            )
        case Exists(field):
            return any(True for _ in find_values(payload, field))
        case Range(field, operator, bound):
            kind = scalar_type(bound)
            return any(
                scalar_type(found) == kind and _compare(found, operator, bound)
                for found in find_values(payload, field)
            )


def _is_one_of(found: Any, values: Sequence[Scalar]) -> bool:
    kind = scalar_type(found)
    return kind is not None and any(kind == scalar_type(value) and found == value for value in values)


def _has_one_of(field: str, found: Any, values: Sequence[Scalar]) -> bool:
    return is_list(field, found) and any(_is_one_of(one, values) for one in found)


def find_successor(start: str) -> str | None:
    """Return the least string above all strings that start with this one; None if there is none.

    >>> find_successor("ab")
    'ac'
    """
    kept = start.rstrip("\U0010ffff")
    if not kept:
        return None
    following = ord(kept[-1]) + 1
    return kept[:-1] + chr(0xE000 if following == 0xD800 else following)  # surrogates are not characters


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
    conditions = list(iterate_conditions(tree))
    values = sum(max(1, len(leaf.values)) if isinstance(leaf, OneOf | Holds) else 1 for leaf in conditions)
    fields = len({leaf.field for leaf in conditions})
    for found, most, what, remedy in (
        (values, limits.values, "values and bounds", "use ranges"),
        (len(conditions), limits.conditions, "conditions", "use 'in' for several values of a field"),
        (fields, limits.fields, "fields", "leave some out"),
    ):
        if found > most:
            raise ValueError(f"expected a filter of at most {most} {what}, got {found}: {remedy}")


def _parse_tree(source: Any, where: str, depth: int, limits: FilterLimits) -> Tree:
    if not isinstance(source, Mapping):
        raise ValueError(f"expected {where} to be an object like {{'label': 3}}, got {source!r:.80}")
    if depth > limits.depth:
        raise ValueError(f"expected a filter of at most {limits.depth} levels, got more: make it flatter")
    parts = tuple(_parse_entry(key, value, where, depth, limits) for key, value in source.items())
    return parts[0] if len(parts) == 1 else All(parts)


def _parse_entry(key: Any, value: Any, where: str, depth: int, limits: FilterLimits) -> Tree:
    if not isinstance(key, str):
        raise ValueError(f"expected the fields in {where} to be strings, got {key!r:.80}")
    if key == "not":
        return Not(_parse_tree(value, f"{where}.not", depth + 1, limits))
    if key in ("and", "or"):
        parts = tuple(
            _parse_tree(part, f"{where}.{key}[{i}]", depth + 1, limits)
            for i, part in enumerate(_require_list(value, where, key))
        )
        return All(parts) if key == "and" else AnyOf(parts)
    if isinstance(value, Mapping):
        return _parse_condition(key, value, f"{where}.{key}")
    return OneOf(key, (_parse_scalar(value, f"{where}.{key}"),))


def _parse_condition(field: str, operators: Mapping[Any, Any], where: str) -> Tree:
    if not operators:
        raise ValueError(f"expected at least one of {', '.join(_OPERATORS)} in {where}, got none")
    parts = tuple(_parse_term(field, operator, value, where) for operator, value in operators.items())
    return parts[0] if len(parts) == 1 else All(parts)


def _parse_term(field: str, operator: Any, value: Any, where: str) -> Tree:
    if operator not in _OPERATORS:
        raise ValueError(f"expected one of {', '.join(_OPERATORS)} in {where}, got {operator!r:.80}")
    where = f"{where}.{operator}"
    match operator:
        case "eq":
            return OneOf(field, (_parse_scalar(value, where),))
        case "ne":
            return Not(OneOf(field, (_parse_scalar(value, where),)))
        case "in":
            return OneOf(field, _parse_scalars(value, where, operator))
        case "nin":
            return Not(OneOf(field, _parse_scalars(value, where, operator)))
        case "contains":
            return Contains(field, _parse_scalar(value, where))
        case "any":
            return Holds(field, _parse_scalars(value, where, operator))
        case "prefix":
            return Prefix(field, _parse_string(value, where))
        case "exists":
            return Exists(field) if _parse_boolean(value, where) else Not(Exists(field))
        case _:
            return Range(field, operator, _parse_bound(value, where))


def _parse_bound(value: Any, where: str) -> str | int | float:
    if scalar_type(value) not in ("number", "string"):
        raise ValueError(f"expected {where} to be a number or a string, got {value!r:.80}")
    bound = _parse_scalar(value, where)
    assert isinstance(bound, str | int | float)
    return bound


def _parse_string(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected {where} to be a string, got {value!r:.80}")
    return str(_parse_scalar(value, where))


def _parse_boolean(value: Any, where: str) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"expected {where} to be true or false, got {value!r:.80}")
    return bool(value)


def _parse_scalars(value: Any, where: str, operator: str) -> tuple[Scalar, ...]:
    return tuple(_parse_scalar(one, where) for one in _require_list(value, where, operator))


def _require_list(value: Any, where: str, key: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"expected {key!r} in {where} to be a list, got {value!r:.80}")
    return value


def _parse_scalar(value: Any, where: str) -> Scalar:
    if isinstance(value, np.generic):
        value = value.item()
    if scalar_type(value) is None:
        raise ValueError(f"expected {where} to be a string, a number, true, false or null, got {value!r:.80}")
    validate_storable(value, where)
    return value  # type: ignore[no-any-return]


# Filters that pass nothing -------------------------------------------------------------------------------

OTHER = "object, empty or long list"  # the kind of a field of which filters see only that it exists


def explain_nothing(tree: Tree, kinds: Mapping[str, Sequence[str]], names: Sequence[str]) -> str | None:
    """Return why no item can pass: no item has a field, or only values of other types; None if some can.

    ``kinds`` has the kinds of values (``KINDS`` or ``OTHER``) that each field of the filter has in any item,
    ``names`` fields to suggest.

    >>> tree = parse({"yeer": 1999}).tree
    >>> explain_nothing(tree, {"yeer": []}, ["title", "year"])
    'no item has a field "yeer"; did you mean "year"?'
    >>> explain_nothing(parse({"year": 1999}).tree, {"year": ["string"]}, ["title", "year"])
    'no item has a number in the field "year", only strings; did you mean "1999"?'
    """
    impossible = _find_impossible(tree, kinds)
    sentences = dict.fromkeys(_explain(leaf, kinds[leaf.field], names) for leaf in impossible)
    return "; ".join(sentences) or None


def _find_impossible(tree: Tree, kinds: Mapping[str, Sequence[str]]) -> list[Condition]:
    """Return conditions that no item fulfils and because of which none passes; [] if there are none."""
    match tree:
        case All(parts):
            return next(filter(None, (_find_impossible(part, kinds) for part in parts)), [])
        case AnyOf(parts):
            found = [_find_impossible(part, kinds) for part in parts]
            return [leaf for leaves in found for leaf in leaves] if all(found) else []
        case Not():
            return []
        case _:
            wanted = _list_kinds(tree)
            return [] if wanted is None or not set(wanted).isdisjoint(kinds[tree.field]) else [tree]


def _list_kinds(leaf: Condition) -> list[str] | None:
    """Return the kinds of values that can fulfil a condition; None if no value can, as without values."""
    match leaf:
        case OneOf(_, values):
            scalars = list(dict.fromkeys(str(scalar_type(value)) for value in values))
            return scalars or None
        case Contains(_, value):
            return [f"list of {scalar_type(value)}s"]
        case Holds(_, values):
            scalars = list(dict.fromkeys(str(scalar_type(value)) for value in values))
            return [*scalars, *(f"list of {scalar}s" for scalar in scalars)] or None
        case Range(_, _, bound):
            return [str(scalar_type(bound))]
        case Prefix():
            return ["string"]
        case Exists():
            return [*KINDS, OTHER]


def _explain(leaf: Condition, found: Sequence[str], names: Sequence[str]) -> str:
    field = _quote(leaf.field)
    if not found:
        name = _find_similar(leaf.field, names)
        return f"no item has a field {field}" + ("" if name is None else f"; did you mean {_quote(name)}?")
    wanted = " or ".join(f"an {kind}" if kind == OTHER else f"a {kind}" for kind in _list_kinds(leaf) or ())
    have = " and ".join(_to_plural(kind) for kind in found)
    return f"no item has {wanted} in the field {field}, only {have}" + _suggest(leaf, found)


def _suggest(leaf: Condition, found: Sequence[str]) -> str:
    """Return the remedy if the value has the wrong type, or is looked for in lists and must not be."""
    match leaf:
        case OneOf(field, (value,)) if f"list of {scalar_type(value)}s" in found:
            return f"; did you mean {_quote({field: {'contains': value}})}?"
        case Contains(field, value) if scalar_type(value) in found:
            return f"; did you mean {_quote({field: value})}?"
        case OneOf(_, (int() | float() as value,)) if not isinstance(value, bool) and "string" in found:
            return f"; did you mean {_quote(str(value))}?"
        case OneOf(_, (str() as text,)) | Range(_, _, str() as text) if "number" in found:
            number = _to_number_or_none(text)
            return "" if number is None else f"; did you mean {number}?"
        case _:
            return ""


def _to_number_or_none(text: str) -> str | None:
    try:
        number = json.loads(text)
    except ValueError:
        return None
    return text if scalar_type(number) == "number" else None


def _to_plural(kind: str) -> str:
    return kind.replace("list", "lists", 1).replace("object", "objects", 1) if " " in kind else f"{kind}s"


def _find_similar(field: str, names: Sequence[str]) -> str | None:
    """Return the name that was probably meant."""
    for name in names:  # another case, or a field inside an object
        if name.lower() == field.lower() or name.rpartition(".")[2] == field:
            return name
    return next(iter(difflib.get_close_matches(field, names, 1)), None)


def _quote(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


_SHOWN = 80  # characters of a name or a value in a message
