"""The page over a user's own collection: payloads, a table, filters, the address, the map, import."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.serve.browser import Page, opened, require_browser
from tests.serve.pages import WIDTHS, book, books
from tests.serve.service import MemorySource, running


@pytest.fixture(scope="module")
def source():
    require_browser()
    return MemorySource(books=books())


@pytest.fixture(scope="module")
def address(source):
    with running(source) as address:
        yield address


@pytest.fixture
def page(driver, address):
    with opened(driver, address, lambda page: page.all("#welcome .card")) as page:
        yield page


def open_first(page):
    page.wait_for_new(lambda: page.one("#welcome .card .name").click())
    return page.ids_shown("#columns .card")


def test_the_start_says_what_there_is_and_offers_examples(page):
    assert page.text("#results-title") == "Books"
    assert "90 items" in page.text("#welcome")
    titles = [one.text for one in page.all("#welcome .card .name")]
    assert len(titles) == 12
    assert all(title.startswith("Book ") for title in titles)
    assert {one.text.split()[1] for one in page.all("#welcome .card .values")} == {
        "crime",
        "travel",
        "poetry",
    }


def test_a_card_has_what_the_payload_has(page):
    first = open_first(page)[0]
    payload = book(int(first.removeprefix("book-")))
    card = page.one("#columns .card")
    assert card.find_element("css selector", ".name").text == payload["title"]
    assert card.find_element("css selector", ".text").text == payload["summary"]
    assert [one.text for one in card.find_elements("css selector", ".tags li")] == payload["tags"]
    values = card.find_element("css selector", ".values").text
    assert values == f"genre {payload['genre']} · pages {payload['pages']}"


def test_scores_are_in_the_words_of_the_metric(page, source):
    ids = open_first(page)
    asked = page.text("#asked .name").split()[1].strip(":")
    vector = source.collections["books"].get([asked])[0].vector
    found = source.collections["books"].search(vector, k=11)
    expected = [
        float(score) for number, score in zip(*(row[0] for row in found), strict=True) if number != asked
    ]
    shown = [one.text for one in page.all("#columns .card .score")]
    assert shown == [f"cosine {score:.2f}" for score in expected[: len(ids)]]


def test_pictures_of_this_page_are_shown_and_those_of_other_sites_are_links(page):
    ids = open_first(page)
    shown = [bool(one.find_elements("css selector", "img")) for one in page.all("#columns .card")]
    assert shown == [int(number.removeprefix("book-")) % 2 == 1 for number in ids]
    elsewhere = shown.index(False) + 1
    page.one(f"#columns ol > li:nth-child({elsewhere}) .name").click()
    assert page.one("#details a").get_attribute("href") == "https://elsewhere.invalid/cover.png"
    assert page.one("#details a").get_attribute("rel") == "noopener noreferrer"


def test_details_have_all_of_the_payload(page):
    first = open_first(page)[0]
    page.one("#columns .card .name").click()
    assert page.one("#details").is_displayed()
    names = [one.text for one in page.all("#details dt")]
    assert names == list(book(0))
    assert f'Item "{first}": cosine' in page.text("#details")
    page.one("#details form button").click()
    assert not page.one("#details").is_displayed()


def test_a_table(page):
    ids = open_first(page)
    page.wait_for_new(lambda: page.one('[data-view="table"]').click())
    assert page.ids_shown("tbody tr") == ids
    heads = [one.text for one in page.all("th")]
    assert heads == ["", "Item", "Score", "summary", "genre", "pages", "tags", ""]
    cells = [one.text for one in page.all("tbody tr:first-child td")]
    payload = book(int(ids[0].removeprefix("book-")))
    assert cells[1] == payload["title"]
    assert cells[4:7] == [payload["genre"], str(payload["pages"]), ", ".join(payload["tags"])]
    page.wait_for_new(lambda: page.one("tbody .near").click())
    assert ids[0] in page.text("#asked")


def test_a_filter_by_choosing_field_and_value(page):
    open_first(page)
    page.one("#choices summary").click()
    page.choose("#field", "genre")
    page.choose("#operator", "is")
    page.choose("#value", '"poetry"')
    page.wait_for_new(lambda: page.one("#add-condition button").click())
    assert {int(number.removeprefix("book-")) % 3 for number in page.ids_shown("#columns .card")} == {2}
    page.choose("#field", "pages")
    page.choose("#operator", "gte")
    page.one("#value").send_keys("150")
    page.wait_for_new(lambda: page.one("#add-condition button").click())
    assert all(int(number.removeprefix("book-")) >= 50 for number in page.ids_shown("#columns .card"))
    assert [one.text for one in page.all("#conditions button")] == ["genre = poetry ✕", "pages ≥ 150 ✕"]
    page.wait_for_new(lambda: page.one("#conditions button").click())
    assert {int(number.removeprefix("book-")) % 3 for number in page.ids_shown("#columns .card")} != {2}
    assert [one.text for one in page.all("#conditions button")] == ["pages ≥ 150 ✕"]


def test_a_filter_by_a_tag(page):
    open_first(page)
    page.one("#choices summary").click()
    page.choose("#field", "tags")
    page.choose("#value", '"shelf 2"')
    page.wait_for_new(lambda: page.one("#add-condition button").click())
    assert {int(number.removeprefix("book-")) % 4 for number in page.ids_shown("#columns .card")} == {2}
    assert page.text("#conditions button") == "tags has shelf 2 ✕"


def test_a_filter_that_is_wrong_replaces_old_results(page):
    open_first(page)
    page.one("#choices summary").click()
    page.choose("#field", "pages")
    page.one("#value").send_keys("many")
    page.one("#add-condition button").click()
    page.wait(lambda: page.one("#problem").is_displayed())
    assert page.text("#problem") == "Expected a number, got “many”."
    assert page.all("#columns .card") == []
    assert page.text("#status") == ""


@pytest.mark.parametrize(
    ("k", "message"), [("1001", "from 1 to 1,000, got 1001"), ("0", "got 0"), ("", "got something else")]
)
def test_k_is_bounded(page, k, message):
    open_first(page)
    page.one("#choices summary").click()
    page.set("#k", k)
    page.wait(lambda: page.one("#problem").is_displayed())
    assert message in page.text("#problem")
    assert page.all("#columns .card") == []


def test_back_and_forward_go_through_queries(page):
    first = open_first(page)
    page.wait_for_new(lambda: page.one("#columns .card .near").click())
    second = page.ids_shown("#columns .card")
    assert second != first
    page.wait_for_new(page.driver.back)
    page.wait(lambda: page.ids_shown("#columns .card") == first)
    page.driver.back()
    page.wait(lambda: page.all("#welcome .card"))
    page.wait_for_new(page.driver.forward)
    page.wait(lambda: page.ids_shown("#columns .card") == first)


def test_the_answer_says_what_most_neighbours_have_in_common(page):
    script = (
        "const [hits, place, done] = arguments;"
        "const query = { id: 1, item: 'item 1', name: 'Item 1' };"
        "import('/js/answer.js').then(({ answer, article }) => done(["
        "  answer({ ...query, text: 'red wool', name: '“red wool”' }, { hits }, place),"
        "  answer({ name: 'Your drawing' }, { hits }, place),"
        "  answer({ ...query, label: 7 }, { hits }, place),"
        "  answer({ ...query, label: 1 }, { hits }, place),"
        "  answer({ name: 'Your drawing' }, { hits: hits.slice(0, 2) }, place),"
        "  answer(query, { hits: hits.map(({ payload }) => ({ payload: { genre: payload.genre } })) }, {"
        "    metadata: {}, summary: place.summary }),"
        "  answer(query, { hits: [] }, place),"
        "  ...[8, 11, 80, 18, 1, 7, 'owl', 'cat'].map(article)]))"
    )
    labels, genres = [1, 7, 7, 7], ["crime", "crime", "crime", "poetry"]
    hits = [{"payload": {"label": n, "genre": g}} for n, g in zip(labels, genres, strict=True)]
    genre = {"name": "genre", "type": "string", "values": [{"value": "crime", "count": 30}]}
    summary = {"sampled": 90, "title": "title", "text": None, "image": None, "fields": [genre]}
    place = {"metadata": {"label": {"field": "label"}}, "summary": summary}
    assert page.driver.execute_async_script(script, hits, place) == [
        "The 4 best matches for “red wool”",
        "Looks like a 7: 3 of 4 neighbours",
        "A 7, like 3 of 4 neighbours",
        "A 1 that looks like a 7: 3 of 4 neighbours",
        "Looks like a 1 or a 7: 1 each of 2 neighbours",
        "Nearest to item 1: 3 of 4 neighbours have genre crime",
        "Nothing passes the filter",
        *("an 8", "an 11", "an 80", "an 18", "a 1", "a 7", "an owl", "a cat"),
    ]


def test_no_colour_of_the_map_is_near_to_that_of_shared_bits(page):
    hues = page.driver.execute_async_script(
        "const done = arguments[0];"
        "import('/js/colours.js').then(({ hue, scaleColour }) => done(["
        "  ...Array.from({ length: 12 }, (_, i) => hue(i)), ...[0, 0.25, 0.5, 0.75, 1].map(scaleColour)]))"
    )
    assert len(set(hues)) == 17
    shared = 20  # degrees: orange, in both themes
    far = [min(abs(degrees - shared), 360 - abs(degrees - shared)) for degrees in map(_degrees, hues)]
    assert min(far) >= 45


def _degrees(colour):
    return int(colour.removeprefix("hsl(").split()[0])


def test_the_map_is_coloured_by_a_chosen_field_and_shows_one_of_its_values(page):
    page.wait_for_map()
    page.choose("#map-colour", "genre")
    grouped = page.pixels("#map")
    page.choose("#map-colour", "pages")
    assert page.pixels("#map") != grouped
    assert page.text("#map-legend .scale").split() == ["101.8", "187.2"]  # without the outermost 2 %
    page.choose("#map-colour", "genre")
    assert page.pixels("#map") == grouped
    page.one("#map-legend button").click()
    assert page.pixels("#map") != grouped
    assert page.one("#map-legend button").get_attribute("aria-pressed") == "true"
    page.one("#map-legend button").click()
    assert page.pixels("#map") == grouped


def test_the_map_can_be_enlarged(page):
    page.wait_for_map()
    before = page.one("#map").size
    page.one("#map-grow").click()
    page.wait(lambda: page.one("#map").size["width"] > 1.5 * before["width"])
    page.one("#map-grow").click()
    page.wait(lambda: page.one("#map").size == before)


def test_another_vector_is_placed_where_the_items_near_to_it_are(page, address):
    page.wait_for_map()
    shifts = page.driver.execute_async_script(
        "const [vectors, done] = arguments;"
        "const map = fetch('/v1/collections/books/map').then((one) => one.json());"
        "Promise.all([import('/js/map_places.js'), map])"
        ".then(([{ makePlacer }, map]) => {"
        "  const place = makePlacer(map, map.points.map(([x, y]) => ({ x, y })));"
        "  done(map.ids.map((id, i) => { const [one, other] = [place(id), place(undefined, vectors[id])];"
        "    return Math.hypot(one.x - other.x, one.y - other.y); })) })",
        {item.id: item.vector.tolist() for item in books().items()},
    )
    assert len(shifts) == 90
    assert np.median(shifts) < 1  # the map is about 20 wide
    assert np.mean(np.array(shifts) < 4) > 0.9


def test_bits_are_hidden_where_a_metric_ranks_and_long_texts_have_two_lines(page):
    open_first(page)
    assert not page.all(".strip, .legend")
    with page.screen(700):
        page.wait_for_new(lambda: page.one('[data-view="table"]').click())
        lines = page.driver.execute_script(
            "return [...document.querySelectorAll('td .clamp')].map((one) =>"
            " one.getBoundingClientRect().height / parseFloat(getComputedStyle(one).lineHeight))"
        )
        assert 1.5 < max(lines) < 2.1
    assert "Shared bits" not in [one.text for one in page.all("th")]


def test_no_word_is_broken(page):
    """A word that is too long for its card is cut off with an ellipsis, and its whole is a tooltip."""
    open_first(page)
    rules = page.driver.execute_script(
        "const shown = document.querySelectorAll('.card .name, .card .text, .card .score, .tags li');"
        "return [...shown].map((one) => {"
        " const { overflowWrap, wordBreak } = getComputedStyle(one);"
        " return [overflowWrap, wordBreak].join() })"
    )
    assert set(rules) == {"normal,normal"}


def test_an_address_can_be_shared(page):
    open_first(page)
    page.one("#choices summary").click()
    page.wait_for_new(lambda: page.set("#k", "7"))
    page.wait_for_new(lambda: page.set("#filter", '{"genre": "crime"}'))
    page.wait_for_new(lambda: page.one('[data-view="table"]').click())
    shown, shared = page.ids_shown("tbody tr"), page.driver.current_url
    page.driver.get("about:blank")
    page.driver.get(shared)
    page.wait(lambda: page.all("tbody tr"))
    assert page.ids_shown("tbody tr") == shown
    assert len(shown) == 7
    assert page.one("#k").get_attribute("value") == "7"
    assert json.loads(page.one("#filter").get_attribute("value")) == {"genre": "crime"}


@pytest.mark.parametrize(
    ("hash_", "message"),
    [
        ("#collection=books&like=%22nobody", "Expected a complete link"),
        ("#collection=books&like=%22nobody%22", "There is no item “nobody”"),
        ("#collection=gone", "There is no collection “gone” here."),
    ],
)
def test_a_bad_address_is_explained(driver, address, hash_, message):
    driver.get("about:blank")
    driver.get(f"{address}/{hash_}")
    page = Page(driver)
    page.wait(lambda: page.one("#problem").is_displayed())
    assert message in page.text("#problem")
    assert page.all("#columns .card, #welcome .card") == []
    page.require_clean_console()


def test_the_map_lights_up_and_is_searched(page, address):
    page.wait_for_map()
    assert "All 90 items" in page.text("#map-about")
    fields = [one.get_attribute("value") for one in page.all("#map-colour option")]
    assert set(fields) == {"genre", "pages", ""}
    page.choose("#map-colour", "genre")
    assert [one.text for one in page.all("#map-legend li")] == ["crime", "poetry", "travel"]
    before = page.pixels("#map")
    open_first(page)
    page.wait(lambda: page.pixels("#map") != before)
    at, number = page.map_place(address, "books", 5)
    page.wait_for_new(lambda: page.click_at("#map", *at))
    assert number in page.text("#asked")


def test_the_map_names_what_is_under_the_pointer_and_zooms(page, address):
    page.wait_for_map()
    plain = page.pixels("#map")
    at, number = page.map_place(address, "books", 7)
    page.hover_at("#map", *at)
    page.wait(lambda: page.one("#map-hover").is_displayed())
    assert page.text("#map-hover").startswith(book(int(number.removeprefix("book-")))["title"])
    before = page.pixels("#map")
    page.one("#zoom-in").click()
    assert page.pixels("#map") != before
    assert not page.one("#map-hover").is_displayed()
    page.one("#zoom-all").click()
    assert page.pixels("#map") == plain


def test_the_map_is_walked_with_the_keyboard(page):
    from selenium.webdriver.common.keys import Keys

    page.wait_for_map()
    canvas = page.one("#map")
    canvas.send_keys(Keys.ARROW_RIGHT)
    first = page.one("#map-said").get_attribute("textContent")
    canvas.send_keys(Keys.ARROW_RIGHT)
    second = page.one("#map-said").get_attribute("textContent")
    assert first.startswith("Book ")
    assert second.startswith("Book ")
    assert first != second
    page.wait_for_new(lambda: canvas.send_keys(Keys.ENTER))
    assert second.split(", ")[0] in page.text("#asked")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_every_screen(page, scheme, width):
    with page.screen(width, scheme):
        open_first(page)
        page.wait_for_map()
        page.require_fitting(width)
        assert page.contrast("#columns .card", "#columns .card .text") >= 4.5
        page.wait_for_new(lambda: page.one('[data-view="table"]').click())
        page.require_fitting(width)


def test_everything_has_a_name_for_screen_readers(page):
    open_first(page)
    page.one("#choices summary").click()
    page.require_names(at_least=25)
    page.wait_for_new(lambda: page.one('[data-view="table"]').click())
    page.require_names(at_least=25)


def test_distances_are_square_roots_of_scores(page):
    words = page.driver.execute_async_script(
        "const done = arguments[0];"
        "import('/js/scores.js').then(({ formatScore, sharedBits }) => done(["
        "  formatScore({ score: -4 }, 'euclidean'), formatScore({ score: -2.25 }, 'decoder'),"
        "  formatScore({ score: 0.834 }, 'cosine'), formatScore({ score: 12.5 }, 'dot'),"
        "  formatScore({ score: 28 }, 'overlap'), formatScore({ score: null }, 'cosine'),"
        "  sharedBits({ code: [1, 2, 3] }, new Set([2, 3, 4]))]))"
    )
    assert words == [
        "distance 2",
        "distance 1.5",
        "cosine 0.83",
        "product 12.5",
        "28 shared bits",
        "no score",
        "2 of 3 bits shared",
    ]


def test_vectors_survive_an_address(page):
    vector = np.random.default_rng(0).normal(size=8).astype(np.float32)
    again = page.driver.execute_async_script(
        "const [vector, done] = arguments;"
        "const asked = { vector, drawing: [0, 255], like: 'ü#&' };"
        "import('/js/address.js').then(({ read, write }) => done(read(write(asked))))",
        vector.tolist(),
    )
    np.testing.assert_array_equal(np.array(again["vector"], np.float32), vector)
    assert (again["drawing"], again["like"]) == ([0, 255], "ü#&")
