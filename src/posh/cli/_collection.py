"""Opening a collection that is there: what the commands for collections share."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import posh
from posh.cli._command import Parser, UsageError
from posh.collection.importing import lacks_index
from posh.collection.opening import DATABASE

__all__ = ["add_collection", "add_filter", "open_collection", "open_searchable", "read_filter"]


def add_collection(parser: Parser) -> None:
    """Declare the argument for a collection."""
    parser.add_argument(
        "collection", metavar="COLLECTION", type=Path, help="the folder of a collection, see 'posh import'"
    )


def add_filter(parser: Parser) -> None:
    """Declare the argument that :func:`read_filter` reads."""
    parser.add_argument(
        "--filter", metavar="JSON", help="""only items that pass, such as '{"year": {"gt": 1999}}'"""
    )


def open_collection(path: Path) -> posh.Collection:
    """Open a collection; unlike :class:`posh.Collection`, never make one."""
    if not (path / DATABASE).exists():
        inside = sorted(entry.parent.name for entry in path.glob(f"*/{DATABASE}"))
        hint = (
            f"it has collections, such as {path / inside[0]}"
            if inside
            else f"make one with 'posh import FILE {path}'"
        )
        raise FileNotFoundError(f"{path}: expected a collection, got another folder or nothing; {hint}")
    return posh.Collection(path)


def open_searchable(path: Path) -> posh.Collection:
    """Open a collection that has an index."""
    collection = open_collection(path)
    if lacks_index(collection):
        collection.close()
        raise UsageError(
            f"{path}: expected a collection with an index, got one without: if an import was interrupted, "
            "run it again"
        )
    return collection


def read_filter(args: argparse.Namespace) -> dict[str, Any] | None:
    """Return the filter; the collection checks its content."""
    if args.filter is None:
        return None
    try:
        found = json.loads(args.filter)
    except ValueError as error:
        raise UsageError(f"expected --filter to be JSON, got {args.filter!r:.80} ({error})") from None
    if not isinstance(found, dict):
        raise UsageError(f"expected --filter to be a JSON object, got {args.filter!r:.80}")
    return found
