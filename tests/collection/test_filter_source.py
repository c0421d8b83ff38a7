"""Parsed filters keep their source, which clients send to a service."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given, settings

from posh.collection.filters import parse
from tests.collection.strategies import filters
from tests.conftest import CASES


@settings(max_examples=2 * CASES)
@given(filters)
def test_a_parsed_filter_keeps_the_dictionary_it_was_made_from(source):
    parsed = parse(source)
    assert parsed.source == source
    assert repr(parse(json.loads(json.dumps(parsed.source))).tree) == repr(parsed.tree)


def test_it_keeps_a_copy_that_json_can_hold():
    source = {"label": {"in": (np.int64(3), np.float32(0.5))}, "not": {"sold": np.bool_(True)}}
    kept = parse(source).source
    source["label"]["in"] = []
    assert kept == {"label": {"in": [3, 0.5]}, "not": {"sold": True}}
    assert json.loads(json.dumps(kept)) == kept
