"""``posh get`` and ``posh delete``: single items of a collection."""

from __future__ import annotations

import argparse
import itertools
from typing import TYPE_CHECKING, Any

from posh.cli._collection import (
    add_collection,
    add_filter,
    find_items,
    open_collection,
    open_writable,
    parse_filter,
)
from posh.cli._command import Parser, Report, UsageError, declare, note, parse_count

if TYPE_CHECKING:
    from posh import BaseCollection, Item

__all__ = ["add_delete", "add_get"]

_LIMIT = 10  # items that a filter, or neither ids nor a filter, prints
_SHOWN = 4  # numbers of a vector in text


# Get ---------------------------------------------------------------------------------------------------


def add_get(parser: Parser) -> None:
    """Declare ``posh get``."""
    declare(parser, "posh get collections/articles 17 23", _get)
    add_collection(parser)
    _add_ids(parser, "ids of items to print; default: the first items")
    add_filter(parser)
    parser.add_argument(
        "--limit", type=parse_count, metavar="N", help=f"without ids: items to print; default: {_LIMIT}"
    )
    parser.add_argument("--vectors", action="store_true", help="with --json: print the vectors, too")


def _add_ids(parser: Parser, about: str) -> None:
    parser.add_argument("ids", metavar="ID", nargs="*", help=about)


def _get(args: argparse.Namespace) -> Report:
    where = parse_filter(args)
    if args.ids and (where is not None or args.limit is not None):
        option = "--limit" if where is None else "--filter"
        raise UsageError(f"{option} and ids contradict each other: leave one out")
    with open_collection(args.collection, args) as collection:
        items = _read_items(args, collection, where)
    missing = [text for text, item in zip(args.ids, items, strict=False) if item is None]
    found = [item for item in items if item is not None]
    if missing:
        note(f"posh: {args.collection}: no item has the id {', '.join(map(repr, missing))}")
    values = {
        "collection": str(args.collection),
        "items": [_to_json(item, with_vector=args.vectors) for item in found],
        "missing": missing,
    }
    text = "\n".join(_format_item(item) for item in found) or "no items"
    return Report(values, text, exit_code=1 if missing else 0)


def _read_items(
    args: argparse.Namespace, collection: BaseCollection, where: dict[str, Any] | None
) -> list[Item | None]:
    if args.ids:
        return find_items(collection, args.ids)
    return list(itertools.islice(collection.items(where), args.limit or _LIMIT))


def _to_json(item: Item, *, with_vector: bool) -> dict[str, Any]:
    vector = {"vector": item.vector.tolist()} if with_vector else {}
    return {"id": item.id, **vector, "payload": item.payload}


def _format_item(item: Item) -> str:
    start = ", ".join(f"{value:.4g}" for value in item.vector[:_SHOWN].tolist())
    more = f", … {len(item.vector):,} numbers" if len(item.vector) > _SHOWN else ""
    fields = (f"  {name}: {value!r}" for name, value in item.payload.items())
    return "\n".join([f"{item.id!r}  [{start}{more}]", *fields])


# Delete ------------------------------------------------------------------------------------------------


def add_delete(parser: Parser) -> None:
    """Declare ``posh delete``."""
    declare(parser, """posh delete collections/articles --filter '{"year": {"lt": 1999}}'""", _delete)
    add_collection(parser)
    _add_ids(parser, "ids of items to delete; or choose them by --filter")
    add_filter(parser)
    parser.add_argument("--dry-run", action="store_true", help="count the items, and delete nothing")


def _delete(args: argparse.Namespace) -> Report:
    where = parse_filter(args)
    if (where is None) == (not args.ids):
        got = "neither" if where is None else "both"
        raise UsageError(f"""expected ids or --filter, got {got}; --filter '{{}}' deletes all items""")
    reader = open_collection if args.dry_run else open_writable
    with reader(args.collection, args) as collection:
        if where is not None:
            n = collection.count(where) if args.dry_run else collection.delete(filter=where)
        else:
            ids = [item.id for item in find_items(collection, args.ids) if item is not None]
            n = len(ids) if args.dry_run else collection.delete(ids)
        n_items = len(collection)
    values = {"collection": str(args.collection), "n_deleted": 0 if args.dry_run else n, "n_matching": n}
    text = f"{n:,} items would be deleted" if args.dry_run else f"{n:,} items deleted"
    return Report(values | {"n_items": n_items}, f"{args.collection}: {text}, {n_items:,} are there now")
