"""``posh demo``: learn, encode, search, and draw the results."""

from __future__ import annotations

import argparse
from pathlib import Path

from posh.cli._command import Parser, Report, declare, note
from posh_reproduction import demo

__all__ = ["add"]


def add(parser: Parser) -> None:
    """Declare the arguments."""
    declare(parser, "posh demo --data digits --output demo", _demo)
    parser.add_argument(
        "--data", choices=demo.DATA, help="default: mnist, or the bundled digits if it cannot be fetched"
    )
    parser.add_argument("--output", type=Path, default=Path("demo"), metavar="FOLDER", help="default: demo")


def _demo(args: argparse.Namespace) -> Report:
    result = demo.run(args.data, args.output, say=note)
    return Report(result.to_dict(), str(result))
