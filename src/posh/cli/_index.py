"""``posh build`` and ``posh search``: indexes in folders."""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posh.cli._command import (
    Parser,
    Report,
    UsageError,
    add_output,
    add_source,
    declare,
    format_size,
    note,
    parse_count,
    read_source,
    require_output,
    warn_of_zeros,
    write_arrays,
)
from posh.index.choices import METRICS, OPTIMIZE, REFINER_NAMES, SCORINGS, STORES, STRUCTURE_NAMES

if TYPE_CHECKING:
    import numpy.typing as npt

    from posh import CodeIndex, Hits, Index

__all__ = ["add_build", "add_build_options", "add_recall", "add_search", "add_search_options"]
__all__ += ["collect_search_options", "create_index", "measure_folder"]

_MAX_QUERIES, _MAX_HITS = 5, 10  # printed


# Build -------------------------------------------------------------------------------------------------


def add_build(parser: Parser) -> None:
    """Declare ``posh build``."""
    declare(parser, "posh build digits -o digits-index --metric cosine --recall 0.95", _build)
    add_source(parser, name="the base of a data set")
    add_output(parser, "FOLDER", "folder to write; an existing index is replaced")
    add_build_options(parser)


def add_build_options(parser: Parser, recall: str = "0.95") -> None:
    """Declare the options of an index, named after its parameters; ``recall`` describes the default.

    :func:`create_index` reads them.
    """
    parser.add_argument(
        "--model", type=Path, help="model file of 'posh fit', to search by codes; or choose a --metric"
    )
    parser.add_argument("--metric", choices=METRICS, help="search by this metric instead of codes")
    add_recall(parser, recall)
    parser.add_argument(
        "--store", choices=STORES, help="with --metric: number type of stored vectors; default: float32"
    )
    aims = "; ".join(f"{name}: {about}" for name, about in OPTIMIZE.items())
    parser.add_argument("--optimize", choices=OPTIMIZE, help=f"with --metric: {aims}; default: the first")
    scorings = {name: scoring.about for name, scoring in SCORINGS.items()}
    for option, table in (("--structure", STRUCTURE_NAMES), ("--scoring", scorings)):
        choices = [f"{name}: {about}" for name, about in table.items()]
        parser.add_argument(
            option, choices=table, help=f"with --model: {'; '.join(choices)}; default: the first"
        )
    parser.add_argument(
        "--refine", choices=REFINER_NAMES, help="with --model: reorder the best candidates by this"
    )
    parser.add_argument(
        "--n-lists",
        type=parse_count,
        metavar="N",
        help="with --metric or --structure ivf: number of lists; default: by the number of documents",
    )
    parser.add_argument(
        "--n-probe",
        type=parse_count,
        metavar="N",
        help="with --structure ivf: lists to visit per query; default: 20",
    )
    for side in ("document", "query"):
        parser.add_argument(
            f"--{side}-active",
            type=parse_count,
            metavar="N",
            help=f"with --model: set bits of the code of a {side}; default: those of the model",
        )


def create_index(args: argparse.Namespace) -> Index | CodeIndex:
    """Create the empty index that the options describe."""
    import posh
    from posh.index.codes.options import CodeOptions
    from posh.index.nearest.options import NearestOptions

    if (args.model is None) == (args.metric is None):
        got = "neither" if args.model is None else "both"
        raise UsageError(f"expected --model or --metric, got {got}: for example '--metric cosine'")
    names, other_names = NearestOptions.names(), CodeOptions.names()
    missing = "--model"
    if args.model is not None:
        names, other_names, missing = other_names, names, "--metric"
    for name in set(other_names) - set(names):
        if getattr(args, name, None) is not None:
            raise UsageError(f"--{name.replace('_', '-')} is for {missing}: add it, or leave it out")
    values = {name: getattr(args, name, None) for name in names}
    options = {name: value for name, value in values.items() if value is not None}
    if args.model is None:
        return posh.Index(**options)
    index = posh.CodeIndex(posh.Hasher.load(args.model), **options)
    for name, option in (("n_lists", "--n-lists"), ("n_probe", "--n-probe")):
        if name in options and index.options.structure != "ivf":
            raise UsageError(f"{option} is for --structure ivf, got {index.options.structure}: leave it out")
    return index


def _build(args: argparse.Namespace) -> Report:
    import posh
    from posh._durable import require_replaceable
    from posh.index.files import FORMAT

    require_replaceable(args.output, FORMAT)
    index = create_index(args)
    vectors = read_source(args.data, args.key)
    index.add(vectors[:0])  # raises an error for vectors of another width before the estimate is printed
    estimate = (
        index.estimate_memory(len(vectors), vectors.shape[1])
        if isinstance(index, posh.Index)
        else index.estimate_memory(len(vectors))
    )
    warn_of_zeros(int((~vectors.any(axis=1)).sum()), len(vectors), args.metric)
    note(f"estimated memory: {format_size(estimate)} for {len(vectors):,} documents")
    start = time.perf_counter()
    index.add(vectors)
    added = time.perf_counter()
    index.save(args.output)
    return _report_build(index, estimate, added - start, time.perf_counter() - added, args.output)


def _report_build(
    index: Index | CodeIndex, estimate: int, add_seconds: float, save_seconds: float, output: Path
) -> Report:
    import posh

    n, memory, disk = len(index), index.memory_usage()["total"], measure_folder(output)
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
        f"memory: {format_size(memory)} ({format_size(estimate)} estimated)",
        f"saved: {output}: {format_size(disk)} on disk, in {save_seconds:.2f} s",
    ]
    if isinstance(index, posh.Index):
        report = index.report()
        values["report"] = asdict(report)
        lines += ["", str(report)]
    return Report(values, "\n".join(lines))


