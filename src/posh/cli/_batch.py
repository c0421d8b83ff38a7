"""``posh batch fit``, ``encode``, ``build`` and ``search``: vectors in many files, in processes or on Ray."""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posh.cli._command import (
    Parser,
    Report,
    UsageError,
    add_command,
    add_output,
    add_verbs,
    parse_count,
    read_source,
    require_output,
    write_arrays,
)
from posh.cli._fit import add_method, create_hasher
from posh.cli._index import add_build_options, add_recall, add_search_options, create_index

if TYPE_CHECKING:
    from posh import batch

__all__ = ["add_batch"]

_CODE_FILES = (".npz", ".npy")


def add_batch(parser: Parser) -> None:
    """Declare the four commands of ``posh batch``."""
    verbs = add_verbs(parser, "posh batch build 'vectors/*.npy' -o shards --metric cosine --n-workers 2")
    _add_fit(
        add_command(
            verbs,
            "fit",
            "fit a hasher to a sample of all shards",
            "posh batch fit 'vectors/*.npy' -o model.safetensors --n-bits 256 --n-active 16",
            _fit,
        )
    )
    _add_encode(
        add_command(
            verbs,
            "encode",
            "encode the vectors of all shards into a folder, or those of one file or data set into a file",
            "posh batch encode digits.safetensors digits -o codes.npz",
            _encode,
        )
    )
    _add_build(
        add_command(
            verbs,
            "build",
            "build an index of each shard",
            "posh batch build 'vectors/*.npy' -o shards --metric cosine --recall 0.95",
            _build,
        )
    )
    _add_search(
        add_command(
            verbs,
            "search",
            "search the indexes of all shards and merge their hits",
            "posh batch search shards queries.npy -o hits -k 10",
            _search,
        )
    )


def _add_fit(parser: Parser) -> None:
    _add_shards(parser)
    add_output(parser, "MODEL", "model file to write")
    add_method(parser)
    parser.add_argument(
        "--n-sample",
        type=parse_count,
        default=100_000,
        metavar="N",
        help="fit to N random vectors; default: 100,000",
    )
    _add_workers(parser)


def _add_encode(parser: Parser) -> None:
    parser.add_argument("model", metavar="MODEL", type=Path, help="model file of 'posh fit'")
    _add_shards(parser, "; for a file of codes: one file of vectors, or a data set (see 'posh data list')")
    add_output(
        parser,
        "CODES",
        "folder to write or resume; or a file, .npz: arrays 'active' (numbers of the set bits, uint16) or "
        "'bits' (eight to a byte, uint8), and 'n_bits'; .npy: the first array alone",
    )
    parser.add_argument(
        "--queries", action="store_true", help="encode the queries of a data set instead of its base"
    )
    _add_workers(parser)


def _add_build(parser: Parser) -> None:
    _add_shards(parser)
    add_output(parser, "FOLDER", "folder to write or resume")
    add_build_options(parser)
    _add_workers(parser)


def _add_search(parser: Parser) -> None:
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="folder of 'posh batch build'")
    parser.add_argument("queries", metavar="QUERIES", type=Path, help="a file of vectors: .npy, .parquet …")
    add_output(parser, "FOLDER", "folder to write or resume")
    parser.add_argument("-k", type=parse_count, default=10, help="results per query; default: 10")
    add_recall(parser, "that of the index")
    add_search_options(parser)
    _add_workers(parser)


def _add_shards(parser: Parser, more: str = "") -> None:
    parser.add_argument(
        "shards",
        metavar="SHARD",
        nargs="+",
        help="a Parquet or .npy file, a folder or a pattern of such files, or an address of fsspec "
        f"(s3://…){more}",
    )
    parser.add_argument(
        "--vector", metavar="COLUMN", help="column of vectors in the file; default: the only candidate"
    )
    parser.add_argument(
        "--id", metavar="COLUMN", help="column of ids in Parquet files; default: row numbers over all shards"
    )


def _add_workers(parser: Parser) -> None:
    parser.add_argument("--address", metavar="HOST:PORT", help="Ray cluster; default: Ray on this machine")
    parser.add_argument("--local", action="store_true", help="use processes of this machine, without Ray")
    parser.add_argument(
        "--n-workers", type=parse_count, metavar="N", help="tasks that run concurrently; default: all cores"
    )
    parser.add_argument("--n-threads", type=parse_count, metavar="N", help="threads per worker; default: 1")


