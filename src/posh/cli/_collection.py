"""Opening a collection that is there: what the commands for collections share."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import posh
from posh.cli._command import Parser, UsageError
from posh.collection.base import BaseCollection
from posh.collection.opening import DATABASE
from posh.collection.transfer import lacks_index
from posh.engines.milvus.connection import is_address, parse_address

__all__ = ["add_collection", "add_filter", "add_milvus", "address", "find_collection", "milvus_of"]
__all__ += ["open_collection", "open_searchable", "read_filter", "read_token"]


def add_collection(parser: Parser) -> None:
    """Declare the argument for a collection."""
    parser.add_argument(
        "collection",
        metavar="COLLECTION",
        type=address,
        help="the folder of a collection, see 'posh import', or milvus:ADDRESS#NAME",
    )
    add_milvus(parser)


def address(text: str) -> Path | str:
    """Parse the place of a collection for argparse: a folder, or an address of Milvus."""
    if not is_address(text):
        return Path(text)
    try:
        parse_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def add_milvus(parser: Parser) -> None:
    """Declare the arguments that :func:`milvus_of` reads."""
    parser.add_argument(
        "--milvus-token-file",
        metavar="FILE",
        type=Path,
        help="a file with the token of Milvus; default: the environment variable POSH_MILVUS_TOKEN",
    )
    parser.add_argument("--milvus-ca-file", metavar="FILE", help="the authority that Milvus's TLS must have")


def read_token(path: Path | None) -> str | None:
    """Return the token in a file; None without a file."""
    if path is None:
        return None
    token = path.read_text(encoding="utf-8").strip()
    if not token or not token.isprintable():
        raise UsageError(f"{path}: expected a token in one line, got {'none' if not token else 'more'}")
    return token


def milvus_of(where: str, args: argparse.Namespace) -> tuple[Any, str]:
    """Connect to the Milvus of an address; return the connection and the name of the collection."""
    from posh.engines.milvus import Milvus

    uri, name = parse_address(where)
    return Milvus(uri, token=read_token(args.milvus_token_file), ca_file=args.milvus_ca_file), name


def find_collection(where: Path | str, args: argparse.Namespace) -> BaseCollection | None:
    """Open a collection; None if there is none."""
    if isinstance(where, Path):
        return posh.Collection(where) if (where / DATABASE).exists() else None
    from posh.engines.milvus import MilvusCollection
    from posh.engines.milvus.opening import list_collections

    milvus, name = milvus_of(where, args)
    try:
        return MilvusCollection.open(milvus, name) if name in list_collections(milvus) else None
    except FileNotFoundError:  # the call that made it was interrupted
        return None


def add_filter(parser: Parser) -> None:
    """Declare the argument that :func:`read_filter` reads."""
    parser.add_argument(
        "--filter", metavar="JSON", help="""only items that pass, such as '{"year": {"gt": 1999}}'"""
    )


def open_collection(path: Path | str, args: argparse.Namespace) -> BaseCollection:
    """Open a collection to read it, even while another process writes to it."""
    if isinstance(path, str):
        from posh.engines.milvus import MilvusCollection

        return MilvusCollection.open(*milvus_of(path, args))
    if not (path / DATABASE).exists():
        inside = sorted(entry.parent.name for entry in path.glob(f"*/{DATABASE}"))
        hint = (
            f"it has collections, such as {path / inside[0]}"
            if inside
            else f"make one with 'posh import FILE {path}'"
        )
        raise FileNotFoundError(f"{path}: expected a collection, got another folder or nothing; {hint}")
    try:
        return posh.Collection(path, read_only=True)
    except posh.FormatError:
        return posh.Collection(path)  # upgrades a collection of an older version, or says what is damaged


def open_searchable(path: Path | str, args: argparse.Namespace) -> BaseCollection:
    """Open a collection that has an index, to read it."""
    collection = open_collection(path, args)
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
