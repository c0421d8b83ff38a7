"""``posh import``, ``posh export`` and ``posh copy``: items into, out of and between collections."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from posh.cli._collection import (
    add_collection,
    add_filter,
    add_milvus,
    connect_milvus,
    find_collection,
    is_collection,
    open_collection,
    parse_filter,
    parse_place,
)
from posh.cli._command import (
    Parser,
    Report,
    UsageError,
    declare,
    format_size,
    note,
    parse_count,
    require_output,
    warn_of_zeros,
)
from posh.cli._index import add_recall
from posh.files import (
    SUFFIXES,
    WRITERS,
    BadRowHandler,
    Choice,
    RowError,
    VectorFile,
    choose_roles,
    open_file,
    write_items,
)
from posh.index.choices import METRICS, STORES

if TYPE_CHECKING:
    from posh import BaseCollection, Item
    from posh.collection.text import TextOptions
    from posh.collection.transfer import Importer

__all__ = ["add_copy", "add_export", "add_import"]

_METRIC = "cosine"


# Import ------------------------------------------------------------------------------------------------


def add_import(parser: Parser) -> None:
    """Declare ``posh import``."""
    declare(parser, "posh import articles.parquet collections/articles --vector embedding --id url", _import)
    parser.add_argument("files", metavar="FILE", type=Path, nargs="+", help=" ".join(SUFFIXES))
    parser.add_argument(
        "collection",
        metavar="COLLECTION",
        type=parse_place,
        help="a folder, or milvus:ADDRESS#NAME; created if it does not exist",
    )
    add_milvus(parser)
    parser.add_argument(
        "--vector",
        metavar="COLUMN",
        action="append",
        default=[],
        help="the column of vectors, or columns of numbers: 'x*' (ordered by number), or repeated "
        "(in this order); default: the only candidate",
    )
    parser.add_argument(
        "--id",
        metavar="COLUMN",
        help="the column of ids, integers or text; default: the only one with the name of an id",
    )
    parser.add_argument("--number-rows", action="store_true", help="use row numbers as ids: 0, 1, 2 …")
    parser.add_argument(
        "--payload",
        metavar="COLUMN",
        action="append",
        help="a column for the payloads; may be repeated or have a *; default: all other columns",
    )
    parser.add_argument("--no-payload", action="store_true", help="store ids and vectors only")
    parser.add_argument("--metric", choices=METRICS, help=f"metric of a new collection; default: {_METRIC}")
    add_recall(parser, "0.95, of a new collection")
    parser.add_argument(
        "--store", choices=STORES, help="number type of the vectors of a new index; default: float32"
    )
    parser.add_argument(
        "--text",
        metavar="FIELDS",
        help="fields of payloads for 'posh query --text', such as title,body; for a new collection",
    )
    parser.add_argument(
        "--tokenizer", help="tokenizer of SQLite's FTS5 for --text; default: unicode61 remove_diacritics 2"
    )
    parser.add_argument(
        "--replace", action="store_true", help="replace items that have the same id but different content"
    )
    parser.add_argument(
        "--skip-bad",
        metavar="N",
        type=parse_count,
        help="skip up to N rows that cannot be imported; by default the first one is an error",
    )
    parser.add_argument(
        "--report",
        metavar="FILE",
        type=Path,
        help="a file of JSON Lines for the skipped rows, with their reasons; needs --skip-bad",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show how the files are interpreted, and write nothing"
    )


def _import(args: argparse.Namespace) -> Report:
    _require_consistency(args)
    with _BadRows(args) as bad_rows:
        return _import_files(args, bad_rows)


def _import_files(args: argparse.Namespace, bad_rows: _BadRows) -> Report:
    from posh._runtime import track_progress
    from posh.collection.transfer import IMPORT_BATCH, Importer

    on_bad_row = None if args.skip_bad is None else bad_rows.add
    sources = [_open_source(args, path, on_bad_row) for path in args.files]
    for file, choice in sources:
        for guess in choice.guesses:
            note(f"{file.path}: {guess}")
    if args.dry_run:
        return _report_dry_run(sources)
    options = {"metric": args.metric or _METRIC, **_collect_options(args)}
    importer = Importer(lambda: _open_target(args), options, args.replace, on_bad_row)
    n_items, start = 0, time.perf_counter()
    try:
        if isinstance(args.collection, Path) and is_collection(args.collection):
            importer.open()
        for file, choice in sources:
            n_batches = -(-file.n_rows(choice.roles) // IMPORT_BATCH)
            for _ in track_progress(importer.steps(file, choice.roles), file.path.name, "batch", n_batches):
                pass
        importer.finish()
    except RowError as error:
        raise type(error)(
            error.path, error.row, f"{error.problem}; {_describe_progress(args, importer)}"
        ) from None
    except KeyboardInterrupt:
        note(f"posh: {_describe_progress(args, importer)}; repeat the command to resume")
        raise
    finally:
        if importer.collection is not None:
            n_items = len(importer.collection)
            importer.collection.close()
    warn_of_zeros(importer.n_zero, importer.n_written, importer.options["metric"])
    return _report_import(args, importer, n_items, bad_rows.n, time.perf_counter() - start)


class _BadRows:
    """Counts rows that cannot be imported, up to a limit, and writes them to the file of ``--report``."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.n = 0
        self._limit, self._path = args.skip_bad, args.report
        self._file: IO[str] | None = None

    def __enter__(self) -> _BadRows:
        if self._path is not None:
            require_output(self._path)
            self._file = self._path.open("w", encoding="utf-8", errors="backslashreplace")
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, error: RowError) -> None:
        """Count and report a bad row; raise its error if it is one too many."""
        self.n += 1
        if self.n > self._limit:
            problem = f"{error.problem}; this is bad row {self.n:,}, and --skip-bad allows {self._limit:,}"
            raise RowError(error.path, error.row, problem)
        if self._file is not None:
            values = {"file": str(error.path), "row": error.row, "reason": error.problem}
            line = json.dumps(values | {"content": error.content}, ensure_ascii=False, default=str)
            print(line, file=self._file, flush=True)


