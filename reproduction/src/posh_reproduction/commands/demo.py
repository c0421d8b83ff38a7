"""``posh demo``: learn, encode, search, and draw the hits."""

from __future__ import annotations

import argparse
from pathlib import Path

from posh.cli._command import Parser, Report, declare, note

__all__ = ["add_demo"]


def add_demo(parser: Parser) -> None:
    """Declare ``posh demo``."""
    declare(parser, "posh demo --data digits -o demo", _demo)
    parser.add_argument(
        "--data",
        choices=("mnist", "digits"),
        help="default: mnist, or digits if it cannot be fetched",
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("demo"), metavar="FOLDER", help="default: demo"
    )


def _demo(args: argparse.Namespace) -> Report:
    from posh_reproduction import demo

    result = demo.run(args.data, args.output, say=note)
    return Report(result.to_dict(), str(result))
