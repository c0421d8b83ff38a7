"""A real browser, driven by the tests of the page."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

REASON = "needs a browser: apt-get install chromium chromium-driver (POSH_TEST_BROWSER=1 makes it an error)"
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
