"""Execute notebooks and turn them into pages."""

from __future__ import annotations

import base64
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

_FENCE = "```"


def execute(path: Path) -> dict[str, str | bytes]:
    """Execute a notebook and return files by name: its page, its pictures, and the notebook with outputs.

    A cell that fails ends the build with its traceback.
    """
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        # Other users could read messages on TCP ports; sockets in a folder are private.
        config = Config({"KernelManager": {"transport": "ipc", "ip": f"{folder}/kernel"}})
        where = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=120, resources=where, config=config).execute()
    pictures: dict[str, str | bytes] = {}
    lines = [line for cell in notebook.cells for line in _cell(cell, path.stem, pictures)]
    note = f"*This page is an executed notebook: [{path.name}]({path.name}).*"
    title, _, rest = "\n".join(lines).strip().partition("\n")
    return {
        f"{path.stem}.md": f"{title}\n\n{note}\n{rest}\n",
        path.name: nbformat.writes(notebook),
        **pictures,
    }


def _cell(cell: Any, stem: str, pictures: dict[str, str | bytes]) -> Iterator[str]:
    if cell.cell_type == "markdown":
        yield from ("", cell.source, "")
        return
    yield from ("", f"{_FENCE}python", cell.source, _FENCE, "")
    for output in cell.outputs:
        yield from _output(output, stem, pictures)


def _output(output: Any, stem: str, pictures: dict[str, str | bytes]) -> Iterator[str]:
    data = output.get("data", {})
    if "image/png" in data:
        name = f"{stem}-{len(pictures) + 1}.png"
        pictures[name] = base64.b64decode(data["image/png"])
        yield from ("", f"![Output of the cell above]({name})", "")
    elif "text/html" in data:  # a table of pandas, without the style that would override the site's
        table = re.sub(r"<style.*?</style>|^\s+", "", data["text/html"], flags=re.DOTALL | re.MULTILINE)
        yield from ("", table.replace('<table border="1" class="dataframe">', "<table>"), "")
    else:
        text = output.get("text") or data.get("text/plain", "")
        yield from ("", f"{_FENCE}text", text.rstrip(), _FENCE, "")
