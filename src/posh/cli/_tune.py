"""``posh tune``: what searches of your own vectors find and cost, as a table and a plot."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from posh.cli import _tune_labels, _tune_plot, _tune_vectors
from posh.cli._command import (
    Parser,
    Report,
    UsageError,
    add_source,
    counted,
    declare,
    note,
    output_path,
    read_source,
)
from posh.cli._tune_labels import LabelResult
from posh.cli._tune_vectors import Setting
from posh.errors import FormatError
from posh.index.nearest.metric import METRICS

__all__ = ["add"]

T = TypeVar("T")

_INTERRUPTED = 130


def add(parser: Parser) -> None:
    """Declare the arguments."""
    declare(parser, "posh tune digits --metric euclidean --no-plot", _tune)
    add_source(parser, name="the base of a data set")
    parser.add_argument("--metric", choices=METRICS, help="default: the first")
    parser.add_argument(
        "--recall", type=float, metavar="R", help="the share of the true nearest to find; default: 0.95"
    )
    parser.add_argument(
        "--labels",
        type=Path,
        metavar="LABELS",
        help=".npy: a whole number for each vector; compare hashers by what they find of the same label",
    )
    parser.add_argument(
        "--bits", type=counted, metavar="N", help="with --labels: bits of codes; default: 1024"
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("tune.png"), metavar="PNG", help="default: tune.png"
    )
    parser.add_argument("--no-plot", action="store_true", help="the table only, which needs no Matplotlib")


def _tune(args: argparse.Namespace) -> Report:
    _require_sense(args)
    if not args.no_plot:
        _tune_plot.require_matplotlib()
        if output_path(args.output).suffix != ".png":
            raise UsageError(f"expected --output to end in .png, got {args.output}")
    X = read_source(args)
    return _vectors(args, X) if args.labels is None else _labels(args, X)


def _require_sense(args: argparse.Namespace) -> None:
    """Refuse options that would change nothing."""
    if args.labels is None and args.bits is not None:
        raise UsageError("--bits is for --labels: leave it out")
    if args.labels is not None and (args.recall is not None or args.metric is not None):
        name = "--recall" if args.recall is not None else "--metric"
        raise UsageError(f"{name} is for nearest neighbours, and --labels for labels: leave one out")
    if args.recall is not None and not 0.0 < args.recall <= 1.0:
        raise UsageError(f"expected --recall above 0 and up to 1, got {args.recall}")


def _until_interrupted(steps: Iterator[T]) -> tuple[list[T], bool]:
    """All results, or those that there were when somebody pressed Ctrl-C; and whether somebody did."""
    found: list[T] = []
    try:
        for step in steps:
            found.append(step)  # one by one, so that they are there after an interruption
    except KeyboardInterrupt:
        if not found:
            raise
        note("interrupted: this is what was measured so far")
        return found, True
    return found, False


# Nearest neighbours ------------------------------------------------------------------------------------


def _vectors(args: argparse.Namespace, X: npt.NDArray[np.float32]) -> Report:
    metric, recall = args.metric or next(iter(METRICS)), args.recall or 0.95
    data = _tune_vectors.split(X)
    n, d = data.base.shape
    note(f"{n:,} vectors of {d:,} features, {len(data.queries):,} others as queries, {metric}")
    settings, interrupted = _until_interrupted(_tune_vectors.measured_settings(data, metric, recall))
    choice, best = _tune_vectors.chosen(settings, recall), _tune_vectors.best_seen(settings)
    marked = best if choice is None else choice
    shown, code = _tune_vectors.front(settings, marked), _python(metric, recall, marked)
    values: dict[str, Any] = {
        "n_documents": n,
        "n_features": d,
        "n_queries": len(data.queries),
        "metric": metric,
        "recall": recall,
        "settings": [asdict(one) for one in shown],
        "chosen": None if choice is None else asdict(choice),
        "best_seen": asdict(best),
        "python": None if choice is None else "\n".join(code),
        "interrupted": interrupted,
        "plot": None,
    }
    mark = "best seen" if choice is None else "chosen"
    lines = [*_table(shown, marked, mark), "", *_advice(marked, recall, code, is_reached=choice is not None)]
    if not args.no_plot:
        _tune_plot.plot_vectors(args.output, settings, choice, f"{args.data}: {n:,} × {d:,}, {metric}")
        values["plot"] = str(args.output)
        lines.append(f"saved: {args.output}")
    return Report(values, "\n".join(lines), _INTERRUPTED if interrupted else 0)


def _python(metric: str, recall: float, setting: Setting) -> list[str]:
    """The lines that search with a setting."""
    store = "" if setting.store == "float32" else f", store={setting.store!r}"
    lines = [f"index = posh.Index.build(X, metric={metric!r}, recall={recall:g}{store})"]
    if not setting.is_default:
        how = "exact=True" if setting.asked is None else f"recall={setting.asked:g}"
        lines.append(f"hits = index.search(Q, k={_tune_vectors.K}, {how})")
    return lines


def _table(settings: list[Setting], marked: Setting, mark: str) -> list[str]:
    head = f"{'recall@10':>9}  {'queries/s':>10}  {'one by one':>10}  {'bytes':>7}  {'store':<8} search"
    return [head, *(_row(one, f"  <- {mark}" if one is marked else "") for one in settings)]


def _row(one: Setting, mark: str) -> str:
    how = "compares all vectors" if one.asked is None else f"recall={one.asked:g}"
    return (
        f"{one.recall:>9.4f}  {one.per_second:>10,.0f}  {one.alone_per_second:>10,.0f}  "
        f"{one.bytes_per_vector:>7,.0f}  {one.store:<8} {how}{mark}"
    )


def _advice(setting: Setting, recall: float, code: list[str], *, is_reached: bool) -> list[str]:
    """The code for the setting that was chosen, or for the best one seen and how to find more than it."""
    title = f"for a recall of {recall:g}, {setting.recall:.4f} measured:"
    if not is_reached:
        title = f"no setting reached a recall of {recall:g}; best seen, {setting.recall:.4f} measured:"
    lines = [title, *(f"  {line}" for line in code)]
    if setting.store == "int8":
        lines.append("  (it keeps 8 bits of each number: search(exact=True) needs store='float32')")
    if not is_reached:
        lines += [
            "to find more: compare all vectors with",
            f"  hits = index.search(Q, k={_tune_vectors.K}, exact=True)",
        ]
    return lines


# Labels ------------------------------------------------------------------------------------------------


def _labels(args: argparse.Namespace, X: npt.NDArray[np.float32]) -> Report:
    labels = _read_labels(args.labels, len(X))
    data = _tune_labels.split(X, labels)
    note(f"{len(data.base):,} vectors, {len(data.queries):,} others as queries; by label")
    steps = _tune_labels.measured_hashers(data, args.bits or _tune_labels.N_BITS)
    results, interrupted = _until_interrupted(steps)
    results.sort(key=lambda one: one.map, reverse=True)
    best = next((one for one in results if one.n_active is not None), None)
    values: dict[str, Any] = {
        "n_documents": len(data.base),
        "n_queries": len(data.queries),
        "results": [asdict(one) for one in results],
        "python": None if best is None else best.python(),
        "interrupted": interrupted,
        "plot": None,
    }
    lines = [_LABEL_HEAD, *map(_label_row, results), ""]
    if best is not None:
        lines += ["the best codes:", f"  {best.python()}"]
    if not args.no_plot:
        _tune_plot.plot_labels(args.output, results, f"{args.data}: {len(data.base):,} vectors, by label")
        values["plot"] = str(args.output)
        lines.append(f"saved: {args.output}")
    return Report(values, "\n".join(lines), _INTERRUPTED if interrupted else 0)


_LABEL_HEAD = f"{'MAP@1000':>8}  {'error':>6}  {'bytes':>7}  {'fit':>7}  codes"


def _label_row(one: LabelResult) -> str:
    seconds = "" if one.fit_seconds is None else f"{one.fit_seconds:.1f} s"
    return f"{one.map:>8.3f}  {one.error:>6.3f}  {one.bytes_per_vector:>7,.0f}  {seconds:>7}  {one.name}"


def _read_labels(path: Path, n: int) -> npt.NDArray[np.int64]:
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
