"""Measurements of the methods: cost and results."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from posh import metrics
from posh.codes import Codes, PackedCodes
from posh.datasets import Dataset
from posh.hashers import LSH, POSH, FruitFly, Hasher
from posh.index.codes.index import CodeIndex
from posh.metrics import Interval

__all__ = ["DEPTH", "AnyCodes", "Measurement", "Trial", "contenders", "measure", "training"]

DEPTH = {"mnist": 1000, "digits": 100}  # results per query; a class of digits has only 160 vectors

# The paper's table for MNIST: MAP@1000 in percent, mean of 10 trials, for the same codes as `contenders`.
_PAPER_TABLE_MNIST = {"POSH": 82.93, "FruitFly": 78.37, "LSH": 69.49}
_N_TRAIN = 5000

T = TypeVar("T")
AnyCodes: TypeAlias = Codes | PackedCodes


@dataclass(frozen=True)
class Measurement:
    """The cost and accuracy of one method; ``paper_percent`` is None if the paper has no such number.

    A search starts with vectors: it encodes the queries and scans the index.
    """

    method: str
    code: str
    code_bytes: int
    fit_seconds: float
    encode_per_second: float
    search_per_second: float
    map_percent: Interval
    paper_percent: float | None

    def __str__(self) -> str:
        mean, low, high = self.map_percent
        paper = "" if self.paper_percent is None else f"   paper {self.paper_percent:.2f}"
        return (
            f"{self.method:<9} {self.code:<15} {self.code_bytes:>5} {self.fit_seconds:>6.1f}s "
            f"{self.encode_per_second:>10,.0f} {self.search_per_second:>9,.0f}   "
            f"{mean:.2f} [{low:.2f}, {high:.2f}]{paper}"
        )


class Trial(NamedTuple):
    """A measurement and its raw results: ``ids`` (m, k), and the average precision of each query."""

    measurement: Measurement
    base: AnyCodes
    queries: AnyCodes
    ids: npt.NDArray[np.int64]
    precision: npt.NDArray[np.float64]


def contenders() -> tuple[Hasher[Any], ...]:
    """Return the hashers to compare; the picture is about the first."""
    return (
        POSH(n_bits=1024, n_active=64, reduce="paper", random_state=0),
        FruitFly(n_bits=1024, n_active=64, reduce="paper", random_state=0),
        LSH(n_bits=64, random_state=0),
    )


def training(dataset: Dataset) -> npt.NDArray[np.float32]:
    """Return the vectors to learn from: the first ones, a fair sample as the base is in random order."""
    return dataset.base[:_N_TRAIN]


def measure(hasher: Hasher[Any], dataset: Dataset) -> Trial:
    """Fit, encode, search with an index as users do, and count results with the label of the query."""
    assert dataset.base_labels is not None
    assert dataset.query_labels is not None
    k = DEPTH[dataset.name]
    _, fit_seconds = _timed(lambda: hasher.fit(training(dataset)))
    base, encode_seconds = _timed(lambda: hasher.encode(dataset.base))
    index = CodeIndex(hasher).add(dataset.base)
    hits, search_seconds = _timed(lambda: index.search(dataset.queries, k))
    precision = metrics.average_precision(dataset.base_labels[hits.ids], dataset.query_labels)
    sparse = isinstance(base, Codes)
    measurement = Measurement(
        method=type(hasher).__name__,
        code=f"{base.n_active} of {base.n_bits} bits" if sparse else f"{base.n_bits} bits",
        code_bytes=(base.active if sparse else base.bits)[0].nbytes,
        fit_seconds=fit_seconds,
        encode_per_second=len(base) / encode_seconds,
        search_per_second=len(dataset.queries) / search_seconds,
        map_percent=metrics.interval(100 * precision),
        paper_percent=_PAPER_TABLE_MNIST[type(hasher).__name__] if dataset.name == "mnist" else None,
    )
    return Trial(measurement, base, hasher.encode(dataset.queries), hits.ids, precision)


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start
