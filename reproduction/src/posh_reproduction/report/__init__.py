"""The report: every table and figure beside the paper's, made from raw records alone.

``estimates.py`` has the formulas, ``judge.py`` and ``claims_*.py`` the verdicts, ``sections_*.py`` the tables
and figures, ``document.py`` and ``writers.py`` how they become Markdown and a page.
"""

from __future__ import annotations

from pathlib import Path

from posh.store import atomic_write
from posh_reproduction.report.document import Figure
from posh_reproduction.report.evidence import Evidence
from posh_reproduction.report.whole import blocks_of
from posh_reproduction.report.writers import to_html, to_markdown

__all__ = ["write"]

_NAME = "reproduction"


def write(results: Path, output: Path, *, quick: bool = False) -> list[Path]:
    """Write ``reproduction.md``, its pictures and ``reproduction.html`` into ``output``; return the paths."""
    blocks = blocks_of(Evidence(results, quick=quick))
    pictures = output / _NAME
    pictures.mkdir(parents=True, exist_ok=True)
    written = []
    for block in blocks:
        if isinstance(block, Figure):
            written.append(_written(pictures / f"{block.name}.png", block.content))
    markdown = to_markdown(blocks, _NAME)
    page = to_html(blocks, "Reproduction of Procrustean Orthogonal Sparse Hashing")
    texts = {output / f"{_NAME}.md": markdown, output / f"{_NAME}.html": page}
    return [*(_written(path, text.encode()) for path, text in texts.items()), *written]


def _written(path: Path, content: bytes) -> Path:
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)
    return path
