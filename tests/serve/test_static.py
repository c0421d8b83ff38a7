"""The page and its files."""

from __future__ import annotations

import asyncio
import html
import re

import httpx
import pytest
from starlette.requests import Request

from posh.serve.static import POLICY, PageFiles, write_docs


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


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_the_page_keeps_to_its_policy(http, path):
    text = http.get(path).text
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
    page = PageFiles({}, tmp_path)
    assert set(page.paths) == {"/", "/index.html", f"/{name}"}
    scope = {"type": "http", "method": "GET", "path": f"/{name}", "headers": []}
    answer = asyncio.run(page(Request(scope)))
    assert answer.headers["content-type"] == kind
    assert answer.body == b"content"


def test_docs_tell_people_every_operation(http):
    page, description = http.get("/docs"), http.get("/openapi.json").json()
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert page.headers["content-security-policy"] == POLICY
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            assert f"<b>{method.upper()}</b> <code>{path}</code>" in page.text
            assert html.escape(operation["summary"]) in page.text
            assert page.text.count(f'id="{operation["operationId"]}"') == 1
    assert "&quot;filter&quot;: {&quot;label&quot;: 3}" in page.text  # the example of a search
    assert "integer (at least 1, at most 1,000)" in page.text  # the limit of k
    assert "<script" not in page.text
    for path in re.findall(r'(?:href|src)="(/[^"#]*)"', page.text):
        assert http.get(path).status_code == 200


def test_docs_need_no_token_and_say_where_it_goes(locked):
    answer = httpx.get(f"{locked}/docs")
    assert answer.status_code == 200
    assert "Authorization: Bearer TOKEN" in answer.text


def test_docs_escape_what_they_show():
    operation = {"operationId": "x", "summary": "<b>&", "responses": {"400": {"description": "<i>"}}}
    description = {
        "info": {"title": "<t>", "version": "<v>", "description": "<d>"},
        "components": {"schemas": {}},
        "paths": {"/<q>": {"get": operation}},
    }
    page = write_docs(description)
    assert not re.search("<(b>&|i>|t>|v>|d>|q>)", page)
