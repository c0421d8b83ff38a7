"""The language of filters: what passes, and what is no filter."""

from __future__ import annotations

import pytest
from hypothesis import given

from posh.collection.filters import (
    All,
    AnyOf,
    Contains,
    FilterLimits,
    Not,
    OneOf,
    Range,
    list_fields,
    parse,
    passes,
)
from tests.collection import strategies

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
        ({"a": {}}, "expected at least one of eq, in, gt, gte, lt, lte, contains in filter.a, got none"),
        ({"a": {"like": "b"}}, "expected one of eq, in, gt, gte, lt, lte, contains in filter.a, got 'like'"),
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
