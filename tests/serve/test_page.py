"""The page in a real browser, over a real service: what users do, and what they see."""

from __future__ import annotations

import os
from collections import Counter

import numpy as np
import pytest

import posh
from tests.collection.reference import ReferenceCollection
from tests.serve.browser import Page, browser, require_browser
from tests.serve.service import MemorySource, running


def sets():
    """MNIST where fetching is allowed, else the digits that need no network."""
    if os.environ.get("POSH_TEST_NETWORK") == "1":
        return posh.datasets.load("mnist"), {"width": 28, "height": 28, "low": 0, "high": 255, "box": 20}
    return posh.datasets.load("digits"), {"width": 8, "height": 8, "low": 0, "high": 16}


def digits_by(hasher, title, data, image):
    metadata = {"title": title, "image": image, "label": {"field": "label", "values": list(range(10))}}
    base, labels = data.base[:1500], data.base_labels[:1500]
    collection = ReferenceCollection(hasher.fit(base), metadata=metadata)
    return collection.upsert(np.arange(len(base)), base, [{"label": label} for label in labels.tolist()])


def words():
    vectors = np.random.default_rng(0).normal(size=(60, 12))
    hasher = posh.FruitFly(n_bits=64, n_active=4, random_state=0).fit(vectors)
    collection = ReferenceCollection(hasher, metadata={"title": "Words", "name": "word"})
    return collection.upsert([f"word-{i}" for i in range(60)], vectors)


@pytest.fixture(scope="module")
def source():
    require_browser()
    data, image = sets()
    return MemorySource(
        digits=digits_by(posh.SphericalHash(n_bits=1024, n_active=32, random_state=0), "Digits", data, image),
        fly=digits_by(posh.FruitFly(n_bits=1024, n_active=32, random_state=0), "Fly", data, image),
        words=words(),
    )


@pytest.fixture(scope="module")
def address(source):
    with running(source) as address:
        yield address


@pytest.fixture(scope="module")
def driver(address):
    with browser() as driver:
        yield driver


