"""Build the documentation site: ``python -m docs.tools.site``, or ``make docs``.

``build/pages`` gets the pages of ``docs`` and of the repository's root, references written from the code,
and executed notebooks. Zensical turns them into ``build/site``, and the links of the result are checked. Only
that step needs Zensical, and ``mkdocs.yml`` has the format of MkDocs: another generator could replace it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from docs.tools import check, commands, http

ROOT = Path(__file__).parent.parent.parent
BUILD = ROOT / "build"
GENERATED = {"<!-- the commands -->": commands.page, "<!-- the operations -->": http.page}
FROM_ROOT = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
_LINK = re.compile(r"\[([^\]]*)\]\(([^):#]+)(#[^)]*)?\)")


def main() -> int:
    """Build the site; return 0, or 1 after printing all problems."""
    for name in ("pages", "site"):
        shutil.rmtree(BUILD / name, ignore_errors=True)
    write_pages(BUILD / "pages")
    settings = configure(yaml.safe_load((ROOT / "mkdocs.yml").read_text()))
    (BUILD / "site.yml").write_text(yaml.safe_dump(settings, sort_keys=False))
    problems = list_orphans(settings["nav"], BUILD / "pages")
    zensical = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "-f", BUILD / "site.yml"]
    # In ROOT, it finds docs.tools.extension. Warnings of griffe about docstrings do not end its build.
    done = subprocess.run(zensical, cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False)
    print(done.stderr, end="", file=sys.stderr)
    if done.returncode or "griffe: " in done.stderr:
        problems.append("zensical found the problems above")
    result = check.check_site(BUILD / "site")
    problems += result.problems
    (BUILD / "external-links.txt").write_text("".join(f"{link}\n" for link in result.external))
    print(*problems, f"{result.n_internal} internal links; external ones: build/external-links.txt", sep="\n")
    return 1 if problems else 0


def write_pages(folder: Path) -> None:
    """Write all pages and their pictures to a new folder."""
    from docs.tools import notebooks  # needs the extra docs, which the tests of this module lack

    shutil.copytree(
        ROOT / "docs", folder, ignore=shutil.ignore_patterns("tools", "reproduction.html", "*.ipynb")
    )
    (folder / "reference" / "openapi.json").write_text(http.description_text())
    for notebook in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        for name, content in notebooks.execute(notebook).items():
            data = content if isinstance(content, bytes) else content.encode()
            (folder / "notebooks" / name).parent.mkdir(exist_ok=True)
            (folder / "notebooks" / name).write_bytes(data)
    for page in folder.rglob("*.md"):
        text = page.read_text()
        for mark, generate in GENERATED.items():
            text = text.replace(mark, generate()) if mark in text else text
        page.write_text(re.sub(r"\((notebooks/[\w-]+)\.ipynb\)", r"(\1.md)", text))
    for name in FROM_ROOT:
        (folder / name.lower()).write_text(relink((ROOT / name).read_text()))


def relink(text: str) -> str:
    """Return a page of the repository's root with links to pages of the site; other links become plain text.

    >>> relink("[a](docs/a.md#b), [c](SECURITY.md), [code](src/posh), [far](https://example.org)")
    '[a](a.md#b), [c](security.md), code, [far](https://example.org)'
    """

    def replace(link: re.Match[str]) -> str:
        label, target, anchor = link.groups(default="")
        if target in FROM_ROOT:
            return f"[{label}]({target.lower()}{anchor})"
        if target.startswith("docs/") and target.endswith(".md"):
            return f"[{label}]({target.removeprefix('docs/')}{anchor})"
        return label

    return _LINK.sub(replace, text)


def configure(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings for a file next to ``pages`` and ``site``, with the decisions in the navigation."""
    decisions = sorted(path.name for path in (ROOT / "docs" / "decisions").glob("*.md"))
    nav = [
        {"Decisions": [f"decisions/{name}" for name in decisions]} if "Decisions" in section else section
        for section in settings["nav"]
    ]
    return settings | {"docs_dir": "pages", "site_dir": "site", "nav": nav}


def list_orphans(nav: Any, folder: Path) -> list[str]:
    """Return a problem for each page that is not in the navigation."""
    listed = set(re.findall(r"[\w/.-]+\.md", str(nav)))
    pages = {str(page.relative_to(folder)) for page in folder.rglob("*.md")}
    return [f"{page}: expected it in the navigation (mkdocs.yml)" for page in sorted(pages - listed)]


if __name__ == "__main__":
    sys.exit(main())
