"""The tools of the site: references written from the code, and the check of finished pages."""

from __future__ import annotations

import doctest
import re

import matplotlib as mpl
import pytest
import yaml
from docs.tools import check, commands, docstrings, http, pictures, site

import posh
from posh import cli
from tests.docs.pages import ROOT
from tests.serve.test_openapi import OPERATIONS

REFERENCE = "\n".join(path.read_text() for path in (ROOT / "docs" / "reference").glob("*.md"))


def test_the_reference_has_every_public_name():
    assert set(re.findall(r"^::: posh\.(\w+)$", REFERENCE, flags=re.MULTILINE)) == set(posh.__all__)


def test_the_reference_of_the_command_line_has_every_command_and_option():
    page = commands.page()
    for name in cli._COMMANDS:
        assert re.search(rf"^## posh {name}$", page, flags=re.MULTILINE), name
    assert "### posh data fetch" in page
    assert "| `-k K` | results per query; default: 10 |" in page
    assert "$ posh fit " in page


def test_the_reference_of_http_has_every_operation():
    page = http.page()
    for method, path in OPERATIONS:
        assert f"## {method.upper()} {path} " in page
    for link in re.findall(r"\]\(#([^)]+)\)", page):
        assert f"{{: #{link} }}" in page, link


def test_docstrings_become_markdown():
    assert doctest.testmod(docstrings).attempted > 0 == doctest.testmod(docstrings).failed
    text = docstrings.readable(
        "Add.\n\nParameters\n----------\nx : a number.\n    Large.\n\nMore.\n\n>>> 1\n1\n\nEnd."
    )
    assert "x\n    a number.\n    Large." in text
    assert "Notes\n-----\nMore." in text
    assert "```pycon\n>>> 1\n1\n```\n\nEnd." in text
    table = docstrings.readable("====  ====\na     b c\n====  ====")
    assert table == "| | |\n|---|---|\n| `a` | b c |"


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        ('<a href="other.html#here">', None),
        ('<a href="https://example.org">', None),
        ('<a href="gone.html">', "which does not exist"),
        ('<a href="other.html#gone">', "no such anchor"),
        ('<img src="https://example.org/a.png">', "loads https://example.org/a.png"),
        ('<script src="https://example.org/a.js">', "loads"),
        ('<link rel="stylesheet" href="//example.org/a.css">', "loads"),
    ],
)
def test_check_site_reports_problems(link, problem, tmp_path):
    (tmp_path / "other.html").write_text('<h1 id="here">Other</h1>')
    (tmp_path / "page.html").write_text(link)
    result = check.check_site(tmp_path)
    assert len(result.problems) == (problem is not None)
    assert problem is None or problem in result.problems[0]
    assert result.external == re.findall(r"(?:https:)?//[^\"]+", link)


def test_every_page_is_in_the_navigation():
    settings = site.configure(yaml.safe_load((ROOT / "mkdocs.yml").read_text()))
    assert site.list_orphans(settings["nav"], ROOT / "docs") == []
    orphans = site.list_orphans([{"Home": "index.md"}], ROOT / "docs")
    assert "backup.md: expected it in the navigation (mkdocs.yml)" in orphans
    for name in site.FROM_ROOT:
        assert name.lower() in str(settings["nav"])


def test_pages_of_the_root_link_to_pages_of_the_site():
    assert doctest.testmod(site).failed == 0 < doctest.testmod(site).attempted


def test_the_script_draws_all_pictures(tmp_path):
    with mpl.rc_context({"backend": "agg"}):
        pictures.write(tmp_path)
    drawn = {path.name for path in tmp_path.glob("*.png")}
    assert drawn == {path.name for path in pictures.FOLDER.glob("*.png")}
    text = "\n".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    assert drawn == set(re.findall(r"\(pictures/([\w-]+\.png)\)", text))
