"""``posh batch fit``, ``encode``, ``build`` and ``search``: vectors in many files, here or on Ray."""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from posh import batch
from posh.cli._build import add_options, empty_index
from posh.cli._command import (
    Parser,
    Report,
    UsageError,
    add_command,
    add_model,
    add_verbs,
    counted,
    output_path,
)
from posh.cli._method import add_method, hasher_from

__all__ = ["add"]


def add(parser: Parser) -> None:
    """Declare the four commands."""
    verbs = add_verbs(parser, "posh batch build 'vectors/*.npy' -o shards --metric cosine --workers 2")
    _add_fit(
        add_command(
            verbs,
            "fit",
            "learn a hasher from vectors of all shards",
            "posh batch fit 'vectors/*.npy' -o model.safetensors --bits 256 --active 16",
            _fit,
        )
    )
    _add_encode(
        add_command(
            verbs,
            "encode",
            "turn the vectors of all shards into codes",
            "posh batch encode model.safetensors 'vectors/*.npy' -o codes",
            _encode,
        )
    )
    _add_build(
        add_command(
            verbs,
            "build",
            "make an index of each shard",
            "posh batch build 'vectors/*.npy' -o shards --metric cosine --recall 0.95",
            _build,
        )
    )
    _add_search(
        add_command(
            verbs,
            "search",
            "search the indexes of all shards, and merge what they find",
            "posh batch search shards queries.npy -o hits -k 10",
            _search,
        )
    )


def _add_fit(parser: Parser) -> None:
    _add_shards(parser)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="MODEL", help="the file to write")
    add_method(parser)
    parser.add_argument(
        "--train",
        type=counted,
        default=100_000,
        metavar="N",
        help="learn from so many vectors; default: 100,000",
    )
    _add_workers(parser)


def _add_encode(parser: Parser) -> None:
    add_model(parser)
    _add_shards(parser)
    _add_output(parser)
    _add_workers(parser)


def _add_build(parser: Parser) -> None:
    _add_shards(parser)
    parser.add_argument(
        "--model", type=Path, help="a file that 'posh batch fit' wrote; not needed with --metric"
    )
    _add_output(parser)
    add_options(parser)
    _add_workers(parser)


def _add_search(parser: Parser) -> None:
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="what 'posh batch build' wrote")
    parser.add_argument("queries", metavar="QUERIES", type=Path, help="a file of vectors: .npy, .parquet …")
    _add_output(parser)
    parser.add_argument("-k", type=counted, default=10, help="results per query; default: 10")
    parser.add_argument("--oversample", type=float, metavar="F", help="refine so many candidates per result")
    parser.add_argument("--probes", dest="n_probe", type=counted, metavar="N", help="visit so many lists")
    parser.add_argument(
        "--recall", type=float, metavar="R", help="with a metric: the share of the nearest to find"
    )
    parser.add_argument("--exact", action="store_true", help="with a metric: compare all vectors")
    _add_workers(parser)


def _add_shards(parser: Parser) -> None:
    parser.add_argument(
        "shards",
        metavar="SHARD",
        nargs="+",
        help="a Parquet or .npy file, a folder of such, a pattern, or an address that fsspec knows (s3://…)",
    )
    parser.add_argument("--vector", metavar="COLUMN", help="of Parquet files; default: the only candidate")
    parser.add_argument(
        "--id", metavar="COLUMN", help="of Parquet files; default: documents are numbered through all shards"
    )


def _add_output(parser: Parser) -> None:
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FOLDER", help="where to write, or what to resume"
    )


def _add_workers(parser: Parser) -> None:
    parser.add_argument(
        "--address", metavar="HOST:PORT", help="of a Ray cluster; default: a Ray on this machine"
    )
    parser.add_argument("--local", action="store_true", help="processes of this machine, without Ray")
    parser.add_argument(
        "--workers", type=counted, metavar="N", help="how many work at a time; default: all cores"
    )
    parser.add_argument(
        "--threads", type=counted, default=1, metavar="N", help="threads of each worker; default: 1"
    )


@contextlib.contextmanager
def _workers(args: argparse.Namespace) -> Iterator[batch.Workers]:
    if args.local and args.address is not None:
        raise UsageError(f"expected --local or --address, got both ({args.address}): leave one out")
    workers: batch.Workers
    if args.local:
        workers = batch.Processes(args.workers, n_threads=args.threads)
    else:
        workers = batch.RayWorkers(args.workers, address=args.address, n_threads=args.threads)
    with _logged(), workers:
        yield workers


@contextlib.contextmanager
def _logged() -> Iterator[None]:
    """Tell how far the work is, every few seconds, where nobody sees a bar."""
    log, handler = logging.getLogger("posh.batch"), logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("posh: %(message)s"))
    before = log.level
    log.setLevel(logging.WARNING if sys.stderr.isatty() else logging.INFO)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


def _columns(args: argparse.Namespace) -> batch.Columns:
    return batch.Columns(args.vector, args.id)


def _fit(args: argparse.Namespace) -> Report:
    hasher, output = hasher_from(args), output_path(args.output)
    with _workers(args) as workers:
        outcome = batch.fit(
            args.shards,
            hasher,
            output,
            workers,
            n_sample=args.train,
            random_state=args.seed,
            columns=_columns(args),
        )
    return _report(outcome, "vectors")


def _encode(args: argparse.Namespace) -> Report:
    with _workers(args) as workers:
        outcome = batch.encode(args.model, args.shards, args.output, workers, columns=_columns(args))
    return _report(outcome, "vectors")


def _build(args: argparse.Namespace) -> Report:
    index = empty_index(args)
    with _workers(args) as workers:
        outcome = batch.build(args.shards, args.output, index, workers, columns=_columns(args))
    return _report(outcome, "documents")


def _search(args: argparse.Namespace) -> Report:
    options: dict[str, Any] = {
        name: getattr(args, name)
        for name in ("oversample", "n_probe", "recall")
        if getattr(args, name) is not None
    }
    if args.exact:
        options["exact"] = True
    with _workers(args) as workers:
        outcome = batch.search(args.folder, args.queries, args.output, workers, k=args.k, **options)
    return _report(outcome, "queries, once for each shard,")


def _report(outcome: batch.Outcome, what: str) -> Report:
    values = outcome._asdict() | {"output": str(outcome.output), "rows_per_second": outcome.rows_per_second}
    done = (
        f"{outcome.n_rows:,} {what} in {outcome.seconds:.2f} s, {outcome.rows_per_second:,.0f} per second"
        if outcome.n_rows
        else "nothing was left to do"
    )
    parts = f"{outcome.n_parts} parts, {outcome.n_resumed} of them finished before"
    return Report(values, f"{done}\n{parts}\nsaved: {outcome.output}")
