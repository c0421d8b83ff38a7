"""``posh mcp``: serve collections to assistants by the Model Context Protocol."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from posh.cli._collection import is_collection
from posh.cli._command import Parser, Report, UsageError, declare, note

if TYPE_CHECKING:
    from posh.collection.embedded import Collection

__all__ = ["add_mcp"]

_HOST = "127.0.0.1"  # there are no tokens


def add_mcp(parser: Parser) -> None:
    """Declare ``posh mcp``."""
    declare(parser, "posh mcp collections", _mcp)
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        type=Path,
        help="a collection, or a folder of collections",
    )
    parser.add_argument(
        "--write", action="store_true", help="let clients change and delete items; no other process may then"
    )
    parser.add_argument(
        "--port",
        type=int,
        metavar="PORT",
        help=f"serve HTTP at {_HOST}:PORT/mcp instead of standard input and output",
    )


def _mcp(args: argparse.Namespace) -> Report:
    from posh.integrations.mcp import make_server

    with ExitStack() as stack:
        collections = _open_collections(args.folder, stack, write=args.write)
        server = make_server(collections, write=args.write)
        if args.port is None:
            server.run("stdio")
            raise SystemExit(0)  # standard output is for the protocol, so there is no report
        note(f"serving {', '.join(collections)} at http://{_HOST}:{args.port}/mcp")
        server.run("streamable-http", host=_HOST, port=args.port)
    return Report({"state": "stopped"}, "stopped, all collections are closed")


def _open_collections(folder: Path, stack: ExitStack, *, write: bool) -> dict[str, Collection]:
    from posh.collection.embedded import Collection

    paths = [folder] if is_collection(folder) else sorted(filter(is_collection, folder.glob("[!.]*")))
    if not paths:
        raise UsageError(
            f"{folder}: expected a collection or a folder of collections, got neither: "
            f"make one with 'posh import FILE {folder}/NAME'"
        )
    return {
        path.absolute().name: stack.enter_context(Collection(path, read_only=not write)) for path in paths
    }
