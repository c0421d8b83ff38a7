"""The language of filters: what passes, and what is no filter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posh.collection.filters import (
    OTHER,
    All,
    AnyOf,
    Contains,
    FilterLimits,
    Not,
    OneOf,
    Range,
    explain_nothing,
    find_successor,
    list_fields,
    parse,
    passes,
)
from tests.collection import strategies

OPERATORS = "eq, ne, in, nin, gt, gte, lt, lte, prefix, contains, any, exists"
PAYLOAD = {"n": 3, "x": 2.5, "s": "straße", "yes": True, "none": None, "list": [3], "object": {"n": 3}, "": 0}
PAYLOAD |= {"deep": {"a": {"tags": ["x", ["y"]]}}, "dot.ted": 1, "dot": {"ted": 2}}


@pytest.mark.parametrize(
    ("filter_", "expected"),
    [
        ({}, True),
        ({"n": 3}, True),
        ({"n": 3.0}, True),
        ({"n": "3"}, False),
        ({"n": True}, False),
        ({"yes": 1}, False),
        ({"yes": True}, True),
        ({"none": None}, True),
        ({"missing": None}, False),
        ({"not": {"missing": None}}, True),
        ({"list": 3}, False),
        ({"list": {"contains": 3.0}}, True),
        ({"list": {"contains": "3"}}, False),
        ({"n": {"contains": 3}}, False),
        ({"object": {"contains": 3}}, False),
        ({"object.n": {"gt": 2, "lt": 4}}, True),
        ({"object.m": 3}, False),
        ({"n.object": 3}, False),
        ({"not": {"object.n": {"in": [4, 5]}}}, True),
        ({"deep.a.tags": {"contains": "x"}}, True),
        ({"deep.a.tags": "x"}, False),
        ({"dot.ted": 1}, True),
        ({"dot.ted": 2}, True),
        ({"object": 3}, False),
        ({"": 0}, True),
        ({"n": {"in": [1, "3", 3.0]}}, True),
        ({"n": {"in": []}}, False),
        ({"x": {"gt": 2, "lt": 3}}, True),
        ({"x": {"gte": 2.5, "lte": 2.5}}, True),
        ({"x": {"gt": 2.5}}, False),
        ({"s": {"gt": "strassz"}}, True),
        ({"s": {"gt": 0}}, False),
        ({"yes": {"gte": 0}}, False),
        ({"n": {"ne": 3.0}}, False),
        ({"n": {"ne": "3"}}, True),
        ({"missing": {"ne": 3}}, True),
        ({"missing": {"nin": [3, None]}}, True),
        ({"missing": {"ne": 3, "exists": True}}, False),
        ({"list": {"ne": 3}}, True),
        ({"n": {"nin": [2, 3]}}, False),
        ({"n": {"nin": []}}, True),
        ({"s": {"prefix": "stra"}}, True),
        ({"s": {"prefix": ""}}, True),
        ({"s": {"prefix": "straßen"}}, False),
        ({"n": {"prefix": ""}}, False),
        ({"list": {"any": [4, 3.0]}}, True),
        ({"n": {"any": [4, 3.0]}}, True),
        ({"n": {"any": ["3", True]}}, False),
        ({"deep.a.tags": {"any": ["y", "z"]}}, False),
        ({"none": {"exists": True}}, True),
        ({"object": {"exists": True}}, True),
        ({"deep.a": {"exists": True}}, True),
        ({"deep.b": {"exists": True}}, False),
        ({"deep.b": {"exists": False}}, True),
        ({"and": []}, True),
        ({"or": []}, False),
        ({"or": [{"n": 4}, {"x": {"lt": 3}}]}, True),
        ({"n": 3, "x": 2}, False),
        ({"not": {"and": [{"n": 3}, {"x": 2}]}}, True),
    ],
)
def test_what_passes(filter_, expected):
    assert passes(parse(filter_).tree, PAYLOAD) is expected


@pytest.mark.parametrize(
    ("filter_", "message"),
    [
        ([], r"expected filter to be an object like .*, got \[\]"),
        ({1: 2}, "expected the fields in filter to be strings, got 1"),
        ({"a": [1]}, "expected filter.a to be a string, a number, true, false or null"),
        ({"a": {}}, f"expected at least one of {OPERATORS} in filter.a, got none"),
        ({"a": {"like": "b"}}, f"expected one of {OPERATORS} in filter.a, got 'like'"),
        ({"a": {"nin": 3}}, "expected 'nin' in filter.a.nin to be a list, got 3"),
        ({"a": {"any": "b"}}, "expected 'any' in filter.a.any to be a list, got 'b'"),
        ({"a": {"prefix": 3}}, "expected filter.a.prefix to be a string, got 3"),
        ({"a": {"exists": 1}}, "expected filter.a.exists to be true or false, got 1"),
        ({"a": {"in": 3}}, "expected 'in' in filter.a.in to be a list, got 3"),
        (
            {"a": {"contains": [1]}},
            "expected filter.a.contains to be a string, a number, true, false or null",
        ),
        ({"a": {"gt": None}}, "expected filter.a.gt to be a number or a string, got None"),
        ({"and": {"a": 1}}, "expected 'and' in filter to be a list"),
        ({"or": [{"a": 1}, 3]}, r"expected filter.or\[1\] to be an object"),
        ({"a": float("nan")}, "expected filter.a to be finite, got nan: use null"),
        ({"a": 2**64}, "at most 64 bits, got 18446744073709551616: use a string"),
        ({"a": "\ud800"}, "expected filter.a to be valid Unicode"),
        ({"a": {"in": list(range(1001))}}, "at most 1000 values and bounds, got 1001: use ranges"),
        (
            {"or": [{"a": {"lt": i}} for i in range(101)]},
            "at most 100 conditions, got 101: use 'in' for several values of a field",
        ),
        ({str(i): 1 for i in range(21)}, "at most 20 fields, got 21: leave some out"),
    ],
)
def test_what_is_no_filter(filter_, message):
    with pytest.raises(ValueError, match=message):
        parse(filter_)


def test_long_lists_and_long_names_are_not_looked_into():
    """Each of their values would have a row with its name in the index of filters."""
    tags, name = [str(i) for i in range(101)], "n" * 128
    condition = parse({"tags": {"contains": "7"}}).tree
    assert passes(condition, {"tags": tags[:100]})
    assert not passes(condition, {"tags": tags})
    assert passes(Contains(name, 1), {name: [1]})
    assert not passes(Contains(f"{name}n", 1), {f"{name}n": [1]})
    assert passes(OneOf(f"a.{name[:126]}", (1,)), {"a": {name[:126]: 1}})
    assert not passes(OneOf(f"a.{name}", (1,)), {"a": {name: 1}})
    assert passes(OneOf(f"{name}.n", (1,)), {f"{name}.n": 1})
    wide = {
        "a" * 1000: {str(i): i for i in range(50)} | {"b": list(range(100))},
        "c" * 1000: list(range(100)),
    }
    assert list_fields({**wide, "d": tags, "d" * 1000: 1}) == [("d" * 1000, 2, 1)]


def test_limits_can_be_given():
    filter_ = {"a": {"in": [1, 2]}, "not": {"b": 1}}
    for limits, message in [
        (FilterLimits(depth=1), "at most 1 levels"),
        (FilterLimits(values=2), "at most 2 values and bounds, got 3"),
        (FilterLimits(conditions=1), "at most 1 conditions, got 2"),
        (FilterLimits(fields=1), "at most 1 fields, got 2"),
    ]:
        with pytest.raises(ValueError, match=message):
            parse(filter_, limits)
    assert parse(filter_, FilterLimits(depth=2, values=3, conditions=2, fields=2)) == parse(filter_)


def test_a_filter_has_a_bottom():
    deep: dict = {"a": 1}
    for _ in range(20):
        deep = {"not": deep}
    with pytest.raises(ValueError, match="at most 16 levels, got more: make it flatter"):
        parse(deep)


@given(strategies.filters, strategies.payloads)
def test_combinations_are_those_of_logic(source, payload):
    tree = parse(source).tree
    result = passes(tree, payload)
    assert passes(Not(tree), payload) is not result
    assert passes(All((tree, tree)), payload) is result
    assert passes(AnyOf((tree, Not(tree))), payload)
    assert not passes(All((tree, Not(tree))), payload)


@given(strategies.payloads)
def test_a_payload_passes_its_own_values(payload):
    for field, value in payload.items():
        scalar = value is None or isinstance(value, bool | int | float | str)
        assert passes(OneOf(field, (value,) if scalar else (3,)), payload) is scalar
        if scalar and not isinstance(value, bool) and value is not None:
            assert passes(Range(field, "gte", value), payload)
            assert not passes(Range(field, "lt", value), payload)


# With a plain predicate ----------------------------------------------------------------------------------

Predicate = Callable[[Any], bool]  # of the value of a field, or of MISSING
MISSING = object()


def kind_of(value):
    return bool if isinstance(value, bool) else float if isinstance(value, int | float) else type(value)


def equals(one, other):
    return kind_of(one) is kind_of(other) and one == other


def is_among(found, values):
    return any(equals(found, value) for value in values)


PREDICATES: dict[str, Callable[[Any], Predicate]] = {
    "ne": lambda value: lambda found: not equals(found, value),
    "nin": lambda values: lambda found: not is_among(found, values),
    "prefix": lambda start: lambda found: isinstance(found, str) and found[: len(start)] == start,
    "any": lambda values: (
        lambda found: any(is_among(one, values) for one in (found if isinstance(found, list) else [found]))
    ),
    "exists": lambda is_there: lambda found: (found is not MISSING) is is_there,
}
_several = st.lists(strategies.scalars, max_size=4)
_values = {"ne": strategies.scalars, "nin": _several, "prefix": strategies.strings, "any": _several}


@pytest.mark.parametrize("operator", PREDICATES)
@given(data=st.data())
def test_operators_are_plain_predicates(operator, data):
    value = data.draw(_values.get(operator, st.booleans()))
    found = data.draw(st.one_of(st.just(MISSING), strategies.values))
    payload = {"b": 1} if found is MISSING else {"a": found, "b": 1}
    expected = PREDICATES[operator](value)(found)
    assert passes(parse({"a": {operator: value}}).tree, payload) is expected


@given(strategies.strings, strategies.strings)
def test_the_successor_bounds_all_strings_that_start_so(start, text):
    successor = find_successor(start)
    is_below = successor is None or text.encode() < successor.encode()
    assert (start.encode() <= text.encode() and is_below) is text.startswith(start)


# Filters that pass nothing -------------------------------------------------------------------------------

KINDS = {
    "year": ["number"],
    "title": ["string"],
    "tags": ["list of strings"],
    "size": [OTHER],
    "size.width": ["number"],
    "yeer": [],
    "TITLE": [],
    "width": [],
    "xyz": [],
}


@pytest.mark.parametrize(
    ("filter_", "expected"),
    [
        ({"year": 1999}, None),
        ({"year": {"gt": 3, "lt": 2}}, None),
        ({"yeer": 1999}, 'no item has a field "yeer"; did you mean "year"?'),
        ({"TITLE": "a"}, 'no item has a field "TITLE"; did you mean "title"?'),
        ({"width": 3}, 'no item has a field "width"; did you mean "size.width"?'),
        ({"xyz": 3}, 'no item has a field "xyz"'),
        ({"xyz": {"exists": True}}, 'no item has a field "xyz"'),
        ({"xyz": {"exists": False}}, None),
        ({"xyz": {"ne": 3}}, None),
        ({"size": {"exists": True}}, None),
        ({"title": 7}, 'no item has a number in the field "title", only strings; did you mean "7"?'),
        ({"year": "1999"}, 'no item has a string in the field "year", only numbers; did you mean 1999?'),
        ({"year": "x"}, 'no item has a string in the field "year", only numbers'),
        (
            {"year": {"gt": "1999"}},
            'no item has a string in the field "year", only numbers; did you mean 1999?',
        ),
        ({"year": {"in": ["1999", 1999]}}, None),
        ({"year": {"in": []}}, None),
        ({"year": {"prefix": "19"}}, 'no item has a string in the field "year", only numbers'),
        (
            {"tags": "red"},
            'no item has a string in the field "tags", only lists of strings; '
            'did you mean {"tags": {"contains": "red"}}?',
        ),
        (
            {"title": {"contains": "red"}},
            'no item has a list of strings in the field "title", only strings; '
            'did you mean {"title": "red"}?',
        ),
        ({"tags": {"any": ["red"]}}, None),
        ({"size": 3}, 'no item has a number in the field "size", only objects, empty or long lists'),
        ({"year": 1999, "xyz": 3}, 'no item has a field "xyz"'),
        ({"or": [{"year": 1999}, {"xyz": 3}]}, None),
        (
            {"or": [{"yeer": 1999}, {"xyz": 3}, {"xyz": 4}]},
            'no item has a field "yeer"; did you mean "year"?; no item has a field "xyz"',
        ),
        ({"or": []}, None),
        ({"not": {"xyz": 3}}, None),
    ],
    ids=str,
)
def test_why_nothing_can_pass(filter_, expected):
    names = [name for name, kinds in KINDS.items() if kinds and kinds != [OTHER]]
    assert explain_nothing(parse(filter_).tree, KINDS, names) == expected