@contextlib.contextmanager
def _start_workers(args: argparse.Namespace) -> Iterator[batch.Workers]:
    from posh import batch

    if args.local and args.address is not None:
        raise UsageError(f"expected --local or --address, got both ({args.address}): leave one out")
    n_threads = args.n_threads or 1
    workers: batch.Workers
    if args.local:
        workers = batch.Processes(args.n_workers, n_threads=n_threads)
    else:
        workers = batch.RayWorkers(args.n_workers, address=args.address, n_threads=n_threads)
    with _log_progress(), workers:
        yield workers


@contextlib.contextmanager
def _log_progress() -> Iterator[None]:
    """Print log lines on progress, unless stderr is a terminal, which shows a bar."""
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


def _make_columns(args: argparse.Namespace) -> batch.Columns:
    from posh import batch

    return batch.Columns(args.vector, args.id)


def _fit(args: argparse.Namespace) -> Report:
    from posh import batch

    hasher = create_hasher(args)
    require_output(args.output)
    with _start_workers(args) as workers:
        outcome = batch.fit(
            args.shards,
            hasher,
            args.output,
            workers,
            n_sample=args.n_sample,
            random_state=args.random_state,
            columns=_make_columns(args),
        )
    return _report(outcome, "vectors")


def _encode(args: argparse.Namespace) -> Report:
    from posh import batch, datasets

    if args.output.suffix in _CODE_FILES and not args.output.is_dir():
        return _encode_file(args)
    names = [name for name in args.shards if name in datasets.names() and not Path(name).exists()]
    if args.queries or names:
        got = "--queries" if args.queries else f"the data set {names[0]}"
        raise UsageError(
            f"expected --output to end in {' or '.join(_CODE_FILES)} with {got}, got {args.output}"
        )
    with _start_workers(args) as workers:
        outcome = batch.encode(args.model, args.shards, args.output, workers, columns=_make_columns(args))
    return _report(outcome, "vectors")


def _encode_file(args: argparse.Namespace) -> Report:
    """Encode one file or data set in this process, and write one file of codes."""
    import numpy as np

    import posh

    for option in ("id", "address", "local", "n_workers"):
        if getattr(args, option):
            name = option.replace("_", "-")
            raise UsageError(f"--{name} is for a folder of codes, got --output {args.output}: leave it out")
    if len(args.shards) > 1:
        raise UsageError(
            f"expected one file or data set for {args.output}, got {len(args.shards)}: "
            "give a folder as --output, without a suffix"
        )
    require_output(args.output)
    hasher = posh.Hasher.load(args.model)
    vectors = read_source(args.shards[0], args.vector, queries=args.queries, option="--vector")
    start = time.perf_counter()
    codes = hasher.encode(vectors, n_threads=args.n_threads)
    seconds = time.perf_counter() - start
    kind, array = ("active", codes.active) if isinstance(codes, posh.Codes) else ("bits", codes.bits)
    write_arrays(args.output, {kind: array, "n_bits": np.array(codes.n_bits)})
    method, rate = type(hasher).__name__, len(array) / seconds
    values = {
        "method": method,
        "kind": kind,
        "shape": list(array.shape),
        "dtype": str(array.dtype),
        "n_bits": codes.n_bits,
        "seconds": seconds,
        "vectors_per_second": rate,
        "output": str(args.output),
    }
    text = (
        f"{method}: {len(array):,} vectors in {seconds:.2f} s, {rate:,.0f} per second\n"
        f"saved: {args.output}: {kind} {array.dtype} {array.shape}, n_bits {codes.n_bits}"
    )
    return Report(values, text)


def _build(args: argparse.Namespace) -> Report:
    from posh import batch

    index = create_index(args)
    with _start_workers(args) as workers:
        outcome = batch.build(args.shards, args.output, index, workers, columns=_make_columns(args))
    return _report(outcome, "documents")


def _search(args: argparse.Namespace) -> Report:
    from posh import batch

    names = ("oversample", "n_probe", "recall")
    options: dict[str, Any] = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    if args.exact:
        options["exact"] = True
    with _start_workers(args) as workers:
        outcome = batch.search(args.folder, args.queries, args.output, workers, k=args.k, **options)
    return _report(outcome, "queries, once for each shard,")


def _report(outcome: batch.Outcome, rows: str) -> Report:
    values = outcome._asdict() | {"output": str(outcome.output), "rows_per_second": outcome.rows_per_second}
    work = (
        f"{outcome.n_rows:,} {rows} in {outcome.seconds:.2f} s, {outcome.rows_per_second:,.0f} per second"
        if outcome.n_rows
        else "nothing was left to do"
    )
    parts = f"{outcome.n_parts} parts, {outcome.n_resumed} of them finished before"
    return Report(values, f"{work}\n{parts}\nsaved: {outcome.output}")