def measure_folder(folder: Path) -> int:
    """Return the size of all files under ``folder`` in bytes."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


# Search ------------------------------------------------------------------------------------------------


def add_search(parser: Parser) -> None:
    """Declare ``posh search``."""
    declare(parser, "posh search digits-index digits -k 5 -o hits.npz", _search)
    parser.add_argument("index", metavar="INDEX", type=Path, help="folder of an index, see 'posh build'")
    add_source(parser, "QUERIES", "the queries of a data set")
    parser.add_argument(
        "-k", type=parse_count, default=10, help="results per query, at most all documents; default: 10"
    )
    parser.add_argument(
        "--filter", type=Path, metavar="IDS", help=".npy file: ids to search among, or a boolean mask by id"
    )
    add_recall(parser, "that of the index")
    add_search_options(parser)
    parser.add_argument("--mmap", action="store_true", help="map the files instead of reading them")
    parser.add_argument("--n-threads", type=parse_count, metavar="N", help="default: all cores")
    add_output(parser, "HITS", ".npz file to write: arrays 'ids', 'scores' and 'kind'", required=False)


def add_recall(parser: Parser, default: str) -> None:
    """Declare the recall of searches by a metric."""
    about = f"with a metric: share of the true nearest neighbours to find; default: {default}"
    parser.add_argument("--recall", type=float, metavar="R", help=about)


def add_search_options(parser: argparse._ActionsContainer) -> None:
    """Declare the options of a search, named after its parameters, except ``--recall``."""
    parser.add_argument(
        "--oversample",
        type=float,
        metavar="F",
        help="candidates to refine per result; default: that of the index",
    )
    parser.add_argument(
        "--n-probe", type=parse_count, metavar="N", help="lists to visit; default: that of the index"
    )
    parser.add_argument("--exact", action="store_true", help="with a metric: compare all vectors")


def collect_search_options(args: argparse.Namespace, index: Index | CodeIndex) -> dict[str, Any]:
    """Return options for ``index.search``; raise a UsageError for those that would have no effect."""
    import posh

    options = {"oversample": args.oversample, "n_probe": args.n_probe, "n_threads": args.n_threads}
    if isinstance(index, posh.Index):
        return options | {"exact": args.exact, "recall": args.recall}
    made = index.options
    is_ivf = made.structure == "ivf"
    if args.n_probe is not None and not is_ivf:
        raise UsageError(f"--n-probe is for lists, got {index}: leave it out")
    if args.oversample is not None and not (made.refine or (is_ivf and made.scoring == "asymmetric")):
        raise UsageError(f"--oversample is for candidates that are refined, got {index}: leave it out")
    if args.exact or args.recall is not None:
        name = "--exact" if args.exact else "--recall"
        raise UsageError(f"{name} is for an index with a metric, got {index}: leave it out")
    return options


def _search(args: argparse.Namespace) -> Report:
    import numpy as np

    from posh import datasets
    from posh.index.open import load_index

    if args.output is not None:
        require_output(args.output, ".npz")
    index = load_index(args.index, mmap=args.mmap)
    options = collect_search_options(args, index)
    if args.filter is not None:
        options["filter"] = _read_filter(args.filter)
    queries = read_source(args.data, args.key, queries=args.data in datasets.names())
    start = time.perf_counter()
    hits = index.search(queries, min(args.k, max(1, len(index))), **options)
    seconds = time.perf_counter() - start
    if args.output is not None:
        arrays = {"ids": _convert_ids(hits), "scores": hits.scores, "kind": np.array(hits.kind)}
        write_arrays(args.output, arrays)
    return _report_search(index, hits, seconds, args.output)


def _read_filter(path: Path) -> npt.NDArray[Any]:
    import numpy as np

    from posh.errors import FormatError

    with path.open("rb") as file:
        try:
            array: npt.NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise FormatError(f"{path}: expected an .npy file of ids or of a mask ({error})") from error
    return array


def _convert_ids(hits: Hits) -> npt.NDArray[Any]:
    """Return the ids (m, k) for a file: string ids become text, in which "" stands for a missing hit."""
    import numpy as np

    return np.where(hits.is_hit, hits.ids, "").astype(str) if hits.ids.dtype == object else hits.ids


def _report_search(index: Index | CodeIndex, hits: Hits, seconds: float, output: Path | None) -> Report:
    m, k = hits.ids.shape
    first = [
        {"ids": [hit.id for hit in hits[row]], "scores": [hit.score for hit in hits[row]]}
        for row in range(min(m, _MAX_QUERIES))
    ]
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
    lines += [f"  query {row}: {_format_hits(**some)}" for row, some in enumerate(first)]
    lines += [f"{m:,} queries in {seconds:.3f} s, {m / seconds:,.0f} per second"]
    if output is not None:
        ids = "text" if hits.ids.dtype == object else hits.ids.dtype
        lines.append(f"saved: {output}: ids {ids} and scores {hits.scores.dtype}, {hits.ids.shape}")
    return Report(values, "\n".join(lines))


def _format_hits(ids: list[Any], scores: list[float]) -> str:
    pairs = [f"{value} ({score:.5g})" for value, score in zip(ids, scores, strict=True)]
    rest = f", and {len(pairs) - _MAX_HITS:,} more" if len(pairs) > _MAX_HITS else ""
    return ", ".join(pairs[:_MAX_HITS]) + rest or "no hits"
