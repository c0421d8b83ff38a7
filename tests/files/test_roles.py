"""The choice of columns, errors where the choice is not clear, and the validation of vectors."""

from __future__ import annotations

import json
import re
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from posh.errors import FormatError
from posh.files import Roles, RowError, choose_roles, open_file, read_vectors, take_valid_vectors


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
        ({"v": [1, 2], "id": 1.0}, "'id', whose name is that of an id, got number"),
        ({"v": [1, 2], "id": {"$oid": "a"}, "doc_id": 3}, "'id', whose name is that of an id, got object"),
        ({"v": [1, 2], "_id": None}, "'_id', whose name is that of an id, got nothing"),
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
    with pytest.raises(ValueError, match=r"5 ids in 'id', one per vector, got 3: .* --number-rows"):
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
    np.testing.assert_array_equal(read_vectors(tmp_path / "a.csv"), read_vectors(tmp_path / "b.csv"))


# Vectors in many columns: one wrong value is an error that names it, never a vector without that column.

N, WIDTH, BAD = 40, 4, 31


@pytest.fixture
def written(tmp_path):
    """Write rows with id, x0 … x3 and other columns, after changes by row and column; return the file."""

    def written(suffix, changes, **others):
        rows = [
            {"id": i, **{f"x{j}": i + j / 2 for j in range(WIDTH)}}
            | {name: values[i % len(values)] for name, values in others.items()}
            for i in range(N)
        ]
        for (row, name), value in changes.items():
            rows[row][name] = value
        path = tmp_path / f"rows{suffix}"
        lines = [",".join(map(str, row.values())) for row in rows]
        if suffix == ".csv":
            path.write_text("\n".join([",".join(rows[0]), *lines]))
        else:
            path.write_text("\n".join(map(json.dumps, rows)))
        return path

    return written


@pytest.mark.parametrize("vector", [[], ["x*"]], ids=["guessed", "named"])
@pytest.mark.parametrize("row", [0, BAD])
@pytest.mark.parametrize("value", ["nan", "inf", "-Infinity", "NaN", "x", "N/A"])
def test_one_cell_of_csv(value, row, vector, written):
    file = open_file(written(".csv", {(row, "x2"): value}))
    with pytest.raises(
        RowError, match=rf"rows\.csv: row {row}: expected a number in the column 'x2', got '{value}': correct"
    ):
        choose_roles(file, vector)


def test_a_matrix_is_not_read_without_that_column(written):
    with pytest.raises(FormatError, match="row 31: expected a number in the column 'x2', got 'nan'"):
        read_vectors(written(".csv", {(BAD, "x2"): "nan"}))


def test_one_cell_of_two_columns(tmp_path):
    (tmp_path / "two.csv").write_text("\n".join(["x0,x1", *["1,2"] * 30, "1,x", *["1,2"] * 30]))
    with pytest.raises(RowError, match="row 30: expected a number in the column 'x1', got 'x'"):
        choose_roles(open_file(tmp_path / "two.csv"))


def test_a_whole_row_of_csv(written):
    changes = {(BAD, f"x{j}"): "nan" for j in range(WIDTH)}
    with pytest.raises(RowError, match="row 31: expected a number in the column 'x0', got 'nan'"):
        choose_roles(open_file(written(".csv", changes)))
    with pytest.raises(ValueError, match="can be the vector, got 2"):  # q1 and q2 are no better candidates
        choose_roles(open_file(written(".csv", changes, q1=[1], q2=[2])))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({(0, "x2"): "abc"}, "row 0: expected a number in the column 'x2', got 'abc'"),
        ({(i, "x2"): None for i in range(N)}, r"got 'x2' \(nothing\): correct"),
        ({(i, "x2"): True for i in range(N)}, r"got 'x2' \(boolean\): correct the file, or choose"),
    ],
)
def test_fields_of_json_lines(changes, message, written):
    with pytest.raises(ValueError, match=message):
        choose_roles(open_file(written(".jsonl", changes)))


def test_a_column_without_a_number(written):
    with pytest.raises(ValueError, match=r"columns of numbers for a vector, got 'x2' \(nothing\)"):
        choose_roles(open_file(written(".csv", {(i, "x2"): "" for i in range(N)})))