def _collect_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the index other than the metric, as far as they are given."""
    given = {"recall": args.recall, "store": args.store}
    return {name: value for name, value in given.items() if value is not None}


def _require_consistency(args: argparse.Namespace) -> None:
    if isinstance(args.collection, Path) and args.collection.is_file():
        raise UsageError(
            f"expected a folder for the collection as the last argument, got the file {args.collection}"
        )
    if args.number_rows and args.id is not None:
        raise UsageError("--number-rows and --id contradict each other: leave one out")
    if args.report is not None and args.skip_bad is None:
        raise UsageError("--report is for --skip-bad: add it, or leave --report out")
    for name in _collect_options(args):
        if isinstance(args.collection, str):
            raise UsageError(f"--{name} needs a collection in a folder, got one on Milvus: leave it out")
    if args.tokenizer is not None and args.text is None:
        raise UsageError("--tokenizer is for --text: leave it out")
    if args.no_payload and args.text is not None:
        raise UsageError("--no-payload and --text contradict each other: leave one out")
    if args.no_payload and args.payload is not None:
        raise UsageError("--no-payload and --payload contradict each other: leave one out")


def _open_source(
    args: argparse.Namespace, path: Path, on_bad_row: BadRowHandler | None
) -> tuple[VectorFile, Choice]:
    file = open_file(path, on_bad_row)
    payload = [] if args.no_payload else args.payload
    return file, choose_roles(file, args.vector, args.id, payload, number_rows=args.number_rows)


def _open_target(args: argparse.Namespace) -> BaseCollection:
    """Open or create the collection; raise a UsageError if it has another metric than ``--metric``."""
    from posh.collection.transfer import find_metric, lacks_index

    collection = _open_or_create(args)
    metric = find_metric(collection)
    if args.metric not in (None, metric) and (metric is not None or not lacks_index(collection)):
        collection.close()
        raise UsageError(
            f"{args.collection}: expected --metric {metric or '(none)'}, as this collection has, "
            f"got {args.metric}: leave it out, or choose another collection"
        )
    present = {} if lacks_index(collection) else collection.index_options
    for name, value in _collect_options(args).items():
        if present.get(name, value) != value:
            collection.close()
            raise UsageError(
                f"{args.collection}: expected --{name} {present[name]}, as this collection has, got {value}: "
                f"leave it out, and change it with 'posh reindex {args.collection} --{name} {value}'"
            )
    return collection


def _open_or_create(args: argparse.Namespace) -> BaseCollection:
    import posh

    text = None if args.text is None else args.text.split(",")
    if isinstance(args.collection, Path):
        return posh.Collection(args.collection, text=text, tokenizer=args.tokenizer)
    if text is not None:
        raise UsageError("--text needs a collection in a folder, got one on Milvus: leave it out")
    from posh.engines.milvus import MilvusCollection

    collection = find_collection(args.collection, args)
    if collection is not None:
        return collection
    milvus, name = connect_milvus(args.collection, args)
    # With the metric now: to set it at the end would write all items again.
    return MilvusCollection.create(milvus, name, metric=args.metric or _METRIC)


def _describe_progress(args: argparse.Namespace, importer: Importer) -> str:
    if importer.collection is None:
        return "nothing was written"
    return f"the {importer.n_rows:,} rows before it are in {args.collection}"


def _report_import(
    args: argparse.Namespace, importer: Importer, n_items: int, n_skipped: int, seconds: float
) -> Report:
    n_present = importer.n_rows - importer.n_written
    values = {
        "collection": str(args.collection),
        "n_rows": importer.n_rows,
        "n_written": importer.n_written,
        "n_replaced": importer.n_replaced,
        "n_present": n_present,
        "n_skipped": n_skipped,
        "n_zero": importer.n_zero,
        "n_items": n_items,
        "seconds": seconds,
    }
    text = f"{args.collection}: {importer.n_written:,} rows written in {seconds:.1f} s"
    if importer.n_replaced:
        text += f", {importer.n_replaced:,} of them replaced other items"
    if n_present:
        text += f", {n_present:,} already present"
    if n_skipped:
        text += f", {n_skipped:,} bad rows skipped" + (f", see {args.report}" if args.report else "")
    return Report(values, f"{text}; {n_items:,} items in all")


def _report_dry_run(sources: list[tuple[VectorFile, Choice]]) -> Report:
    files = [_describe_source(file, choice) for file, choice in sources]
    lines = [line for values in files for line in _format_source(values)]
    return Report({"files": files}, "\n".join([*lines, "nothing was written"]))


def _describe_source(file: VectorFile, choice: Choice) -> dict[str, Any]:
    roles = choice.roles
    return {
        "file": str(file.path),
        "n_rows": file.n_rows(roles),
        "columns": {column.name: column.type for column in file.columns},
        "vector": list(roles.vector),
        "id": roles.id,
        "payload": list(file.payload_names(roles)),
        "first": _read_first_row(file, choice),
    }


def _read_first_row(file: VectorFile, choice: Choice) -> dict[str, Any] | None:
    """Return the first row as an import would write it; an invalid row raises the error of the import."""
    from posh.collection.transfer import take_valid_rows

    batch = next(file.batches(choice.roles, 1), None)
    if batch is None:
        return None
    ids, vectors, payloads, problem = take_valid_rows(batch, None, 0, set())
    if problem is not None:
        raise RowError(file.path, 0, f"{problem}; nothing was written")
    return {"id": ids[0], "vector": vectors[0].tolist(), "payload": payloads[0]}


def _format_source(values: dict[str, Any]) -> list[str]:
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


# Export ------------------------------------------------------------------------------------------------


def add_export(parser: Parser) -> None:
    """Declare ``posh export``."""
    declare(parser, "posh export collections/articles articles.parquet", _export)
    add_collection(parser)
    parser.add_argument(
        "file",
        metavar="FILE",
        type=Path,
        help=f"{' '.join(WRITERS)}: columns id, vector and payload; in Parquet, fields are columns, too",
    )
    add_filter(parser)


def _export(args: argparse.Namespace) -> Report:
    from posh._runtime import track_progress

    require_output(args.file)
    if args.file.suffix.lower() not in WRITERS:
        raise UsageError(f"expected FILE to end in one of {' '.join(WRITERS)}, got {args.file}")
    where = parse_filter(args)
    start = time.perf_counter()
    with open_collection(args.collection, args) as collection:
        n, metric = collection.count(where), collection.index_options.get("metric")
        items = _Items(lambda: track_progress(collection.items(where), "writing", "item", n))
        write_items(args.file, items, n, collection.n_features or 1)
    seconds, size = time.perf_counter() - start, args.file.stat().st_size
    command = f"posh import {args.file} COLLECTION" + (f" --metric {metric}" if metric else "")
    values = {"file": str(args.file), "n_items": n, "metric": metric, "bytes": size, "seconds": seconds}
    text = f"{args.file}: {n:,} items, {format_size(size)}, in {seconds:.1f} s"
    return Report(values, f"{text}; '{command}' reads it" if n else text)  # an import refuses an empty file


class _Items:
    """Items that can be iterated over more than once."""

    def __init__(self, read: Callable[[], Iterable[Item]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[Item]:
        return iter(self._read())


# Copy --------------------------------------------------------------------------------------------------


def add_copy(parser: Parser) -> None:
    """Declare ``posh copy``."""
    declare(parser, "posh copy collections/articles 'milvus:http://127.0.0.1:19530#articles'", _copy)
    parser.add_argument(
        "source",
        metavar="SOURCE",
        type=parse_place,
        help="the folder of a collection, or milvus:ADDRESS#NAME",
    )
    parser.add_argument(
        "target",
        metavar="TARGET",
        type=parse_place,
        help="a new folder, or milvus:ADDRESS#NAME with a new name",
    )
    add_milvus(parser)


def _copy(args: argparse.Namespace) -> Report:
    from posh._runtime import track_progress
    from posh.collection.transfer import COPY_BATCH, Copier

    origin = _format_origin(args.source)
    if origin == _format_origin(args.target):
        raise UsageError(f"expected two collections, got {args.source} twice: choose another target")
    start = time.perf_counter()
    with open_collection(args.source, args) as source:
        copier = Copier(
            source,
            origin,
            lambda: find_collection(args.target, args),
            lambda hasher, metadata, options: _create_copy(args, hasher, metadata, options, source.text),
            index_last=isinstance(args.target, Path),
        )
        try:
            for _ in track_progress(copier.steps(), "copying", "batch", -(-len(source) // COPY_BATCH)):
                pass
            copier.finish()
        except KeyboardInterrupt:
            note(f"posh: {copier.n_items:,} items are in {args.target}; repeat the command to resume")
            raise
        finally:
            if copier.target is not None:
                copier.target.close()
    seconds = time.perf_counter() - start
    values = {"source": str(args.source), "target": str(args.target), "n_items": copier.n_items}
    values |= {"n_written": copier.n_written, "seconds": seconds}
    text = f"{args.target}: {copier.n_written:,} items written in {seconds:.1f} s"
    if n_present := copier.n_items - copier.n_written:
        text += f", {n_present:,} already present"
    return Report(values, f"{text}; {copier.n_items:,} items in all")


def _create_copy(
    args: argparse.Namespace,
    hasher: Any,
    metadata: dict[str, Any],
    options: dict[str, Any],
    text: TextOptions | None,
) -> BaseCollection:
    import posh

    if isinstance(args.target, Path):
        own = {} if text is None else asdict(text)
        fields = {"text": own.get("fields"), "tokenizer": own.get("tokenizer")}
        return posh.create(args.target, hasher, metadata=metadata, **fields, **options)
    if text is not None:
        note(f"{args.target}: Milvus has no text index, so the copy has none")
    from posh.engines.milvus import MilvusCollection

    milvus, name = connect_milvus(args.target, args)
    return MilvusCollection.create(milvus, name, hasher, metadata=metadata, **options)


def _format_origin(place: Path | str) -> str:
    return str(place.absolute()) if isinstance(place, Path) else place
