"""``posh serve``: answer HTTP requests for a folder of collections."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from posh.cli._collection import add_milvus, read_token
from posh.cli._command import Parser, Report, UsageError, counted, declare, note
from posh.collection.opening import DATABASE

__all__ = ["add"]

_TOKEN = "POSH_TOKEN"
_ENGINES = ("embedded", "milvus")
JOB = "job.json"  # what 'posh batch' writes
_NAMED = 10  # collections that are named at the start


def add(parser: Parser) -> None:
    """Declare the arguments."""
    declare(parser, f"{_TOKEN}=secret posh serve collections", _serve)
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        type=Path,
        nargs="?",
        help="each of its sub-folders is a collection; or what 'posh batch build' wrote",
    )
    parser.add_argument(
        "--engine", choices=_ENGINES, default="embedded", help="where collections are; default: embedded"
    )
    parser.add_argument("--uri", help="with --engine milvus: a file such as shop.db, or http://host:19530")
    add_milvus(parser)
    parser.add_argument("--host", default="127.0.0.1", help="where to listen; default: 127.0.0.1")
    parser.add_argument("--port", type=_port, default=8765, help="default: 8765; 0 is any free one")
    parser.add_argument(
        "--token",
        help=f"what clients must send to be answered. Others can see command lines: rather set {_TOKEN}",
    )
    parser.add_argument(
        "--sample",
        action="append",
        default=[],
        metavar="DATASET",
        dest="samples",
        help="make collections of mnist, digits or glove-100 first, unless they are there; may be repeated",
    )
    parser.add_argument(
        "--processes",
        type=counted,
        metavar="N",
        help="that search shards of 'posh batch'; default: all cores",
    )
    parser.add_argument(
        "--backups",
        type=Path,
        metavar="FOLDER",
        help="where copies go that clients ask for; without it they cannot ask",
    )
    parser.add_argument(
        "--limit",
        type=_assignment,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="limits",
        help="a bound of requests, such as k=100; may be repeated; see docs/serve.md",
    )


def _serve(args: argparse.Namespace) -> Report:
    from posh.serve import require_extra

    require_extra()
    from posh.serve.middleware import Metrics
    from posh.serve.registry import Registry
    from posh.serve.server import Server, bind, is_loopback, stop_on_signals

    token = _token(args.token)
    if token is None and not is_loopback(args.host):
        raise UsageError(
            f"expected a token to serve others than this machine, got --host {args.host}: set {_TOKEN}"
        )
    limits = _limits(args.limits)
    _require_one_engine(args)
    with bind(args.host, args.port) as bound:
        source = _source(args, limits)
        registry = Registry(source, limits, Metrics())
        server = Server(
            registry,
            bound,
            token=token,
            listening=lambda address: _tell(
                args,
                f"serving {args.folder or args.uri} at {address}\n"
                + _found(args.folder, source.names(), args.uri),
            ),
        )
        with stop_on_signals(server):
            try:
                server.run()
            finally:
                registry.close()
    return Report({"address": server.address, "state": "stopped"}, "stopped, all collections are closed")


def _require_one_engine(args: argparse.Namespace) -> None:
    is_milvus = args.engine == "milvus"
    for name, value, is_needed in (
        ("FOLDER", args.folder, not is_milvus),
        ("--uri", args.uri, is_milvus),
    ):
        if (value is not None) != is_needed:
            wanted = f"expected {name}" if is_needed else f"expected no {name}"
            raise UsageError(f"{wanted} with --engine {args.engine}, got {value or 'none'}")
    if is_milvus and args.backups is not None:
        raise UsageError("--backups is for folders: export the collections of Milvus with 'posh copy'")
    if is_milvus and args.samples:
        raise UsageError("--sample is for folders: make a collection there, then 'posh copy' it to Milvus")


def _source(args: argparse.Namespace, limits: Any) -> Any:
    """Where the collections are."""
    if args.engine == "milvus":
        from posh.engines.milvus import Milvus
        from posh.serve.sources import MilvusSource

        token = read_token(args.milvus_token_file)
        return MilvusSource(Milvus(args.uri, token=token, ca_file=args.milvus_ca_file))
    if (args.folder / JOB).exists():
        from posh.serve.sources import ShardSource

        if args.samples or args.backups is not None:
            raise UsageError(
                f"--sample and --backups are for folders of collections, got shards: {args.folder}"
            )
        return ShardSource(args.folder, args.processes)
    from posh.serve.sources import Folder

    if args.processes is not None:
        raise UsageError(f"--processes is for shards of 'posh batch build', got {args.folder}: leave it out")
    if args.backups is not None and args.backups.resolve() == args.folder.resolve():
        raise UsageError(
            f"expected another folder for --backups than that of the collections, got {args.backups} twice"
        )
    _require_folder_of_collections(args.folder)
    _make_samples(args)
    return Folder(args.folder, limits.filter_seconds, limits.payload_bytes, args.backups)


def _require_folder_of_collections(path: Path) -> None:
    """Refuse a file, a collection in place of the folder that holds it, and whatever has other files."""
    if path.is_file():
        raise UsageError(
            f"{path}: expected a folder of collections, got a file: import it with "
            f"'posh import {path} FOLDER/NAME', then 'posh serve FOLDER'"
        )
    if (path / DATABASE).exists():
        raise UsageError(
            f"{path}: expected a folder of collections, got a collection: "
            f"serve the folder that holds it, 'posh serve {path.absolute().parent}'"
        )
    files = [entry.name for entry in path.glob("[!.]*") if entry.is_file()]
    if files and not any(path.glob(f"*/{DATABASE}")):
        raise UsageError(
            f"{path}: expected a folder of collections, got other files such as {min(files)}: "
            "make one with 'posh import FILE FOLDER/NAME' in another folder, then 'posh serve FOLDER'"
        )


def _found(folder: Path | None, names: list[str], uri: str | None = None) -> str:
    if not names and folder is None:
        return f"no collections yet: make one with 'posh import FILE milvus:{uri}#NAME'"
    if not names:
        example = f"'posh import FILE {folder}/NAME'"
        return f"no collections yet: make one with {example}, or add --sample mnist"
    listed = ", ".join(sorted(names)[:_NAMED]) + (" …" if len(names) > _NAMED else "")
    return f"{len(names):,} collection{'s' if len(names) > 1 else ''}: {listed}"


def _make_samples(args: argparse.Namespace) -> None:
    from posh.serve.samples import SAMPLES, make_samples
    from posh.serve.sources import prepare_folder

    unknown = [name for name in args.samples if name not in SAMPLES]
    if unknown:
        raise UsageError(f"expected --sample of one of {', '.join(SAMPLES)}, got {unknown[0]!r}")
    for name in args.samples:
        prepare_folder(args.folder)
        _tell(args, f"sample collections of {name} …")
        _tell(args, make_samples(args.folder, name))


def _tell(args: argparse.Namespace, line: str) -> None:
    if args.json:
        note(line)
    else:
        print(line, flush=True)


def _token(given: str | None) -> str | None:
    token = os.environ.get(_TOKEN) if given is None else given
    if token is not None and not (token.isascii() and token.isprintable() and token.strip() == token != ""):
        raise UsageError(f"expected a token (--token or {_TOKEN}) of visible ASCII characters, got another")
    return token


def _limits(assignments: list[tuple[str, str]]) -> Any:
    from posh.serve.capacity import Limits

    kinds = {name: type(value) for name, value in asdict(Limits()).items()}
    chosen = {}
    for name, text in assignments:
        if name not in kinds:
            raise UsageError(f"expected --limit of one of {', '.join(kinds)}, got {name!r}")
        try:
            chosen[name] = kinds[name](text)
        except ValueError:
            chosen[name] = 0
        if not 0 < chosen[name] < 2**62:
            raise UsageError(f"expected --limit {name} to be a number above 0, got {text!r}")
    return Limits(**chosen)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"expected a port from 0 to 65535, got {text!r}")
    return int(text)


def _assignment(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, got {text!r}")
    return name, value
