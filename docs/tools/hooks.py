"""Hooks of mkdocs, named in ``mkdocs.yml``.

They fill the references of the command line and of HTTP, execute notebooks and turn them into pages, list the
decisions in the navigation, and check the links of the finished site.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

from docs.tools import check, commands, http, notebooks
from mkdocs.structure.files import File

LOG = logging.getLogger("mkdocs.hooks")  # below "mkdocs", so that --strict counts its warnings

OPTIONAL = ("benchmarks.md", "recall-under-filters.md")  # written from measurements, so it may not exist

GENERATED = {
    "<!-- the commands -->": commands.page,
    "<!-- the operations -->": http.page,
}


def on_config(config: Any) -> Any:
    """Remove missing optional pages from the navigation, and add the decisions."""
    docs = Path(config.docs_dir)
    missing = {name for name in OPTIONAL if not (docs / name).exists()}
    for section in config.nav:
        for title, pages in section.items():
            if title == "Decisions":
                section[title] = [
                    f"decisions/{path.name}" for path in sorted((docs / "decisions").glob("*.md"))
                ]
            elif isinstance(pages, list):
                section[title] = [page for page in pages if _get_target(page) not in missing]
    return config


def _get_target(page: str | dict[str, str]) -> str:
    return page if isinstance(page, str) else next(iter(page.values()))


def on_files(files: Any, *, config: Any) -> Any:
    """Add the executed notebooks, their pages, and the OpenAPI description of the service."""
    for path in sorted((Path(config.docs_dir) / "notebooks").glob("*.ipynb")):
        files.remove(files.get_file_from_path(f"notebooks/{path.name}"))  # it has no outputs
        for name, content in notebooks.execute(path).items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    files.append(File.generated(config, "reference/openapi.json", content=http.description_text()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace marks by generated text, and links to notebooks by links to their pages."""
    markdown = re.sub(r"\((notebooks/[\w-]+)\.ipynb\)", r"(\1.md)", markdown)
    for mark, generate in GENERATED.items():
        if mark in markdown:
            markdown = markdown.replace(mark, generate())
    return markdown


def on_post_build(*, config: Any) -> None:
    """Warn about every broken link of the site, and list external links in a file."""
    result = check.check_site(Path(config.site_dir))
    for problem in result.problems:
        LOG.warning(problem)
    listing = Path(config.site_dir).parent / "external-links.txt"
    listing.write_text("".join(f"{link}\n" for link in result.external))
    LOG.info(
        "%d internal links; %d external ones are in %s", result.n_internal, len(result.external), listing
    )
