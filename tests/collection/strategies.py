"""Payloads and filters at random: few names and values, so that they meet, and odd ones among them."""

from __future__ import annotations

from hypothesis import strategies as st

FIELDS = ["a", "b", "", "é\x00", "$.a", "a'; --", "a.b", ".a", "a..b"]

numbers = st.one_of(
    st.sampled_from([0, 1, -1, 0.0, -0.0, 1.0, 0.5, 2**53, 2**53 + 1, float(2**53), -(2**63), 2**63 - 1]),
    st.sampled_from([1e308, -1e308, 5e-324, float(2**63), float(2**63) - 1024]),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
)
strings = st.one_of(
    st.sampled_from(["", "a", "ab", "A", "1", "true", "a\x00", "\x00", "\u00e9", "e\u0301", "\uffff", "😀"]),
    st.text(st.characters(codec="utf-8"), max_size=3),
)
scalars = st.one_of(st.none(), st.booleans(), numbers, strings)
_keys = st.one_of(st.sampled_from(["a", "b", "", ".b"]), strings)
_lists = st.lists(st.one_of(scalars, st.lists(scalars, max_size=1)), max_size=3)
_objects = st.recursive(
    st.dictionaries(_keys, st.one_of(scalars, _lists), max_size=2),
    lambda inner: st.dictionaries(_keys, inner, max_size=2),
    max_leaves=3,
)
values = st.one_of(scalars, scalars, _lists, _objects)
payloads = st.dictionaries(st.sampled_from(FIELDS), values, max_size=4)

_field = st.sampled_from(FIELDS)
_bounds = st.dictionaries(
    st.sampled_from(["gt", "gte", "lt", "lte"]), st.one_of(numbers, strings), min_size=1, max_size=3
)
_conditions = st.one_of(
    st.builds(lambda field, value: {field: value}, _field, scalars),
    st.builds(lambda field, value: {field: {"eq": value}}, _field, scalars),
    st.builds(lambda field, several: {field: {"in": several}}, _field, st.lists(scalars, max_size=4)),
    st.builds(lambda field, bounds: {field: bounds}, _field, _bounds),
    st.builds(lambda field, value: {field: {"ne": value}}, _field, scalars),
    st.builds(lambda field, several: {field: {"nin": several}}, _field, st.lists(scalars, max_size=4)),
    st.builds(lambda field, value: {field: {"contains": value}}, _field, scalars),
    st.builds(lambda field, several: {field: {"any": several}}, _field, st.lists(scalars, max_size=4)),
    st.builds(lambda field, start: {field: {"prefix": start}}, _field, strings),
    st.builds(lambda field, is_there: {field: {"exists": is_there}}, _field, st.booleans()),
    st.just({}),
)
filters = st.recursive(
    _conditions,
    lambda inner: st.one_of(
        st.builds(lambda parts: {"and": parts}, st.lists(inner, max_size=3)),
        st.builds(lambda parts: {"or": parts}, st.lists(inner, max_size=3)),
        st.builds(lambda part: {"not": part}, inner),
        st.builds(lambda one, two: {**one, **two}, inner, inner),
    ),
    max_leaves=6,
)
