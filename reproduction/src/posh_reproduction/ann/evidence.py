"""Curves, costs and rates from a folder of records, without the data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

from posh_reproduction.ann.choice import Point, rate_at
from posh_reproduction.ann.contenders import OURS
from posh_reproduction.ann.measure import Setting
from posh_reproduction.ann.plan import Plan
from posh_reproduction.experiments.records import Record, Records
from posh_reproduction.experiments.spec import key

__all__ = ["CaseRecords", "Comparison", "cases_in"]


class Comparison(NamedTuple):
    """Queries per second at one recall: ours by name, and the fastest of the others; None: not reached."""

    recall: float
    ours: dict[str, float | None]
    peer: str | None
    peer_rate: float | None


@dataclass(frozen=True)
class CaseRecords:
    """The records of one case: a data set, a number of vectors and a metric."""

    name: str
    metric: str
    n_base: int
    builds: list[Record]
    choosing: list[Record]
    reporting: list[Record]

    @property
    def settings(self) -> list[Setting]:
        """The settings that were reported, in the order of their first record."""
        return list(dict.fromkeys(_setting(record) for record in self.reporting))

    @property
    def contenders(self) -> list[str]:
        """The contenders that took part."""
        return list(dict.fromkeys(record["unit"]["contender"] for record in self.reporting))

    @property
    def rounds(self) -> int:
        """The number of rounds that were begun."""
        return 1 + max((record["unit"]["round"] for record in self.reporting), default=-1)

    def curve(self, contender: str, setting: Setting) -> list[Point]:
        """The points of the second half, in the order of their recall on the first."""
        own = [r for r in self.reporting if _setting(r) == setting and r["unit"]["contender"] == contender]
        points = _best(own)
        chosen_in = Plan.chosen_in(setting)
        before = _best(
            r for r in self.choosing if _setting(r) == chosen_in and r["unit"]["contender"] == contender
        )
        return sorted(points.values(), key=lambda point: (before[point.key].recall, -before[point.key].rate))

    def compared(self, setting: Setting, recall: float) -> Comparison:
        """Ours and the fastest of the others at a recall."""
        rates = {name: rate_at(self.curve(name, setting), recall) for name in self.contenders}
        ours = {name: rate for name, rate in rates.items() if name in OURS}
        peers = {name: rate for name, rate in rates.items() if name not in OURS and rate is not None}
        best = max(peers, key=lambda name: peers[name]) if peers else None
        return Comparison(recall, ours, best, peers[best] if best else None)

    def tried(self, contender: str, setting: Setting) -> int:
        """Return the number of parameters that were tried."""
        own = (r["unit"] for r in self.choosing if _setting(r) == setting)
        return len({_trial(unit) for unit in own if unit["contender"] == contender})

    def busy(self, contender: str, threads: int) -> float | None:
        """Seconds of CPU in a second of search, the median: more than the threads would be unfair."""
        own = [
            r["cpu_seconds"] / r["seconds"]
            for r in self.reporting
            if r["unit"]["contender"] == contender and r["unit"]["threads"] == threads
        ]
        return median(own) if own else None

    def gain_of_threads(self, contender: str, recall: float) -> float | None:
        """Return the speed of two threads relative to one, at a recall in the largest batches."""
        one = self.settings[0]
        rates = [rate_at(self.curve(contender, one._replace(threads=threads)), recall) for threads in (1, 2)]
        return rates[1] / rates[0] if rates[0] and rates[1] else None


def cases_in(folder: Path) -> list[CaseRecords]:
    """Return the cases of a folder, each with the records of its latest run."""
    records = Records(folder)
    searches, builds = _by_case(records.every("search")), _by_case(records.every("build"))
    found = []
    for case, own in searches.items():
        reporting = [r for r in own if r["unit"]["half"] == "report"]
        latest = reporting[-1]["identity"] if reporting else None
        found.append(
            CaseRecords(
                *case,
                builds=builds.get(case, []),
                choosing=[r for r in own if r["unit"]["half"] == "choose"],
                reporting=[r for r in reporting if r["identity"] == latest],
            )
        )
    return found


def _by_case(records: Iterable[Record]) -> dict[tuple[str, str, int], list[Record]]:
    cases: dict[tuple[str, str, int], list[Record]] = defaultdict(list)
    for record in records:
        unit = record["unit"]
        cases[unit["case"], unit["metric"], unit["n_base"]].append(record)
    return dict(cases)


def _best(records: Iterable[Record]) -> dict[str, Point]:
    """The fastest round of each trial."""
    best: dict[str, Point] = {}
    for record in records:
        point = Point(_trial(record["unit"]), record["recall"], record["n_queries"] / record["seconds"])
        if point.key not in best or point.rate > best[point.key].rate:
            best[point.key] = point
    return best


def _setting(record: Record) -> Setting:
    unit = record["unit"]
    return Setting(unit["k"], unit["batch"], unit["threads"])


def _trial(unit: Record) -> str:
    return key({"build": unit["build"], "search": unit["search"]})
