"""The reference of the command line, written from the parsers."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from posh import cli


def page() -> str:
    """Return every command with its arguments, as Markdown."""
    commands = _verbs(cli.build_full_parser())  # with those of other distributions
    return "\n".join(line for name, parser in commands.items() for line in _command(parser, name, 2))


def _verbs(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    found = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(found[0].choices) if found else {}


def _command(parser: argparse.ArgumentParser, name: str, level: int) -> Iterator[str]:
    yield from ("", f"{'#' * level} posh {name}", "")
    summary = parser.description or ""
    yield f"{summary[:1].upper()}{summary[1:]}."
    if verbs := _verbs(parser):
        for verb, own in verbs.items():
            yield from _command(own, f"{name} {verb}", level + 1)
        return
    if parser.epilog:
        yield from ("", "```console", f"$ {parser.epilog.partition(chr(10))[2].strip()}", "```")
    yield from ("", "| argument | meaning |", "|---|---|")
    for action in parser._actions:
        if not isinstance(action, argparse._HelpAction):
            yield f"| {_format_argument(action)} | {_format_help(action)} |"


def _format_argument(action: argparse.Action) -> str:
    value = action.metavar or (
        "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    )
    value = " ".join(value) if isinstance(value, tuple) else value
    more = {"*": " …", "+": " …", "?": ""}.get(str(action.nargs), "")
    if not action.option_strings:
        return f"`{value}`{more}"
    argument = "" if action.nargs == 0 else f" {value}"
    return ", ".join(f"`{option}{argument}`".replace("|", "\\|") for option in action.option_strings)


def _format_help(action: argparse.Action) -> str:
    """Return the help of an argument, with percent signs as a terminal shows them."""
    text = (action.help or "") % {**vars(action), "prog": "posh"} if action.help else ""
    return re.sub(r"([|<>*_])", r"\\\1", " ".join(text.split()))
