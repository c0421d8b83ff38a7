"""The picture: queries, their neighbours, the codes behind them, and the MAP of every method.

Lengths are inches from the upper left corner. Colours are Okabe and Ito's, which everybody can tell apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from posh.datasets import Dataset
from posh_reproduction.demo.measure import DEPTH, AnyCodes, Measurement, Trial

__all__ = ["draw"]

_BLUE, _VERMILLION, _GREY, _PALE, _INK = "#0072B2", "#D55E00", "#8C8C8C", "#F2F2F2", "#222222"
_WIDTH, _HEIGHT, _DPI = 16.0, 10.9, 100
_N_ROWS, _N_NEIGHBOURS = 7, 8
_PITCH, _IMAGE = 0.94, 0.84  # 84 pixels: three for each of MNIST's
_HEADINGS, _FIRST_ROW = 1.44, 1.62
_LABEL_X, _QUERY_X, _NEIGHBOURS_X, _CODES_X = 0.35, 1.03, 2.08, 9.8
_CHART_HEADING, _CHART, _CHART_HEIGHT, _CHART_X, _CHART_WIDTH = 8.75, 8.95, 1.44, 3.1, 6.38
_RASTER, _RASTER_WIDTH, _RASTER_HEIGHT, _RASTER_PITCH = (16, 64), 2.56, 0.80, 2.66  # 4 x 5 pixels per bit


def draw(dataset: Dataset, trials: list[Trial]) -> Any:
    """Return a figure of the first trial's neighbours and codes and of every trial's MAP."""
    first = trials[0]
    figure = Figure(figsize=(_WIDTH, _HEIGHT), dpi=_DPI, facecolor="white")
    _draw_headings(figure, dataset, first)
    # The middles of equal parts of the queries in order of precision: nothing is picked by hand.
    order = np.argsort(-first.precision, kind="stable")
    for row, part in enumerate(np.array_split(order, _N_ROWS)):
        _draw_row(figure, _FIRST_ROW + row * _PITCH, int(part[len(part) // 2]), dataset, first)
    _draw_map(figure, DEPTH[dataset.name], [trial.measurement for trial in trials])
    _draw_legend(figure, with_paper=first.measurement.paper_percent is not None)
    return figure


def _draw_headings(figure: Any, dataset: Dataset, trial: Trial) -> None:
    title = f"What {trial.measurement.method} finds among {len(dataset.base):,} handwritten digits"
    explanation = (
        f"Every image is a code with {trial.measurement.code} set; its neighbours share most bits with it. "
        "Queries from easy to hard, by average precision (AP)."
    )
    nearest_x, shared_x = _CODES_X + _RASTER_PITCH, _CODES_X + 2 * _RASTER_PITCH
    _write(figure, _LABEL_X, 0.52, title, size=20, weight="bold")
    _write(figure, _LABEL_X, 0.88, explanation, size=12)
    _write(figure, _LABEL_X, _HEADINGS, "AP, %")
    _write(figure, _QUERY_X, _HEADINGS, "query", weight="bold")
    _write(figure, _NEIGHBOURS_X, _HEADINGS, "nearest neighbours", weight="bold")
    _write(figure, _NEIGHBOURS_X + 1.92, _HEADINGS, "framed: another digit", color=_VERMILLION)
    _write(figure, _CODES_X, _HEADINGS, "code of the query", weight="bold")
    _write(figure, nearest_x, _HEADINGS, "code of its nearest", weight="bold")
    _write(figure, shared_x, _HEADINGS, "shared", color=_BLUE, weight="bold")


def _draw_row(figure: Any, y: float, query: int, dataset: Dataset, trial: Trial) -> None:
    assert dataset.base_labels is not None
    assert dataset.query_labels is not None
    _write(figure, _LABEL_X, y + _IMAGE / 2, f"{100 * trial.precision[query]:.0f}", va="center", size=13)
    _draw_image(figure, _QUERY_X, y, dataset.queries[query], _INK)
    neighbours = trial.ids[query, :_N_NEIGHBOURS]
    for column, neighbour in enumerate(neighbours):
        right = dataset.base_labels[neighbour] == dataset.query_labels[query]
        frame = None if right else _VERMILLION
        _draw_image(figure, _NEIGHBOURS_X + column * _PITCH, y, dataset.base[neighbour], frame)
    _draw_codes(figure, y, trial.queries[query : query + 1], trial.base[neighbours[:1]])


def _draw_image(figure: Any, x: float, y: float, pixels: npt.NDArray[np.float32], frame: str | None) -> None:
    axes = _axes(figure, x, y, _IMAGE, _IMAGE, xticks=[], yticks=[])
    side = int(np.sqrt(len(pixels)))
    axes.imshow(pixels.reshape(side, side), cmap="gray_r", interpolation="nearest")
    for spine in axes.spines.values():
        spine.set(visible=frame is not None, color=frame or _INK, linewidth=1 if frame == _INK else 3)


def _draw_codes(figure: Any, y: float, query: AnyCodes, neighbour: AnyCodes) -> None:
    bits = [codes.to_dense()[0].astype(np.int64) for codes in (query, neighbour)]
    shared = bits[0] * bits[1]
    for column, code in enumerate(bits):
        x, top = _CODES_X + column * _RASTER_PITCH, y + (_IMAGE - _RASTER_HEIGHT) / 2
        axes = _axes(figure, x, top, _RASTER_WIDTH, _RASTER_HEIGHT, xticks=[], yticks=[])
        cells = np.array([_PALE, _GREY, _BLUE])[code + shared].reshape(_RASTER)
        axes.imshow(_rgb(cells), interpolation="nearest", aspect="auto")
    text = f"{shared.sum()}/{bits[0].sum()}"
    _write(figure, _CODES_X + 2 * _RASTER_PITCH, y + _IMAGE / 2, text, va="center", size=13, color=_BLUE)


def _rgb(colours: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    flat = [tuple(bytes.fromhex(colour[1:])) for colour in colours.ravel()]
    return np.array(flat, np.uint8).reshape(*colours.shape, 3)


def _draw_map(figure: Any, k: int, measurements: list[Measurement]) -> None:
    heading = f"MAP@{k} in percent: mean of the average precision over all queries"
    _write(figure, _LABEL_X, _CHART_HEADING, heading, weight="bold")
    axes = _axes(figure, _CHART_X, _CHART, _CHART_WIDTH, _CHART_HEIGHT, yticks=[])
    for row, measured in enumerate(measurements):
        name_y = _CHART + (row + 0.5) / len(measurements) * _CHART_HEIGHT
        _write(figure, _LABEL_X, name_y, f"{measured.method}, {measured.code}", va="center")
        mean, low, high = measured.map_percent
        y = row if measured.paper_percent is None else row - 0.2
        axes.plot([low, high], [y, y], color=_BLUE, linewidth=2.5, solid_capstyle="butt")
        _draw_mark(axes, mean, y, "o", _BLUE, right_of=high)
        if measured.paper_percent is not None:
            _draw_mark(axes, measured.paper_percent, row + 0.2, "D", _INK, right_of=measured.paper_percent)
    axes.set_ylim(len(measurements) - 0.5, -0.5)
    axes.margins(x=0.1)
    axes.locator_params(axis="x", steps=[1, 2, 5, 10])
    axes.tick_params(length=0, labelsize=11, labelcolor=_INK)
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)


def _draw_mark(axes: Any, x: float, y: float, shape: str, colour: str, right_of: float) -> None:
    face = colour if shape == "o" else "white"
    axes.plot(x, y, shape, color=colour, markerfacecolor=face, markersize=7)
    style = {"textcoords": "offset points", "va": "center", "color": colour, "size": 11}
    axes.annotate(f"{x:.1f}", (right_of, y), (8, 0), **style)


def _draw_legend(figure: Any, *, with_paper: bool) -> None:
    entries = [("■", _BLUE, "bit set in both codes"), ("■", _GREY, "bit set in one of them only")]
    entries += [("●", _BLUE, "measured here; line: 95% interval over the queries")]
    if with_paper:
        entries += [("◇", _INK, "the paper's table for MNIST, mean of 10 trials")]
    for line, (mark, colour, text) in enumerate(entries):
        y = _CHART_HEADING + 0.36 * line
        _write(figure, _CODES_X, y, mark, color=colour)
        _write(figure, _CODES_X + 0.25, y, text)


def _axes(figure: Any, x: float, y: float, width: float, height: float, **options: Any) -> Any:
    box = (x / _WIDTH, 1 - (y + height) / _HEIGHT, width / _WIDTH, height / _HEIGHT)
    axes = figure.add_axes(box, **options)
    axes.spines[:].set_visible(False)
    return axes


def _write(figure: Any, x: float, y: float, text: str, **style: Any) -> None:
    figure.text(x / _WIDTH, 1 - y / _HEIGHT, text, **({"color": _INK, "size": 11.5} | style))
