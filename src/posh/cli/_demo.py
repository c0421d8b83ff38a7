"""``posh demo``: learn, encode, search, and draw what was found."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from posh import demo
from posh.cli._command import Report, add_command, note

if TYPE_CHECKING:
    from posh.cli._command import Commands

__all__ = ["add"]


def add(commands: Commands) -> None:
    """Declare the command."""
    summary = "learn, encode and search handwritten digits, and draw the neighbours found"
    parser = add_command(commands, "demo", summary, "posh demo --data digits --output demo", _demo)
    parser.add_argument(
        "--data", choices=demo.DATA, help="default: mnist, or the bundled digits if it cannot be fetched"
    )
    parser.add_argument("--output", type=Path, default=Path("demo"), metavar="FOLDER", help="default: demo")


def _demo(args: argparse.Namespace) -> Report:
    result = demo.run(args.data, args.output, say=note)
    return Report(result.to_dict(), str(result))
