"""Vectors in many columns: one wrong value is an error that names it, never a vector without that column."""

from __future__ import annotations

import json

import pytest

from posh.errors import FormatError
from posh.vector_files import RowError, choose_roles, open_file
from posh.vector_files.formats import read_matrix

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
        read_matrix(written(".csv", {(BAD, "x2"): "nan"}), None)


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
    import pyarrow as pa
    import pyarrow.parquet

    pyarrow.parquet.write_table(pa.table({"x0": [1.0], "x1": [2.0], "x2": ["3"]}), tmp_path / "a.parquet")
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
    with pytest.raises(RowError, match=f"row 120: expected only numbered fields .* got '{name}'.*: give"):
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
