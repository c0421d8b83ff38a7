"""``posh backup``, ``posh restore`` and ``posh reindex``: whole collections in folders."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from posh.cli._collection import add_collection, open_collection, open_writable
from posh.cli._command import Parser, Report, UsageError, declare, format_size
from posh.cli._index import add_build_options, measure_folder

__all__ = ["add_backup", "add_reindex", "add_restore"]


# Backup and restore ------------------------------------------------------------------------------------


def add_backup(parser: Parser) -> None:
    """Declare ``posh backup``."""
    declare(parser, "posh backup collections/articles backups/articles-monday", _backup)
    parser.add_argument("source", metavar="SOURCE", type=Path, help="the folder of a collection")
    parser.add_argument("target", metavar="TARGET", type=Path, help="the folder to write; it must not exist")


def _backup(args: argparse.Namespace) -> Report:
    start = time.perf_counter()
    with open_collection(args.source, args) as collection:
        n_items = len(collection)
        collection.backup(args.target)  # type: ignore[attr-defined]  # of a folder
    return _report(args, n_items, start, f"'posh restore {args.target} FOLDER' makes a collection of it")


def add_restore(parser: Parser) -> None:
    """Declare ``posh restore``."""
    declare(parser, "posh restore backups/articles-monday collections/articles", _restore)
    parser.add_argument(
        "source", metavar="BACKUP", type=Path, help="the folder of a backup, see 'posh backup'"
    )
    parser.add_argument("target", metavar="TARGET", type=Path, help="the folder of the collection to make")
    parser.add_argument(
        "--replace",
        action="store_true",
        help="replace an existing collection, which no process may have open; it is deleted at the end",
    )


def _restore(args: argparse.Namespace) -> Report:
    import posh
    from posh.collection.maintenance import restore_backup

    start = time.perf_counter()
    restore_backup(args.source, args.target, replace=args.replace)
    with posh.Collection(args.target) as collection:  # builds the index now, and saves it
        n_items = len(collection)
    return _report(args, n_items, start, f"'posh info {args.target}' describes it")


def _report(args: argparse.Namespace, n_items: int, start: float, hint: str) -> Report:
    seconds, size = time.perf_counter() - start, measure_folder(args.target)
    values = {"source": str(args.source), "target": str(args.target), "n_items": n_items}
    text = f"{args.target}: {n_items:,} items, {format_size(size)}, in {seconds:.1f} s; {hint}"
    return Report(values | {"bytes": size, "seconds": seconds}, text)


# Reindex -----------------------------------------------------------------------------------------------


def add_reindex(parser: Parser) -> None:
    """Declare ``posh reindex``."""
    declare(parser, "posh reindex collections/articles --recall 0.99 --store int8", _reindex)
    add_collection(parser)
    add_build_options(parser, "that of the collection")


def _reindex(args: argparse.Namespace) -> Report:
    import posh
    from posh.index.codes.options import CodeOptions
    from posh.index.nearest.options import NearestOptions

    if args.model is not None and args.metric is not None:
        raise UsageError("--model and --metric contradict each other: leave one out")
    names = dict.fromkeys((*NearestOptions.names(), *CodeOptions.names()))
    values = {name: getattr(args, name, None) for name in names}
    options = {name: value for name, value in values.items() if value is not None}
    hasher = None if args.model is None else posh.Hasher.load(args.model)
    start = time.perf_counter()
    with open_writable(args.collection, args) as collection:
        collection.reindex(hasher, **options)
        params: dict[str, Any] = collection.index_options
        n_items = len(collection)
    seconds = time.perf_counter() - start
    report = {"collection": str(args.collection), "n_items": n_items, "params": params, "seconds": seconds}
    described = ", ".join(f"{name}={value!r}" for name, value in params.items() if value is not None)
    return Report(report, f"{args.collection}: {n_items:,} items indexed in {seconds:.1f} s; {described}")
