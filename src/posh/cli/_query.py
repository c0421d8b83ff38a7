"""``posh query``: find the items of a collection that are nearest to an item or to vectors."""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import posh
from posh.cli._collection import add_collection, add_filter, open_searchable, read_filter
from posh.cli._command import Parser, Report, UsageError, counted, declare
from posh.files import read_vectors

__all__ = ["add"]

_SHOWN_QUERIES, _MAX_CELL = 5, 40


def add(parser: Parser) -> None:
    """Declare the arguments."""
    example = """posh query collections/articles --like 17 -k 3 --filter '{"year": {"gt": 1999}}'"""
    declare(parser, example, _query)
    add_collection(parser)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--like", metavar="ID", help="find what is near this item, which is left out")
    source.add_argument(
        "--vectors", metavar="FILE", type=Path, help="find what is near each vector of a file"
    )
    parser.add_argument("--key", metavar="COLUMN", help="which array or column of the file has the vectors")
    parser.add_argument("-k", type=counted, default=10, help="results per query; default: 10")
    add_filter(parser)
    parser.add_argument("--exact", action="store_true", help="with a metric: compare all vectors")


def _query(args: argparse.Namespace) -> Report:
    if args.key is not None and args.vectors is None:
        raise UsageError("--key is for --vectors: leave it out")
    where = read_filter(args)
    with open_searchable(args.collection, args) as collection:
        if args.vectors is not None:
            vectors, liked = read_vectors(args.vectors, args.key), None
        else:
            item = _liked(args, collection)
            vectors, liked = item.vector[None], item.id
        # One more, because the item itself may be among them. There are not more than all items.
        k = min(args.k + (liked is not None), max(1, len(collection)))
        matches = collection.search(vectors, k, filter=where, exact=args.exact)
        found = [_hits(collection, ids, scores, liked, args.k) for ids, scores in zip(*matches, strict=True)]
    queries = [
        {"query": liked if args.vectors is None else row, "hits": hits} for row, hits in enumerate(found)
    ]
    values = {"collection": str(args.collection), "kind": matches.kind, "k": args.k, "queries": queries}
    return Report(values, _text(queries, matches.kind))


def _liked(args: argparse.Namespace, collection: posh.BaseCollection) -> posh.Item:
    """Return the item with an id that was typed: text, or else the number."""
    text = args.like
    tried: list[int | str] = [text, *([int(text)] if re.fullmatch(r"-?\d+", text) else [])]
    for item in collection.get(tried):
        if item is not None:
            return item
    raise UsageError(f"{args.collection}: expected --like to be the id of an item, got {text!r}")


def _hits(
    collection: posh.BaseCollection,
    ids: npt.NDArray[Any],
    scores: npt.NDArray[np.float32],
    liked: int | str | None,
    k: int,
) -> list[dict[str, Any]]:
    """The items of one query with their payloads, without empty places and without the item itself."""
    pairs = [
        pair for pair in zip(ids, scores.tolist(), strict=True) if pair[0] is not None and pair[0] != liked
    ]
    items = collection.get([item_id for item_id, _ in pairs[:k]])
    return [
        {"id": item_id, "score": score, "payload": {} if item is None else item.payload}
        for (item_id, score), item in zip(pairs, items, strict=False)
    ]


def _text(queries: Sequence[dict[str, Any]], kind: str) -> str:
    lines: list[str] = []
    for query in queries[:_SHOWN_QUERIES]:
        if len(queries) > 1:
            lines.append(f"query {query['query']}:")
        lines += _table(query["hits"], kind) if query["hits"] else ["nothing found"]
    if len(queries) > _SHOWN_QUERIES:
        lines.append(f"and {len(queries) - _SHOWN_QUERIES:,} more queries: --json prints all")
    return "\n".join(lines)


def _table(hits: list[dict[str, Any]], kind: str) -> list[str]:
    """One line per hit: score, id and the fields of the payload, as wide as the terminal."""
    fields = list(dict.fromkeys(name for hit in hits for name in hit["payload"]))
    rows = [[kind, "id", *fields]]
    for hit in hits:
        cells = [_cell(hit["payload"].get(name, "")) for name in fields]
        rows.append([f"{hit['score']:.4g}", _cell(hit["id"]), *cells])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    width = shutil.get_terminal_size().columns
    lines = ("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)
    return [line if len(line) <= width else f"{line[: width - 1]}…" for line in lines]


def _cell(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= _MAX_CELL else f"{text[: _MAX_CELL - 1]}…"
