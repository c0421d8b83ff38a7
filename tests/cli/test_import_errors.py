"""Broken imports: one line with the file and the row, and the collection up to that row."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import posh
from posh.cli import main
from posh.collection import transfer
from tests.cli.running import fails_in_one_line, one_error

N = 500
BAD = 321
VECTORS = np.random.default_rng(0).normal(size=(N, 4)).astype(np.float32)


def rows():
    return [{"id": f"a{i}", "vector": VECTORS[i].tolist(), "n": i} for i in range(N)]


def write_jsonl(path, found):
    path.write_text("\n".join(map(json.dumps, found)))


def write_csv(path, found):
    def cells(row):
        vector = row.get("vector")
        return f"{row.get('id', '')},{'' if vector is None else ' '.join(map(str, vector))},{row['n']}"

    path.write_text("\n".join(["id,vector,n", *map(cells, found)]))


def write_parquet(path, found):
    import pyarrow as pa
    import pyarrow.parquet

    pyarrow.parquet.write_table(pa.Table.from_pylist(found), path, row_group_size=64)


WRITERS = {".jsonl": write_jsonl, ".csv": write_csv, ".parquet": write_parquet}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("POSH_DEBUG", raising=False)
    monkeypatch.setattr(transfer, "IMPORT_BATCH", 100)
    return tmp_path


@pytest.mark.parametrize("options", [[], ["--json"]])
@pytest.mark.parametrize(
    ("first", "message"),
    [
        ({"v": [1, float("nan")]}, "expected finite numbers, got nan in place 1 of the vector"),
        ({"v": None}, "expected a list of numbers, got None"),
        ({"id": None}, "expected an id, got nothing"),
        ({"n": float("inf")}, "finite, got inf"),
    ],
)
def test_a_dry_run_reports_a_wrong_first_row(first, message, options, here, capsys):
    row = {"id": 7, "v": [1, 2], "n": 3}
    write_jsonl(here / "rows.jsonl", [row | first, row | {"id": 8}])
    chosen = ["--vector", "v", "--id", "id", "--payload", "n"]
    assert main(["import", "rows.jsonl", "c", *chosen, "--dry-run", *options]) == 1
    error = one_error(capsys)
    assert "rows.jsonl: row 0: " in error
    assert message in error


@pytest.mark.parametrize("depth", [40, 900])
def test_a_payload_that_is_nested_too_deep(depth, here, capsys):
    lines = ['{"id": 1, "vector": [1, 2]}', f'{{"id": 2, "vector": [1, 2], "a": {"[" * depth}{"]" * depth}}}']
    (here / "rows.jsonl").write_text("\n".join(lines))
    assert main(["import", "rows.jsonl", "c", "--vector", "vector", "--id", "id", "--payload", "a"]) == 1
    assert "rows.jsonl: row 1: expected the payload nested at most 32 deep, got more" in one_error(capsys)


@pytest.mark.filterwarnings("always::UserWarning")
def test_a_warning_is_one_line_without_code(here, capsys):
    vectors = VECTORS * np.float32([1e-6, 1e-6, 1, 1e-6])
    np.save("rows.npy", vectors)
    assert main(["fit", "rows.npy", "-o", "model", "--n-bits", "16", "--n-active", "2"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("posh: warning: column 2 of the training vectors holds nearly all of the energy")


def test_an_import_that_stopped_keeps_its_metric(here, capsys):
    command = ["import", "rows.jsonl", "c", "--vector", "vector", "--id", "id", "--payload", "n"]
    found = rows()
    found[BAD]["vector"] = None
    write_jsonl(here / "rows.jsonl", found)
    posh.Collection("c", metadata={"title": "C"}).close()
    assert main([*command, "--metric", "euclidean"]) == 1
    write_jsonl(here / "rows.jsonl", rows())
    capsys.readouterr()
    fails_in_one_line(
        capsys,
        2,
        [*command, "--metric", "cosine"],
        "c: expected --metric euclidean, as this collection has, got cosine: leave it out",
    )
    assert main(command) == 0
    with posh.open("c", read_only=True) as collection:
        assert (len(collection), collection.index_options["metric"]) == (N, "euclidean")
        assert collection.metadata == {"title": "C"}
    assert main([*command, "--metric", "euclidean"]) == 0


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vector": [1.0, 2.0, 3.0]}, "expected a vector of 4 numbers, got 3"),
        ({"vector": [1.0, 2.0, 3.0, float("nan")]}, "expected finite numbers, got nan in place 3"),
        ({"vector": None}, "expected a list of numbers, got "),
        ({"id": None}, "expected an id, got nothing"),
        ({"id": "a5"}, "expected different ids, got 'a5' a second time"),
    ],
    ids=["width", "NaN", "no vector", "no id", "doubled id"],
)
def test_a_wrong_row(suffix, change, message, here, capsys):
    found = rows()
    found[BAD] |= change
    if found[BAD]["id"] is None:
        del found[BAD]["id"]
    path = here / f"rows{suffix}"
    WRITERS[suffix](path, found)
    assert main(["import", str(path), "c", "--vector", "vector", "--id", "id", "--payload", "n"]) == 1
    error = one_error(capsys)
    assert f"rows{suffix}: row {BAD}: {message}" in error
    assert error.endswith(f"; the {BAD} rows before it are in c\n")
    with posh.Collection("c") as collection:
        assert [item.id for item in collection.items()] == [f"a{i}" for i in range(BAD)]
    WRITERS[suffix](path, rows())  # repaired
    assert main(["import", str(path), "c"]) == 0
    assert f"c: {N - BAD} rows written" in capsys.readouterr().out
    with posh.Collection("c") as collection:
        assert [(item.id, item.payload) for item in collection.items()] == [
            (r["id"], {"n": r["n"]}) for r in rows()
        ]
        assert collection.search(VECTORS[400], 1).ids.item() == "a400"


def test_a_wrong_first_row_makes_no_collection(here, capsys):
    write_jsonl(here / "a.jsonl", [{"vector": [1.0, None], "id": 1}, *rows()])
    assert main(["import", "a.jsonl", "c", "--vector", "vector", "--payload", "n", "--id", "id"]) == 1
    assert one_error(capsys).endswith("; nothing was written\n")
    assert not (here / "c").exists()


@pytest.mark.parametrize(
    ("payload", "message"),
    [('{"a": 1e999}', "the payload.n.a"), ("[" * 40 + "]" * 40, "nested at most 32 deep")],
)
def test_a_payload_that_cannot_be_stored(payload, message, here, capsys):
    lines = [json.dumps(row) for row in rows()]
    lines[BAD] = f'{{"id": "x", "vector": [1, 2, 3, 4], "n": {payload}}}'
    (here / "a.jsonl").write_text("\n".join(lines))
    assert main(["import", "a.jsonl", "c", "--payload", "n", "--vector", "vector", "--id", "id"]) == 1
    error = one_error(capsys)
    assert f"row {BAD}: " in error
    assert message in error


@pytest.mark.parametrize("bad_id", [True, 1.5, [1], "x" * 600, 2**70])
def test_an_id_that_cannot_be_stored(bad_id, here, capsys):
    found = rows()
    found[BAD]["id"] = bad_id
    write_jsonl(here / "a.jsonl", found)
    assert main(["import", "a.jsonl", "c", "--payload", "n", "--vector", "vector", "--id", "id"]) == 1
    assert f"a.jsonl: row {BAD}: expected " in one_error(capsys)


@pytest.mark.parametrize("option", ["--vector", "--id", "--payload"])
def test_a_column_that_is_not_there(option, here, capsys):
    write_jsonl(here / "a.jsonl", rows())
    assert main(["import", "a.jsonl", "c", option, "nope"]) == 1
    assert f"a.jsonl: expected {option} to be a column of the file, got 'nope'; it has 'id'" in one_error(
        capsys
    )
    assert not (here / "c").exists()


def test_other_widths_than_the_collection_has(here, capsys):
    write_jsonl(here / "a.jsonl", rows())
    assert main(["import", "a.jsonl", "c"]) == 0
    np.save(here / "wide.npy", np.ones((3, 5)))
    capsys.readouterr()
    assert main(["import", "wide.npy", "c", "--vector", "vectors", "--number-rows", "--no-payload"]) == 1
    assert "wide.npy: row 0: expected a vector of 4 numbers, got 5" in one_error(capsys)


def test_one_id_in_two_files(here, capsys):
    write_jsonl(here / "a.jsonl", rows())
    write_jsonl(here / "b.jsonl", rows()[-1:])
    arguments = ["--payload", "n", "--vector", "vector", "--id", "id"]
    assert main(["import", "a.jsonl", "b.jsonl", "c", *arguments]) == 1
    assert "b.jsonl: row 0: expected different ids, got 'a499' a second time" in one_error(capsys)


def test_a_collection_in_use(here, capsys):
    write_jsonl(here / "a.jsonl", rows())
    with posh.Collection("c"):
        assert main(["import", "a.jsonl", "c", "--payload", "n", "--vector", "vector", "--id", "id"]) == 1
    assert "c: " in one_error(capsys)


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
@pytest.mark.parametrize("column", ["id", "n"])
def test_an_integer_of_more_than_64_bits(column, suffix, here, capsys):
    found = [row | {"id": i} for i, row in enumerate(rows())]
    found[BAD][column] = 2**70
    WRITERS[suffix](here / f"a{suffix}", found)
    assert main(["import", f"a{suffix}", "c", "--payload", "n", "--vector", "vector", "--id", "id"]) == 1
    assert f"a{suffix}: row {BAD}: expected " in (error := one_error(capsys))
    assert str(2**70) in error


# Bad rows that are skipped -------------------------------------------------------------------------------


@pytest.fixture
def bad_rows(tmp_path, monkeypatch):
    """A file of twelve rows of which six are bad, each in its own way."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("POSH_DEBUG", raising=False)
    rows = [{"id": i, "vector": [i + 1.0, 2.0], "n": i} for i in range(12)]
    rows[2]["vector"] = [1.0]
    rows[3]["vector"] = [1.0, "x"]
    rows[5]["id"] = None
    rows[7]["id"] = 6
    rows[8]["vector"] = [0.0, 0.0]
    lines = [json.dumps(row) for row in rows]
    lines[0], lines[9] = "[1, 2", "7"
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    return [0, 2, 3, 5, 7, 9]


