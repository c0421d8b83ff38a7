"""Make Markdown of docstrings, which are written for people who read the source."""

from __future__ import annotations

import re

ROLE = re.compile(r":(?:class|func|meth|attr|mod|data|exc):`[~.]?([\w.]+)`")
RULE = re.compile(r"^=+(  +=+)+$")
SECTION = re.compile(r"^(Parameters|Attributes)\n-+\n(.*?)(?=^\w[\w ]*\n-+\n|\Z)", re.MULTILINE | re.DOTALL)


def readable(text: str) -> str:
    """Return a docstring as Markdown.

    >>> readable("See :class:`posh.Index`.")
    'See <autoref optional identifier="posh.Index"><code>posh.Index</code></autoref>.'
    """
    text = SECTION.sub(_described, text)
    text = ROLE.sub(r'<autoref optional identifier="\1"><code>\1</code></autoref>', text)
    lines: list[str] = []
    in_example = in_table = False
    for line in [*text.splitlines(), ""]:
        bare = line.strip()
        if RULE.match(bare):
            in_table = not in_table
            lines += ["| | |", "|---|---|"] if in_table else []
            continue
        if bare.startswith(">>>") and not in_example:
            in_example = True
            lines += ["", "```pycon"]
        elif in_example and not bare:
            in_example = False
            lines.append("```")
        lines.append(_row(bare) if in_table else line)
    return "\n".join(lines).rstrip()


def _row(line: str) -> str:
    return (
        "| "
        + " | ".join(f"`{cell}`" if not i else cell for i, cell in enumerate(re.split(r"  +", line)))
        + " |"
    )


def _described(section: re.Match[str]) -> str:
    """Put the words behind ``name :`` on the next line: griffe would take them for a type.

    Prose after the last parameter becomes a section of its own.
    """
    body = re.sub(r"^([\w*, ]+?) : (.*)$", r"\1\n    \2", section[2], flags=re.MULTILINE)
    body = re.sub(r"\n\n(?=\S)(?![\w*, ]+\n    )", "\n\nNotes\n-----\n", body, count=1)
    return f"{section[1]}\n{'-' * len(section[1])}\n{body}"
