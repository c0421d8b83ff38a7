"""The latency of the page: the first result after loading, and the result for a drawn digit.

    make serve    # in another shell: the samples of MNIST at http://127.0.0.1:8765
    python -m benchmarks.page [--address http://127.0.0.1:8765] [--rounds 5]

Needs chromium and chromedriver. Loading is timed by the browser's own clock, from the navigation to an
address with a drawing until the first card is there. A drawing is timed by its request: from its start to the
last byte of the answer, as the browser sees it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

from tests.serve.browser import Page, browser
from tests.serve.pages import BAR, CIRCLE

_REQUESTS = """return performance.getEntriesByType('resource').filter((one) => one.name.includes('/search'))
.map((one) => one.responseEnd - one.requestStart)"""
_SHOWN = "return document.querySelector('.column .card') ? performance.now() : 0"


def first_result(driver: Any, address: str) -> float:
    """Milliseconds from the navigation to the first card."""
    driver.get("about:blank")
    driver.get(address)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if shown := driver.execute_script(_SHOWN):
            return float(shown)
        time.sleep(0.005)
    raise SystemExit(f"no result within 30 s: is 'make serve' running at {address}?")


def drawn_digits(driver: Any) -> list[float]:
    """Milliseconds of the requests for two drawings."""
    page, found = Page(driver), []
    for stroke in (BAR, CIRCLE):
        driver.execute_script("performance.clearResourceTimings()")
        page.draw(*stroke)
        found += driver.execute_script(_REQUESTS)
        page.one("#clear").click()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", default="http://127.0.0.1:8765")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with browser() as driver:
        driver.get(arguments.address)
        page = Page(driver)
        page.wait(lambda: page.one("#pad").is_displayed())
        page.draw(*CIRCLE)
        shared = driver.current_url
        loads = [first_result(driver, shared) for _ in range(arguments.rounds)]
        drawings = [ms for _ in range(arguments.rounds) for ms in drawn_digits(driver)]
    report = {
        "first_result_ms": [round(ms) for ms in loads],
        "drawn_digit_ms": {"median": round(statistics.median(drawings), 1), "most": round(max(drawings), 1)},
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