def test_bad_rows_are_skipped_and_reported(bad_rows, capsys, monkeypatch):
    monkeypatch.setattr("posh.collection.transfer.IMPORT_BATCH", 4)
    assert main(["import", "a.jsonl", "c", "--skip-bad", "6", "--report", "bad.jsonl", "--json"]) == 0
    captured = capsys.readouterr()
    values = json.loads(captured.out)
    assert (values["n_written"], values["n_skipped"], values["n_zero"]) == (6, 6, 1)
    assert "posh: warning: 1 of 6 vectors are zero" in captured.err
    report = [json.loads(line) for line in Path("bad.jsonl").read_text().splitlines()]
    assert [row["row"] for row in report] == bad_rows
    assert report[0]["content"] == "[1, 2"
    assert report[1]["content"] == {"id": 2, "vector": [1.0], "payload": {"n": 2}}
    assert "expected a vector of 2 numbers, got 1" in report[1]["reason"]
    with posh.open("c") as collection:
        assert [item.id for item in collection.items()] == [1, 4, 6, 8, 10, 11]


def test_one_bad_row_too_many(bad_rows, capsys):
    assert main(["import", "a.jsonl", "c", "--skip-bad", "5"]) == 1
    assert "this is bad row 6, and --skip-bad allows 5" in capsys.readouterr().err
    assert main(["import", "a.jsonl", "c", "--skip-bad", "6", "--recall", "0.8"]) == 0
    with posh.open("c") as collection:
        assert len(collection) == 6
        assert collection.index_options["recall"] == 0.8


