"""The command line: ``posh COMMAND …``.

:data:`_COMMANDS` is the table of commands. Each row names a function that declares the arguments of a
command, and with them the function that runs it and returns a :class:`~posh.cli._command.Report`. The module
is imported only if the command is chosen. Other distributions add commands through entry points of the group
``posh.commands``; each is a :class:`~posh.cli._command.Command`. Only :func:`main` prints results, handles
errors and chooses exit codes.
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
from typing import TYPE_CHECKING, Any

from posh._runtime import load_plugins, suggest_plugins
from posh.cli._command import EXAMPLE, Command, Parser, Report, UsageError, note
from posh.errors import FilterWarning, MissingExtraError, PoshError

if TYPE_CHECKING:
    from posh.cli._command import Commands

__all__ = ["build_full_parser", "main"]

_COLLECTIONS, _VECTORS, _CODES, _DATA = "collections", "vectors", "codes", "data"
_COMMANDS = {
    "import": Command(
        "import vectors, ids and payloads from files into a collection",
        "posh.cli._transfer:add_import",
        _COLLECTIONS,
    ),
    "query": Command(
        "find the items of a collection nearest to an item, to vectors or to words",
        "posh.cli._collection:add_query",
        _COLLECTIONS,
    ),
    "get": Command("print items of a collection", "posh.cli._items:add_get", _COLLECTIONS),
    "delete": Command(
        "delete items of a collection, by id or by filter", "posh.cli._items:add_delete", _COLLECTIONS
    ),
    "export": Command(
        "write the items of a collection to a file", "posh.cli._transfer:add_export", _COLLECTIONS
    ),
    "copy": Command(
        "copy a collection to a new folder or to Milvus", "posh.cli._transfer:add_copy", _COLLECTIONS
    ),
    "backup": Command(
        "write a backup of a collection, even while another process writes to it",
        "posh.cli._maintenance:add_backup",
        _COLLECTIONS,
    ),
    "restore": Command(
        "check a backup and make a collection of it", "posh.cli._maintenance:add_restore", _COLLECTIONS
    ),
    "reindex": Command(
        "rebuild the index of a collection, with other options if you like",
        "posh.cli._maintenance:add_reindex",
        _COLLECTIONS,
    ),
    "info": Command(
        "describe a collection, an index or a model, and check it for damage",
        "posh.cli._info:add_info",
        _COLLECTIONS,
    ),
    "serve": Command("serve a folder of collections over HTTP", "posh.cli._serve:add_serve", _COLLECTIONS),
    "build": Command("build an index of vectors and save it", "posh.cli._index:add_build", _VECTORS),
    "search": Command("search an index", "posh.cli._index:add_search", _VECTORS),
    "tune": Command(
        "measure recall, speed and memory: of candidate settings for your vectors, or of an existing index",
        "posh.cli._tune:add_tune",
        _VECTORS,
    ),
    "duplicates": Command(
        "find near-duplicates among vectors or the items of a collection",
        "posh.cli._duplicates:add_duplicates",
        _VECTORS,
    ),
    "fit": Command("fit a hasher to vectors and save it", "posh.cli._fit:add_fit", _CODES),
    "batch": Command(
        "fit, encode, build and search vectors in many files, on one machine or on Ray",
        "posh.cli._batch:add_batch",
        _CODES,
    ),
    "data": Command("list or fetch data sets", "posh.cli._data:add_data", _DATA),
}
_GROUP = "posh.commands"  # entry points of this group add commands
_COMPLETION = "--print-completion"
_SHELLS = ("bash", "zsh", "fish", "tcsh")
# NotFittedError is a ValueError. NumPy raises MemoryError for arrays that do not fit.
_EXPECTED = (PoshError, ValueError, TypeError, OSError, MemoryError)
_FAILED, _USAGE, _INTERRUPTED, _BROKEN_PIPE = 1, 2, 130, 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 1 (it failed) or 2 (wrong usage).

    Errors are one line on stderr; set ``POSH_DEBUG=1`` to see the traceback instead.

    >>> main(["data", "fetch", "digits"])
    digits: already present
    0
    """
    try:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, _exit_on_signal)  # removes unfinished files
        with warnings.catch_warnings():
            warnings.showwarning = _print_warning
            warnings.simplefilter("always", FilterWarning)
            return _run(sys.argv[1:] if arguments is None else arguments)
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
        note(f"posh: error: {_format_error(error)}")
        return _USAGE if isinstance(error, UsageError) else _FAILED


