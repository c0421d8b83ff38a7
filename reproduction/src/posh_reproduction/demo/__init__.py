"""The demo: three ways to hash handwritten digits, the results of each, and a picture of them.

>>> from posh_reproduction import demo
>>> print(demo.run("digits"))  # doctest: +SKIP
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posh import datasets
from posh._durable import write_atomically
from posh.datasets import Dataset
from posh.errors import DataUnavailableError
from posh_reproduction.demo.measure import DEPTH, Measurement, contenders, measure, training
from posh_reproduction.demo.picture import draw

__all__ = ["DATA", "DemoResult", "Measurement", "run"]

DATA = tuple(DEPTH)


@dataclass(frozen=True)
class DemoResult:
    """The measurements of a demo; ``str`` makes the table. The MAP counts the first ``k`` results."""

    data: str
    n_base: int
    n_queries: int
    n_features: int
    n_train: int
    k: int
    measurements: tuple[Measurement, ...]
    picture: Path
    seconds: float

    def __str__(self) -> str:
        lines = [
            f"{self.data}: {self.n_base:,} vectors of {self.n_features} features, "
            f"{self.n_queries:,} queries, {self.n_train:,} vectors to learn from",
            "",
            f"{'method':<9} {'code':<15} {'bytes':>5} {'fit':>7} {'encode':>10} {'search':>9}   "
            f"MAP@{self.k}, %",
        ]
        lines += [str(measurement) for measurement in self.measurements]
        lines += [
            "",
            "encode: vectors/s; search: queries/s, from vectors to results; "
            "in brackets: the 95% interval over the queries",
        ]
        if any(measurement.paper_percent for measurement in self.measurements):
            lines.append("paper: the paper's table for MNIST, mean of 10 trials")
        return "\n".join([*lines, f"picture: {self.picture}", f"time: {self.seconds:.0f} s in all"])

    def to_dict(self) -> dict[str, Any]:
        """Return the same as plain values, for JSON."""
        rows = [vars(row) | {"map_percent": row.map_percent._asdict()} for row in self.measurements]
        return vars(self) | {"measurements": rows, "picture": str(self.picture)}


def run(
    data: str | None = None, output: str | os.PathLike[str] = "demo", *, say: Callable[[str], None] = print
) -> DemoResult:
    """Fit, encode and search with POSH, FruitFly and LSH; draw ``output/neighbours.png``.

    ``data`` is ``"mnist"`` or ``"digits"``; by default MNIST, and the bundled digits if MNIST cannot be
    fetched. ``say`` is called with one line of text at each step.
    """
    start = time.perf_counter()
    dataset = _load(data, say)
    picture = Path(output) / "neighbours.png"
    picture.parent.mkdir(parents=True, exist_ok=True)
    trials = []
    for hasher in contenders():
        say(f"{type(hasher).__name__}: learning, encoding, searching {dataset.name} …")
        trials.append(measure(hasher, dataset))
    figure = draw(dataset, trials)
    with write_atomically(picture) as temporary:
        figure.savefig(temporary, format="png")
    return DemoResult(
        data=dataset.name,
        n_base=len(dataset.base),
        n_queries=len(dataset.queries),
        n_features=dataset.base.shape[1],
        n_train=len(training(dataset)),
        k=DEPTH[dataset.name],
        measurements=tuple(trial.measurement for trial in trials),
        picture=picture,
        seconds=time.perf_counter() - start,
    )


def _load(name: str | None, say: Callable[[str], None]) -> Dataset:
    if name is not None and name not in DATA:
        raise ValueError(f"expected data to be one of {', '.join(DATA)}, got {name!r}")
    try:
        return datasets.load(name or "mnist")
    except DataUnavailableError:
        if name is not None:
            raise
    say("MNIST cannot be fetched here ('posh data fetch mnist' says why): the bundled digits take its place")
    return datasets.load("digits")
