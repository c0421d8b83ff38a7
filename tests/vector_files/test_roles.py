"""Which columns are chosen, and what is said if that is not clear."""

from __future__ import annotations

import json
import re
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from posh.vector_files import Roles, choose_roles, open_file
from posh.vector_files.formats import read_matrix


@pytest.fixture
def opened(tmp_path):
    def opened(*rows):
        (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
        return open_file(tmp_path / "a.jsonl")

    return opened


@pytest.mark.parametrize(
    ("row", "roles"),
    [
        ({"vector": [1, 2]}, Roles(("vector",), None, None)),
        ({"e": [1, 2], "id": 1, "parent_id": 2}, Roles(("e",), "id", None)),
        ({"e": [1, 2], "doc_id": "a", "idle": "b"}, Roles(("e",), "doc_id", None)),
        ({"x1": 1, "x2": 2.5, "year": 3}, Roles(("x1", "x2"), None, None)),
        ({"0": 1, "1": 2, "uuid": "a"}, Roles(("0", "1"), "uuid", None)),
    ],
)
def test_the_only_candidates(row, roles, opened):
    assert choose_roles(opened(row)).roles == roles


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"a": [1, 2], "b": [1, 2]},
            r"expected one column that can be the vector, got 2: choose with --vector",
        ),
        ({"a": "text", "n": 3}, r"got 0: choose with --vector among 'a' \(text\), 'n' \(integer\)"),
        ({"v": [1, 2], "a_id": 1, "b_id": 2}, r"can be the id, got 'a_id', 'b_id': choose with --id"),
    ],
)
def test_no_guess_without_an_only_candidate(row, message, opened):
    with pytest.raises(ValueError, match=message):
        choose_roles(opened(row))


def test_what_the_user_says(opened):
    file = opened({"a": [1, 2], "b": [1, 2], "a_id": 1, "b_id": 2, "x": 1, "xy": 2, "z": 3})
    assert choose_roles(file, ["b"], "b_id", ["x*"]).roles == Roles(("b",), "b_id", ("x", "xy"))
    assert choose_roles(file, ["x", "z"], "b_id", []).roles == Roles(("x", "z"), "b_id", ())
    chosen = choose_roles(file, ["a"], number_rows=True)
    assert chosen.roles == Roles(("a",), None, None)
    assert chosen.guesses == [
        "payload: 'a_id', 'b_id', 'x', 'xy', 'z'",
        "left out: 'b' (number[2]); --payload keeps a column",
    ]
    (batch,) = file.batches(chosen.roles, 10)
    assert batch.payloads == [{"a_id": 1, "b_id": 2, "x": 1, "xy": 2, "z": 3}]
    (batch,) = file.batches(choose_roles(file, ["a"], payload=["b"], number_rows=True).roles, 10)
    assert batch.payloads == [{"b": [1, 2]}]
    for arguments in (["no"], ["no*"]), (["a"], "no"), (["a"], "a_id", ["no"]):
        with pytest.raises(ValueError, match=r"to be a column of the file, got 'no\*?'; it has 'a'"):
            choose_roles(file, *arguments)
    with pytest.raises(ValueError, match="expected columns of numbers for a vector, got 'a'"):
        choose_roles(file, ["a", "x"])


def test_guesses_are_told(opened):
    assert choose_roles(opened({"e": [1, 2], "id": 1, "title": "a"})).guesses == [
        "vector: 'e', the only candidate",
        "id: 'id'",
        "payload: 'title'",
    ]


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ({"v": [1, 2], "id": 1.0}, "'id', which is called like an id, got number"),
        ({"v": [1, 2], "id": {"$oid": "a"}, "doc_id": 3}, "'id', which is called like an id, got object"),
        ({"v": [1, 2], "_id": None}, "'_id', which is called like an id, got nothing"),
    ],
)
def test_ids_that_cannot_be_ids_are_not_replaced(row, found, opened):
    message = f"integers or text in {re.escape(found)}: convert them, choose .* --id, .* --number-rows"
    with pytest.raises(ValueError, match=message):
        choose_roles(opened(row))
    assert choose_roles(opened(row), number_rows=True).roles.id is None


