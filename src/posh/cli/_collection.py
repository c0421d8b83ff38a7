"""``posh query``, and the addresses, options and opening of collections that other commands share."""

from __future__ import annotations

import argparse
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posh.cli._command import Parser, Report, UsageError, declare, parse_count
from posh.cli._index import add_recall

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from posh import BaseCollection, Hit, Item

__all__ = ["add_collection", "add_filter", "add_milvus", "add_query", "connect_milvus"]
__all__ += ["find_collection", "find_items", "is_collection", "open_collection", "open_searchable"]
__all__ += ["open_writable", "parse_filter", "parse_place", "parse_vector", "read_token"]

_MAX_QUERIES, _MAX_CELL = 5, 40  # printed


# Options -----------------------------------------------------------------------------------------------


def add_collection(parser: Parser) -> None:
    """Declare the argument for an existing collection."""
    parser.add_argument(
        "collection",
        metavar="COLLECTION",
        type=parse_place,
        help="the folder of a collection, see 'posh import', or milvus:ADDRESS#NAME",
    )
    add_milvus(parser)


def parse_place(text: str) -> Path | str:
    """Parse the place of a collection for argparse: a folder, or an address of Milvus."""
    if not text.startswith("milvus:"):
        return Path(text)
    from posh.engines.milvus.connection import parse_address

    try:
        parse_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def add_milvus(parser: Parser) -> None:
    """Declare the options that :func:`connect_milvus` reads."""
    parser.add_argument(
        "--milvus-token-file",
        metavar="FILE",
        type=Path,
        help="a file with the token of Milvus; default: the environment variable POSH_MILVUS_TOKEN",
    )
    parser.add_argument(
        "--milvus-ca-file", metavar="FILE", help="certificate authority to trust for TLS with Milvus"
    )


def add_filter(parser: Parser) -> None:
    """Declare the option that :func:`parse_filter` reads."""
    parser.add_argument(
        "--filter", metavar="JSON", help="""only items that match, such as '{"year": {"gt": 1999}}'"""
    )


def parse_filter(args: argparse.Namespace) -> dict[str, Any] | None:
    """Return the filter, whose content the collection validates."""
    if args.filter is None:
        return None
    try:
        value = json.loads(args.filter)
    except ValueError as error:
        raise UsageError(f"expected --filter to be JSON, got {args.filter!r:.80} ({error})") from None
    if not isinstance(value, dict):
        raise UsageError(f"expected --filter to be a JSON object, got {args.filter!r:.80}")
    return value


def parse_vector(text: str) -> list[float]:
    """Parse numbers with commas or spaces between them, in brackets or not, for argparse."""
    try:
        return [float(word) for word in text.strip().strip("[]").replace(",", " ").split()]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected numbers such as '[0.1, -2, 3]', got {text!r:.80}"
        ) from None


def read_token(path: Path | None) -> str | None:
    """Return the token in a file; None without a file."""
    if path is None:
        return None
    token = path.read_text(encoding="utf-8").strip()
    if not token or not token.isprintable():
        raise UsageError(f"{path}: expected a token in one line, got {'none' if not token else 'more'}")
    return token


# Opening -----------------------------------------------------------------------------------------------


def is_collection(path: Path) -> bool:
    """Return whether a folder has the database of a collection."""
    from posh.collection.opening import DATABASE

    return (path / DATABASE).exists()


def connect_milvus(place: str, args: argparse.Namespace) -> tuple[Any, str]:
    """Connect to the Milvus of an address; return the connection and the name of the collection."""
    from posh.engines.milvus import Milvus
    from posh.engines.milvus.connection import parse_address

    uri, name = parse_address(place)
    return Milvus(uri, token=read_token(args.milvus_token_file), ca_file=args.milvus_ca_file), name


def find_collection(place: Path | str, args: argparse.Namespace) -> BaseCollection | None:
    """Open a collection for writing; return None if it does not exist."""
    if isinstance(place, Path):
        import posh

        return posh.Collection(place) if is_collection(place) else None
    from posh.engines.milvus import MilvusCollection
    from posh.engines.milvus.opening import list_collections

    milvus, name = connect_milvus(place, args)
    try:
        return MilvusCollection.open(milvus, name) if name in list_collections(milvus) else None
    except FileNotFoundError:  # its creation was interrupted
        return None