def test_numbers_of_rows_count_skipped_rows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("a.csv", "b.csv"):
        Path(name).write_bytes(b"x0,x1,t\n1,2,a\n1\nz,2,b\n3,\xff,c\n5,6,d\n")
    arguments = ["import", "a.csv", "b.csv", "c", "--skip-bad", "6", "--report", "bad.jsonl", "--json"]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["n_skipped"] == 6
    rows = [json.loads(line)["row"] for line in Path("bad.jsonl").read_text().splitlines()]
    assert sorted(rows) == [1, 1, 2, 2, 3, 3]
    with posh.open("c") as collection:
        assert [item.id for item in collection.items()] == [0, 4, 5, 9]


def test_options_of_a_new_index(bad_rows, capsys):
    base = ["import", "a.jsonl", "c", "--skip-bad", "9"]
    assert main([*base, "--recall", "0.9", "--store", "float16", "--metric", "dot"]) == 0
    capsys.readouterr()
    with posh.open("c") as collection:
        options = collection.index_options
    assert (options["metric"], options["recall"], options["store"]) == ("dot", 0.9, "float16")
    assert main([*base, "--recall", "0.95"]) == 2
    assert "change it with 'posh reindex c --recall 0.95'" in capsys.readouterr().err
    assert main(["import", "a.jsonl", "c", "--report", "r"]) == 2
    assert "--report is for --skip-bad" in capsys.readouterr().err
