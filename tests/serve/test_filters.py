"""Filters sent to a service mean what they meant."""

from __future__ import annotations

from hypothesis import given, settings

from posh.collection.filters import Limits, parse, passes
from posh.serve.filters import unparse
from tests.collection.strategies import filters, payloads
from tests.conftest import CASES


@settings(max_examples=2 * CASES)
@given(filters, payloads)
def test_the_same_payloads_pass(source, payload):
    tree = parse(source)
    assert passes(parse(unparse(tree)), payload) == passes(tree, payload)


def depth(source) -> int:
    if isinstance(source, dict):
        inner = [depth(value) for key, value in source.items() if key in ("not",)]
        inner += [depth(part) for key in ("and", "or") for part in source.get(key, [])]
        return 1 + max(inner, default=0)
    return 0


@settings(max_examples=2 * CASES)
@given(filters)
def test_it_is_not_nested_deeper(source):
    assert depth(unparse(parse(source))) <= depth(source)


def test_the_deepest_filter_can_be_sent():
    source = {"price": {"gte": 1, "lt": 2}, "label": 1}
    for _ in range(Limits().depth - 1):
        source = {"not": source}
    assert parse(unparse(parse(source)))


def test_conditions_that_contradict_each_other_stay_two():
    source = {"and": [{"a": 1}, {"a": 2}, {"not": {"b": 1}}, {"not": {"c": 1}}]}
    assert unparse(parse(source)) == {
        "a": {"in": [1]},
        "not": {"b": {"in": [1]}},
        "and": [{"not": {"c": {"in": [1]}}}, {"a": {"in": [2]}}],
    }
