"""The report: every table and figure compared with the paper's, made from raw records alone.

``estimates.py`` has the formulas and ``judge.py`` the verdicts. ``orthogonality.py``, ``objectives.py``,
``sbiht.py`` and ``large_sets.py`` have the claims, tables and figures of one topic each. ``claims_trials.py``
and ``sections_trials.py`` have those of the methods on labelled data. ``power_hash.py`` has those of a method
that is not in the paper, and ``gist_settings.py`` looks for the features of MNIST-GIST. ``outline.py`` puts
them in order, ``document.py`` and ``writers.py`` turn them into Markdown and a page.
"""

from __future__ import annotations

from pathlib import Path

from posh._durable import write_atomically
from posh_reproduction.report.document import Figure
from posh_reproduction.report.evidence import Evidence
from posh_reproduction.report.outline import blocks_of
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
    page = to_html(markdown, output, "Reproduction of Procrustean Orthogonal Sparse Hashing")
    texts = {output / f"{_NAME}.md": markdown, output / f"{_NAME}.html": page}
    return [*(_written(path, text.encode()) for path, text in texts.items()), *written]


def _written(path: Path, content: bytes) -> Path:
    with write_atomically(path) as temporary:
        temporary.write_bytes(content)
    return path
