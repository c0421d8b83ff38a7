"""The search box of the page, over a collection with a text index."""

from __future__ import annotations

import numpy as np
import pytest

import posh
from posh.serve.sources import Folder
from tests.serve.browser import opened, require_browser
from tests.serve.pages import book
from tests.serve.service import running

VECTORS = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    require_browser()
    folder = tmp_path_factory.mktemp("served")
    with posh.create(folder / "books", metric="cosine", text=["title", "summary"]) as books:
        books.upsert([f"book-{i}" for i in range(60)], VECTORS, [book(i) for i in range(60)])
    with posh.create(folder / "plain", metric="cosine") as plain:
        plain.upsert([f"book-{i}" for i in range(60)], VECTORS, [book(i) for i in range(60)])
    with running(Folder(folder)) as address:
        yield address


@pytest.fixture
def page(driver, address):
    with opened(driver, address, lambda page: page.all("#welcome .card")) as page:
        yield page


def search(page, words):
    page.set("#query", words)
    page.wait_for_new(lambda: page.one("#search button").click())
    return page.ids_shown("#columns .card")


def test_words_come_first_and_find_items(page):
    assert page.one("#query").get_attribute("placeholder") == "Search in title, summary"
    assert search(page, "number 17")[0] == "book-17"
    assert "bm25" in page.text(".column .note")
    assert page.text("#results-title") == "The 10 best matches for “number 17”"
    assert page.text("#status").startswith("10 items.")


def test_a_hit_leads_to_its_neighbours_and_back(page):
    search(page, "book 23")
    page.wait_for_new(lambda: page.one("#columns .card .near").click())
    assert "Item book-23" in page.text("#asked")
    page.wait_for_new(page.driver.back)
    assert page.ids_shown("#columns .card")[0] == "book-23"
    assert page.one("#query").get_attribute("value") == "book 23"


@pytest.mark.parametrize("words", ["'\";--", "(", "NEAR(", "title:", '"unfinished'])
def test_no_words_are_a_problem(page, words):
    page.set("#query", words)
    page.one("#search button").click()
    page.wait(lambda: "Nothing with these words." in page.text("#columns"))
    assert not page.one("#problem").is_displayed()


def test_a_filter_applies_and_a_collection_without_text_has_no_box(page):
    page.one("#choices summary").click()
    search(page, "story")
    page.wait_for_new(lambda: page.set("#filter", '{"genre": "poetry"}'))
    assert {int(one.removeprefix("book-")) % 3 for one in page.ids_shown("#columns .card")} == {2}
    page.choose("#collection", "plain")
    page.wait(lambda: page.one("#query").get_attribute("placeholder") == "Type the id of an item")


def test_an_id_that_is_searched_as_words_leads_to_its_item(page):
    search(page, "book-23")
    page.wait_for_new(lambda: page.one("#asked button").click())
    assert "Item book-23" in page.text("#asked")
    assert "book-23" not in page.ids_shown("#columns .card")


def test_a_suggestion_is_searched_as_words(page):
    suggestion = page.one(".try button").text
    page.wait_for_new(lambda: page.one(".try button").click())
    assert page.one("#query").get_attribute("value") == suggestion
    assert suggestion in page.names()


def test_a_pasted_vector_with_line_breaks_is_searched_and_a_few_numbers_are_words(page):
    page.driver.execute_script(
        "const data = new DataTransfer(); data.setData('text/plain', arguments[1]);"
        "arguments[0].focus();"
        "arguments[0].dispatchEvent(new ClipboardEvent('paste', {clipboardData: data, cancelable: true}))",
        page.one("#query"),
        "\n".join(map(str, VECTORS[5].tolist())),
    )
    page.wait_for_new(lambda: page.one("#search button").click())
    assert page.ids_shown("#columns .card")[0] == "book-5"
    assert search(page, "17 23")[0] in ("book-17", "book-23")
