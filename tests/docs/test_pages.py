"""Every code block of every page runs, twice in a row, and prints what the page says."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

import posh
from tests.docs.pages import ROOT, RUN, SHOWN_ONLY, Session, blocks

PAGES = sorted((ROOT / "docs").rglob("*.md"))
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a user's file of vectors, which some commands are shown with."""
    data = posh.datasets.load("digits")
    np.save(tmp_path / "vectors.npy", data.base[:400])
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("path", [p for p in PAGES if blocks(p.read_text())], ids=name_of)
def test_the_blocks_of_a_page_run_one_after_the_other_and_again(path, folder):
    for is_quick in (False, True):
        session = Session(name_of(path), folder, is_quick=is_quick)
        try:
            session.run(path.read_text())
        finally:
            session.close()
    if session.missing:
        pytest.skip(f"all others ran; this machine does not have {', '.join(sorted(session.missing))}")


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_block_is_run_or_says_why_not(path):
    for block in blocks(path.read_text()):
        assert block.language in RUN + SHOWN_ONLY, f"line {block.line}: {block.language}"
        assert block.mark != "not run" or len(block.reason) > 8, f"line {block.line}"
    assert path.read_text().count("```") == 2 * len(blocks(path.read_text())), "a block that nobody finds"


@pytest.mark.parametrize("path", [*PAGES, *sorted(ROOT.glob("*.md"))], ids=name_of)
def test_code_fits_into_the_column_of_the_site(path):
    """``docs/assets/site.css`` makes the column this wide; docs/ruff.toml has the same limit."""
    for block in blocks(path.read_text()):
        for line in block.text.splitlines():
            assert len(line) <= 88, f"line {block.line}: {line}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_a_notebook_runs_and_leaves_nothing(path, folder):
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    before, names = set(folder.rglob("*")), {"__name__": "__main__"}
    with mpl.rc_context({"backend": "agg"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="FigureCanvasAgg is non-interactive")
        for i, cell in enumerate(cells):
            exec(compile("".join(cell["source"]), f"{path.name}, cell {i}", "exec"), names)
    assert set(folder.rglob("*")) == before, "it may not run a second time"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_notebooks_are_kept_without_outputs(path):
    """``make docs`` executes them; outputs in the repository would be old ones."""
    for cell in json.loads(path.read_text())["cells"]:
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None


def test_there_are_three_notebooks():
    assert len(NOTEBOOKS) == 3


def test_a_session_notices_what_is_wrong(folder):
    """A failing command, a failing block and a wrong output are errors."""
    for text in (
        "```console\n$ false\n```",
        "```python\n1 / 0\n```",
        "```python\nprint(1)\n```\n\n```text\n2\n```",
    ):
        with pytest.raises((AssertionError, ZeroDivisionError)):
            Session("page", folder).run(text)
    for command in ("posh query nowhere --like 0", "posh --version\nanother one"):
        with pytest.raises((AssertionError, SystemExit)):
            Session("page", folder, is_quick=True).run(f"```console\n$ {command}\n```")
    Session("page", folder).run("```python\nprint(12345)\n```\n\n```text\n1…5\n```")
    Session("page", folder).run("<!-- not run: it would fail -->\n```console\n$ false\n```")
    for needed in ("posh nope", "no_such_library"):
        session = Session("page", folder)
        session.run(f"<!-- needs: {needed} -->\n```python\n1 / 0\n```\n\n```text\nnothing\n```")
        assert session.missing == {needed}
