"""Hooks of mkdocs: what the site has beside the pages under ``docs/``.

The references of the command line and of HTTP are written into their pages, notebooks are executed and become
pages, and the finished site is checked. ``mkdocs.yml`` names this file.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

from docs.tools import check, commands, http, notebooks
from mkdocs.structure.files import File

LOG = logging.getLogger("mkdocs.hooks")  # below "mkdocs", so that --strict counts its warnings

OPTIONAL = ("benchmarks.md",)  # made from measurements, so it may not be there

REPLACED = {
    "<!-- the commands -->": commands.page,
    "<!-- the operations -->": http.page,
}


def on_config(config: Any) -> Any:
    """Take optional pages that are not there out of the navigation."""
    missing = {name for name in OPTIONAL if not (Path(config.docs_dir) / name).exists()}
    for section in config.nav:
        for title, pages in section.items():
            if isinstance(pages, list):
                section[title] = [page for page in pages if _target(page) not in missing]
    return config


def _target(page: str | dict[str, str]) -> str:
    return page if isinstance(page, str) else next(iter(page.values()))


def on_files(files: Any, *, config: Any) -> Any:
    """Add the executed notebooks, their pages, and the description of the service."""
    for path in sorted((Path(config.docs_dir) / "notebooks").glob("*.ipynb")):
        files.remove(files.get_file_from_path(f"notebooks/{path.name}"))  # the one without outputs
        for name, content in notebooks.executed(path).items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    files.append(File.generated(config, "reference/openapi.json", content=http.description_text()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put generated text in the place of its mark, and lead links to notebooks to their pages."""
    markdown = re.sub(r"\((notebooks/[\w-]+)\.ipynb\)", r"(\1.md)", markdown)
    for mark, written in REPLACED.items():
        if mark in markdown:
            markdown = markdown.replace(mark, written())
    return markdown


def on_post_build(*, config: Any) -> None:
    """Check every link of the site, and list those that lead elsewhere."""
    found = check.check_site(Path(config.site_dir))
    for problem in found.problems:
        LOG.warning(problem)
    listing = Path(config.site_dir).parent / "external-links.txt"
    listing.write_text("".join(f"{link}\n" for link in found.external))
    LOG.info(
        "%d internal links lead somewhere; %d external ones are in %s",
        found.n_internal,
        len(found.external),
        listing,
    )
