"""``posh tune``: measure recall, speed and memory on the user's vectors; print a table and draw a plot."""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from posh.cli._collection import is_collection
from posh.cli._command import (
    Parser,
    Report,
    UsageError,
    add_output,
    add_source,
    declare,
    note,
    parse_count,
    read_source,
    require_output,
)
from posh.cli._index import add_recall, add_search_options
from posh.index.choices import METRICS

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from posh.cli._tune_candidates import LabelResult
    from posh.tuning import Setting

__all__ = ["add_tune"]

T = TypeVar("T")

_PLOT = Path("tune.png")
_INTERRUPTED = 130
_INDEX_OPTIONS: tuple[str, ...] = ("base", "k", "n_queries", "n_neighbors", "mmap", "n_threads")
_INDEX_OPTIONS += ("oversample", "n_probe", "exact")


def add_tune(parser: Parser) -> None:
    """Declare ``posh tune``."""
    declare(parser, "posh tune digits --metric euclidean --no-plot", _tune)
    add_source(
        parser, name="a collection's folder, or a data set, with --index the one whose base the index holds"
    )
    parser.add_argument(
        "--metric",
        choices=METRICS,
        help="default: that of the collection, or cosine; with --index: labels of the data set, else the "
        "metric of the index, else euclidean",
    )
    add_recall(parser, "0.95, with a collection or --index that of the index")
    parser.add_argument(
        "--labels",
        type=Path,
        metavar="LABELS",
        help=".npy file with an integer per vector: compare hashers by the labels of their hits",
    )
    parser.add_argument(
        "--n-bits", type=parse_count, metavar="N", help="with --labels: length of codes; default: 1024"
    )
    add_output(parser, "PNG", f"plot to write; default: {_PLOT}", required=False)
    parser.add_argument("--no-plot", action="store_true", help="print the table only, without Matplotlib")
    _add_index_options(parser)


def _add_index_options(parser: Parser) -> None:
    group = parser.add_argument_group("options to measure an existing index")
    group.add_argument(
        "--index",
        type=Path,
        metavar="FOLDER",
        help="measure this index or collection instead of candidates; a file as DATA then has the queries",
    )
    group.add_argument(
        "--base",
        type=Path,
        metavar="FILE",
        help="the vectors of an index that keeps codes only, in its order",
    )
    group.add_argument(
        "-k",
        type=parse_count,
        help="results per query; default: 1,000 with a data set, 10 with a file of queries",
    )
    group.add_argument(
        "--n-queries",
        type=parse_count,
        metavar="N",
        help="use the first N queries; default: all for labels, 1,000 for recall",
    )
    group.add_argument(
        "--n-neighbors",
        type=parse_count,
        metavar="N",
        help="true nearest neighbours to look for among the results; default: 10",
    )
    add_search_options(group)
    group.add_argument("--mmap", action="store_true", help="map the files instead of reading them")
    group.add_argument("--n-threads", type=parse_count, metavar="N", help="default: all cores")


def _tune(args: argparse.Namespace) -> Report:
    _require_consistency(args)
    if args.index is not None:
        from posh.cli._tune_index import measure_existing

        return measure_existing(args)
    if not args.no_plot:
        _require_matplotlib()
        args.output = args.output or _PLOT
        require_output(args.output, ".png")
    return _tune_metric(args) if args.labels is None else _tune_hashers(args)


def _require_consistency(args: argparse.Namespace) -> None:
    """Raise a UsageError for options that would have no effect."""
    if args.index is None:
        for name in _INDEX_OPTIONS:
            if getattr(args, name):
                option = "-k" if name == "k" else f"--{name.replace('_', '-')}"
                raise UsageError(f"{option} is for --index: add it, or leave it out")
    else:
        for name in ("labels", "output"):
            if getattr(args, name) is not None:
                raise UsageError(f"--{name} is for candidates, and --index for an index: leave one out")
    if args.labels is None and args.n_bits is not None:
        raise UsageError("--n-bits is for --labels: leave it out")
    if args.labels is not None and (args.recall is not None or args.metric is not None):
        name = "--recall" if args.recall is not None else "--metric"
        raise UsageError(f"{name} is for nearest neighbours, and --labels for labels: leave one out")
    if args.recall is not None and not 0.0 < args.recall <= 1.0:
        raise UsageError(f"expected --recall above 0 and up to 1, got {args.recall}")


