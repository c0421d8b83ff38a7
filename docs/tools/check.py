"""Check the built site: internal links have targets, and nothing is loaded from other hosts."""

from __future__ import annotations

from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

LOADED = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src"), ("source", "src")}
FOLLOWED = {("a", "href")}


class Result(NamedTuple):
    """Problems, external links and the number of internal links of a site."""

    problems: list[str]
    external: list[str]
    n_internal: int


class Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[tuple[str, bool]] = []  # and whether browsers load them automatically
        self.anchors: set[str] = {"", "__top"}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the id and the links of an element."""
        values = {name: value or "" for name, value in attrs}
        self.anchors.add(values.get("id", ""))
        if values.get("rel") in ("canonical", "alternate"):
            return  # loads nothing
        for name, value in values.items():
            if (tag, name) in LOADED | FOLLOWED:
                self.links.append((value, (tag, name) in LOADED))


def check_site(folder: Path) -> Result:
    """Check all pages in a folder."""

    @cache
    def read_page(path: Path) -> Page:
        return Page(path.read_text())

    problems: list[str] = []
    external: set[str] = set()
    n_internal = 0
    for path in sorted(folder.rglob("*.html")):
        if path.name == "404.html":
            continue  # its links start at the root of a server
        for link, loaded in read_page(path).links:
            parts = urlsplit(link)
            if parts.scheme in ("data", "mailto", "javascript"):
                continue
            if parts.scheme or parts.netloc:
                external.add(link)
                if loaded:
                    problems.append(
                        f"{path.relative_to(folder)} loads {link}: expected files of the site only"
                    )
                continue
            n_internal += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                problems.append(f"{path.relative_to(folder)} links to {link}, which does not exist")
            elif target.suffix == ".html" and unquote(parts.fragment) not in read_page(target).anchors:
                problems.append(f"{path.relative_to(folder)} links to {link}: the page has no such anchor")
    return Result(problems, sorted(external), n_internal)