def test_a_column_of_text_in_parquet(tmp_path):
    pq.write_table(pa.table({"x0": [1.0], "x1": [2.0], "x2": ["3"]}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"columns of numbers for a vector, got 'x2' \(string\)"):
        choose_roles(open_file(tmp_path / "a.parquet"))


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
@pytest.mark.parametrize(
    "tags",
    [
        {"tag1": ["red", "blue"], "tag2": ["green"]},
        {"tag1": ["red"], "tag2": [7]},
        {"tag1": ["12", "14b", "16"], "tag2": ["7", "7a"]},
        {"tag1": ["nan"], "tag2": ["nan"]},
    ],
    ids=["text", "text and a number", "house numbers", "never known"],
)
def test_numbered_columns_of_text_are_payload(tags, suffix, written):
    file = open_file(written(suffix, {}, **tags))
    roles = choose_roles(file).roles
    assert roles.vector == ("x0", "x1", "x2", "x3")
    assert file.payload_names(roles) == ("tag1", "tag2")
    (batch,) = file.batches(roles, 1000)
    assert batch.payloads[0] == {name: values[0] for name, values in tags.items()}


@pytest.mark.parametrize("name", ["x2", "x9"])
def test_a_field_of_json_lines_that_comes_late(name, tmp_path):
    early = {"x0": 1, "x1": 2, "x3": 3}
    lines = [json.dumps(early)] * 120 + [json.dumps(early | {"title": "a", name: 4})]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    file = open_file(tmp_path / "a.jsonl")
    batches = file.batches(choose_roles(file).roles, 100)
    assert [len(next(batches).vectors) for _ in range(2)] == [100, 20]
    with pytest.raises(RowError, match=f"row 120: expected only numbered fields .* got '{name}'.*: add"):
        next(batches)
    lines[0] = json.dumps(early | {name: None})  # what the error advises
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    file = open_file(tmp_path / "a.jsonl")
    *_, last = file.batches(choose_roles(file, ["x0", "x1", "x3"]).roles, 100)
    assert last.payloads[-1] == {"title": "a", name: 4}


def test_other_fields_may_come_late(tmp_path):
    lines = ['{"x0": 1, "x1": 2}'] * 120 + ['{"x0": 1, "x1": 2, "tag1": "a", "x": 3}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    file = open_file(tmp_path / "a.jsonl")
    (batch,) = file.batches(choose_roles(file).roles, 1000)
    assert batch.payloads[-1] == {"tag1": "a", "x": 3}


# The first wrong row, and its problem.

GOOD = [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ([1.0], "expected a vector of 2 numbers, got 1"),
        ([1.0, 2.0, 3.0], "expected a vector of 2 numbers, got 3"),
        ([1.0, float("nan")], "expected finite numbers, got nan in place 1 of the vector"),
        ([1.0, None], "expected finite numbers, got nan in place 1 of the vector"),
        ([float("-inf"), 1], "expected finite numbers, got -inf in place 0 of the vector"),
        ([1.0, 1e39], "expected numbers that float32 can hold, got 1e+39 in place 1 of the vector"),
        (["a", "b"], "expected a list of numbers, got ['a', 'b']"),
        ([], "expected a list of numbers, got []"),
        (None, "expected a list of numbers, got None"),
        ("text", "expected a list of numbers, got 'text'"),
        ([[1, 2], [3, 4]], "expected a list of numbers, got [[1, 2], [3, 4]]"),
    ],
)
def test_lists(bad, problem):
    for width in (2, None):
        matrix, found = take_valid_vectors([*GOOD, bad, GOOD[0]], width)
        np.testing.assert_array_equal(matrix, np.float32(GOOD))
        assert found.startswith(problem)


@pytest.mark.parametrize("bad", ["", "abc"])
def test_a_text_in_a_long_vector_is_located(bad):
    vector = ["1.5"] * 50 + [bad] + ["2"] * 50
    assert f"float: '{bad}' in place 50 of the vector)" in take_valid_vectors([vector], 101)[1]


def test_arrays():
    array = np.ones((5, 3))
    assert take_valid_vectors(array, 3)[1] is None
    assert take_valid_vectors(array.astype(np.float32), None)[0].dtype == np.float32
    matrix, problem = take_valid_vectors(array, 4)
    assert len(matrix) == 0
    assert problem == "expected a vector of 4 numbers, got 3"
    array[3, 1] = np.nan
    matrix, problem = take_valid_vectors(array, 3)
    assert matrix.shape == (3, 3)
    assert problem == "expected finite numbers, got nan in place 1 of the vector"
    large = np.array([[1, 2], [3, 2**24 + 1]])
    assert "float32 can hold, got 16777217 in place 1" in take_valid_vectors(large, 2)[1]


def test_no_rows():
    assert take_valid_vectors([], 3)[1] is None
    assert take_valid_vectors(np.empty((0, 3)), 4) == (pytest.approx(np.empty((0, 3))), None)
