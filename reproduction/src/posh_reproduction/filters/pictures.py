"""The picture of a case: recall and rate against the share of the documents that pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from posh_reproduction.filters.cells import RELATIONS, SHARES, Cell
from posh_reproduction.filters.contenders import PROMISED
from posh_reproduction.filters.evidence import ENOUGH, Point
from posh_reproduction.report.plots import drawn, legend_below

__all__ = ["cells_picture"]

# Okabe and Ito's palette, which readers with any of the common colour deficiencies can tell apart.
_LOOKS = {
    "posh": ("#D55E00", "o"),
    "posh-collection": ("#E69F00", "s"),
    "faiss-ivf": ("#009E73", "^"),
    "faiss-hnsw": ("#0072B2", "D"),
    "lancedb": ("#CC79A7", "v"),
    "zvec": ("#000000", "x"),
}


def cells_picture(points: Mapping[str, Mapping[Cell, Point]], k: int) -> bytes:
    """Draw recall above queries per second, with a column for each relation of filters to queries.

    Markers of rates are hollow where the recall is too low.
    """
    with drawn(len(RELATIONS), 2, width=4.6, height=3.5) as (figure, axes, buffer):
        for column, relation in enumerate(RELATIONS):
            upper, lower = axes[column], axes[len(RELATIONS) + column]
            for name, own in points.items():
                cells = sorted(cell for cell in own if cell.relation == relation and cell.k == k)
                shares = [100 * cell.share for cell in cells]
                upper.plot(shares, [own[cell].recall for cell in cells], **_look(name))
                rates = [own[cell].rate for cell in cells]
                hollow = [place for place, cell in enumerate(cells) if own[cell].recall < ENOUGH]
                lower.plot(shares, rates, **_look(name))
                missed = _look(name) | {"linestyle": "none", "markerfacecolor": "white", "label": None}
                lower.plot([shares[place] for place in hollow], [rates[place] for place in hollow], **missed)
            upper.set_title(f"{relation} filters, {k} results", fontsize=11)
            upper.axhline(PROMISED, color="#888888", linewidth=1, zorder=0)
            upper.set_ylim(-0.03, 1.03)
            lower.set_yscale("log")
            lower.set_xlabel("% of the documents that pass")
            for axis in (upper, lower):
                axis.set_xscale("log")
                axis.invert_xaxis()
                axis.set_xticks([100 * share for share in SHARES], [f"{100 * share:g}" for share in SHARES])
                axis.minorticks_off()
                axis.grid(alpha=0.3)
        axes[0].set_ylabel("recall")
        axes[len(RELATIONS)].set_ylabel("queries per second")
        legend_below(figure, axes, columns=5, fontsize=10)
    return bytes(buffer.getvalue())


def _look(name: str) -> dict[str, Any]:
    """Ours are thick; enlarged parameters are dashed."""
    colour, marker = _LOOKS[name.rstrip("+")]
    return {
        "color": colour,
        "marker": marker,
        "markersize": 5,
        "linestyle": "--" if name.endswith("+") else "-",
        "linewidth": 2.6 if name == "posh" else 1.5,
        "label": name,
        "zorder": 4 if name == "posh" else 3,
    }