def open_collection(place: Path | str, args: argparse.Namespace) -> BaseCollection:
    """Open a collection to read it, even while another process writes to it."""
    import posh

    if isinstance(place, str):
        from posh.engines.milvus import MilvusCollection

        return MilvusCollection.open(*connect_milvus(place, args))
    if not is_collection(place):
        inside = sorted(path for path in place.glob("*") if is_collection(path))
        hint = (
            f"it has collections, such as {inside[0]}"
            if inside
            else f"make one with 'posh import FILE {place}'"
        )
        raise FileNotFoundError(f"{place}: expected a collection, got another folder or nothing; {hint}")
    try:
        return posh.Collection(place, read_only=True)
    except posh.FormatError:
        return posh.Collection(place)  # upgrades a collection of an older version, or reports the damage


def open_writable(place: Path | str, args: argparse.Namespace) -> BaseCollection:
    """Open an existing collection to change it."""
    collection = find_collection(place, args)
    if collection is None:
        raise FileNotFoundError(f"{place}: expected a collection, got another folder or nothing")
    return collection


def open_searchable(place: Path | str, args: argparse.Namespace) -> BaseCollection:
    """Open a collection that has an index, to read it."""
    from posh.collection.transfer import lacks_index

    collection = open_collection(place, args)
    if lacks_index(collection):
        collection.close()
        raise UsageError(
            f"{place}: expected a collection with an index, got one without: if an import was interrupted, "
            "run it again"
        )
    return collection


# Query -------------------------------------------------------------------------------------------------


def add_query(parser: Parser) -> None:
    """Declare ``posh query``."""
    example = """posh query collections/articles --like 17 -k 3 --filter '{"year": {"gt": 1999}}'"""
    declare(parser, example, _query)
    add_collection(parser)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--like", metavar="ID", help="find the neighbours of this item, without the item")
    source.add_argument(
        "--vector",
        metavar="NUMBERS",
        type=parse_vector,
        help="find the neighbours of this vector, such as '[0.1, -2, 3]'",
    )
    source.add_argument(
        "--vectors", metavar="FILE", type=Path, help="find the neighbours of each vector of a file"
    )
    words = parser.add_mutually_exclusive_group()
    words.add_argument(
        "--text",
        metavar="WORDS",
        help="""find items with these words, such as 'red "fine wool" scar*'; with --vectors, rank by both""",
    )
    words.add_argument(
        "--fts5",
        metavar="EXPRESSION",
        help="the same with an expression of SQLite's FTS5, such as 'title : wool NOT cotton'",
    )
    parser.add_argument("--key", help="array or column of vectors to read, if the file has several")
    parser.add_argument("-k", type=parse_count, default=10, help="results per query; default: 10")
    add_filter(parser)
    parser.add_argument(
        "--min-score", type=float, metavar="SCORE", help="only hits whose score is at least this"
    )
    add_recall(parser, "that of the collection")
    parser.add_argument("--exact", action="store_true", help="with a metric: compare all vectors")


def _query(args: argparse.Namespace) -> Report:
    if args.key is not None and args.vectors is None:
        raise UsageError("--key is for --vectors: leave it out")
    where, text = parse_filter(args), _read_text(args)
    if args.vectors is None and args.like is None and args.vector is None:
        return _query_text(args, where, text)
    with open_searchable(args.collection, args) as collection:
        item = None if args.like is None else _get_item(args, collection)
        vectors = _read_queries(args) if item is None else item.vector[None]
        excluded = None if item is None else item.id
        # One more than k, because the item itself may be among the hits; at most all items.
        k = min(args.k + (item is not None), max(1, len(collection)))
        texts = None if text is None else [text] * len(vectors)
        options = {"exact": args.exact, "recall": args.recall, "min_score": args.min_score}
        hits = collection.search(vectors, k, text=texts, filter=where, **options)
        queries: list[dict[str, Any]] = [
            {
                "query": row if item is None else item.id,
                "hits": _collect_hits(collection, ids, scores, excluded, args.k),
            }
            for row, (ids, scores) in enumerate(zip(*hits, strict=True))
        ]
    if text is not None:
        for row, query in enumerate(queries):
            _add_scores(query["hits"], hits[row])
    values = {"collection": str(args.collection), "kind": hits.kind, "k": args.k, "queries": queries}
    return Report(values, _format_queries(queries, hits.kind))


def _read_queries(args: argparse.Namespace) -> npt.NDArray[np.float32]:
    """Return the vectors of ``--vector`` or ``--vectors``, (m, d)."""
    import numpy as np

    from posh.files import read_vectors

    if args.vector is not None:
        return np.array([args.vector], np.float32)
    return read_vectors(args.vectors, args.key)


