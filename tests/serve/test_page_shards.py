"""The page of served shards, which have ids and scores only."""

from __future__ import annotations

import pytest

import posh
from posh import batch
from posh.serve.sources import ShardSource
from tests.batch.doing import DIGITS, Here, write_npy
from tests.serve.browser import opened, require_browser
from tests.serve.service import running


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    require_browser()
    place = tmp_path_factory.mktemp("sharded")
    write_npy(place / "vectors")
    batch.build([place / "vectors"], place / "shards", posh.Index(metric="euclidean"), Here())
    return place / "shards"


@pytest.fixture(scope="module")
def address(folder):
    with running(ShardSource(folder, 2)) as address:
        yield address


@pytest.fixture
def page(driver, address):
    with opened(driver, address, lambda page: page.text("#welcome")) as page:
        yield page


def test_a_pasted_vector_finds_ids(page, folder):
    assert "It has ids and scores, and nothing else to show" in page.text("#welcome")
    assert "Paste a vector of 64 numbers" in page.text("#welcome")
    assert page.one("#query").get_attribute("placeholder") == "Paste a vector of 64 numbers"
    assert not page.one("#map-section").is_displayed()
    page.one("#query").send_keys(", ".join(map(str, DIGITS.queries[0].tolist())))
    page.wait_for_new(page.one("#search button").click)
    one = posh.Index.load(folder / "template" / "index").add(DIGITS.base)
    expected = one.search(DIGITS.queries[:1], k=10).ids[0].tolist()
    assert page.ids_shown(".column .card") == expected
    assert page.names() == [str(number) for number in expected]
    assert not page.all(".column .card button")
    page.wait_for_new(page.one('#views [data-view="table"]').click)
    assert page.ids_shown(".column tbody tr") == expected
    assert not page.all(".column td button")
    page.driver.refresh()
    page.wait(lambda: page.ids_shown(".column tbody tr") == expected)
