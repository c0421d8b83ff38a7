"""Opening a saved index and searching it: what ``posh search`` and ``posh eval`` share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import posh
from posh.cli._command import Parser, UsageError, counted
from posh.index.open import load_index

__all__ = ["add_index", "disk_bytes", "open_index", "search_options"]


def add_index(parser: Parser, what: str = "an index that 'posh build' wrote") -> None:
    """Declare the arguments that :func:`open_index` and :func:`search_options` read."""
    parser.add_argument("folder", metavar="FOLDER", type=Path, help=what)
    parser.add_argument("--mmap", action="store_true", help="leave the arrays on disk until they are touched")
    parser.add_argument(
        "--oversample",
        type=float,
        metavar="F",
        help="refine so many candidates per result; default: the index's",
    )
    parser.add_argument(
        "--probes", type=counted, metavar="N", help="visit so many lists; default: the index's"
    )
    parser.add_argument(
        "--recall", type=float, metavar="R", help="with a metric: the share of the true nearest to find"
    )
    parser.add_argument("--exact", action="store_true", help="with a metric: compare all vectors")
    parser.add_argument("--threads", type=counted, metavar="N", help="default: all cores")


def open_index(args: argparse.Namespace) -> posh.Index | posh.CodeIndex:
    """Return the index that the arguments name."""
    return load_index(args.folder, mmap=args.mmap)


def search_options(args: argparse.Namespace, index: posh.Index | posh.CodeIndex) -> dict[str, Any]:
    """Return the options for ``index.search``; those that would change nothing are refused."""
    options = {"oversample": args.oversample, "n_probe": args.probes, "n_threads": args.threads}
    if isinstance(index, posh.Index):
        return options | {"exact": args.exact, "recall": args.recall}
    made = index.options
    ivf = made.structure == "ivf"
    if args.probes is not None and not ivf:
        raise UsageError(f"--probes is for lists, got {index}: leave it out")
    if args.oversample is not None and not (made.refine or (ivf and made.scoring == "asymmetric")):
        raise UsageError(f"--oversample is for candidates that are refined, got {index}: leave it out")
    if args.exact or args.recall is not None:
        name = "--exact" if args.exact else "--recall"
        raise UsageError(f"{name} is for an index with a metric, got {index}: leave it out")
    return options


def disk_bytes(folder: Path) -> int:
    """Return the size of all files under ``folder``."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
