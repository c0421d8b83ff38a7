"""``posh export``: write the items of a collection to a file."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from posh._runtime import track_progress
from posh.cli._collection import add_collection, add_filter, open_collection, read_filter
from posh.cli._command import Parser, Report, UsageError, declare, output_path, shown_size
from posh.files import WRITERS, write_items

__all__ = ["add"]


def add(parser: Parser) -> None:
    """Declare the arguments."""
    declare(parser, "posh export collections/articles articles.parquet", _export)
    add_collection(parser)
    parser.add_argument(
        "file", metavar="FILE", type=Path, help=f"{' '.join(WRITERS)}: columns id, vector and payload"
    )
    add_filter(parser)


def _export(args: argparse.Namespace) -> Report:
    if output_path(args.file).suffix.lower() not in WRITERS:
        raise UsageError(f"expected FILE to end in one of {' '.join(WRITERS)}, got {args.file}")
    where = read_filter(args)
    start = time.perf_counter()
    with open_collection(args.collection, args) as collection:
        n, metric = collection.count(where), collection.index_options.get("metric")
        items = track_progress(collection.items(where), "writing", "item", n)
        write_items(args.file, items, n, collection.n_features or 1)
    seconds, size = time.perf_counter() - start, args.file.stat().st_size
    again = f"posh import {args.file} COLLECTION" + (f" --metric {metric}" if metric else "")
    values = {"file": str(args.file), "n_items": n, "metric": metric, "bytes": size, "seconds": seconds}
    text = f"{args.file}: {n:,} items, {shown_size(size)}, in {seconds:.1f} s"
    return Report(values, f"{text}; '{again}' reads it" if n else text)  # an import refuses an empty file
