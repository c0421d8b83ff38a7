"""``posh serve``: serve a folder of collections over HTTP."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from posh.cli._collection import add_milvus, is_collection, read_token
from posh.cli._command import Parser, Report, UsageError, declare, note, parse_count

__all__ = ["add_serve"]

_TOKEN, _READ_TOKEN = "POSH_TOKEN", "POSH_READ_TOKEN"
_ENGINES = ("embedded", "milvus")
_JOB = "job.json"  # a file of 'posh batch'
_MAX_NAMES = 10  # of collections, printed at the start


def add_serve(parser: Parser) -> None:
    """Declare ``posh serve``."""
    declare(parser, f"{_TOKEN}=secret posh serve collections", _serve)
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        type=Path,
        nargs="?",
        help="a folder whose subfolders are collections, or a folder of 'posh batch build'",
    )
    parser.add_argument(
        "--engine", choices=_ENGINES, default="embedded", help="storage of the collections; default: embedded"
    )
    parser.add_argument("--uri", help="with --engine milvus: a file such as shop.db, or http://host:19530")
    add_milvus(parser)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; default: 127.0.0.1")
    parser.add_argument(
        "--port", type=_parse_port, default=8765, help="port to listen on; default: 8765; 0: any free port"
    )
    parser.add_argument(
        "--token",
        help=f"token that clients must send; other users can see command lines, so prefer to set {_TOKEN}",
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="file of tokens, one per line; SIGHUP makes the service read it again",
    )
    parser.add_argument(
        "--read-token-file",
        type=Path,
        metavar="FILE",
        help=f"likewise, of tokens for reading and searching only; {_READ_TOKEN} sets one, too",
    )
    parser.add_argument(
        "--sample",
        action="append",
        default=[],
        metavar="DATASET",
        dest="samples",
        help="create sample collections of mnist, digits or glove-100, if they are missing; may be repeated",
    )
    parser.add_argument(
        "--n-processes",
        type=parse_count,
        metavar="N",
        help="processes that search shards of 'posh batch'; default: all cores",
    )
    parser.add_argument(
        "--backups",
        type=Path,
        metavar="FOLDER",
        help="folder for backups that clients request; without it, requests are refused",
    )
    parser.add_argument(
        "--limit",
        type=_parse_assignment,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="limits",
        help="a limit of requests, such as k=100; may be repeated; see docs/serve.md",
    )
    _add_log(parser)


def _add_log(parser: Parser) -> None:
    from posh.serve.logs import FORMATS, LEVELS

    parser.add_argument(
        "--log-level", choices=LEVELS, default="info", help="lowest level of log lines; default: info"
    )
    parser.add_argument(
        "--log-format", choices=tuple(FORMATS), default="text", help="format of log lines; default: text"
    )
    parser.add_argument("--access-log", action="store_true", help="log every request")
    parser.add_argument(
        "--slow-seconds",
        type=float,
        default=1.0,
        metavar="SECONDS",
        help="log requests that take longer; default: 1",
    )


def _serve(args: argparse.Namespace) -> Report:
    # Before NumPy is imported: threads of BLAS spin after their work, on cores that requests need.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from posh.serve import require_extra

    require_extra()
    from posh.serve.logs import logging_to_stderr
    from posh.serve.metrics import Metrics
    from posh.serve.registry import Registry
    from posh.serve.server import Server, bind, handle_signals, is_loopback

    tokens = _read_tokens(args)
    if not tokens and not is_loopback(args.host):
        raise UsageError(
            f"expected a token to serve others than this machine, got --host {args.host}: set {_TOKEN}"
        )
    limits = _make_limits(args.limits)
    _require_engine_options(args)
    log = logging_to_stderr(args.log_level, args.log_format, with_access=args.access_log)
    with log, bind(args.host, args.port) as bound:
        source = _open_source(args, limits)
        registry = Registry(source, limits, Metrics())
        server = Server(
            registry,
            bound,
            tokens=tokens,
            slow_seconds=args.slow_seconds,
            listening=lambda address: _announce(
                args,
                f"serving {args.folder or args.uri} at {address}\n"
                + _list_collections(args.folder, source.names(), args.uri),
            ),
        )
        with handle_signals(server, reloads=_has_token_file(args)):
            try:
                server.run()
            finally:
                registry.close()
    return Report({"address": server.address, "state": "stopped"}, "stopped, all collections are closed")


def _require_engine_options(args: argparse.Namespace) -> None:
    is_milvus = args.engine == "milvus"
    for name, value, is_needed in (
        ("FOLDER", args.folder, not is_milvus),
        ("--uri", args.uri, is_milvus),
    ):
        if (value is not None) != is_needed:
            expected = f"expected {name}" if is_needed else f"expected no {name}"
            raise UsageError(f"{expected} with --engine {args.engine}, got {value or 'none'}")
    if is_milvus and args.backups is not None:
        raise UsageError("--backups is for folders: export the collections of Milvus with 'posh copy'")
    if is_milvus and args.samples:
        raise UsageError("--sample is for folders: make a collection there, then 'posh copy' it to Milvus")


def _open_source(args: argparse.Namespace, limits: Any) -> Any:
    """Return the source of collections for the registry: Milvus, shards or a folder."""
    if args.engine == "milvus":
        from posh.engines.milvus import Milvus
        from posh.serve.sources import MilvusSource

        token = read_token(args.milvus_token_file)
        return MilvusSource(Milvus(args.uri, token=token, ca_file=args.milvus_ca_file))
    if (args.folder / _JOB).exists():
        from posh.serve.sources import ShardSource

        if args.samples or args.backups is not None:
            raise UsageError(
                f"--sample and --backups are for folders of collections, got shards: {args.folder}"
            )
        return ShardSource(args.folder, args.n_processes)
    from posh.serve.sources import Folder

    if args.n_processes is not None:
        raise UsageError(
            f"--n-processes is for shards of 'posh batch build', got {args.folder}: leave it out"
        )
    if args.backups is not None and args.backups.resolve() == args.folder.resolve():
        raise UsageError(
            f"expected another folder for --backups than that of the collections, got {args.backups} twice"
        )
    _require_folder_of_collections(args.folder)
    _create_samples(args)
    return Folder(args.folder, limits.filter_seconds, limits.payload_bytes, args.backups)


def _require_folder_of_collections(path: Path) -> None:
    """Raise a UsageError for a file, a collection instead of its parent, or a folder of other files."""
    if path.is_file():
        raise UsageError(
            f"{path}: expected a folder of collections, got a file: import it with "
            f"'posh import {path} FOLDER/NAME', then 'posh serve FOLDER'"
        )
    if is_collection(path):
        raise UsageError(
            f"{path}: expected a folder of collections, got a collection: "
            f"serve the folder that holds it, 'posh serve {path.absolute().parent}'"
        )
    files = [entry.name for entry in path.glob("[!.]*") if entry.is_file()]
    if files and not any(map(is_collection, path.glob("*"))):
        raise UsageError(
            f"{path}: expected a folder of collections, got other files such as {min(files)}: "
            "make one with 'posh import FILE FOLDER/NAME' in another folder, then 'posh serve FOLDER'"
        )


def _list_collections(folder: Path | None, names: list[str], uri: str | None = None) -> str:
    if not names and folder is None:
        return f"no collections yet: make one with 'posh import FILE milvus:{uri}#NAME'"
    if not names:
        example = f"'posh import FILE {folder}/NAME'"
        return f"no collections yet: make one with {example}, or add --sample mnist"
    first = ", ".join(sorted(names)[:_MAX_NAMES]) + (" …" if len(names) > _MAX_NAMES else "")
    return f"{len(names):,} collection{'s' if len(names) > 1 else ''}: {first}"


def _create_samples(args: argparse.Namespace) -> None:
    from posh.serve.samples import SAMPLES, make_samples
    from posh.serve.sources import prepare_folder

    unknown = [name for name in args.samples if name not in SAMPLES]
    if unknown:
        raise UsageError(f"expected --sample of one of {', '.join(SAMPLES)}, got {unknown[0]!r}")
    for name in args.samples:
        prepare_folder(args.folder)
        _announce(args, f"sample collections of {name} …")
        _announce(args, make_samples(args.folder, name))


def _announce(args: argparse.Namespace, line: str) -> None:
    """Print a line on stdout, or with ``--json`` on stderr."""
    if args.json:
        note(line)
    else:
        print(line, flush=True)


def _has_token_file(args: argparse.Namespace) -> bool:
    return args.token_file is not None or args.read_token_file is not None


def _read_tokens(args: argparse.Namespace) -> Any:
    """Return the tokens that clients may send, from options, files and the environment."""
    from posh.serve.tokens import Tokens, TokenSet, read_token_file, validate_token

    def read(option: str | None, name: str, file: Path | None) -> list[str]:
        token = os.environ.get(name) if option is None else option
        if token is not None and file is not None:
            raise UsageError(f"expected a token or a file of tokens, got {name} and {file}: leave out one")
        if file is not None:
            return read_token_file(file)
        return [] if token is None else [validate_token(token, f"--token or {name}")]

    def load() -> TokenSet:
        everything = read(args.token, _TOKEN, args.token_file)
        return TokenSet(everything, read(None, _READ_TOKEN, args.read_token_file))

    try:
        return Tokens(load)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _make_limits(assignments: list[tuple[str, str]]) -> Any:
    from posh.serve.capacity import Limits

    kinds = {name: type(value) for name, value in asdict(Limits()).items()}
    limits = {}
    for name, text in assignments:
        if name not in kinds:
            raise UsageError(f"expected --limit of one of {', '.join(kinds)}, got {name!r}")
        try:
            limits[name] = kinds[name](text)
        except ValueError:
            limits[name] = 0
        if not 0 < limits[name] < 2**62:
            raise UsageError(f"expected --limit {name} to be a number above 0, got {text!r}")
    return Limits(**limits)


def _parse_port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"expected a port from 0 to 65535, got {text!r}")
    return int(text)


def _parse_assignment(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, got {text!r}")
    return name, value
