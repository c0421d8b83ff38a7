"""The plots of ``posh tune``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from posh._durable import write_atomically
from posh.cli._tune_labels import LabelResult
from posh.cli._tune_vectors import Setting
from posh.errors import MissingExtraError

__all__ = ["plot_labels", "plot_vectors", "require_matplotlib"]

_COLOURS = ("#4269d0", "#efb118", "#ff725c")
_MARKERS = ("o", "s", "^")


def require_matplotlib() -> None:
    """Raise a MissingExtraError if there is no Matplotlib: before the work, not after it."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plot", "the plot of posh tune (or --no-plot)") from error


def plot_vectors(path: Path, settings: Sequence[Setting], choice: Setting | None, title: str) -> None:
    """Draw queries per second over recall, a line for each store."""
    from matplotlib.ticker import FuncFormatter

    figure, panels = _figure(title, 2)
    for axes, key, words in (
        (panels[0], "per_second", "in a batch, all cores"),
        (panels[1], "alone_per_second", "one by one, one core"),
    ):
        for store, colour, marker in zip(
            dict.fromkeys(one.store for one in settings), _COLOURS, _MARKERS, strict=False
        ):
            own = sorted((one for one in settings if one.store == store), key=lambda one: one.recall)
            label = f"{store}: {own[0].bytes_per_vector:,.0f} bytes a vector"
            x, y = [one.recall for one in own], [getattr(one, key) for one in own]
            axes.plot(x, y, marker=marker, markersize=5, color=colour, label=label)
        if choice is not None:
            point = [choice.recall], [getattr(choice, key)]
            axes.plot(*point, "o", markersize=14, fillstyle="none", color="black", label="chosen")
        axes.set_yscale("log")
        for which in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            which(FuncFormatter(_rate))
        axes.set_xlabel("recall@10 on queries that were held out")
        axes.set_ylabel("queries per second")
        axes.set_title(words, fontsize=10)
        axes.grid(alpha=0.3, which="both")
    panels[0].legend(fontsize=8, loc="lower left")
    _save(figure, path)


def plot_labels(path: Path, results: Sequence[LabelResult], title: str) -> None:
    """Draw MAP over the number of set bits, a line for each hasher; float vectors are level lines."""
    figure, (axes,) = _figure(title, 1)
    hashers = dict.fromkeys(one.hasher for one in results if one.hasher is not None)
    for hasher, colour, marker in zip(hashers, _COLOURS, _MARKERS, strict=False):
        own = sorted((one for one in results if one.hasher == hasher), key=lambda one: one.n_active or 0)
        axes.errorbar(
            [one.n_active for one in own],
            [one.map for one in own],
            [one.error for one in own],
            marker=marker,
            color=colour,
            capsize=2,
            label=f"{hasher}, {own[0].n_bits:,} bits",
        )
    for one, style in zip((one for one in results if one.hasher is None), ("--", ":"), strict=False):
        axes.axhline(one.map, color="black", linestyle=style, label=one.name)
    ticks = sorted({one.n_active for one in results if one.n_active is not None})
    if ticks:
        axes.set_xscale("log")
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.minorticks_off()
    axes.set_xlabel("set bits")
    axes.set_ylabel("MAP@1000 by label")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    _save(figure, path)


def _figure(title: str, n_panels: int) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.0 * n_panels + 1.0, 4.2), layout="constrained")
    figure.suptitle(title)
    return figure, figure.subplots(1, n_panels, squeeze=False)[0]


def _rate(value: float, position: object = None) -> str:
    """Label most ticks of a logarithmic axis: all of them would crowd it."""
    return "" if f"{value:.0e}"[0] in "79" else f"{value:,.0f}"


def _save(figure: Any, path: Path) -> None:
    with write_atomically(path) as temporary:
        figure.savefig(temporary, format="png", dpi=130)
