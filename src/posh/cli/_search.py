"""``posh search``: find the nearest documents of an index."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import posh
from posh import datasets
from posh.cli._command import (
    Parser,
    Report,
    UsageError,
    add_source,
    counted,
    declare,
    output_path,
    read_source,
    write_arrays,
)
from posh.cli._index import add_index, open_index, search_options
from posh.errors import FormatError

__all__ = ["add"]

_SHOWN_QUERIES, _SHOWN_HITS = 5, 10


def add(parser: Parser) -> None:
    """Declare the arguments."""
    example = "posh search digits-index digits -k 5 -o hits.npz"
    declare(parser, example, _search)
    add_index(parser)
    add_source(parser, "QUERIES", "the queries of a data set")
    parser.add_argument(
        "-k", type=counted, default=10, help="results per query, at most all documents; default: 10"
    )
    parser.add_argument(
        "--filter", type=Path, metavar="IDS", help=".npy: ids to search among, or a boolean mask by id"
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="HITS", help=".npz: arrays 'ids', 'scores' and 'kind'"
    )


def _search(args: argparse.Namespace) -> Report:
    if args.output is not None and output_path(args.output).suffix != ".npz":
        raise UsageError(f"expected --output to end in .npz, got {args.output}")
    index = open_index(args)
    options = search_options(args, index)
    if args.filter is not None:
        options["filter"] = _read_filter(args.filter)
    queries = read_source(args, queries=args.data in datasets.names())
    start = time.perf_counter()
    hits = index.search(queries, min(args.k, max(1, len(index))), **options)
    seconds = time.perf_counter() - start
    if args.output is not None:
        write_arrays(args.output, {"ids": _ids(hits), "scores": hits.scores, "kind": np.array(hits.kind)})
    return _report(index, hits, seconds, args.output)


def _read_filter(path: Path) -> npt.NDArray[Any]:
    with path.open("rb") as file:
        try:
            array: npt.NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise FormatError(f"{path}: expected an .npy file of ids or of a mask ({error})") from error
    return array


def _report(
    index: posh.Index | posh.CodeIndex, hits: posh.Hits, seconds: float, output: Path | None
) -> Report:
    m, k = hits.ids.shape
    first = [_found(hits, row) for row in range(min(m, _SHOWN_QUERIES))]
    values = {
        "index": repr(index),
        "kind": hits.kind,
        "k": k,
        "n_queries": m,
        "seconds": seconds,
        "queries_per_second": m / seconds,
        "first": first,
        "output": None if output is None else str(output),
    }
    lines = [f"{index}", f"ids and scores ({hits.kind}, higher is better):"]
    lines += [f"  query {row}: {_shown(found['ids'], found['scores'])}" for row, found in enumerate(first)]
    lines += [f"{m:,} queries in {seconds:.3f} s, {m / seconds:,.0f} per second"]
    if output is not None:
        ids = "text" if hits.ids.dtype == object else hits.ids.dtype
        lines.append(f"saved: {output}: ids {ids} and scores {hits.scores.dtype}, {hits.ids.shape}")
    return Report(values, "\n".join(lines))


def _found(hits: posh.Hits, row: int) -> dict[str, list[Any]]:
    """The results of a query, without the empty places at their end."""
    return {"ids": [hit.id for hit in hits[row]], "scores": [hit.score for hit in hits[row]]}


def _ids(hits: posh.Hits) -> npt.NDArray[Any]:
    """The ids as a file has them: objects, of an index with ids that are strings, as text, "" for None."""
    return np.where(hits.found, hits.ids, "").astype(str) if hits.ids.dtype == object else hits.ids


def _shown(ids: list[int | str], scores: list[float]) -> str:
    pairs = [f"{value} ({score:.5g})" for value, score in zip(ids, scores, strict=True)]
    rest = f", and {len(pairs) - _SHOWN_HITS:,} more" if len(pairs) > _SHOWN_HITS else ""
    return ", ".join(pairs[:_SHOWN_HITS]) + rest or "nothing found"