@pytest.fixture
def page(driver, address):
    driver.get(address)
    page = Page(driver)
    page.wait(lambda: page.all("#items li"))
    yield page
    errors = [entry for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
    assert errors == [], "the console is clean"


CIRCLE = [(0.45 * np.sin(t), -0.7 * np.cos(t)) for t in np.linspace(0, 2 * np.pi, 25)]
BAR = [(0.0, -0.7), (0.0, 0.7)]


@pytest.mark.parametrize(("stroke", "label"), [(CIRCLE, "0"), (BAR, "1")])
def test_a_drawn_digit_finds_that_digit(page, stroke, label):
    page.draw(*stroke)
    names = page.names()
    assert len(names) == 10
    assert Counter(names)[label] > 5
    assert "Your drawing" in page.text("#asked")
    assert "10 neighbours" in page.text("#status")


def test_clear_leaves_nothing_to_search_for(page):
    page.draw(*BAR)
    page.one("#clear").click()
    assert page.driver.execute_script(
        "const c = document.getElementById('pad');"
        "const { data } = c.getContext('2d').getImageData(0, 0, c.width, c.height);"
        "return data.every((v, i) => i % 4 === 3 || !v)"
    )


def test_the_keyboard_draws_too(page):
    from selenium.webdriver.common.keys import Keys

    pad = page.one("#pad")
    page.wait_for_new(lambda: pad.send_keys(" ", *[Keys.ARROW_DOWN] * 8, " "))
    assert Counter(page.names()).most_common(1)[0][0] == "1"


def test_the_number_of_neighbours_can_be_changed(page):
    page.draw(*CIRCLE)
    page.wait_for_new(lambda: page.set("#k", "25"))
    assert len(page.names()) == 25


def test_only_one_label_if_asked_for(page):
    page.draw(*CIRCLE)
    page.wait_for_new(lambda: page.choose("#label", "6"))
    assert set(page.names()) == {"6"}
    page.wait(lambda: {one.text for one in page.all("#items .name")} <= {"6", ""})


def test_a_written_filter(page):
    page.draw(*CIRCLE)
    page.wait_for_new(lambda: page.set("#filter", '{"label": {"in": [3, 5]}}'))
    assert set(page.names()) <= {"3", "5"}


@pytest.mark.parametrize("scoring", ["overlap", "asymmetric"])
def test_the_scoring_can_be_chosen(page, scoring):
    page.draw(*CIRCLE)
    page.wait_for_new(lambda: page.choose("#scoring", scoring))
    assert {"overlap": "shared bits", "asymmetric": "asymmetric"}[scoring] in page.text(".column p")


def test_two_hashers_side_by_side(page):
    page.draw(*CIRCLE)
    page.wait_for_new(lambda: page.choose("#compare", "fly"))
    assert [one.text for one in page.all(".column h3")] == ["Digits", "Fly"]
    assert len(page.names(1)) == len(page.names(2)) == 10
    assert "of them found by both" in page.text("#status")


def test_a_hit_of_the_other_collection_is_asked_for_as_what_it_is_there(page, source):
    page.draw(*CIRCLE)
    page.wait_for_new(lambda: page.choose("#compare", "fly"))
    other = page.one(".column:nth-child(2) .card")
    number = int(other.get_attribute("title").split()[1][:-1])
    page.wait_for_new(other.click)
    assert f"Item {number}" in page.text("#asked")
    vector = source.collections["fly"].get([number])[0].vector
    for column, name in enumerate(("digits", "fly"), 1):
        expected = [n for n in source.collections[name].search(vector, k=11).ids[0] if n != number][:10]
        cards = page.all(f".column:nth-child({column}) .card")
        assert [int(one.get_attribute("title").split()[1][:-1]) for one in cards] == expected


def test_an_item_is_browsed_and_its_neighbours_are_walked(page, source):
    page.one("#tab-browse").click()
    page.wait_for_new(lambda: page.one("#items button").click())
    assert "Item 0" in page.text("#asked")
    vector = source.collections["digits"].get([0])[0].vector
    expected = [n for n in source.collections["digits"].search(vector, k=11).ids[0] if n != 0][:10]
    assert [int(one.get_attribute("title").split()[1][:-1]) for one in page.all(".column .card")] == expected
    page.wait_for_new(lambda: page.one(".column .card").click())
    assert f"Item {expected[0]}" in page.text("#asked")


def test_more_items(page):
    page.one("#tab-browse").click()
    before = len(page.all("#items li"))
    page.one("#more").click()
    page.wait(lambda: len(page.all("#items li")) > before)


def test_shared_bits_are_highlighted(page, source):
    page.one("#tab-browse").click()
    page.wait_for_new(lambda: page.one("#items button").click())
    card = page.one(".column .card")
    described = card.find_elements("css selector", "canvas")[1].get_attribute("aria-label")
    score = int(card.find_element("css selector", ".score").text.split()[1])
    assert described == f"{score} of 32 set bits shared with the query"
    count = page.driver.execute_script(
        "const c = arguments[0].querySelectorAll('canvas')[1], n = c.width / 4;"
        "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "const seen = {};"
        "for (let i = 0; i < n * n; i++) {"
        "  const p = 4 * (4 * Math.floor(i / n) * c.width + 4 * (i % n));"
        "  const key = [d[p], d[p + 1], d[p + 2]].join(); seen[key] = (seen[key] ?? 0) + 1; }"
        "return Object.values(seen).sort((a, b) => a - b)",
        card,
    )
    assert sorted(count) == sorted([score, 32 - score, 1024 - 32])


@pytest.mark.parametrize(
    ("text", "message"),
    [("1, 2, x", "Expected numbers, got “x”"), ("1 2 3", "got 3"), ("[1, NaN]", "got “NaN”")],
)
def test_a_bad_vector_is_explained(page, text, message):
    page.one("#tab-paste").click()
    page.one("#vector").send_keys(text)
    page.one("#way-paste button").click()
    page.wait(lambda: page.one("#problem").is_displayed())
    assert message in page.text("#problem")


def test_a_good_vector_is_searched(page, source):
    vector = source.collections["digits"].get([7])[0].vector
    page.one("#tab-paste").click()
    page.driver.execute_script("arguments[0].value = arguments[1]", page.one("#vector"), str(vector.tolist()))
    page.wait_for_new(lambda: page.one("#way-paste button").click())
    assert page.one(".column .card").get_attribute("title").startswith("Item 7:")


def test_a_word_is_typed(page):
    page.choose("#collection", "words")
    page.wait(lambda: "Words" in page.text("#collection option:checked") and page.all("#items li"))
    page.one("#name").send_keys("word-3")
    page.wait_for_new(lambda: page.one("#way-name button").click())
    assert len(page.names()) == 10
    assert "word-3" not in page.names()


def test_an_unknown_word_is_explained(page):
    page.choose("#collection", "words")
    page.wait(lambda: page.one("#name").is_displayed())
    page.one("#name").send_keys("nonsense")
    page.one("#way-name button").click()
    page.wait(lambda: page.one("#problem").is_displayed())
    assert "nonsense" in page.text("#problem")


def test_everything_has_a_name_for_screen_readers(page):
    page.draw(*CIRCLE)
    named = {"button", "combobox", "textbox", "spinbutton", "tab", "image", "link", "option", "listitem"}
    nodes = page.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    shown = [node for node in nodes if not node["ignored"] and node["role"]["value"] in named - {"listitem"}]
    assert len(shown) > 30
    assert [node for node in shown if not node.get("name", {}).get("value", "").strip()] == []


def test_tabs_are_walked_with_the_arrow_keys(page):
    from selenium.webdriver.common.keys import Keys

    page.one("#tab-draw").send_keys(Keys.ARROW_RIGHT)
    assert page.one("#tab-name").get_attribute("aria-selected") == "true"
    assert page.one("#way-name").is_displayed()
    assert not page.one("#way-draw").is_displayed()


def test_every_control_is_reached_with_the_tab_key(page):
    from selenium.webdriver.common.keys import Keys

    page.draw(*BAR)
    page.driver.execute_script("document.activeElement.blur()")
    seen = []
    for _ in range(40):
        page.driver.switch_to.active_element.send_keys(Keys.TAB)
        seen.append(page.driver.switch_to.active_element.get_attribute("id"))
    wanted = {"collection", "tab-draw", "pad", "clear", "k", "scoring", "label", "filter", "compare"}
    assert wanted <= set(seen)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_is_wider_than_the_screen_and_text_is_readable(page, scheme, width):
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        page.draw(*CIRCLE)
        page.wait_for_new(lambda: page.choose("#compare", "fly"))
        assert page.driver.execute_script("return document.documentElement.scrollWidth") <= width
        ink, paper = page.driver.execute_script(
            "const s = getComputedStyle(document.querySelector('.card')); return [s.color, s.backgroundColor]"
        )
        assert contrast(ink, paper) >= 7
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def contrast(one, other):
    """WCAG's ratio of two colours like ``rgb(1, 2, 3)``."""

    def luminance(colour):
        values = [int(part) / 255 for part in colour.strip("rgba()").split(",")[:3]]
        linear = [v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in values]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_a_token_is_asked_for(driver, source):
    with running(source, token="secret") as address:
        driver.get(address)
        page = Page(driver)
        page.wait(lambda: page.one("#ask-token").is_displayed())
        page.one("#token").send_keys("secret\n")
        page.wait(lambda: page.all("#items li"))
    driver.get_log("browser")  # the 401 that led to the question is logged by the browser itself
