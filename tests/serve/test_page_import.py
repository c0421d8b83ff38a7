"""Importing files from the page."""

from __future__ import annotations

import json

import numpy as np
import pytest

from posh.files import choose_roles, open_file
from posh.serve.capacity import Limits
from posh.serve.sources import Folder
from tests.serve.browser import Page, opened, require_browser
from tests.serve.pages import book
from tests.serve.service import running

VECTORS = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
ROWS = [{"id": f"b{i}", "vector": VECTORS[i].tolist(), **book(i)} for i in range(30)]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A service with a token, that takes few items at once."""
    require_browser()
    folder = Folder(tmp_path_factory.mktemp("served"))
    with running(folder, token="secret", limits=Limits(items=7)) as address:
        yield address


@pytest.fixture(scope="module")
def driver(driver, address):
    """The browser has got the token from its user."""
    driver.get(address)
    page = Page(driver)
    page.wait(lambda: page.one("#ask-token").is_displayed())
    page.one("#token").send_keys("secret\n")
    page.wait(lambda: page.all("#welcome button"))
    assert "There are no collections yet. Import a file" in page.text("#welcome")
    assert not page.one("#search").is_displayed()
    page.one("#welcome button").click()
    page.wait(lambda: page.one("#import").is_displayed())
    page.one("#import-close").click()
    driver.get_log("browser")  # the 401 that led to the question is logged by the browser itself
    return driver


@pytest.fixture
def page(driver, address):
    def is_ready(page):
        return page.all("#welcome .card") or page.all("#welcome button.primary")

    with opened(driver, address, is_ready) as page:
        page.one("#open-import").click()
        yield page


def choose_file(page, path):
    page.one("#import-file").send_keys(str(path))
    page.wait(
        lambda: page.one("#import-columns").is_displayed() or page.one("#import-problem").is_displayed()
    )


def start(page):
    page.one("#import-start").click()


def imported(page, name):
    start(page)
    page.wait(lambda: not page.one("#import").is_displayed())
    page.wait(lambda: page.all("#welcome .card"))
    assert page.one("#collection").get_attribute("value") == name


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_json_lines_into_a_new_collection(page, tmp_path):
    path = tmp_path / "My books.jsonl"
    path.write_text(lines(ROWS))
    choose_file(page, path)
    assert "30 rows, with id, title, summary" in page.text("#import-about")
    assert page.one("#import-name").get_attribute("value") == "my-books"
    assert page.one("#import-id").get_attribute("value") == "id"
    imported(page, "my-books")
    assert "30 items" in page.text("#welcome")
    page.wait_for_new(lambda: page.one("#welcome .card .name").click())
    assert len(page.ids_shown("#columns .card")) == 10
    assert page.all("#columns .text")[0].text.startswith("The story of number")


def test_csv_with_a_number_in_each_column_into_the_same_collection(page, tmp_path):
    path = tmp_path / "more.csv"
    rows = [
        f'"A ""quoted"", title\nof {i}",{i},' + ",".join(map(str, VECTORS[i][[3, 0, 2, 1]]))
        for i in range(20)
    ]
    path.write_text("title,pages,x3,x0,x2,x1\r\n" + "\r\n".join(rows))
    choose_file(page, path)
    page.choose("#import-into", "my-books")
    assert not page.one("#import-name").is_displayed()
    page.choose("#import-vector", "x0 … x3")
    imported(page, "my-books")
    assert "50 items" in page.text("#welcome")
    page.one("#query").send_keys("more.csv:3")
    page.wait_for_new(lambda: page.one("#search button").click())
    assert "Item more.csv:3" in page.text("#asked")
    assert page.ids_shown("#columns .card")[0] == "b2"


def test_csv_with_a_vector_in_one_column(page, tmp_path):
    path = tmp_path / "one.csv"
    path.write_text("id,code,vector\n" + "".join(f'{i},007,"{VECTORS[i].tolist()}"\n' for i in range(10)))
    choose_file(page, path)
    imported(page, "one")
    page.wait_for_new(lambda: page.one("#welcome .card .name").click())
    assert sorted(page.ids_shown("#columns .card")) != []
    assert all(isinstance(number, int) for number in page.ids_shown("#columns .card"))
    page.one("#columns .card .name").click()
    assert page.text("#details dd") == "007"
    page.one("#details form button").click()


@pytest.mark.parametrize("dtype", ["<f4", "<f8", "<i4", "|u1"])
def test_npy(page, tmp_path, dtype):
    path = tmp_path / f"array-{dtype[1:]}.npy"
    np.save(path, (np.abs(VECTORS) * 50).astype(dtype))
    choose_file(page, path)
    assert page.text("#import-about") == "30 rows."
    imported(page, f"array-{dtype[1:]}")
    assert "30 items" in page.text("#welcome")


WIDE, NAN, DOUBLED, NAMELESS = ([dict(row) for row in ROWS] for _ in range(4))
WIDE[17]["vector"] = [1.0, 2.0]
NAN[17]["vector"] = [1.0, None, 2.0, 3.0]
DOUBLED[17]["id"] = "b3"
del NAMELESS[17]["id"]
BROKEN = {
    "wide.jsonl": (lines(WIDE), "Row 18: expected 4 numbers, got 2. Nothing was imported."),
    "nan.jsonl": (lines(NAN), "Row 18: expected finite numbers, got null at place 2. Nothing was imported."),
    "doubled.jsonl": (lines(DOUBLED), 'Row 18: expected another id than row 4 has, got "b3" again.'),
    "nameless.jsonl": (lines(NAMELESS), "Row 18: expected an id, a whole number or a text, got none."),
}
UNREADABLE = {
    "cut.jsonl": (lines(ROWS)[:-40], "Row 30: expected JSON, got"),
    "empty.jsonl": ("", "Expected a file with rows, got an empty one."),
    "list.json": ("[1, 2]", 'Row 1: expected an object like {"id": 1, "vector": [1, 2]}, got 1.'),
    "plain.csv": ("id,title\n1,a\n", "Expected a column with lists of numbers, got the columns id, title."),
    "values.csv": (
        "0.5,-1,2\n3,4,5\n",
        "Expected a first line with the names of the columns, got the values 0.5",
    ),
    "short.csv": ("id,x0,x1\n1,2,3\n4,5\n", "Row 2: expected 3 values, got 2. Nothing was imported."),
    "cut.csv": ('id,x0,x1\n1,2,"3', "Row 1: expected an end of a quoted value"),
    "words.txt": ("a b", "ends in .jsonl, .json, .csv, .parquet or .npy, got “words.txt”."),
    "no.npy": ("something else", "Expected a .npy file, got something else."),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_row_is_named_and_nothing_is_imported(page, tmp_path, name):
    content, message = BROKEN[name]
    (tmp_path / name).write_text(content)
    choose_file(page, tmp_path / name)
    page.choose("#import-id", "id")
    start(page)
    page.wait(lambda: page.one("#import-problem").is_displayed())
    assert message in page.text("#import-problem")
    assert name.partition(".")[0] not in [one.text for one in page.all("#collection option")]


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_file_that_cannot_be_read_is_explained(page, tmp_path, name):
    content, message = UNREADABLE[name]
    (tmp_path / name).write_text(content)
    choose_file(page, tmp_path / name)
    assert message in page.text("#import-problem")
    assert not page.one("#import-columns").is_displayed()


def write_parquet(path, rows, **columns):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    vectors = pa.array([row["vector"] for row in rows], pa.list_(pa.float32()))
    names = [name for name in rows[0] if name != "vector"]
    table = pa.table({name: [row[name] for row in rows] for name in names} | {"vector": vectors, **columns})
    pq.write_table(table, path)


def test_parquet(page, tmp_path):
    rows = [{"isbn_id": f"b{i}", "vector": VECTORS[i].tolist(), **book(i)} for i in range(30)]
    write_parquet(tmp_path / "rows.parquet", rows)
    choose_file(page, tmp_path / "rows.parquet")
    assert "30 rows, with isbn_id, title, summary" in page.text("#import-about")
    assert page.one("#import-id").get_attribute("value") == "isbn_id"
    imported(page, "rows")
    page.one("#query").send_keys("b3")
    page.wait_for_new(lambda: page.one("#search button").click())
    assert "Book 3" in page.text("#asked")


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        ([1.0, None, 2.0, 3.0], "Row 18: expected finite numbers"),
        ([1.0, 2.0], "Row 18: expected a vector of 4 numbers, got 2. Nothing was imported."),
    ],
)
def test_a_bad_parquet_file_is_refused_before_anything_is_written(page, tmp_path, vector, message):
    rows = [dict(row) for row in ROWS]
    rows[17]["vector"] = vector
    write_parquet(tmp_path / "bad.parquet", rows)
    choose_file(page, tmp_path / "bad.parquet")
    assert message in page.text("#import-problem")
    assert "bad" not in [one.text for one in page.all("#collection option")]
    page.driver.get_log("browser")  # the answer 422 is logged by the browser itself


def test_a_parquet_file_that_is_none_is_explained(page, tmp_path):
    (tmp_path / "no.parquet").write_text("something else")
    choose_file(page, tmp_path / "no.parquet")
    assert page.text("#import-problem").startswith("no.parquet: ")
    page.driver.get_log("browser")  # the answer 422 is logged by the browser itself


ID_COLUMNS = [
    {"id": [1, 2], "user_id": ["a", "b"]},
    {"Id": [1, 2]},
    {"UUID": ["a", "b"]},
    {"_ids": ["a", "b"]},
    {"book_id": ["a", "b"], "n": [1, 2]},
    {"identity": ["a", "b"]},
    {"n": [1, 2]},
    {"book_id": ["a", "b"], "user_id": ["a", "b"]},
    {"id": [1.5, 2.5]},
    {"key": [None, "b"]},
]


@pytest.mark.parametrize("columns", ID_COLUMNS, ids=lambda columns: "+".join(columns))
def test_ids_are_found_as_the_command_line_finds_them(page, tmp_path, columns):
    rows = [{name: column[i] for name, column in columns.items()} | {"vector": [1.0, i]} for i in range(2)]
    path = tmp_path / "rows.jsonl"
    path.write_text(lines(rows))
    try:
        expected = choose_roles(open_file(path)).roles.id or ""
    except ValueError:
        expected = None
    choose_file(page, path)
    chosen = page.one("#import-id").get_attribute("value")
    if expected is not None:
        assert chosen == expected
        return
    start(page)
    page.wait(lambda: page.one("#import-problem").is_displayed())
    assert "Choose the column of ids, or number the rows." in page.text("#import-problem")


def test_a_wrong_width_for_the_collection_is_named(page, tmp_path):
    (tmp_path / "narrow.csv").write_text("x0,x1\n1,2\n")
    choose_file(page, tmp_path / "narrow.csv")
    page.choose("#import-into", "my-books")
    start(page)
    page.wait(lambda: page.one("#import-problem").is_displayed())
    assert page.text("#import-problem") == "Row 1: expected 4 numbers, got 2. Nothing was imported."


def test_what_the_service_refuses_is_told_with_the_rows_before_it(page, tmp_path):
    rows = [dict(row) for row in ROWS]
    rows[16]["deep"] = json.loads("[" * 40 + "]" * 40)
    (tmp_path / "deep.jsonl").write_text(lines(rows))
    choose_file(page, tmp_path / "deep.jsonl")
    start(page)
    page.wait(lambda: page.one("#import-problem").is_displayed())
    assert "The rows up to 14 were imported." in page.text("#import-problem")
    page.driver.get_log("browser")  # the answer 422 is logged by the browser itself
