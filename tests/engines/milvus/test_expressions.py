"""Filters as expressions of Milvus."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from posh.collection.filters import parse, passes
from posh.engines.milvus import MilvusCollection
from posh.engines.milvus.search import NOTHING, build_expression
from posh.engines.milvus.table import build_key_filter, decode_key, encode_key
from tests.collection import strategies
from tests.conftest import CASES
from tests.engines.milvus import engine

HOSTILE = ['"', "\\", '\\"', '" or id != "', "' or 1 == 1 --", '"]', "%", "{v}", "}{", "O'Brien", '"; drop x']


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({}, ""),
        ({"a": 3}, 'payload["a"] == 3'),
        ({"a": 3.0}, 'payload["a"] == 3'),
        ({"a": -0.5}, 'payload["a"] == -0.5'),
        ({"a": True}, 'payload["a"] == true'),
        ({"a": "x"}, 'payload["a"] == "x"'),
        ({"a": {"in": ["x", 1]}}, 'payload["a"] == "x" or payload["a"] == 1'),
        ({"a": {"in": []}}, NOTHING),
        ({"a": {"contains": "x"}}, 'json_contains(payload["a"], "x")'),
        ({"a": {"any": ["x"]}}, 'payload["a"] == "x" or json_contains(payload["a"], "x")'),
        ({"a": {"prefix": "x"}}, '(payload["a"] >= "x") and (payload["a"] < "y")'),
        ({"a": {"prefix": ""}}, 'payload["a"] >= ""'),
        ({"a": {"ne": 1}}, ""),
        ({"a": {"nin": [1]}}, ""),
        ({"a": {"exists": True}}, ""),
        ({"a": {"gte": 1, "lt": 2}}, '(payload["a"] >= 1) and (payload["a"] < 2)'),
        ({"or": [{"a": 1}, {"b": 2}]}, 'payload["a"] == 1 or payload["b"] == 2'),
        ({"or": []}, NOTHING),
        ({"a.b": 1}, 'payload["a.b"] == 1 or payload["a"]["b"] == 1'),
        # What Milvus may understand in another way selects everything.
        ({"not": {"a": 1}}, ""),
        ({"a": None}, ""),
        ({"a": {"in": [1, None]}}, ""),
        ({"or": [{"a": 1}, {"b": None}]}, ""),
        ({"a": 2**53 + 1}, ""),
        ({"a": 1e308}, ""),
        ({"a": 5e-324}, ""),
        ({"a": "x\x00"}, ""),
        ({'a"': 1}, ""),
        ({"": 1}, ""),
        ({".a": 1}, ""),
        ({"a": {"in": list(range(500))}}, ""),
        # … but not what stands beside it.
        ({"a": 1, "b": None}, 'payload["a"] == 1'),
    ],
    ids=str,
)
def test_translations(source, expected):
    assert build_expression(parse(source).tree) == expected


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_strings_stay_inside_their_literals(text):
    expression = build_expression(parse({"a": text}).tree)
    literal = expression.removeprefix('payload["a"] == ')
    assert literal[0] == literal[-1] == '"'
    inside, i = literal[1:-1], 0
    while i < len(inside):  # no quote ends the literal before its end
        assert inside[i] != '"'
        i += 2 if inside[i] == "\\" else 1
    assert i == len(inside)
    assert inside.replace('\\"', '"').replace("\\\\", "\\") == text
    assert build_expression(parse({f"a{text}": 1}).tree) == "" or text == "%"


@pytest.mark.parametrize("item_id", [0, -5, 2**63 - 1, "5", "é\x00", "😀" * 512, *HOSTILE])
def test_keys_are_plain_and_lead_back(item_id):
    key = encode_key(item_id)
    assert decode_key(key) == item_id
    assert type(decode_key(key)) is type(item_id)
    assert key.isascii()
    assert not set(key[2:]) & set("\"'\\ {}")
    assert build_key_filter([key]) == f'id in ["{key}"]'
    assert len(key) <= 8192


class TestMilvus:
    """Milvus selects all that pass."""

    pytestmark = engine.needs_milvus

    @pytest.fixture(params=["file", "server"])
    def empty(self, request):
        with MilvusCollection(getattr(engine, request.param)(), "filters") as collection:
            collection.delete(filter={})
            yield collection

    def test_hostile_values_are_found_and_nothing_else(self, empty):
        empty.upsert(HOSTILE, np.zeros((len(HOSTILE), 3)), [{"a": text, text: 1} for text in HOSTILE])
        for text in HOSTILE:
            assert [item.id for item in empty.items({"a": text})] == [text]
            assert [item.id for item in empty.items({text: 1})] == [text]
            assert empty.delete([text]) == 1
            assert empty.get([text]) == [None]
        assert len(empty) == 0

    @given(strategies.payloads, strategies.filters)
    @settings(max_examples=CASES // 2, deadline=None, derandomize=True)
    def test_what_passes_is_selected(self, payload, source):
        with MilvusCollection(engine.file(), "any_filter") as collection:
            collection.upsert([1, 2], np.zeros((2, 3)), [payload, {}])
            expected = [i for i, own in ((1, payload), (2, {})) if passes(parse(source).tree, own)]
            assert [item.id for item in collection.items(source)] == expected
