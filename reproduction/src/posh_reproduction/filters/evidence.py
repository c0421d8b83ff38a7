"""The measured cells of each case from a folder of records, without the data."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

from posh_reproduction.experiments.records import Record, Records
from posh_reproduction.filters.cells import Cell
from posh_reproduction.filters.contenders import OURS, PROMISED
from posh_reproduction.filters.runner import ENLARGED

__all__ = ["ENOUGH", "CaseRecords", "Point", "Verdict", "cases_in"]

ENOUGH = round(PROMISED - 0.02, 2)
"""The recall from which a contender counts as keeping the promise: it is measured with an error."""


class Point(NamedTuple):
    """Mean recall with its standard error, and queries per second of processor time."""

    recall: float
    error: float
    rate: float
    n_passing: int


class Verdict(NamedTuple):
    """One contender in all cells: how often it finds enough, and is then faster than the index of ours."""

    lowest: float
    n_short: int
    n_faster: int
    ratio: float | None
    """The median of its rate relative to ours, over the cells in which it finds enough."""


@dataclass(frozen=True)
class CaseRecords:
    """The records of one case: a data set, a metric and a number of vectors."""

    name: str
    metric: str
    n_base: int
    builds: list[Record]
    choices: list[Record]
    points: dict[str, dict[Cell, Point]]
    """By contender, with a plus sign after the name where its parameters are enlarged."""
    rounds: int
    n_queries: int
    busy: float
    """Processor seconds in a second of search, the median: less than 1 if other work ran."""

    @property
    def cells(self) -> list[Cell]:
        """The cells in the order in which they were first measured."""
        return list(dict.fromkeys(cell for points in self.points.values() for cell in points))

    def fastest(self, cell: Cell) -> str | None:
        """The fastest contender that finds enough."""
        able = {name: own[cell].rate for name, own in self.points.items() if self._finds_enough(own, cell)}
        return max(able, key=lambda name: able[name]) if able else None

    def verdict(self, name: str) -> Verdict:
        """Judge a contender."""
        own, ours = self.points[name], self.points.get(OURS[0], {})
        enough = [cell for cell in own if own[cell].recall >= ENOUGH]
        ratios = [own[cell].rate / ours[cell].rate for cell in enough if cell in ours]
        lowest = min(point.recall for point in own.values())
        return Verdict(
            lowest,
            len(own) - len(enough),
            sum(ratio > 1 for ratio in ratios),
            median(ratios) if ratios else None,
        )

    @staticmethod
    def _finds_enough(points: dict[Cell, Point], cell: Cell) -> bool:
        return cell in points and points[cell].recall >= ENOUGH


def cases_in(folder: Path) -> list[CaseRecords]:
    """Return the cases of a folder."""
    records = Records(folder)
    by_kind = {kind: _by_case(records.every(kind)) for kind in ("build", "choice", "search")}
    found = []
    for case, own in by_kind["search"].items():
        builds, choices = (by_kind[kind].get(case, []) for kind in ("build", "choice"))
        rounds = 1 + max(record["unit"]["round"] for record in own)
        n_queries = max(record["n_queries"] for record in own)
        busy = median(record["cpu_seconds"] / record["seconds"] for record in own)
        found.append(CaseRecords(*case, builds, choices, _points(own), rounds, n_queries, busy))
    return found


def _by_case(records: list[Record]) -> dict[tuple[str, str, int], list[Record]]:
    cases: dict[tuple[str, str, int], list[Record]] = defaultdict(list)
    for record in records:
        unit = record["unit"]
        cases[unit["case"], unit["metric"], unit["n_base"]].append(record)
    return dict(cases)


def _points(records: list[Record]) -> dict[str, dict[Cell, Point]]:
    """The fastest round of each cell."""
    points: dict[str, dict[Cell, Point]] = defaultdict(dict)
    for record in records:
        unit = record["unit"]
        name = unit["contender"] + "+" * (unit["effort"] == ENLARGED)
        cell = Cell(*(unit[field] for field in Cell._fields))
        rate = record["n_queries"] / record["cpu_seconds"]
        point = Point(record["recall"], record["error"], rate, record["n_passing"])
        if cell not in points[name] or points[name][cell].rate < rate:
            points[name][cell] = point
    return dict(points)
