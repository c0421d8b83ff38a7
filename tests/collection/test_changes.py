"""Deleting by a filter and changing payloads, for every engine."""

from __future__ import annotations

import numpy as np
import pytest

from tests.collection.implementations import DATA, SPARSE
from tests.collection.reference import ReferenceCollection
from tests.collection.test_operations import same_hits, same_item


@pytest.fixture
def both(make):
    """A collection, and the plain one with the same items."""
    both = make(SPARSE), ReferenceCollection(SPARSE)
    payloads = [{"n": i, "tags": ["even"] * (i % 2 == 0), "size": {"width": i % 5}} for i in range(100)]
    for one in both:
        one.upsert(list(range(100)), DATA[:100], payloads)
    return both


def same(both, *filters) -> None:
    collection, plain = both
    for found, expected in zip(collection.items(), plain.items(), strict=True):
        same_item(found, expected)
    for filter_ in (None, *filters):
        assert collection.count(filter_) == plain.count(filter_)
        same_hits(*(one.search(DATA[:9], 12, filter=filter_) for one in both))


@pytest.mark.parametrize(
    ("filter_", "expected"),
    [
        ({"tags": {"contains": "even"}}, 50),
        ({"size.width": {"in": [1, 3]}}, 40),
        ({"n": {"gte": 30}, "not": {"size.width": 4}}, 56),
        ({"n": "30"}, 0),
        ({}, 100),
    ],
    ids=str,
)
def test_deleting_by_a_filter(both, filter_, expected):
    assert [one.count(filter_) for one in both] == [expected] * 2
    assert [one.delete(filter=filter_) for one in both] == [expected] * 2
    same(both, filter_, {"tags": {"contains": "even"}})
    for one in both:
        one.upsert([7, "new"], DATA[7:9], [{"n": 70}, {"tags": ["even"]}])
    same(both, filter_, {"tags": {"contains": "even"}})


def test_the_first_of_those_that_pass_are_deleted(both):
    for one in both:
        one.upsert([0], DATA[:1], [{"tags": ["even"]}])  # is the last one now
        assert one.delete(filter={"tags": {"contains": "even"}}, limit=20) == 20
        assert 0 in one
        assert one.delete(filter={"tags": {"contains": "even"}}, limit=20) == 20
        assert one.delete(filter={"tags": {"contains": "even"}}, limit=20) == 10
    same(both)


def test_payloads_are_merged_or_replaced(both):
    for one in both:
        assert one.update_payload([3, 5], [{"n": -1, "new": None}, {}]) is one
        assert one.get([3])[0].payload == {"n": -1, "tags": [], "size": {"width": 3}, "new": None}
        one.update_payload([8], [{"size": {"height": 1}}])  # objects in a payload are not merged
        assert one.get([8])[0].payload["size"] == {"height": 1}
        one.update_payload([4], [{"tags": ["odd"]}], replace=True)
        assert one.get([4])[0].payload == {"tags": ["odd"]}
        assert one.update_payload([], []) is one
    same(both, {"n": {"lt": 0}}, {"new": None}, {"tags": {"contains": "odd"}}, {"size.height": 1}, {"n": 4})
    np.testing.assert_array_equal(both[0].get([4])[0].vector, DATA[4])
    assert [item.id for item in both[0].items()][-4:] == [3, 5, 8, 4]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda c: c.update_payload([1, "x"], [{}, {}]), KeyError, "expected ids of stored items, got 'x'"),
        (lambda c: c.update_payload([1, 1], [{}, {}]), ValueError, "expected distinct ids"),
        (lambda c: c.update_payload([1], [{}, {}]), ValueError, r"as many payloads as ids \(1\), got 2"),
        (lambda c: c.update_payload([1], [{"a": {1}}]), ValueError, "only types of JSON"),
        (lambda c: c.delete(), ValueError, "expected either ids or a filter of items to delete"),
        (lambda c: c.delete([1], filter={}), ValueError, "expected either ids or a filter of items"),
        (lambda c: c.delete([1], limit=3), ValueError, "limit=3 is for a filter"),
        (lambda c: c.delete(filter={"a": []}), ValueError, "expected filter.a to be a string"),
        (lambda c: c.delete(filter={}, limit=0), ValueError, "expected limit at least 1, got 0"),
    ],
)
def test_wrong_changes_change_nothing(both, call, error, message):
    with pytest.raises(error, match=message):
        call(both[0])
    same(both)