def test_a_field_that_may_have_values_later_is_said_to_be_looked_at_in_part(opened):
    rows = [{"v": [1, 2], "id": None}] * 100
    for n_more, found in ((0, "got nothing: convert"), (1, "got nothing in the first 100 rows: convert")):
        with pytest.raises(ValueError, match=found):
            choose_roles(opened(*rows, *rows[:n_more]))


def test_a_column_that_cannot_be_the_id_beside_one_that_can(opened):
    assert choose_roles(opened({"v": [1, 2], "doc_id": 1, "parent_id": 1.5})).roles.id == "doc_id"


def test_fewer_ids_than_vectors(tmp_path):
    np.savez(tmp_path / "a.npz", id=range(3), vector=np.ones((5, 2)))
    with pytest.raises(ValueError, match=r"5 ids in 'id', as many as vectors, got 3: .* --number-rows"):
        choose_roles(open_file(tmp_path / "a.npz"))


def test_ids_of_sixteen_bytes(tmp_path):
    """UUIDs are ids; other bytes, which may be anything, are no ids."""
    ids = [uuid.UUID(int=i) for i in range(3)]
    raw = [item_id.bytes for item_id in ids]
    table = {"v": [[1.0, 2.0]] * 3}
    pq.write_table(pa.table({"id": pa.array(raw, pa.uuid()), **table}), tmp_path / "a.parquet")
    file = open_file(tmp_path / "a.parquet")
    (batch,) = file.batches(choose_roles(file).roles, 10)
    assert batch.ids == ids
    pq.write_table(pa.table({"id": pa.array(raw, pa.binary(16)), **table}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"text in 'id', .* got fixed_size_binary\[16\]: convert"):
        choose_roles(open_file(tmp_path / "a.parquet"))


def test_arrays_of_other_lengths(tmp_path):
    np.savez(tmp_path / "a.npz", train=np.ones((5, 2)), test=np.ones((3, 2)), label=range(5), other=range(3))
    file = open_file(tmp_path / "a.npz")
    roles = choose_roles(file).roles
    assert roles.vector == ("train",)
    assert file.payload_names(roles) == ("label",)
    with pytest.raises(ValueError, match="expected 5 rows in 'other' as in 'train', got 3"):
        choose_roles(file, item_id="other")


ORDER = ["x10", "x9", "y1", "x2", "x1", "b", "a", "x0"]


@pytest.mark.parametrize(
    ("vector", "chosen"),
    [
        ([], ("x0", "x1", "x2", "x9", "x10")),
        (["x*"], ("x0", "x1", "x2", "x9", "x10")),
        (["x2", "x9", "x1"], ("x2", "x9", "x1")),
        (["b", "x*", "a"], ("b", "x0", "x1", "x2", "x9", "x10", "a")),
        (["x9", "x*", "x9"], ("x9", "x0", "x1", "x2", "x10")),
        (["[ab]"], ("b", "a")),
        (["[axy]*"], ("x0", "x1", "x2", "x9", "x10", "y1", "a")),
    ],
    ids=str,
)
def test_the_order_of_columns(vector, chosen, opened):
    file = opened({name: i for i, name in enumerate(ORDER)})
    roles = choose_roles(file, vector).roles
    assert roles.vector == chosen
    (batch,) = file.batches(roles, 10)
    assert batch.vectors == [[ORDER.index(name) for name in chosen]]


def test_the_order_of_columns_in_a_file_changes_no_vector(tmp_path):
    names = [f"x{j}" for j in range(12)]
    for path, order in ((tmp_path / "a.csv", names), (tmp_path / "b.csv", sorted(names))):
        path.write_text(
            "\n".join([",".join(order), *[",".join(f"{i}.{name[1:]}" for name in order) for i in (1, 2)]])
        )
    np.testing.assert_array_equal(
        read_matrix(tmp_path / "a.csv", None), read_matrix(tmp_path / "b.csv", None)
    )
