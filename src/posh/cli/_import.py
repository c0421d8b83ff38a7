"""``posh import``: bring vectors, ids and payloads from files into a collection."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import posh
from posh._runtime import track_progress
from posh.cli._collection import add_milvus, address, find_collection, milvus_of
from posh.cli._command import Parser, Report, UsageError, declare, note
from posh.collection.base import BaseCollection
from posh.collection.opening import DATABASE
from posh.collection.transfer import IMPORT_BATCH, Importer, find_metric, lacks_index, take_valid_rows
from posh.files import SUFFIXES, Choice, RowError, VectorFile, choose_roles, open_file
from posh.index.nearest.metric import METRICS

__all__ = ["add"]

_METRIC = "cosine"


def add(parser: Parser) -> None:
    """Declare the arguments."""
    declare(parser, "posh import articles.parquet collections/articles --vector embedding --id url", _import)
    parser.add_argument("files", metavar="FILE", type=Path, nargs="+", help=" ".join(SUFFIXES))
    parser.add_argument(
        "collection",
        metavar="COLLECTION",
        type=address,
        help="a folder, or milvus:ADDRESS#NAME; made if it is not there",
    )
    add_milvus(parser)
    parser.add_argument(
        "--vector",
        metavar="COLUMN",
        action="append",
        default=[],
        help="the column of vectors, or columns of numbers: 'x*' (by number), or repeated "
        "(in the order given); default: the only candidate",
    )
    parser.add_argument(
        "--id",
        metavar="COLUMN",
        help="the column of ids, integers or text; default: the only one called like an id",
    )
    parser.add_argument(
        "--number-rows", action="store_true", help="let the numbers of the rows be the ids: 0, 1, 2 …"
    )
    parser.add_argument(
        "--payload",
        metavar="COLUMN",
        action="append",
        help="a column to keep beside the vectors; may be repeated or have a *; default: all others",
    )
    parser.add_argument("--no-payload", action="store_true", help="keep nothing beside ids and vectors")
    parser.add_argument(
        "--metric", choices=METRICS, help=f"how a new collection compares vectors; default: {_METRIC}"
    )
    parser.add_argument(
        "--replace", action="store_true", help="replace items that have the same ids and another content"
    )
    parser.add_argument("--dry-run", action="store_true", help="show what was understood, and write nothing")


def _import(args: argparse.Namespace) -> Report:
    _require_usage(args)
    opened = [_opened(args, path) for path in args.files]
    for file, choice in opened:
        for guess in choice.guesses:
            note(f"{file.path}: {guess}")
    if args.dry_run:
        return _dry_run(opened)
    importer = Importer(lambda: _collection(args), args.metric or _METRIC, args.replace)
    start = time.perf_counter()
    try:
        if isinstance(args.collection, Path) and (args.collection / DATABASE).exists():
            importer.open()
        for file, choice in opened:
            n_batches = -(-file.n_rows(choice.roles) // IMPORT_BATCH)
            for _ in track_progress(importer.steps(file, choice.roles), file.path.name, "batch", n_batches):
                pass
        importer.finish()
    except RowError as error:
        raise type(error)(error.path, error.row, f"{error.problem}; {_so_far(args, importer)}") from None
    except KeyboardInterrupt:
        note(f"posh: {_so_far(args, importer)}; the same command goes on there")
        raise
    finally:
        if importer.collection is not None:
            n_items = len(importer.collection)
            importer.collection.close()
    return _report(args, importer, n_items if importer.collection is not None else 0, start)


def _require_usage(args: argparse.Namespace) -> None:
    if isinstance(args.collection, Path) and args.collection.is_file():
        raise UsageError(
            f"expected a folder for the collection as the last argument, got the file {args.collection}"
        )
    if args.number_rows and args.id is not None:
        raise UsageError("--number-rows and --id contradict each other: leave one out")
    if args.no_payload and args.payload is not None:
        raise UsageError("--no-payload and --payload contradict each other: leave one out")


def _opened(args: argparse.Namespace, path: Path) -> tuple[VectorFile, Choice]:
    file = open_file(path)
    payload = [] if args.no_payload else args.payload
    return file, choose_roles(file, args.vector, args.id, payload, number_rows=args.number_rows)


def _collection(args: argparse.Namespace) -> BaseCollection:
    collection = _opened_or_made(args)
    found = find_metric(collection)
    if args.metric not in (None, found) and (found is not None or not lacks_index(collection)):
        collection.close()
        raise UsageError(
            f"{args.collection}: expected --metric {found or '(none)'}, as this collection has, "
            f"got {args.metric}: leave it out, or choose another collection"
        )
    return collection


def _opened_or_made(args: argparse.Namespace) -> BaseCollection:
    if isinstance(args.collection, Path):
        return posh.Collection(args.collection)
    from posh.engines.milvus import MilvusCollection

    found = find_collection(args.collection, args)
    if found is not None:
        return found
    milvus, name = milvus_of(args.collection, args)  # a metric that came last would write all items again
    return MilvusCollection.create(milvus, name, metric=args.metric or _METRIC)


def _so_far(args: argparse.Namespace, importer: Importer) -> str:
    if importer.collection is None:
        return "nothing was written"
    return f"the {importer.n_rows:,} rows before it are in {args.collection}"


def _report(args: argparse.Namespace, importer: Importer, n_items: int, start: float) -> Report:
    seconds = time.perf_counter() - start
    present = importer.n_rows - importer.n_written
    values = {
        "collection": str(args.collection),
        "n_rows": importer.n_rows,
        "n_written": importer.n_written,
        "n_replaced": importer.n_replaced,
        "n_present": present,
        "n_items": n_items,
        "seconds": seconds,
    }
    text = f"{args.collection}: {importer.n_written:,} rows written in {seconds:.1f} s"
    if importer.n_replaced:
        text += f", {importer.n_replaced:,} of them in place of others"
    if present:
        text += f", {present:,} were there already"
    return Report(values, f"{text}; {n_items:,} items in all")


def _dry_run(opened: list[tuple[VectorFile, Choice]]) -> Report:
    described = [_described(file, choice) for file, choice in opened]
    lines = [line for values in described for line in _lines(values)]
    return Report({"files": described}, "\n".join([*lines, "nothing was written"]))


def _described(file: VectorFile, choice: Choice) -> dict[str, Any]:
    roles = choice.roles
    return {
        "file": str(file.path),
        "n_rows": file.n_rows(roles),
        "columns": {column.name: column.type for column in file.columns},
        "vector": list(roles.vector),
        "id": roles.id,
        "payload": list(file.payload_names(roles)),
        "first": _first(file, choice),
    }


def _first(file: VectorFile, choice: Choice) -> dict[str, Any] | None:
    """Return the first row as an import would write it; one that it would refuse is the same error."""
    batch = next(file.batches(choice.roles, 1), None)
    if batch is None:
        return None
    ids, vectors, payloads, problem = take_valid_rows(batch, None, 0, set())
    if problem is not None:
        raise RowError(file.path, 0, f"{problem}; nothing was written")
    return {"id": ids[0], "vector": vectors[0].tolist(), "payload": payloads[0]}


def _lines(values: dict[str, Any]) -> list[str]:
    vector = values["vector"]
    lines = [
        f"{values['file']}: {values['n_rows']:,} rows",
        f"  columns: {', '.join(f'{name} ({kind})' for name, kind in values['columns'].items()):.300}",
        f"  vector: {vector[0]}" + (f" … {vector[-1]}, {len(vector)} columns" if len(vector) > 1 else ""),
        f"  id: {values['id'] or 'the number of the row'}",
        f"  payload: {', '.join(values['payload']) or 'nothing'}",
    ]
    if (first := values["first"]) is not None:
        start = ", ".join(f"{value:.4g}" for value in first["vector"][:4])
        lines.append(
            f"  first row: id {first['id']!r}, vector [{start} …], payload {first['payload']!r:.200}"
        )
    return lines
