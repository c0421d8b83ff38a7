"""``posh duplicates``: pairs and groups of near-duplicates among vectors or the items of a collection."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posh.cli._collection import add_filter, is_collection, open_collection, parse_filter
from posh.cli._command import (
    Parser,
    Report,
    UsageError,
    add_output,
    declare,
    parse_count,
    read_source,
    require_output,
    write_arrays,
)
from posh.index.choices import METRICS

if TYPE_CHECKING:
    from posh import Duplicates

__all__ = ["add_duplicates"]

_LIMIT, _MAX_GROUPS, _MAX_IDS = 100, 10, 8  # of one vector; printed


def add_duplicates(parser: Parser) -> None:
    """Declare ``posh duplicates``."""
    declare(parser, "posh duplicates digits --min-score 0.99", _find)
    parser.add_argument(
        "path",
        metavar="PATH",
        help="the folder of a collection, a data set (see 'posh data list') or a file: .npy, .npz, .fvecs …",
    )
    parser.add_argument("--key", help="array or column to read, if the file has several")
    parser.add_argument(
        "--min-score",
        type=float,
        required=True,
        metavar="S",
        help="score of a pair; for euclidean minus the square of the largest distance",
    )
    parser.add_argument("--metric", choices=METRICS, help="of vectors; default: cosine")
    parser.add_argument(
        "--recall", type=float, metavar="R", help="share of the hits that a search finds; default: 0.95"
    )
    parser.add_argument("--exact", action="store_true", help="compare all pairs")
    parser.add_argument(
        "--limit",
        type=parse_count,
        default=_LIMIT,
        metavar="N",
        help=f"near-duplicates of one vector, the best ones; default: {_LIMIT}",
    )
    add_filter(parser)
    parser.add_argument("--n-threads", type=parse_count, metavar="N", help="default: all cores")
    add_output(parser, "PAIRS", ".npz file to write: arrays 'pairs' and 'scores'", required=False)


def _find(args: argparse.Namespace) -> Report:
    import posh

    if args.output is not None:
        require_output(args.output, ".npz")
    options: dict[str, Any] = {
        "min_score": args.min_score,
        "limit": args.limit,
        "exact": args.exact,
        "n_threads": args.n_threads,
    }
    if args.recall is not None:
        options["recall"] = args.recall
    path = Path(args.path)
    if is_collection(path):
        for name in ("metric", "key"):
            if getattr(args, name) is not None:
                raise UsageError(f"--{name} is for vectors, and {path} is a collection: leave it out")
        with open_collection(path, args) as collection:
            found = collection.duplicates(filter=parse_filter(args), **options)
    else:
        if args.filter is not None:
            raise UsageError("--filter is for collections: leave it out")
        found = posh.duplicates(read_source(args.path, args.key), metric=args.metric or "cosine", **options)
    if args.output is not None:
        write_arrays(args.output, {"pairs": _as_plain(found), "scores": found.scores})
    return _report(found)


def _as_plain(found: Duplicates) -> Any:
    """Return the pairs as numbers, or as strings if an id is one: files have no objects."""
    return found.pairs.astype(str) if found.pairs.dtype == object else found.pairs


def _report(found: Duplicates) -> Report:
    groups = found.groups
    values = {
        "pairs": len(found),
        "is_cut": found.is_cut,
        "groups": groups,
    }
    n_ids = sum(map(len, groups))
    lines = [f"{len(found):,} pairs, {len(groups):,} groups of {n_ids:,} vectors"]
    if found.is_cut:
        lines.append("some vectors have more near-duplicates than --limit: pairs are missing")
    for group in groups[:_MAX_GROUPS]:
        more = f" … {len(group) - _MAX_IDS:,} more" if len(group) > _MAX_IDS else ""
        lines.append(", ".join(map(str, group[:_MAX_IDS])) + more)
    if len(groups) > _MAX_GROUPS:
        lines.append(f"… {len(groups) - _MAX_GROUPS:,} more groups: see --json, or --output")
    return Report(values, "\n".join(lines))
