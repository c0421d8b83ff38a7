"""CSV: large integers stay what they are, and a line of values is not taken for a line of names."""

from __future__ import annotations

import pytest

import posh
from posh.files import choose_roles, open_file, read_vectors

LARGE = [1212092628029698049, 2**63 - 1, -(2**63), 3]


def test_large_integers_are_exact(tmp_path):
    lines = [f"{n},1,2,{n},{n}" for n in LARGE]
    (tmp_path / "a.csv").write_text("\n".join(["id,x0,x1,large,mixed", *lines, "7,1,2,,0.5"]))
    file = open_file(tmp_path / "a.csv")
    assert [column.kind for column in file.columns] == ["integers"] * 4 + ["numbers"]
    choice = choose_roles(file)
    assert choice.roles.id == "id"
    (batch,) = file.batches(choice.roles, 100)
    assert batch.ids == [*LARGE, 7]
    assert [payload.get("large") for payload in batch.payloads] == [*LARGE, None]
    assert all(type(payload["large"]) is int for payload in batch.payloads[:-1])
    assert [payload["mixed"] for payload in batch.payloads] == [*LARGE, 0.5]


@pytest.mark.parametrize(
    "line",
    [
        "0.1257,0.6404,-0.1321",
        "7,0.5,1e-3",
        "1,2,3",
        "0,1,3",
        "0,0,1",
        "5;0.5;1",
        "nan,1.5,2.5",
        "+1\t.5\t2.",
        "0.5 1.5 2.5",
        'a,"[1, 2, 3]"',
    ],
)
def test_a_first_line_of_values_is_refused(line, tmp_path):
    (tmp_path / "a.csv").write_text(f"{line}\n{line}\n")
    with pytest.raises(
        posh.FormatError, match=r"a\.csv: expected a first line with the names .* got .*: add a line of names"
    ):
        open_file(tmp_path / "a.csv")


@pytest.mark.parametrize("line", ["0,1,2", "id,0,1", ",0,1", "a,1.5,2.5", "x0,x1,x2", "2020,2021,total"])
def test_a_first_line_of_names(line, tmp_path):
    (tmp_path / "a.csv").write_text(f"{line}\n4,5,6\n7,8,9\n")
    assert [column.name for column in open_file(tmp_path / "a.csv").columns] == line.split(",")


def test_names_as_pandas_makes_them(tmp_path):
    (tmp_path / "a.csv").write_text("0,1,2\n4,5,6\n")
    assert read_vectors(tmp_path / "a.csv").tolist() == [[4.0, 5.0, 6.0]]


def test_values_in_the_place_of_names_are_no_family(tmp_path):
    (tmp_path / "a.csv").write_text("first,0.1257,0.6404,-0.1321\nsecond,0.5,0.2,0.3\n")
    with pytest.raises(ValueError, match="can be the vector, got 0: choose with --vector among 'first'"):
        choose_roles(open_file(tmp_path / "a.csv"))
