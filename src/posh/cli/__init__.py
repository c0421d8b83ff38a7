"""The command line: ``posh COMMAND …``, one module per command.

A command is a module with ``add(commands)``, which declares its arguments and the function that turns
them into a :class:`~posh.cli._command.Report`. Printing, errors and exit codes are the business of
:func:`main` alone.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from importlib.metadata import version

from posh.cli import (
    _bench,
    _build,
    _check,
    _data,
    _demo,
    _encode,
    _eval,
    _fit,
    _info,
    _reproduce,
    _search,
    _serve,
)
from posh.cli._command import EXAMPLE, Parser, Report, UsageError, note
from posh.errors import PoshError

__all__ = ["main"]

_COMMANDS = (_data, _fit, _encode, _build, _search, _serve, _eval, _info, _check, _bench, _demo, _reproduce)
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


def _stop(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def _run(arguments: Sequence[str] | None) -> int:
    try:
        args = _parser().parse_args(arguments)
        report: Report = args.run(args)
        print(json.dumps(report.values, allow_nan=False) if args.json else report.text)
        return report.exit_code
    finally:
        sys.stdout.flush()  # a closed pipe shows here, where it is handled; also after --help


def _parser() -> Parser:
    parser = Parser(
        prog="posh",
        description="Sparse binary codes for vectors: learn them, encode and search with them, measure.",
        epilog=EXAMPLE.format("posh fit digits -o digits.safetensors --bits 256 --active 16"),
    )
    parser.add_argument("--version", action="version", version=f"posh {version('posh-ann')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    for command in _COMMANDS:
        command.add(commands)
    return parser


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__