def _run(arguments: Sequence[str]) -> int:
    try:
        args = _build_parser(arguments).parse_args(arguments)
        report: Report = args.run(args)
        print(json.dumps(report.values, allow_nan=False) if args.json else report.text)
        return report.exit_code
    finally:
        sys.stdout.flush()  # raises the error of a closed pipe here, where main handles it; after --help too


def _print_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning in one line, without the line of code that Python's default adds."""
    note(f"posh: warning: {' '.join(str(message).split())}")


def _exit_on_signal(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def _format_error(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


# Parsers -----------------------------------------------------------------------------------------------


def _build_parser(arguments: Sequence[str]) -> Parser:
    """Build a parser of all commands, in which only the command in ``arguments`` has its arguments."""
    if arguments and arguments[0].startswith(_COMPLETION):
        return build_full_parser()
    name = next((text for text in arguments if not text.startswith("-")), None)
    # Looking for plug-ins takes time, and a core command needs none.
    commands = _COMMANDS if name in _COMMANDS else _COMMANDS | load_plugins(_GROUP) | _COMMANDS
    if name is not None and name not in commands:
        raise UsageError(
            f"unknown command {name!r}; choose from {', '.join(commands)}{suggest_plugins(_GROUP)}"
        )
    return _build_parser_of(commands, [name])


def build_full_parser() -> Parser:
    """Build a parser of all commands, with all their arguments."""
    commands = _COMMANDS | load_plugins(_GROUP) | _COMMANDS
    return _build_parser_of(commands, commands)


def _build_parser_of(commands: Mapping[str, Command], complete: Collection[str | None]) -> Parser:
    """Build a parser of these commands; those in ``complete`` get their arguments."""
    parser = Parser(
        prog="posh",
        description="Nearest-neighbour search: indexes, collections, an HTTP service, sparse binary codes.",
        epilog=EXAMPLE.format("posh build digits -o digits-index --metric cosine --recall 0.95"),
    )
    parser.add_argument("--version", action=_PrintVersion, nargs=0, help="print the version and exit")
    parser.add_argument(
        _COMPLETION,
        action=_PrintCompletion,
        choices=_SHELLS,
        help="print a script that completes commands and options in this shell, and exit",
    )
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    for name, command in commands.items():
        subparser = subparsers.add_parser(name, help=command.summary, description=command.summary)
        if name in complete:
            command.add_arguments(subparser)
    _group_help(parser, subparsers, commands)
    return parser


def _group_help(parser: Parser, subparsers: Commands, commands: Mapping[str, Command]) -> None:
    """List the commands in ``--help`` under the titles of their groups.

    argparse lists all commands in one section; here its line of each command moves to a section of its group.
    """
    sections: dict[str, Any] = {}
    for line in subparsers._choices_actions:
        title = commands[line.dest].group
        if title not in sections:
            sections[title] = parser.add_argument_group(title)
        sections[title]._group_actions.append(line)
    parser._subparsers._group_actions.clear()  # type: ignore[union-attr]  # the section of all commands


class _PrintVersion(argparse.Action):
    """Print the version; unlike argparse's own action, look it up only when asked."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"posh {version('posh-ann')}")
        parser.exit()


class _PrintCompletion(argparse.Action):
    """Print a completion script of shtab; unlike shtab's own action, import it only when asked."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: object
    ) -> None:
        try:
            import shtab
        except ImportError as error:
            raise MissingExtraError("shtab", "completion", f"posh {_COMPLETION}") from error
        print(shtab.complete(parser, values))
        parser.exit()
