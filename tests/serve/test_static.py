"""The page and its files."""

from __future__ import annotations

import asyncio
import re

import pytest
from starlette.requests import Request

from posh.serve.static import POLICY, PageFiles


def test_the_page_is_at_the_root(http):
    page = http.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.text.startswith("<!doctype html>")
    assert http.get("/index.html").text == page.text
    head = http.head("/")
    assert (head.status_code, head.text) == (200, "")


def test_scripts_of_other_hosts_and_inline_ones_are_forbidden(http):
    policy = http.get("/").headers["content-security-policy"]
    assert policy == POLICY
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert "unsafe" not in policy
    assert "http" not in policy


def test_the_page_keeps_to_its_policy(http):
    text = http.get("/").text
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|<style|style=|javascript:", text)
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", text)


def test_unchanged_files_are_not_sent_again(http):
    tag = http.get("/").headers["etag"]
    again = http.get("/", headers={"if-none-match": tag})
    assert (again.status_code, again.text) == (304, "")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("app.js", "text/javascript; charset=utf-8"),
        ("style.css", "text/css; charset=utf-8"),
        ("icons/a.svg", "image/svg+xml"),
        ("a.woff2", "font/woff2"),
    ],
)
def test_files_have_the_right_type(tmp_path, name, kind):
    (tmp_path / "icons").mkdir()
    (tmp_path / "index.html").write_text("<!doctype html>")
    (tmp_path / name).write_text("content")
    (tmp_path / "notes.txt").write_text("not for everybody")
    page = PageFiles(tmp_path)
    assert set(page.paths) == {"/", "/index.html", f"/{name}"}
    scope = {"type": "http", "method": "GET", "path": f"/{name}", "headers": []}
    answer = asyncio.run(page(Request(scope)))
    assert answer.headers["content-type"] == kind
    assert answer.body == b"content"
