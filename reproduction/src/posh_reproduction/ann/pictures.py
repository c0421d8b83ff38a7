"""The curves: recall against queries per second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from posh_reproduction.ann.choice import Point
from posh_reproduction.report.plots import drawn, legend_below

__all__ = ["curves"]

# Okabe and Ito's palette, which readers with any of the common colour deficiencies can tell apart. Ours are
# thick, and markers differ, for print in grey.
_LOOKS = {
    "posh-default": ("#D55E00", "o", "-", 2.6),
    "posh-graph": ("#D55E00", "*", "--", 2.0),
    "posh-ivf": ("#D55E00", "s", "-.", 2.0),
    "posh-exact": ("#D55E00", "P", ":", 2.0),
    "symphonyqg": ("#000000", "*", "-", 1.5),
    "rabitq-ivf": ("#000000", "s", "-.", 1.5),
    "scann": ("#0072B2", "o", "-", 1.5),
    "faiss-ivfpq": ("#009E73", "s", "-", 1.5),
    "faiss-ivfrabitq": ("#009E73", "v", "--", 1.5),
    "faiss-panorama": ("#009E73", "x", "-.", 1.5),
    "faiss-hnsw": ("#009E73", "D", ":", 1.5),
    "faiss-hnsw-sq8": ("#009E73", "^", ":", 1.5),
    "hnswlib": ("#CC79A7", "^", ":", 1.5),
    "usearch": ("#56B4E9", "v", ":", 1.5),
    "vsag": ("#E69F00", "D", ":", 1.5),
    "pynndescent": ("#F0E442", "o", ":", 1.5),
}
_OTHER = ("#555555", "x", "-.", 1.2)
_TICKS = (0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999)
_LOWEST, _HIGHEST = 0.65, 0.9992  # recalls beyond are drawn at the border

Panel = Mapping[str, Sequence[Point]]


def curves(titles: Sequence[str], panels: Sequence[Panel]) -> bytes:
    """One panel for each setting: the higher and the further right, the better."""
    columns = min(2, len(titles))
    rows = -(-len(titles) // columns)
    with drawn(columns, rows, width=5.4, height=4.0) as (figure, axes, buffer):
        for axis, title, panel in zip(axes, titles, panels, strict=False):
            _draw(axis, title, panel)
        for axis in axes[len(titles) :]:
            axis.set_visible(False)
        for axis in axes[::columns]:
            axis.set_ylabel("queries per second")
        for axis in axes[: len(titles)][-columns:]:
            axis.set_xlabel("recall (scale widens towards 1)")
        legend_below(figure, axes, columns=4, fontsize=9)
    return bytes(buffer.getvalue())


def _draw(axis: Any, title: str, panel: Panel) -> None:
    for name, points in panel.items():
        shown = [point for point in points if point.recall >= _LOWEST]
        colour, marker, line, width = _LOOKS.get(name, _OTHER)
        axis.plot(
            [_place(point.recall) for point in shown],
            [point.rate for point in shown],
            line,
            color=colour,
            marker=marker,
            markersize=9 if marker == "*" else 5,
            linewidth=width,
            label=name,
            zorder=3 if name.startswith("posh") else 2,
        )
    axis.set_title(title, fontsize=11)
    axis.set_yscale("log")
    axis.set_xlim(_place(_LOWEST), _place(_HIGHEST) + 0.1)
    axis.set_xticks([_place(tick) for tick in _TICKS], [f"{tick:g}" for tick in _TICKS])
    axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.yaxis.set_major_formatter(FuncFormatter(_thousands))
    axis.yaxis.set_minor_formatter(NullFormatter())
    axis.grid(alpha=0.3)


def _place(recall: float) -> float:
    """Return the place of a recall on the axis: each tenth of the missing share takes the same room."""
    return float(-np.log10(1 - min(recall, _HIGHEST)))


def _thousands(value: float, _: object = None) -> str:
    """Short text for a rate.

    >>> _thousands(20_000.0), _thousands(500.0)
    ('20k', '500')
    """
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"
