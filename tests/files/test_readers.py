"""Every reader gives the same rows, in batches of any size."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest

import posh
from posh.errors import find_install_command
from posh.files import Roles, RowError, choose_roles, open_file, take_valid_vectors
from posh.files.contract import merge_payload
from tests.files.writing import FULL, IDS, ONLY_VECTORS, TITLES, VECTORS, WIDTH, YEARS, N

PAYLOADS = [{"title": title, "year": year} for title, year in zip(TITLES, YEARS, strict=True)]


def rows_of(file, roles, n):
    ids, vectors, payloads = [], [], []
    for batch in file.batches(roles, n):
        assert batch.first_row == len(payloads)
        assert len(batch.vectors) == len(batch.payloads) <= n
        matrix, problem = take_valid_vectors(batch.vectors, None)
        assert problem is None
        vectors.append(matrix)
        ids += range(batch.first_row, batch.first_row + len(matrix)) if batch.ids is None else batch.ids
        payloads += batch.payloads
    return ids, np.concatenate(vectors), payloads


@pytest.mark.parametrize("n", [1, 4, 1000])
@pytest.mark.parametrize("kind", FULL)
def test_rows(kind, n, tmp_path):
    name, write = FULL[kind]
    write(tmp_path / name)
    file = open_file(tmp_path / name)
    roles = choose_roles(file).roles
    assert file.n_rows(roles) == N
    ids, vectors, payloads = rows_of(file, roles, n)
    assert ids == IDS
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, VECTORS)
    assert payloads == PAYLOADS


@pytest.mark.parametrize("n", [4, 1000])
@pytest.mark.parametrize("kind", ONLY_VECTORS)
def test_rows_without_ids(kind, n, tmp_path):
    name, write = ONLY_VECTORS[kind]
    write(tmp_path / name)
    file = open_file(tmp_path / name)
    ids, vectors, payloads = rows_of(file, choose_roles(file).roles, n)
    assert ids == list(range(N))
    np.testing.assert_array_equal(vectors, VECTORS)
    assert payloads == [{}] * N


def read_all(path):
    file = open_file(path)
    for batch in file.batches(choose_roles(file).roles, 1000):
        assert take_valid_vectors(batch.vectors, WIDTH)[1] is None


@pytest.mark.parametrize("kind", [*FULL, *ONLY_VECTORS])
def test_a_file_that_is_cut_off_is_an_error(kind, tmp_path):
    name, write = (FULL | ONLY_VECTORS)[kind]
    write(tmp_path / name)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) - 25])
    with pytest.raises(posh.FormatError, match=f"{name}: "):
        read_all(tmp_path / name)


@pytest.mark.parametrize("kind", [*FULL, *ONLY_VECTORS])
def test_an_empty_file_is_an_error(kind, tmp_path):
    name, _ = (FULL | ONLY_VECTORS)[kind]
    (tmp_path / name).touch()
    with pytest.raises(posh.FormatError, match="got an empty one"):
        open_file(tmp_path / name)


@pytest.mark.parametrize("kind", ["Parquet", "Arrow", "Feather", "HDF5"])
def test_a_missing_extra_prints_the_pip_line(kind, tmp_path, monkeypatch):
    name, write = FULL[kind]
    write(tmp_path / name)
    for package in ("pyarrow", "pyarrow.parquet", "pyarrow.ipc", "h5py"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(posh.MissingExtraError, match=re.escape(find_install_command("data"))):
        open_file(tmp_path / name)


def test_other_suffixes_and_missing_files(tmp_path):
    with pytest.raises(ValueError, match=r"expected a suffix among \.npy .* got '\.txt'"):
        open_file(tmp_path / "rows.txt")
    with pytest.raises(FileNotFoundError, match="no such file"):
        open_file(tmp_path / "rows.npy")


def test_columns_and_their_types(tmp_path):
    FULL["Parquet"][1](tmp_path / "rows.parquet")
    columns = open_file(tmp_path / "rows.parquet").columns
    assert [(c.name, c.kind, c.n_rows) for c in columns] == [
        ("id", "text", N),
        ("vector", "vectors", N),
        ("title", "text", N),
        ("year", "integers", N),
    ]


def test_types_of_a_csv_are_those_of_all_its_rows(tmp_path):
    lines = [f"{i},00{i},{i},[1 {i}]," for i in range(150)]
    (tmp_path / "a.csv").write_text("\n".join(["n,code,mixed,v,empty", *lines, "7,8,x,[1 2],"]))
    file = open_file(tmp_path / "a.csv")
    assert [column.kind for column in file.columns] == ["integers", "text", "text", "vectors", "text"]
    (batch,) = file.batches(choose_roles(file).roles, 1000)
    assert batch.payloads[3] == {"n": 3, "code": "003", "mixed": "3"}


def test_json_lines_keep_fields_that_only_later_rows_have(tmp_path):
    lines = ['{"vector": [1, 2]}'] * 200 + ['{"vector": [1, 2], "late": null, "nested": {"a": [NaN]}}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    file = open_file(tmp_path / "a.jsonl")
    (batch,) = file.batches(choose_roles(file).roles, 1000)
    assert batch.payloads[0] == {}
    assert batch.payloads[-1] == {"late": None, "nested": {"a": [None]}}
    (batch,) = file.batches(Roles(("vector",), None, ("late",)), 1000)
    assert batch.payloads[-1] == {"late": None}


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("a.jsonl", ['{"id": 1, "vector": [1, 2]}'] * 120 + ["[1]"]),
        ("a.jsonl", ['{"id": 1, "vector": [1, 2]}'] * 120 + ['{"id": 2, "vec']),
        ("a.csv", ["id,x1,x2", *["1,2,3"] * 120, "1,2"]),
        ("a.csv", ["id,x1,x2", *["1,2,3"] * 120, '"1,2']),
    ],
)
def test_the_rows_before_a_broken_line_come_first(name, lines, tmp_path):
    (tmp_path / name).write_text("\n".join(lines))
    file = open_file(tmp_path / name)
    batches = file.batches(choose_roles(file).roles, 50)
    assert [len(next(batches).vectors) for _ in range(3)] == [50, 50, 20]
    with pytest.raises(RowError, match=f"{name}: row 120: expected"):
        next(batches)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (["a", None, "c"], [{"x": "a"}, {}, {"x": "c"}]),
        ([1.5, float("nan"), 2.0], [{"x": 1.5}, {}, {"x": 2.0}]),
        ([{"a": 1}, {"a": 2}, None], [{"x": {"a": 1}}, {"x": {"a": 2}}, {}]),
        ([["p", "q"], [], None], [{"x": ["p", "q"]}, {"x": []}, {}]),
    ],
)
def test_gaps_and_nested_values_in_parquet(column, expected, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet

    table = pa.table({"v": [[1.0, 2.0]] * 3, "x": column})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    file = open_file(tmp_path / "a.parquet")
    (batch,) = file.batches(choose_roles(file).roles, 1000)
    assert batch.payloads == expected


def test_dates_and_decimals_become_text_and_numbers(tmp_path):
    import datetime
    from decimal import Decimal

    import pyarrow as pa
    import pyarrow.parquet

    day, price = datetime.date(2024, 2, 29), Decimal("1.25")
    table = pa.table({"v": [[1.0, 2.0]], "day": [day], "price": [price], "raw": [b"\x00"]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    file = open_file(tmp_path / "a.parquet")
    (batch,) = file.batches(choose_roles(file).roles, 1000)
    assert batch.payloads == [{"day": "2024-02-29", "price": 1.25}]  # bytes are left out


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("D", "2024-02-29"),
        ("s", "2024-02-29T12:30:00"),
        ("us", "2024-02-29T12:30:00"),
        ("ns", "2024-02-29T12:30:00"),
    ],
)
def test_dates_in_npz_become_text(unit, expected, tmp_path):
    days = np.array(["2024-02-29T12:30", "NaT"], f"M8[{unit}]")
    np.savez(tmp_path / "a.npz", v=np.ones((2, 2)), day=days)
    file = open_file(tmp_path / "a.npz")
    (batch,) = file.batches(choose_roles(file).roles, 1000)
    assert batch.payloads == [{"day": expected}, {}]


def test_dates_in_npz_that_python_has_no_dates_for(tmp_path):
    days = {
        "ns": np.array(["2024-02-29T12:30:00.000000001"], "M8[ns]"),
        "far": np.array(["12024-02-29T12:30:00"], "M8[s]"),
    }
    np.savez(tmp_path / "a.npz", v=np.ones((1, 2)), **days)
    file = open_file(tmp_path / "a.npz")
    (batch,) = file.batches(choose_roles(file).roles, 1000)
    assert batch.payloads == [{"ns": "2024-02-29T12:30:00.000000001", "far": "12024-02-29T12:30:00"}]


@pytest.mark.parametrize("name", ["id", "title"])
def test_objects_in_npz_are_not_unpickled(name, tmp_path):
    np.savez(tmp_path / "a.npz", v=np.ones((2, 2)), **{name: np.array([1, "a"], object)})
    file = open_file(tmp_path / "a.npz")
    with pytest.raises(posh.FormatError, match=rf"text in '{name}', got Python objects, .* \.astype\(str\)"):
        list(file.batches(choose_roles(file).roles, 10))


def test_a_column_named_payload_is_the_payload():
    assert merge_payload({"payload": {"payload": {"a": 1}}}) == {"payload": {"a": 1}}
    assert merge_payload({"payload": '{"a": 1}'}) == {"a": 1}
    assert merge_payload({"payload": "{broken"}) == {"payload": "{broken"}
    deep = '{"a":' * 100_000
    assert merge_payload({"payload": deep}) == {"payload": deep}
    assert merge_payload({"payload": 7}) == {"payload": 7}


def test_an_unknown_column_is_answered_with_the_columns(tmp_path):
    np.save(tmp_path / "a.npy", VECTORS)
    file = open_file(tmp_path / "a.npy")
    message = r"a\.npy: expected a column of the file, got 'title'; it has 'vectors' \(float32\[4\]\)"
    with pytest.raises(ValueError, match=message):
        file.column("title")
    with pytest.raises(ValueError, match=message):
        list(file.batches(Roles(("title",), None, None), 10))
