"""Plots: one function per figure, from records to the content of a PNG file."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from matplotlib.figure import Figure

__all__ = ["COLOURS", "Series", "drawn", "legend_below", "panels", "style", "twins"]

# Okabe and Ito's palette: readers with any of the common colour deficiencies can tell its colours apart.
_BLACK, _ORANGE, _SKY, _GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
_YELLOW, _BLUE, _VERMILION, _PURPLE = "#B8A800", "#0072B2", "#D55E00", "#CC79A7"

COLOURS = {
    "LSH": (_BLACK, "o", ":"),
    "ITQ": (_SKY, "s", ":"),
    "KNNH": (_YELLOW, "D", ":"),
    "FruitFly": (_ORANGE, "^", "--"),
    "BOSL": (_PURPLE, "v", "--"),
    "BioHash": (_GREEN, "P", "--"),
    "SphericalHash": (_BLUE, "X", "-"),
    "POSH": (_VERMILION, "*", "-"),
    "PowerHash": (_BLACK, "o", "-"),
}
"""Colour, marker and line of each method, the same in all figures."""

_OTHERS = (
    (_BLUE, "o", "-"),
    (_VERMILION, "s", "--"),
    (_GREEN, "^", "-."),
    (_PURPLE, "D", ":"),
    (_ORANGE, "v", "-"),
)

Series = tuple[str, Sequence[float], Sequence[float], Sequence[float]]
"""Name, x, y and halves of the intervals of y."""


def style(name: str, number: int) -> dict[str, Any]:
    """Return the style of a line, by the name of the method, otherwise by its number."""
    colour, marker, line = COLOURS.get(name, _OTHERS[number % len(_OTHERS)])
    size = 9 if marker == "*" else 6
    return {"color": colour, "marker": marker, "linestyle": line, "markersize": size, "linewidth": 1.6}


@contextmanager
def drawn(
    columns: int, rows: int = 1, width: float = 4.2, height: float = 3.4
) -> Iterator[tuple[Any, list[Any], Any]]:
    """A figure of panels, its axes, and a buffer that holds the PNG file in the end."""
    figure = Figure(figsize=(width * columns, height * rows))
    axes = figure.subplots(rows, columns, squeeze=False)
    content = io.BytesIO()
    yield figure, list(axes.ravel()), content
    figure.tight_layout(w_pad=2.0)
    # Without the version of the program in it, the same records give the same file.
    figure.savefig(content, format="png", dpi=100, bbox_inches="tight", metadata={"Software": None})


def panels(
    titles: Sequence[str],
    content: Sequence[Sequence[Series]],
    x_label: str,
    y_label: str,
    *,
    ticks: Sequence[float] | None = None,
    band: float | None = None,
    columns: int = 3,
) -> bytes:
    """Lines with error bars in panels that share one legend.

    ``ticks`` of x are by default all values that occur; ``band`` shades values this close to zero.
    """
    rows = -(-len(titles) // columns)
    with drawn(min(columns, len(titles)), rows) as (figure, axes, buffer):
        for axis, title, lines in zip(axes, titles, content, strict=False):
            for number, (name, x, y, half) in enumerate(lines):
                look = style(name, number) | ({} if band is None else {"linestyle": "none"})
                axis.errorbar(x, y, yerr=np.nan_to_num(half), label=name, capsize=3, **look)
            if not any(len(x) for _, x, _, _ in lines):
                axis.set(title=f"{title}: not measured yet", xticks=[], yticks=[])
                continue
            axis.set_title(title)
            axis.set_xlabel(x_label)
            axis.grid(alpha=0.3)
            _powers_of_two(axis, ticks or sorted({value for _, x, _, _ in lines for value in x}))
            if band is not None:
                axis.axhspan(-band, band, color="#888888", alpha=0.2, linewidth=0)
                axis.axhline(0, color="#444444", linewidth=1)
        for axis in axes[len(titles) :]:
            axis.set_visible(False)
        for axis in axes[::columns]:
            axis.set_ylabel(y_label)
        legend_below(figure, axes, columns=8)
    return bytes(buffer.getvalue())


def legend_below(figure: Figure, axes: Sequence[Any], *, columns: int, fontsize: int | None = None) -> None:
    """Add one legend for all axes, below them, in at most ``columns`` columns; show each label once."""
    handles = {
        label: handle
        for axis in axes
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        ncol=min(columns, len(handles)),
        fontsize=fontsize,
    )


def twins(axis: Any) -> tuple[Any, Any]:
    """The axis and another one on its right side."""
    axis.grid(alpha=0.3)
    return axis, axis.twinx()


def _powers_of_two(axis: Any, ticks: Sequence[float]) -> None:
    axis.set_xscale("log", base=2)
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
