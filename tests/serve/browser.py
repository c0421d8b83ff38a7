"""A real browser, driven by the tests of the page."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import httpx
import numpy as np
import pytest

REASON = "drives a browser: apt-get install chromium chromium-driver, and set POSH_TEST_BROWSER=1"
WAIT = 30
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1280,1400",
)


def require_browser() -> None:
    """Skip the test unless a browser is asked for, and fail if it is asked for and there is none."""
    if os.environ.get("POSH_TEST_BROWSER") != "1":
        pytest.skip(REASON)
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.fail(REASON)


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium without a window, with its console kept."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in _FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


class Page:
    """What a user sees and does."""

    def __init__(self, driver):
        self.driver = driver

    def one(self, css):
        return self.driver.find_element("css selector", css)

    def all(self, css):
        return self.driver.find_elements("css selector", css)

    def text(self, css):
        return self.one(css).text

    def wait(self, condition):
        """Wait until a condition holds; it may look at elements that the page is just replacing."""
        from selenium.common.exceptions import StaleElementReferenceException
        from selenium.webdriver.support.ui import WebDriverWait

        ignored = [StaleElementReferenceException]
        return WebDriverWait(self.driver, WAIT, 0.05, ignored).until(lambda _: condition())

    def wait_for_new(self, action):
        """Do something that leads to a search, and wait for its result."""
        self.driver.execute_script("for (const c of document.querySelectorAll('.column')) c.dataset.old = 1")
        action()
        self.wait(lambda: self.all(".column:not([data-old])"))

    def names(self, column=1):
        return [one.text for one in self.all(f".column:nth-child({column}) .card .name")]

    def draw(self, *points):
        """One stroke over the pad; points are in its middle's coordinates, from -1 to 1."""
        from selenium.webdriver.common.action_chains import ActionChains

        pad = self.one("#pad")
        half = min(pad.size["width"], pad.size["height"]) / 2
        places = [(round(half * x), round(half * y)) for x, y in points]
        chain = ActionChains(self.driver, duration=10).move_to_element_with_offset(pad, *places[0])
        chain.click_and_hold()
        for (x0, y0), (x, y) in pairwise(places):
            chain.move_by_offset(x - x0, y - y0)
        self.wait_for_new(lambda: chain.release().perform())

    def choose(self, css, value):
        from selenium.webdriver.support.ui import Select

        Select(self.one(css)).select_by_value(value)

    def set(self, css, value):
        field = self.one(css)
        field.clear()
        field.send_keys(value)
        self.driver.execute_script("arguments[0].dispatchEvent(new Event('change', {bubbles: true}))", field)

    def ids_shown(self, css):
        """The ids of the items in cards or rows."""
        script = (
            "return [...document.querySelectorAll(arguments[0])].map((one) => JSON.parse(one.dataset.id))"
        )
        return self.driver.execute_script(script, css)

    def box(self, css):
        """Where an element is on the screen."""
        return self.driver.execute_script(
            "return arguments[0].getBoundingClientRect().toJSON()", self.one(css)
        )

    def pixels(self, css):
        """What a canvas shows."""
        return self.driver.execute_script("return arguments[0].toDataURL()", self.one(css))

    def map_place(self, address, collection, i):
        """Where item i of a map is on its canvas, from its middle, and its id."""
        found = httpx.get(f"{address}/v1/collections/{collection}/map", timeout=60).json()
        points = np.array(found["points"])
        low, high = points.min(axis=0), points.max(axis=0)
        x, y = (points[i] - (low + high) / 2) / ((high - low).max() * 1.08)
        side = min(self.one("#map").size.values())
        return (round(x * side), round(-y * side)), found["ids"][i]

    def wait_for_map(self):
        """Wait until the map is arranged."""
        self.wait(lambda: self.one("#map-about").is_displayed())

    def hover_at(self, css, x, y):
        """Move the pointer to a place, from the middle of an element."""
        from selenium.webdriver.common.action_chains import ActionChains

        place = self.one(css)
        self.driver.execute_script("arguments[0].scrollIntoView({ block: 'center' })", place)
        ActionChains(self.driver, duration=10).move_to_element_with_offset(place, x, y).perform()

    def click_at(self, css, x, y):
        """Click at a place, from the middle of an element."""
        from selenium.webdriver.common.action_chains import ActionChains

        self.hover_at(css, x, y)
        ActionChains(self.driver, duration=10).click().perform()

    @contextmanager
    def screen(self, width, scheme="light", height=900):
        """A screen of this width, light or dark."""
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        try:
            yield
        finally:
            self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
            self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})

    def require_fitting(self, width):
        """Nothing is wider than the screen."""
        assert self.driver.execute_script("return document.documentElement.scrollWidth") <= width

    def contrast(self, paper, ink):
        """The contrast of the text of an element with the background of another, as WCAG defines it."""
        colours = self.driver.execute_script(
            "const of = (css) => getComputedStyle(document.querySelector(css));"
            "return [of(arguments[0]).backgroundColor, of(arguments[1]).color]",
            paper,
            ink,
        )
        dark, light = sorted(map(_luminance, colours))
        return (light + 0.05) / (dark + 0.05)

    def require_names(self, at_least):
        """Everything that can be used or seen has a name for screen readers."""
        roles = {"button", "combobox", "textbox", "spinbutton", "tab", "image", "link", "option", "region"}
        nodes = self.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        shown = [node for node in nodes if not node["ignored"] and node["role"]["value"] in roles]
        assert len(shown) >= at_least
        assert [node for node in shown if not node.get("name", {}).get("value", "").strip()] == []

    def require_clean_console(self):
        """No error and no warning was logged."""
        entries = self.driver.get_log("browser")
        problems = [entry["message"] for entry in entries if entry["level"] in ("SEVERE", "WARNING")]
        assert not problems, problems


@contextmanager
def opened(driver: Any, address: str, is_ready: Callable[[Page], Any]) -> Iterator[Page]:
    """The page, loaded anew; at the end nothing may have been logged."""
    driver.get("about:blank")
    driver.get(address)
    page = Page(driver)
    page.wait(lambda: is_ready(page))
    yield page
    page.require_clean_console()


def _luminance(colour):
    """WCAG's, of a colour like ``rgb(1, 2, 3)``."""
    values = [int(part) / 255 for part in colour.strip("rgba()").split(",")[:3]]
    linear = [v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in values]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
