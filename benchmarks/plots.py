"""The picture of the README, from the committed results: speed compared with faiss, and growth with n.

    python -m benchmarks.plots [--output docs/speed.png]

Reads results/search.jsonl (made by ``benchmarks.search``) and results/growth.json (``benchmarks.growth``).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

RESULTS = Path("results")
BLUE, VERMILLION, GREY = "#0072B2", "#D55E00", "#8C8C8C"  # of Okabe and Ito, for colour-blind readers, too
NAMES = {"glove-100": "GloVe, 340 thousand", "cifar10-patches": "image patches, 2.4 million"}
CASES = [(32, 10, 1000), (32, 100, 1000), (64, 1000, 1000), (32, 10, 1)]  # set bits, k, queries per batch


def short(value: float, _: object = None) -> str:
    for size, letter in ((1_000_000, " M"), (1000, " k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def draw_ratios(axes: Any, rows: list[dict[str, Any]]) -> None:
    chosen = {(row["data"], row["n_active"], row["k"], row["queries"]): row for row in rows}
    cells = [(name, *case) for name in NAMES for case in CASES]
    labels = []
    for place, cell in enumerate(cells):
        row = chosen[cell]
        axes.barh(place, row["ratio"], color=BLUE if row["queries"] > 1 else VERMILLION)
        rates = f"{short(row['queries_per_second'])}/s, faiss {short(row['faiss_queries_per_second'])}/s"
        axes.text(row["ratio"] + 2, place, f"{row['ratio']:.0f}×  ({rates})", va="center", fontsize=9)
        how = "batch" if row["queries"] > 1 else "one by one"
        labels.append(f"{NAMES[cell[0]]}\n{cell[1]} set bits, k = {cell[2]}, {how}")
    axes.set_yticks(range(len(cells)), labels, fontsize=9)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.6 * max(chosen[cell]["ratio"] for cell in cells))
    axes.set_xlabel("times the queries per second of faiss.IndexBinaryFlat")
    axes.set_title("Exact search, one thread", loc="left", fontweight="bold")


def draw_growth(axes: Any, rows: list[dict[str, Any]]) -> None:
    styles = {"exact": (BLUE, "o-", "exhaustive"), "ivf": (VERMILLION, "s--", "20 lists of n/1000")}
    for structure, (colour, style, label) in styles.items():
        own = [row for row in rows if row["structure"] == structure]
        sizes = [row["documents"] for row in own]
        axes.plot(sizes, [row["queries_per_second"] for row in own], style, color=colour, label=label)
        for row in own:
            axes.annotate(
                f"recall {row['recall']:.2f}",
                (row["documents"], row["queries_per_second"]),
                xytext=(6, 7) if structure == "ivf" else (-6, -13),
                textcoords="offset points",
                ha="left" if structure == "ivf" else "right",
                fontsize=8,
                color=colour,
            )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_yticks([2000, 5000, 10_000, 20_000, 50_000])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(short))
        axis.set_minor_formatter(NullFormatter())
    axes.margins(0.27, 0.15)
    axes.set_xlabel("documents (image patches, 128 features)")
    axes.set_ylabel("queries per second")
    axes.set_title("64 set bits, k = 1000, two threads", loc="left", fontweight="bold")
    axes.grid(color="#DDDDDD")
    axes.legend(frameon=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("docs/speed.png"))
    arguments = parser.parse_args()
    searches = [json.loads(line) for line in (RESULTS / "search.jsonl").read_text().splitlines()]
    growth = json.loads((RESULTS / "growth.json").read_text())["rows"]
    figure = Figure(figsize=(13, 5.2), dpi=100, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.15, 1])
    draw_ratios(left, [row for row in searches if "ratio" in row])
    draw_growth(right, growth)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(arguments.output)


if __name__ == "__main__":
    main()
