"""The command line: ``posh COMMAND …``, one module per command.

The module of a command has ``add(parser)``, which declares its arguments and the function that turns them
into a :class:`~posh.cli._command.Report`. It is imported only if the command is chosen. Other distributions
add commands through entry points of the group ``posh.commands``; each is a
:class:`~posh.cli._command.Command`. Only :func:`main` prints, handles errors and chooses exit codes.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import warnings
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module

from posh._runtime import load_plugins, suggest_plugins
from posh.cli._command import EXAMPLE, Command, Parser, Report, UsageError, note
from posh.errors import PoshError

__all__ = ["full_parser", "main"]

_COMMANDS = {
    "data": Command("list or fetch the data sets", "posh.cli._data"),
    "fit": Command("learn a hasher from vectors and save it", "posh.cli._fit"),
    "encode": Command("turn vectors into codes with a saved hasher", "posh.cli._encode"),
    "build": Command("encode vectors and save them as an index", "posh.cli._build"),
    "search": Command("find the nearest documents of an index", "posh.cli._search"),
    "batch": Command(
        "fit, encode, build and search vectors in many files, on one machine or on Ray", "posh.cli._batch"
    ),
    "import": Command("bring vectors, ids and payloads from files into a collection", "posh.cli._import"),
    "query": Command(
        "find the items of a collection that are nearest to an item or a vector", "posh.cli._query"
    ),
    "copy": Command("copy a collection to another place, such as Milvus", "posh.cli._copy"),
    "export": Command("write the items of a collection to a file", "posh.cli._export"),
    "tune": Command(
        "measure what searches of your vectors find and cost: a table, a plot, and a choice", "posh.cli._tune"
    ),
    "serve": Command("answer HTTP requests for a folder of collections", "posh.cli._serve"),
    "eval": Command(
        "measure what an index finds: precision by labels, or recall of the true neighbours", "posh.cli._eval"
    ),
    "info": Command("say what a model file or an index folder is", "posh.cli._info"),
    "check": Command(
        "read all of a collection, an index folder or a model file and compare its checksums",
        "posh.cli._check",
    ),
    "completion": Command(
        "print a script that completes these commands in your shell", "posh.cli._completion"
    ),
    "bench": Command("measure how fast this machine searches, encodes or fits", "posh.cli._bench"),
}
_GROUP = "posh.commands"  # entry points of this group add commands
# NotFittedError is a ValueError; MemoryError is what NumPy raises for arrays that do not fit.
_EXPECTED = (PoshError, ValueError, TypeError, OSError, MemoryError)
_FAILED, _USAGE, _INTERRUPTED, _BROKEN_PIPE = 1, 2, 130, 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 1 (it failed) or 2 (wrong usage).

    Errors are one line on stderr; set ``POSH_DEBUG=1`` to see the traceback instead.

    >>> main(["data", "fetch", "digits"])
    digits: was here already
    0
    """
    try:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, _stop)  # so that unfinished files are removed
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            return _run(arguments)
    except BrokenPipeError:
        # The interpreter flushes stdout once more when it ends, and must not find the closed pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except KeyboardInterrupt:
        note("posh: interrupted")
        return _INTERRUPTED
    except _EXPECTED as error:
        if os.environ.get("POSH_DEBUG") == "1":
            raise
        note(f"posh: error: {_one_line(error)}")
        return _USAGE if isinstance(error, UsageError) else _FAILED


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning in one line; Python's own way shows a line of our code, too."""
    note(f"posh: warning: {' '.join(str(message).split())}")


def _stop(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def _run(arguments: Sequence[str] | None) -> int:
    try:
        given = sys.argv[1:] if arguments is None else arguments
        args = _parser(given).parse_args(given)
        report: Report = args.run(args)
        print(json.dumps(report.values, allow_nan=False) if args.json else report.text)
        return report.exit_code
    finally:
        sys.stdout.flush()  # a closed pipe shows here, where it is handled; also after --help


def _parser(arguments: Sequence[str]) -> Parser:
    """The parser of all commands; only the chosen one has its arguments."""
    chosen = next((text for text in arguments if not text.startswith("-")), None)
    # A command of ours needs no search for others, which takes a while.
    commands = _COMMANDS if chosen in _COMMANDS else _COMMANDS | load_plugins(_GROUP) | _COMMANDS
    if chosen is not None and chosen not in commands:
        raise UsageError(
            f"unknown command {chosen!r}; choose from {', '.join(commands)}{suggest_plugins(_GROUP)}"
        )
    return _parser_of(commands, [chosen])


def full_parser() -> Parser:
    """Return the parser of all commands with all their arguments."""
    commands = _COMMANDS | load_plugins(_GROUP) | _COMMANDS
    return _parser_of(commands, commands)


def _parser_of(commands: Mapping[str, Command], complete: Collection[str | None]) -> Parser:
    """The parser of these commands; those in ``complete`` have their arguments."""
    parser = Parser(
        prog="posh",
        description="Sparse binary codes for vectors: learn them, encode and search with them, measure.",
        epilog=EXAMPLE.format("posh fit digits -o digits.safetensors --bits 256 --active 16"),
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    added = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    for name, command in commands.items():
        own = added.add_parser(name, help=command.summary, description=command.summary)
        if name in complete:
            import_module(command.module).add(own)
    return parser


class _Version(argparse.Action):
    """Print the version; unlike argparse's own action, look it up only when asked."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"posh {version('posh-ann')}")
        parser.exit()


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__
