"""``posh copy``: copy a collection from one engine to another, such as from a folder to Milvus."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import posh
from posh._runtime import track_progress
from posh.cli._collection import add_milvus, address, find_collection, milvus_of, open_collection
from posh.cli._command import Parser, Report, UsageError, declare, note
from posh.collection.base import BaseCollection
from posh.collection.transfer import COPY_BATCH, Copier

__all__ = ["add"]


def add(parser: Parser) -> None:
    """Declare the arguments."""
    declare(parser, "posh copy collections/articles 'milvus:http://127.0.0.1:19530#articles'", _copy)
    parser.add_argument(
        "source", metavar="SOURCE", type=address, help="the folder of a collection, or milvus:ADDRESS#NAME"
    )
    parser.add_argument(
        "target", metavar="TARGET", type=address, help="a new folder, or milvus:ADDRESS#NAME with a new name"
    )
    add_milvus(parser)


def _copy(args: argparse.Namespace) -> Report:
    if _origin(args.source) == _origin(args.target):
        raise UsageError(f"expected two collections, got {args.source} twice: choose another target")
    start = time.perf_counter()
    with open_collection(args.source, args) as source:
        is_folder = isinstance(args.target, Path)
        copier = Copier(
            source,
            _origin(args.source),
            lambda: find_collection(args.target, args),
            lambda hasher, metadata, options: _create(args, hasher, metadata, options),
            index_last=is_folder,
        )
        try:
            for _ in track_progress(copier.steps(), "copying", "batch", -(-len(source) // COPY_BATCH)):
                pass
            copier.finish()
        except KeyboardInterrupt:
            note(f"posh: {copier.n_items:,} items are in {args.target}; the same command goes on there")
            raise
        finally:
            if copier.target is not None:
                copier.target.close()
    seconds = time.perf_counter() - start
    values = {"source": str(args.source), "target": str(args.target), "n_items": copier.n_items}
    values |= {"n_written": copier.n_written, "seconds": seconds}
    text = f"{args.target}: {copier.n_written:,} items written in {seconds:.1f} s"
    if present := copier.n_items - copier.n_written:
        text += f", {present:,} were there already"
    return Report(values, f"{text}; {copier.n_items:,} items in all")


def _create(
    args: argparse.Namespace, hasher: Any, metadata: dict[str, Any], options: dict[str, Any]
) -> BaseCollection:
    if isinstance(args.target, Path):
        return posh.create(args.target, hasher, metadata=metadata, **options)
    from posh.engines.milvus import MilvusCollection

    milvus, name = milvus_of(args.target, args)
    return MilvusCollection.create(milvus, name, hasher, metadata=metadata, **options)


def _origin(where: Path | str) -> str:
    return str(where.absolute()) if isinstance(where, Path) else where
