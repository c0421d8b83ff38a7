"""The records that a report is made from, by cell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from posh_reproduction.experiments.catalogue import SPECS
from posh_reproduction.experiments.records import Record, Records
from posh_reproduction.experiments.spec import Unit, seed_major
from posh_reproduction.report.estimates import Difference, Estimate, estimate, paired

__all__ = ["Cell", "Evidence", "Trials"]

Cell: TypeAlias = tuple[str, str, int]
"""Data set, method and size."""


@dataclass(frozen=True)
class Trials:
    """The trials of each cell."""

    by_cell: dict[Cell, list[Record]]

    @classmethod
    def of(cls, records: Iterable[Record]) -> Trials:
        """Sort records into cells."""
        cells: dict[Cell, list[Record]] = defaultdict(list)
        for record in records:
            unit = record["unit"]
            cells[unit["data"], unit["method"], unit["size"]].append(record)
        return cls(dict(cells))

    def of_cell(self, data: str, method: str, size: int, *, measure: str | None = None) -> list[Record]:
        """The trials of a cell, or those that have the measure."""
        found = self.by_cell.get((data, method, size), [])
        return [record for record in found if measure is None or measure in record["measures"]]

    def estimate(self, data: str, method: str, size: int, measure: str) -> Estimate | None:
        """The mean of a measure, or None without trials."""
        found = self.of_cell(data, method, size, measure=measure)
        return estimate(found, measure) if found else None

    def lead(self, data: str, methods: tuple[str, str], size: int, measure: str) -> Difference | None:
        """By how much the first method is ahead of the second, or None without trials."""
        one, other = (self.of_cell(data, method, size, measure=measure) for method in methods)
        return paired(one, other, measure)


class Evidence:
    """The records of a folder that belong to the real run or to its quick twin."""

    def __init__(self, folder: Path, *, quick: bool) -> None:
        self.quick = quick
        self._records = Records(folder)

    def units(self, name: str) -> list[Unit]:
        """The units of an experiment."""
        return seed_major(SPECS[name].units(quick=self.quick))

    def records(self, name: str) -> list[Record]:
        """Return the records of an experiment, first seed first."""
        found = (self._records.latest(unit) for unit in self.units(name))
        return [record for record in found if record is not None]

    def trials(self, name: str) -> Trials:
        """Return the trials of an experiment."""
        return Trials.of(self.records(name))
