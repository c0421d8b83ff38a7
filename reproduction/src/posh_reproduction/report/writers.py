"""Writers of documents: Markdown with picture files, and one self-contained HTML page."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt

from posh_reproduction.report.document import Block, Contents, Figure, Heading, Text, anchor

__all__ = ["to_html", "to_markdown"]


def to_markdown(blocks: Iterable[Block], pictures: str) -> str:
    r"""Return Markdown whose pictures are in the folder ``pictures`` next to it.

    >>> from posh_reproduction.report.document import Table
    >>> to_markdown([Heading(2, "Title"), Table(["a"], [["1"]])], "figures")
    '## Title\n\n| a |\n|---|\n| 1 |\n'
    """
    return "\n\n".join(_markdown(block, pictures) for block in blocks) + "\n"


def _markdown(block: Block, pictures: str) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {block.text}"
    if isinstance(block, Contents):
        return "\n".join(f"- [{text}](#{anchor(text)})" for text in block.headings)
    if isinstance(block, Text):
        return "\n".join(f"- {line}" if block.is_list else line for line in block.lines)
    if isinstance(block, Figure):
        return f"![{block.caption}]({pictures}/{block.name}.png)\n\n*{block.caption}*"
    lines = [block.header, ["---"] * len(block.header), *block.rows]
    return "\n".join(_row(cells) for cells in lines)


def _row(cells: Iterable[str]) -> str:
    texts = [cell.replace("|", "\\|").replace("\n", "<br>") for cell in cells]
    if set(texts) == {"---"}:
        return f"|{'|'.join(texts)}|"
    return f"| {' | '.join(texts)} |"


_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #fff; --line: #d5d5d5; --soft: #f4f4f4; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --paper: #16181b; --line: #3a3d42; --soft: #22252a; }
}
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 62rem; margin: 0 auto; padding: 1rem; overflow-wrap: break-word; }
a { color: inherit; } ul:first-of-type { columns: 17rem; column-gap: 2rem; padding-left: 1.2rem; }
h1 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
table { display: block; overflow-x: auto; border-collapse: collapse; font-size: .85rem;
        font-variant-numeric: tabular-nums; }
th, td { border: 1px solid var(--line); padding: .3rem .5rem; text-align: left; vertical-align: top; }
th { background: var(--soft); } tbody td:first-child { font-weight: 600; }
p > em:only-child { font-style: normal; font-size: .9rem; opacity: .85; }
img { max-width: 100%; height: auto; background: #fff; border-radius: 4px; }
code { background: var(--soft); padding: .1rem .3rem; border-radius: 3px; font-size: .9em; }
"""


def to_html(markdown: str, folder: Path, title: str) -> str:
    """One page with its style and pictures in it: light and dark, narrow and wide.

    ``folder`` is where the pictures of the Markdown text are.

    >>> '<h2 id="title">Title</h2>' in to_html("## Title", Path(), "A page")
    True
    """
    converter = MarkdownIt("commonmark", {"html": True}).enable("table")  # cells have the HTML tag <br>
    tokens = converter.parse(markdown)
    for token, content in pairwise(tokens):
        if token.type == "heading_open":
            token.attrSet("id", anchor(content.content))
        for child in token.children or ():
            if child.type == "image":
                picture = base64.b64encode((folder / str(child.attrs["src"])).read_bytes()).decode()
                child.attrSet("src", f"data:image/png;base64,{picture}")
    body = converter.renderer.render(tokens, converter.options, {})
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
