"""Warnings of filters that pass nothing because no item has the field, or none a value of the type."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import posh
from posh.cli import main
from tests.collection.implementations import DATA
from tests.serve.service import create_remote

PAYLOADS = [{"year": 1990 + i, "title": f"Title {i}", "tags": [], "size": {"width": i}} for i in range(9)]
YEER = r'^no item has a field "yeer"; did you mean "year"\?$'


@pytest.fixture(params=[posh.Collection, create_remote], ids=["embedded", "remote"])
def shop(request, tmp_path):
    with request.param(tmp_path / "shop", metric="cosine") as collection:
        yield collection.upsert(range(9), DATA[:9], PAYLOADS)


@pytest.mark.parametrize(
    "ask",
    [
        lambda shop: shop.search(DATA[0], filter={"yeer": 1999}),
        lambda shop: shop.search(DATA[0], filter={"yeer": 1999}, payloads=True),
        lambda shop: shop.search(ids=[3], filter={"yeer": 1999}),
        lambda shop: shop.search_radius(DATA[0], min_score=0.1, filter={"yeer": 1999}),
        lambda shop: shop.count({"yeer": 1999}),
        lambda shop: list(shop.items({"yeer": 1999})),
        lambda shop: shop.delete(filter={"yeer": 1999}),
    ],
)
def test_every_method_with_a_filter_warns(shop, ask):
    with pytest.warns(posh.FilterWarning, match=YEER):
        ask(shop)


def test_text_searches_warn(tmp_path):
    with posh.create(tmp_path / "t", metric="cosine", text=["title"]) as shop:
        shop.upsert(range(9), DATA[:9], PAYLOADS)
        with pytest.warns(posh.FilterWarning, match=YEER):
            shop.search(text="title", filter={"yeer": 1999})


def test_the_type_is_named(shop):
    with pytest.warns(posh.FilterWarning, match='no item has a string in the field "year", only numbers'):
        shop.count({"year": "1999"})
    with pytest.warns(posh.FilterWarning, match='in the field "tags", only objects, empty or long lists'):
        shop.count({"tags": {"contains": "a"}})
    with pytest.warns(posh.FilterWarning, match='no item has a field "width"; did you mean "size.width"'):
        shop.count({"width": 3})


def test_no_warning_if_an_item_could_pass_or_none_is_there(shop):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert shop.count({"year": 7}) == 0
        assert shop.count({"size": {"exists": True}, "tags": {"exists": True}}) == 9
        assert shop.count({"yeer": {"ne": 7}}) == 9
        assert shop.search(DATA[0], filter={"year": 7}).ids.size
        assert list(shop.items({"year": {"gt": 1990}}, after=8)) == []
        assert shop.delete(filter={}) == 9
        assert shop.count({"yeer": 1999}) == 0


def test_a_field_that_later_items_have(tmp_path):
    with posh.Collection(tmp_path / "shop", metric="cosine") as shop:
        shop.upsert(range(9), DATA[:9], PAYLOADS)
        with pytest.warns(posh.FilterWarning):
            shop.count({"new": {"exists": True}})
        shop.upsert(["a"], DATA[:1], [{"new": [[1]]}])
        shop.upsert([f"b{i}" for i in range(2000)], np.resize(DATA, (2000, 8)), [{"new": {}}] * 2000)
        assert shop.count({"new": {"exists": True}}) == 2001
        shop.delete(["a"])
        assert shop.count({"new": {"exists": True}}) == 2000
        assert shop.count({"new": {"exists": False}}) == 9


def test_on_the_command_line(tmp_path, capsys):
    with posh.Collection(tmp_path / "shop", metric="cosine") as shop:
        shop.upsert(range(9), DATA[:9], PAYLOADS)
    for command in (["query", "--like", "3"], ["get"], ["delete", "--dry-run"]):
        assert main([command[0], str(tmp_path / "shop"), *command[1:], "--filter", '{"yeer": 1}']) == 0
        error = capsys.readouterr().err
        assert error == 'posh: warning: no item has a field "yeer"; did you mean "year"?\n'
