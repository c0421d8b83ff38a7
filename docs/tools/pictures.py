"""Draw the pictures of the explanations: ``python -m docs.tools.pictures`` writes ``docs/pictures/*.png``.

Backgrounds are white, so that pictures can be read on light and on dark pages.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.patches import FancyArrowPatch, Rectangle

import posh

FOLDER = Path(__file__).parent.parent / "pictures"
INK, SET, SHARED, FAINT, EMPTY = "#22272e", "#5b7db1", "#e07b00", "#c9d1d9", "#f1f3f5"
STYLE = {
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "font.size": 12,
    "font.family": "DejaVu Sans",
    "figure.constrained_layout.h_pad": 0.12,
    "figure.constrained_layout.w_pad": 0.12,
}
SIDE = 16  # a code of 256 bits is drawn as a square


def digits() -> tuple[Any, Any]:
    """The data set and a hasher with 16 of 256 bits."""
    data = posh.datasets.load("digits")
    return data, posh.POSH(n_bits=SIDE * SIDE, n_active=16, random_state=0).fit(data.base)


def set_bits(hasher: Any, vectors: np.ndarray) -> np.ndarray:
    """Codes as booleans (n, n_bits)."""
    return np.asarray(hasher.transform(vectors).todense()) > 0


def bare(axes: Any) -> Any:
    """Take the frame and the ticks away."""
    axes.set_axis_off()
    axes.set_aspect("equal")
    return axes


def draw_digit(axes: Any, vector: np.ndarray) -> None:
    """An image of 8 × 8 pixels."""
    bare(axes).imshow(vector.reshape(8, 8), cmap="gray_r")
    axes.add_patch(Rectangle((-0.5, -0.5), 8, 8, fill=False, edgecolor=FAINT))


def draw_code(axes: Any, bits: np.ndarray, shared: np.ndarray | None = None) -> None:
    """A code as a square of bits; shared bits have their own colour."""
    bare(axes)
    axes.set_xlim(-0.5, SIDE - 0.5)
    axes.set_ylim(SIDE - 0.5, -0.5)
    for i, bit in enumerate(bits):
        colour = EMPTY if not bit else SHARED if shared is not None and shared[i] else SET
        axes.add_patch(Rectangle((i % SIDE - 0.44, i // SIDE - 0.44), 0.88, 0.88, color=colour, linewidth=0))


def draw_code_of_one() -> Any:
    """A vector and its code."""
    data, hasher = digits()
    figure, (left, middle, right) = plt.subplots(
        1, 3, figsize=(9, 3.6), width_ratios=[1, 0.7, 1.3], layout="constrained"
    )
    draw_digit(left, data.queries[0])
    left.set_title("a vector: 64 numbers")
    bare(middle).set(xlim=(0, 1), ylim=(0, 1))
    middle.add_patch(
        FancyArrowPatch((0.05, 0.5), (0.95, 0.5), arrowstyle="-|>", mutation_scale=22, color=INK, linewidth=2)
    )
    middle.text(0.5, 0.62, "hasher", ha="center")
    draw_code(right, set_bits(hasher, data.queries[:1])[0])
    right.set_title("its code: 16 set bits of 256")
    return figure


def draw_shared() -> Any:
    """A query, its neighbour and a stranger."""
    data, hasher = digits()
    index = posh.CodeIndex(hasher).add(data.base)
    query = data.queries[0]
    neighbour = int(index.search(query, k=1).ids[0, 0])
    bits, all_bits = set_bits(hasher, query[None])[0], set_bits(hasher, data.base)
    overlaps = (all_bits & bits).sum(axis=1)
    stranger = int(np.flatnonzero((data.base_labels != data.query_labels[0]) & (overlaps <= 1))[0])
    figure, axes = plt.subplots(2, 3, figsize=(9, 5.8), height_ratios=[0.6, 1], layout="constrained")
    chosen = [("the query", query, bits)]
    chosen += [
        (name, data.base[i], all_bits[i]) for name, i in (("similar", neighbour), ("different", stranger))
    ]
    for column, (name, vector, own) in enumerate(chosen):
        draw_digit(axes[0, column], vector)
        axes[0, column].set_title(name)
        draw_code(axes[1, column], own, own & bits if column else None)
        if column:
            count = int((own & bits).sum())
            axes[1, column].set_title(f"{count} of 16 bits shared", color="#a85c00")
        else:
            axes[1, column].set_title("its 16 set bits")
    return figure


def draw_overlap_and_cosine() -> Any:
    """Draw the cosine by the number of shared bits."""
    data, hasher = digits()
    X = data.base - data.base.mean(axis=0)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    bits = set_bits(hasher, data.base).astype(np.int64)
    overlaps, cosines = (bits @ bits.T).ravel(), (X @ X.T).ravel()
    pairs = ~np.eye(len(X), dtype=bool).ravel()
    overlaps, cosines = overlaps[pairs], cosines[pairs]
    counts = [c for c in range(SIDE + 1) if (overlaps == c).sum() >= 50]
    low, middle, high = np.array([np.percentile(cosines[overlaps == c], [10, 50, 90]) for c in counts]).T
    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    axes.fill_between(counts, low, high, color=SET, alpha=0.25, linewidth=0, label="80 % of the pairs")
    axes.plot(counts, middle, "o-", color=SET, label="the pair in the middle")
    axes.set(xlabel="shared bits, of 16", ylabel="cosine of the two vectors")
    axes.set_title("Pairs of handwritten digits: more shared bits, more similar vectors", fontsize=12)
    axes.grid(color=EMPTY)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, loc="lower right")
    return figure


def small_codes() -> tuple[np.ndarray, list[int]]:
    """Codes of eight documents with 3 of 10 bits, and the bits of a query."""
    rng = np.random.default_rng(4)
    bits = np.zeros((8, 10), int)
    for row in bits:
        row[rng.choice(10, 3, replace=False)] = 1
    query = [1, 4, 7]
    bits[5] = 0
    bits[5, query] = 1  # one document that has them all
    return bits, query


def grid(axes: Any, values: np.ndarray, highlighted: set[int], rows: list[str], columns: list[str]) -> None:
    """A table of bits; set bits of highlighted rows have the colour of shared ones."""
    n, m = values.shape
    bare(axes).set(xlim=(-2.4, m - 0.4), ylim=(n - 0.4, -1.2))
    for i in range(n):
        weight = "bold" if i in highlighted else "normal"
        axes.text(-0.7, i, rows[i], ha="right", va="center", fontsize=10, weight=weight)
        for j in range(m):
            colour = EMPTY if not values[i, j] else SHARED if i in highlighted else FAINT
            axes.add_patch(Rectangle((j - 0.45, i - 0.45), 0.9, 0.9, color=colour, linewidth=0))
            if values[i, j]:
                axes.text(j, i, "1", ha="center", va="center", fontsize=9)
    for j in range(m):
        axes.text(j, -0.8, columns[j], ha="center", va="center", fontsize=10)


def draw_planes() -> Any:
    """The same bits by document and by plane."""
    bits, query = small_codes()
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    documents, numbers = [f"doc {i}" for i in range(8)], [str(j) for j in range(10)]
    grid(left, bits, set(), documents, numbers)
    left.set_title("one row per document")
    grid(right, bits.T, set(query), [f"bit {j}" for j in range(10)], [str(i) for i in range(8)])
    right.set_title("turned: one row per bit, a plane")
    figure.supxlabel("The query has the bits 1, 4 and 7. Only these three planes are read.", fontsize=12)
    return figure


def draw_counting() -> Any:
    """Draw the addition of three planes for all documents together."""
    bits, query = small_codes()
    planes = bits.T[query]
    total = planes.sum(axis=0)
    ones, twos = total & 1, total >> 1
    rows = [*planes, ones, twos]
    labels = [f"plane {j}" for j in query] + ["ones", "twos"]
    figure, axes = plt.subplots(figsize=(9, 4.9), layout="constrained")
    bare(axes).set(xlim=(-2.6, 8.0), ylim=(7.9, -1.3))
    places = [0, 1, 2, 3.7, 4.7]
    for y, label, row in zip(places, labels, rows, strict=True):
        axes.text(-0.8, y, label, ha="right", va="center")
        for x, bit in enumerate(row):
            colour = (SHARED if y < 3 else "#8fb996") if bit else EMPTY
            axes.add_patch(Rectangle((x - 0.45, y - 0.45), 0.9, 0.9, color=colour, linewidth=0))
            axes.text(x, y, str(bit), ha="center", va="center", fontsize=11)
    axes.text(-0.8, -0.9, "document", ha="right", va="center")
    axes.text(-0.8, 6.4, "shared bits", ha="right", va="center", weight="bold")
    for x, count in enumerate(total):
        axes.text(x, -0.9, str(x), ha="center", va="center")
        axes.text(x, 6.4, str(count), ha="center", va="center", weight="bold", fontsize=13)
    axes.plot([-0.5, 7.5], [2.85, 2.85], color=INK, linewidth=1)
    axes.plot([-0.5, 7.5], [5.55, 5.55], color=INK, linewidth=1)
    axes.text(3.5, 7.4, "shared bits = ones + 2 · twos", ha="center")
    return figure


def draw_lists() -> Any:
    """Documents in lists, and the lists that a query visits."""
    rng = np.random.default_rng(3)
    points = rng.normal(size=(900, 2)) * [1.5, 1.0]
    centres = points[rng.choice(len(points), 14, replace=False)]
    for _ in range(20):
        near = ((points[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
        centres = np.array([points[near == c].mean(axis=0) for c in range(len(centres))])
    query = np.array([0.7, 0.5])
    visited = ((centres - query) ** 2).sum(axis=1).argsort()[:3]
    inside = np.isin(near, visited)
    figure, axes = plt.subplots(figsize=(8, 4.8), layout="constrained")
    axes.scatter(
        *points[~inside].T, s=9, color=FAINT, label=f"documents that are not looked at: {(~inside).sum()}"
    )
    axes.scatter(
        *points[inside].T, s=9, color=SHARED, label=f"documents in the 3 lists visited: {inside.sum()}"
    )
    axes.scatter(*centres.T, marker="s", s=36, color=SET, label="centroids of the lists")
    axes.scatter(*query, marker="*", s=260, color=INK, label="the query")
    axes.set(xticks=[], yticks=[])
    axes.set_aspect("equal")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.02), ncols=2, frameon=False)
    return figure


def draw_steps() -> Any:
    """The four steps of a search by a metric, with the rules of docs/nearest.md for 340,479 documents."""
    n, n_probe, k = 340_479, 20, 10
    n_lists = round(1.75 * n**0.5)
    steps = [
        ("all documents", f"{n:,}", 1.0),
        ("1. lists: in the 20 nearest", f"about {round(n * n_probe / n_lists, -2):,.0f}", 0.66),
        ("2. codes: share enough bits", "a part of these", 0.46),
        ("3. 8 bits: the score is high enough", "fewer still", 0.32),
        ("4. vectors: compared exactly", f"{1.4 * k:.0f}", 0.2),
    ]
    figure, axes = plt.subplots(figsize=(9, 4.2), layout="constrained")
    axes.set_axis_off()
    axes.set(xlim=(-1.15, 1.55), ylim=(len(steps) - 0.4, -0.6))
    shades = mpl.colormaps["Blues"](np.linspace(0.25, 0.75, len(steps)))
    for y, ((name, count, width), shade) in enumerate(zip(steps, shades, strict=True)):
        axes.add_patch(Rectangle((-width / 2 + 0.5, y - 0.36), width, 0.72, color=shade, linewidth=0))
        axes.text(-0.08, y, name, ha="right", va="center")
        axes.text(1.07, y, count, ha="left", va="center")
    return figure


PICTURES: dict[str, Callable[[], Any]] = {
    "code.png": draw_code_of_one,
    "shared.png": draw_shared,
    "overlap-cosine.png": draw_overlap_and_cosine,
    "planes.png": draw_planes,
    "counting.png": draw_counting,
    "lists.png": draw_lists,
    "steps.png": draw_steps,
}


def write(folder: Path) -> None:
    """Draw all pictures into a folder."""
    with mpl.rc_context(STYLE):
        for name, draw in PICTURES.items():
            figure = draw()
            figure.savefig(folder / name, dpi=110, metadata={"Software": None})
            plt.close(figure)


if __name__ == "__main__":
    mpl.use("agg")
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