def _collect(steps: Iterator[T]) -> tuple[list[T], bool]:
    """Return the results until the end or until Ctrl-C, and whether they were interrupted."""
    results: list[T] = []
    try:
        for step in steps:
            results.append(step)  # one by one: an interruption must not lose them
    except KeyboardInterrupt:
        if not results:
            raise
        note("interrupted: the results so far")
        return results, True
    return results, False


# Candidates for nearest neighbours -----------------------------------------------------------------------


def _tune_metric(args: argparse.Namespace) -> Report:
    from posh import tuning

    problem = tuning.read_problem(_find_source(args), args.metric, args.recall)
    n, d = problem.data.base.shape
    note(
        f"{n:,} vectors of {d:,} features, {len(problem.data.queries):,} others as queries, {problem.metric}"
    )
    with _logging(tuning.logger):
        steps = tuning.measure_settings(problem.data, problem.metric, problem.recall)
        settings, interrupted = _collect(steps)
    result = problem.choose(settings)
    is_reached = result.chosen is not None
    values: dict[str, Any] = {
        "n_documents": n,
        "n_features": d,
        "n_queries": result.n_queries,
        "metric": problem.metric,
        "recall": problem.recall,
        "settings": [asdict(setting) for setting in result.front],
        "chosen": None if result.chosen is None else asdict(result.chosen),
        "best_seen": asdict(result.best),
        "python": "\n".join(result.format_index()) if is_reached else None,
        "python_collection": "\n".join(result.format_collection()) if is_reached else None,
        "interrupted": interrupted,
        "plot": None,
    }
    lines = [str(result)]
    if not args.no_plot:
        title = f"{args.data}: {n:,} × {d:,}, {problem.metric}"
        _plot_settings(args.output, settings, result.chosen, title)
        values["plot"] = str(args.output)
        lines.append(f"saved: {args.output}")
    return Report(values, "\n".join(lines), _INTERRUPTED if interrupted else 0)


def _find_source(args: argparse.Namespace) -> Path | npt.NDArray[np.float32]:
    """Return the folder of a collection, or the vectors of a data set or a file."""
    if not is_collection(Path(args.data)):
        return read_source(args.data, args.key)
    if args.key is not None:
        raise UsageError(f"--key is for files, and {args.data} is a collection: leave it out")
    return Path(args.data)


