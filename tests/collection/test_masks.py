"""Filters in SQL and as masks over slots: the same as ``filters.passes`` says, payload by payload."""

from __future__ import annotations

import sqlite3
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posh.collection import database, masks, tables
from posh.collection.filters import Filter, OneOf, Range, iterate_conditions, list_fields, parse, passes
from posh.collection.masks import make_columns
from posh.collection.snapshot import SlotTable
from posh.collection.tables import DamageError
from tests.collection import strategies
from tests.conftest import CASES


def empty_database() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    for statement in database.TABLES:
        connection.execute(statement)
    return connection


def written(connection: sqlite3.Connection, table: SlotTable, payloads: list[dict]) -> SlotTable:
    seqs = table.last_seq + 1 + 2 * np.arange(len(payloads))  # gaps, as replaced items leave them
    ids = [int(seq) for seq in seqs]
    tables.insert_items(connection, seqs, ids, payloads, np.zeros((len(ids), 1), np.float32))
    return table.with_items(seqs, np.array(ids, object))


@pytest.mark.parametrize("few", [0, 1000])
@settings(max_examples=6 * CASES)
@given(
    first=st.lists(strategies.payloads, max_size=5),
    later=st.lists(strategies.payloads, min_size=1, max_size=5),
    filters=st.lists(strategies.filters, min_size=1, max_size=4),
)
def test_masks_mean_what_filters_mean(few, first, later, filters):
    """Also of items that come after a mask was remembered, with and without reading their payloads."""
    connection, known = empty_database(), masks.Masks()
    table, payloads = SlotTable.empty(), []
    with mock.patch.object(masks, "FEW", few):
        for more in (first, later):
            table, payloads = written(connection, table, more), payloads + more
            for source in filters:
                tree = parse(source).tree
                mask = known.make_mask(tree, known.recall(tree), table, connection)
                assert mask.tolist() == [passes(tree, payload) for payload in payloads]
                again = masks.combine_masks(tree, known.recall(tree), table)
                assert again.tolist() == mask.tolist()
    connection.close()


@settings(max_examples=3 * CASES)
@given(payload=strategies.payloads, field=st.sampled_from(strategies.FIELDS), value=strategies.scalars)
def test_conditions_select_by_value_and_seq(payload, field, value):
    connection = empty_database()
    written(connection, SlotTable.empty(), [payload] * 3)
    leaves = [OneOf(field, (value,)), OneOf(field, ("x", value, 17)), OneOf(field, ())]
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        leaves += [Range(field, operator, value) for operator in ("gt", "gte", "lt", "lte")]
    for leaf in leaves:
        found = [
            int(seq)
            for column in make_columns([leaf])
            for _, statement, values in column.iterate_statements(1)
            for seq in (connection.execute(statement, values).fetchone()[0] or "").split(",")
            if seq
        ]
        assert sorted(found) == ([3, 5] if passes(leaf, payload) else [])
    connection.close()


@given(strategies.payloads)
def test_removing_an_item_leaves_no_row(payload):
    connection = empty_database()
    written(connection, SlotTable.empty(), [payload, payload])
    tables.delete_items(connection, [1], [])
    left = connection.execute("SELECT name, type, value FROM fields WHERE seq = 3").fetchall()
    assert len(left) == len(list_fields(payload))
    assert connection.execute("SELECT count(*) FROM fields WHERE seq <> 3").fetchone() == (0,)
    assert connection.execute("SELECT id FROM items").fetchall() == [(3,)]
    connection.close()


def test_one_is_not_true_for_the_memory_either():
    connection, known = empty_database(), masks.Masks()
    table = written(connection, SlotTable.empty(), [{"a": 1}, {"a": True}, {"a": 1.0}])
    for value, expected in [
        (1, [True, False, True]),
        (True, [False, True, False]),
        (1.0, [True, False, True]),
    ]:
        tree = parse({"a": value}).tree
        assert known.make_mask(tree, known.recall(tree), table, connection).tolist() == expected
    connection.close()


