"""The numbers that the paper prints."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["NAMES", "Printed", "deep", "figure_3", "places205", "refinement", "tables"]

NAMES = {
    "mnist": "MNIST",
    "mnist-gist": "MNIST-GIST",
    "mnist-gist-128": "MNIST-GIST",
    "cifar10-gist": "CIFAR10-GIST",
    "mnist-gist-knnh": "MNIST-GIST",
    "cifar10-gist-knnh": "CIFAR10-GIST",
    "cifar10-vgg": "CIFAR10-VGG",
    "labelme-gist": "LabelMe-12-50K-GIST",
    "labelme-vgg": "LabelMe-12-50K-VGG",
    "places205": "Places205",
}
"""The paper's names of data sets by ours."""

TRIALS = 10


class Printed(NamedTuple):
    """A value of the paper in percent, and its standard deviation over 10 trials if it is printed."""

    mean: float
    std: float = 0.0


@cache
def tables() -> dict[str, Any]:
    """All tables as they are in the file."""
    content: dict[str, Any] = json.loads(Path(__file__).with_name("paper_tables.json").read_text())
    return content


def figure_3(data: str, method: str, size: int) -> Printed:
    """MAP@1000.

    >>> figure_3("mnist", "POSH", 64)
    Printed(mean=82.929763, std=0.235357)
    """
    return Printed(**tables()["map_at_1000_per_bits"][NAMES[data]][method][str(size)])


def deep(data: str, method: str, size: int) -> Printed | None:
    """MAP of the whole base; None where the paper has none.

    >>> deep("mnist", "POSH", 64)
    Printed(mean=50.64, std=0.0)
    """
    value = tables()["deep_comparison_map_full"][NAMES[data]][str(size)].get(method)
    return None if value is None else Printed(value)


def refinement(data: str, column: str) -> Printed:
    """MAP@100 of POSH, or of POSH refined by a factor ("CR2" …).

    >>> refinement("mnist", "CR2")
    Printed(mean=92.78, std=0.12)
    """
    return Printed(*tables()["candidate_refinement_map_at_100"][NAMES[data]][column])


def places205(measure: str, column: str, size: int) -> Printed:
    """MAP@1000 (``"map"``) or Precision@1000 (``"precision"``) on Places205.

    >>> places205("map", "POSH+CR2", 64)
    Printed(mean=33.2, std=0.0)
    """
    return Printed(tables()[f"places205_{measure}_at_1000"][str(size)][column])
