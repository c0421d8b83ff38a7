"""A real browser, driven by the tests of the page."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest

REASON = "needs a browser: apt-get install chromium chromium-driver (POSH_TEST_BROWSER=1 makes it an error)"
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
    """Skip the test, or fail where a browser is promised, if there is none."""
    if shutil.which("chromium") and shutil.which("chromedriver"):
        return
    if os.environ.get("POSH_TEST_BROWSER") == "1":
        pytest.fail(REASON)
    pytest.skip(REASON)


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
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, WAIT, 0.05).until(lambda _: condition())

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
        half = pad.size["width"] / 2
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