def test_other_slots_are_not_mistaken_for_these():
    connection, known = empty_database(), masks.Masks()
    table = written(connection, SlotTable.empty(), [{"a": 1}, {"a": 2}, {"a": 1}])
    tree = parse({"a": 1}).tree
    known.make_mask(tree, known.recall(tree), table, connection)
    tables.delete_items(connection, [1], [])
    compacted = table.without(np.array([0])).compact()
    assert masks.combine_masks(tree, known.recall(tree), compacted) is None
    assert known.make_mask(tree, known.recall(tree), compacted, connection).tolist() == [False, True]
    connection.close()


def test_memory_is_bounded_and_drops_what_was_not_used():
    connection, known = empty_database(), masks.Masks()
    table = written(connection, SlotTable.empty(), [{"a": i} for i in range(100)])
    trees = [parse({"a": i}).tree for i in range(10)]
    size = 100 + masks._ENTRY + len(repr(next(iterate_conditions(trees[0]))))
    with mock.patch.object(masks, "MAX_BYTES", 5 * size):
        for tree in trees:
            known.recall(trees[0])  # in use all the time
            known.make_mask(tree, known.recall(tree), table, connection)
    kept = [tree for tree in trees if known.recall(tree)]
    assert kept == [trees[0], *trees[6:]]
    connection.close()


def test_keys_count_and_long_ones_are_not_kept():
    """60 counts with a string of 20 MB kept 1.2 GB; masks of few items have next to no size, but add up."""
    connection, known = empty_database(), masks.Masks()
    table = written(connection, SlotTable.empty(), [{"a": "x" * 100_000}])
    tree = parse({"a": "x" * 100_000}).tree
    assert known.make_mask(tree, {}, table, connection).tolist() == [True]
    assert known.recall(tree)  # by a digest
    assert sum(map(len, known._known)) < 1000
    with mock.patch.object(masks, "MAX_BYTES", 50 * masks._ENTRY):
        for i in range(200):
            known.make_mask(parse({"a": i}).tree, {}, table, connection)
        assert len(known._known) < 50
    connection.close()


def test_a_mask_that_is_too_large_is_not_remembered():
    connection, known = empty_database(), masks.Masks()
    table = written(connection, SlotTable.empty(), [{"a": 1}] * 10)
    with mock.patch.object(masks, "MAX_BYTES", 5):
        assert known.make_mask(parse({"a": 1}).tree, {}, table, connection).all()
    assert not known._known
    assert known._bytes == 0
    connection.close()


def work(connection: sqlite3.Connection, tree: Filter, table: SlotTable) -> int:
    """Thousands of steps of SQLite's machine to find a mask."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection.set_progress_handler(count, 1000)
    masks.Masks().make_mask(tree, {}, table, connection)
    connection.set_progress_handler(None, 0)
    return steps


@pytest.mark.parametrize("operator", ["gt", "in"])
def test_many_conditions_on_a_field_are_hardly_more_work_than_one(operator):
    """1,000 ranges took 59 s: each went through all rows again."""
    connection = empty_database()
    table = written(connection, SlotTable.empty(), [{"a": i % 3, "b": i} for i in range(5000)])

    def condition(i: int) -> dict:
        return {"b": {"gt": i}} if operator == "gt" else {"a": {"in": [0, 1, 2, 10 + i]}}

    one = work(connection, parse(condition(0)).tree, table)
    many = work(connection, parse({"or": [condition(i) for i in range(100)]}).tree, table)
    assert 0 < many < 3 * one
    connection.close()


def test_rows_of_items_that_are_not_there_are_noticed():
    connection = empty_database()
    table = written(connection, SlotTable.empty(), [{"a": 1}])
    connection.execute("INSERT INTO fields VALUES ('a', 2, 1, 99)")
    with pytest.raises(DamageError, match="rows of items that do not exist"):
        masks.Masks().make_mask(parse({"a": 1}).tree, {}, table, connection)
    connection.close()
