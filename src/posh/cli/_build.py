"""``posh build``: encode vectors and save them as an index."""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import posh
from posh._durable import require_replaceable
from posh.cli._command import (
    Parser,
    Report,
    UsageError,
    add_model,
    add_source,
    counted,
    declare,
    note,
    read_source,
    shown_size,
)
from posh.cli._index import disk_bytes
from posh.index.codes.options import REFINER_NAMES, SCORINGS, STRUCTURE_NAMES, CodeOptions
from posh.index.files import FORMAT
from posh.index.nearest.metric import METRICS
from posh.index.nearest.options import NearestOptions
from posh.index.nearest.vectors import STORES

__all__ = ["add", "add_options", "empty_index"]


def add(parser: Parser) -> None:
    """Declare the arguments."""
    example = "posh build digits -o digits-index --metric cosine --recall 0.95"
    declare(parser, example, _build)
    add_model(parser, nargs="?", more="; not needed with --metric")
    add_source(parser, name="the base of a data set")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="where to write; an index that is there already is replaced",
    )
    add_options(parser)


def add_options(parser: Parser) -> None:
    """Declare the parameters of an index under their own names; the index knows defaults and limits."""
    parser.add_argument("--metric", choices=METRICS, help="find the nearest vectors by this, not by codes")
    parser.add_argument(
        "--recall",
        type=float,
        metavar="R",
        help="with a metric: the share of the true nearest to find; without a model, default: 0.95",
    )
    parser.add_argument(
        "--store", choices=STORES, help="with a metric: what is kept of vectors; default: float32"
    )
    scorings = {name: scoring.about for name, scoring in SCORINGS.items()}
    for option, table in (("--structure", STRUCTURE_NAMES), ("--scoring", scorings)):
        choices = [f"{name}: {about}" for name, about in table.items()]
        parser.add_argument(option, choices=table, help=f"{'; '.join(choices)}; default: the first")
    parser.add_argument("--refine", choices=REFINER_NAMES, help="put the best candidates in order by this")
    parser.add_argument(
        "--lists",
        dest="n_lists",
        type=counted,
        metavar="N",
        help="with ivf; default: one per 1,000 documents",
    )
    parser.add_argument(
        "--probes", dest="n_probe", type=counted, metavar="N", help="with ivf: lists to visit; default: 20"
    )
    for side in ("document", "query"):
        parser.add_argument(
            f"--{side}-active",
            type=counted,
            metavar="N",
            help=f"set bits of a {side}'s code; default: the model's",
        )


def _build(args: argparse.Namespace) -> Report:
    require_replaceable(args.output, FORMAT)
    index = empty_index(args)
    vectors = read_source(args)
    index.add(vectors[:0])  # refuses vectors of another width before anything is announced
    estimate = (
        index.estimate_memory(len(vectors), vectors.shape[1])
        if isinstance(index, posh.Index)
        else index.estimate_memory(len(vectors))
    )
    note(f"estimated memory: {shown_size(estimate)} for {len(vectors):,} documents")
    start = time.perf_counter()
    index.add(vectors)
    added = time.perf_counter()
    index.save(args.output)
    return _report(index, estimate, added - start, time.perf_counter() - added, args.output)


def empty_index(args: argparse.Namespace) -> posh.Index | posh.CodeIndex:
    """Return the index that the options describe, without documents."""
    if (args.model is None) == (args.metric is None):
        got = "neither" if args.model is None else "both"
        raise UsageError(f"expected a MODEL or --metric, got {got}: for example '--metric cosine'")
    names = NearestOptions.names() if args.model is None else CodeOptions.names()
    others = CodeOptions.names() if args.model is None else NearestOptions.names()
    for name in set(others) - set(names):
        if getattr(args, name, None) is not None:
            needed = "a MODEL" if args.model is None else "--metric"
            raise UsageError(f"--{name.replace('_', '-')} is for {needed}: add it, or leave it out")
    given = {name: getattr(args, name, None) for name in names}
    options = {name: value for name, value in given.items() if value is not None}
    if args.model is None:
        return posh.Index(**options)
    index = posh.CodeIndex(posh.Hasher.load(args.model), **options)
    for name, option in (("n_lists", "--lists"), ("n_probe", "--probes")):
        if name in options and index.options.structure != "ivf":
            raise UsageError(f"{option} is for --structure ivf, got {index.options.structure}: leave it out")
    return index


def _report(
    index: posh.Index | posh.CodeIndex, estimate: int, add_seconds: float, save_seconds: float, output: Path
) -> Report:
    n, memory, disk = len(index), index.memory_usage()["total"], disk_bytes(output)
    values: dict[str, Any] = {
        "index": repr(index),
        "n_documents": n,
        "estimated_bytes": estimate,
        "memory_bytes": memory,
        "disk_bytes": disk,
        "add_seconds": add_seconds,
        "save_seconds": save_seconds,
        "output": str(output),
    }
    lines = [
        f"{index}",
        f"added: {n:,} documents in {add_seconds:.2f} s, {n / add_seconds:,.0f} per second",
        f"memory: {shown_size(memory)} ({shown_size(estimate)} estimated)",
        f"saved: {output}: {shown_size(disk)} on disk, in {save_seconds:.2f} s",
    ]
    if isinstance(index, posh.Index):
        report = index.report()
        values["report"] = asdict(report)
        lines += ["", str(report)]
    return Report(values, "\n".join(lines))