def _read_text(args: argparse.Namespace) -> str | dict[str, str] | None:
    """Return the text to search for; raise a UsageError if it contradicts other options."""
    text = args.text if args.fts5 is None else {"fts5": args.fts5}
    has_vectors = args.vectors is not None or args.vector is not None
    if text is None and args.like is None and not has_vectors:
        raise UsageError("expected one of --like, --vector, --vectors, --text and --fts5, got none")
    if text is not None and args.like is not None:
        raise UsageError("--like finds neighbours by vector only: leave --text or --fts5 out, or --like")
    for option in ("exact", "recall"):
        if text is not None and getattr(args, option) and not has_vectors:
            raise UsageError(f"--{option} is for vectors: leave it out")
    return text


def _query_text(args: argparse.Namespace, where: dict[str, Any] | None, text: Any) -> Report:
    """Search by text alone, which needs no index of vectors."""
    with open_collection(args.collection, args) as collection:
        hits = collection.search(text=text, k=args.k, filter=where, min_score=args.min_score)
        found = _collect_hits(collection, hits.ids[0], hits.scores[0], None, args.k)
    queries = [{"query": text, "hits": found}]
    values = {"collection": str(args.collection), "kind": hits.kind, "k": args.k, "queries": queries}
    return Report(values, _format_queries(queries, hits.kind))


def _get_item(args: argparse.Namespace, collection: BaseCollection) -> Item:
    """Return the item of ``--like``."""
    (item,) = find_items(collection, [args.like])
    if item is None:
        raise UsageError(f"{args.collection}: expected --like to be the id of an item, got {args.like!r}")
    return item


def find_items(collection: BaseCollection, texts: Sequence[str]) -> list[Item | None]:
    """Return the items with these ids: the id of an item is the text, or else the number."""
    by_text = collection.get(texts)
    numbers = [int(text) if re.fullmatch(r"-?\d{1,18}", text) else None for text in texts]
    by_number = iter(collection.get([number for number in numbers if number is not None]))
    items = [None if number is None else next(by_number) for number in numbers]
    return [one or other for one, other in zip(by_text, items, strict=True)]


def _collect_hits(
    collection: BaseCollection,
    ids: npt.NDArray[Any],
    scores: npt.NDArray[np.float32],
    excluded: int | str | None,
    k: int,
) -> list[dict[str, Any]]:
    """Return the first k hits of one query with their payloads, without missing hits and one excluded id."""
    pairs = [
        pair for pair in zip(ids, scores.tolist(), strict=True) if pair[0] is not None and pair[0] != excluded
    ]
    items = collection.get([item_id for item_id, _ in pairs[:k]])
    return [
        {"id": item_id, "score": score, "payload": {} if item is None else item.payload}
        for (item_id, score), item in zip(pairs, items, strict=False)
    ]


def _add_scores(found: list[dict[str, Any]], hits: Sequence[Hit]) -> None:
    """Add the scores by vector and by text; null for a ranking that an item is not among the best of."""
    by_id = {hit.id: hit for hit in hits}
    for one in found:
        hit = by_id[one["id"]]
        one |= {"vector_score": hit.vector_score, "text_score": hit.text_score}


def _format_queries(queries: Sequence[dict[str, Any]], kind: str) -> str:
    lines: list[str] = []
    for query in queries[:_MAX_QUERIES]:
        if len(queries) > 1:
            lines.append(f"query {query['query']}:")
        lines += _format_table(query["hits"], kind) if query["hits"] else ["no hits"]
    if len(queries) > _MAX_QUERIES:
        lines.append(f"and {len(queries) - _MAX_QUERIES:,} more queries: --json prints all")
    return "\n".join(lines)


def _format_table(hits: list[dict[str, Any]], kind: str) -> list[str]:
    """Return one line per hit: score, id and the fields of the payload, cut to the terminal's width."""
    fields = list(dict.fromkeys(name for hit in hits for name in hit["payload"]))
    rows = [[kind, "id", *fields]]
    for hit in hits:
        cells = [_format_cell(hit["payload"].get(name, "")) for name in fields]
        rows.append([f"{hit['score']:.4g}", _format_cell(hit["id"]), *cells])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    width = shutil.get_terminal_size().columns
    lines = ("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)
    return [line if len(line) <= width else f"{line[: width - 1]}…" for line in lines]


def _format_cell(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= _MAX_CELL else f"{text[: _MAX_CELL - 1]}…"