@contextlib.contextmanager
def _logging(logger: logging.Logger) -> Iterator[None]:
    """Print what is logged on stderr, unless bars show the progress on a terminal."""
    if sys.stderr.isatty():
        yield
        return
    handler, level = logging.StreamHandler(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


# Hashers by labels ---------------------------------------------------------------------------------------


def _tune_hashers(args: argparse.Namespace) -> Report:
    from posh.cli import _tune_candidates as candidates

    X = read_source(args.data, args.key)
    data = candidates.split_labelled(X, _read_labels(args.labels, len(X)))
    note(f"{len(data.base):,} vectors, {len(data.queries):,} others as queries; by label")
    results, interrupted = _collect(candidates.measure_hashers(data, args.n_bits or candidates.N_BITS))
    results.sort(key=lambda result: result.map, reverse=True)
    best = next((result for result in results if result.n_active is not None), None)
    values: dict[str, Any] = {
        "n_documents": len(data.base),
        "n_queries": len(data.queries),
        "results": [asdict(result) for result in results],
        "python": None if best is None else best.format_python(),
        "interrupted": interrupted,
        "plot": None,
    }
    lines = [*_format_results(results), ""]
    if best is not None:
        lines += ["the best codes:", f"  {best.format_python()}"]
    if not args.no_plot:
        _plot_results(args.output, results, f"{args.data}: {len(data.base):,} vectors, by label")
        values["plot"] = str(args.output)
        lines.append(f"saved: {args.output}")
    return Report(values, "\n".join(lines), _INTERRUPTED if interrupted else 0)


def _format_results(results: list[LabelResult]) -> list[str]:
    lines = [f"{'MAP@1000':>8}  {'error':>6}  {'bytes':>7}  {'fit':>7}  codes"]
    for result in results:
        seconds = "" if result.fit_seconds is None else f"{result.fit_seconds:.1f} s"
        lines.append(
            f"{result.map:>8.3f}  {result.error:>6.3f}  {result.bytes_per_vector:>7,.0f}  {seconds:>7}  "
            f"{result.name}"
        )
    return lines


def _read_labels(path: Path, n: int) -> npt.NDArray[np.int64]:
    import numpy as np

    from posh.errors import FormatError

    with path.open("rb") as file:
        try:
            array: npt.NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise FormatError(f"{path}: expected an .npy file of labels ({error})") from error
    if array.dtype.kind not in "iu" or array.shape != (n,):
        raise FormatError(
            f"{path}: expected {n} whole numbers, one for each vector, got {array.dtype} {array.shape}"
        )
    return array.astype(np.int64)


# Plots ---------------------------------------------------------------------------------------------------

_COLOURS = ("#4269d0", "#efb118", "#ff725c")
_MARKERS = ("o", "s", "^")


def _require_matplotlib() -> None:
    """Raise a MissingExtraError without Matplotlib, before the measurements."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        from posh.errors import MissingExtraError

        raise MissingExtraError("matplotlib", "plot", "the plot of posh tune (or --no-plot)") from error


def _plot_settings(path: Path, settings: Sequence[Setting], choice: Setting | None, title: str) -> None:
    """Draw queries per second over recall, a line for each store."""
    from matplotlib.ticker import FuncFormatter

    figure, panels = _create_figure(title, 2)
    stores = dict.fromkeys(setting.store for setting in settings)
    for axes, attribute, subtitle in (
        (panels[0], "per_second", "in a batch, all cores"),
        (panels[1], "alone_per_second", "one by one, one core"),
    ):
        for store, colour, marker in zip(stores, _COLOURS, _MARKERS, strict=False):
            line = sorted((some for some in settings if some.store == store), key=lambda some: some.recall)
            label = f"{store}: {line[0].bytes_per_vector:,.0f} bytes a vector"
            x, y = [some.recall for some in line], [getattr(some, attribute) for some in line]
            axes.plot(x, y, marker=marker, markersize=5, color=colour, label=label)
        if choice is not None:
            point = [choice.recall], [getattr(choice, attribute)]
            axes.plot(*point, "o", markersize=14, fillstyle="none", color="black", label="chosen")
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(_format_tick))
        axes.yaxis.set_minor_formatter(FuncFormatter(_format_tick))
        axes.set_xlabel("recall@10 on held-out queries")
        axes.set_ylabel("queries per second")
        axes.set_title(subtitle, fontsize=10)
        axes.grid(alpha=0.3, which="both")
    panels[0].legend(fontsize=8, loc="lower left")
    _save_figure(figure, path)


def _plot_results(path: Path, results: Sequence[LabelResult], title: str) -> None:
    """Draw MAP over the number of set bits, a line for each hasher; float vectors are horizontal lines."""
    figure, (axes,) = _create_figure(title, 1)
    hashers = dict.fromkeys(result.hasher for result in results if result.hasher is not None)
    for hasher, colour, marker in zip(hashers, _COLOURS, _MARKERS, strict=False):
        line = sorted(
            (some for some in results if some.hasher == hasher), key=lambda some: some.n_active or 0
        )
        axes.errorbar(
            [some.n_active for some in line],
            [some.map for some in line],
            [some.error for some in line],
            marker=marker,
            color=colour,
            capsize=2,
            label=f"{hasher}, {line[0].n_bits:,} bits",
        )
    floats = (result for result in results if result.hasher is None)
    for result, style in zip(floats, ("--", ":"), strict=False):
        axes.axhline(result.map, color="black", linestyle=style, label=result.name)
    ticks = sorted({result.n_active for result in results if result.n_active is not None})
    if ticks:
        axes.set_xscale("log")
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.minorticks_off()
    axes.set_xlabel("set bits")
    axes.set_ylabel("MAP@1000 by label")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    _save_figure(figure, path)


def _create_figure(title: str, n_panels: int) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.0 * n_panels + 1.0, 4.2), layout="constrained")
    figure.suptitle(title)
    return figure, figure.subplots(1, n_panels, squeeze=False)[0]


def _format_tick(value: float, position: object = None) -> str:
    """Label most ticks of a logarithmic axis: all of them would crowd it."""
    return "" if f"{value:.0e}"[0] in "79" else f"{value:,.0f}"


def _save_figure(figure: Any, path: Path) -> None:
    from posh._durable import write_atomically

    with write_atomically(path) as temporary:
        figure.savefig(temporary, format="png", dpi=130)
