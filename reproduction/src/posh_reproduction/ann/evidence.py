"""Curves, costs and rates from a folder of records, without the data."""

from __future__ import annotations

import json
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

    @property
    def best(self) -> tuple[str, float] | None:
        """The fastest of ours, if any reaches the recall."""
        rates = {name: rate for name, rate in self.ours.items() if rate is not None}
        return max(rates.items(), key=lambda pair: pair[1]) if rates else None

    @property
    def ratio(self) -> float | None:
        """The fastest of ours relative to the fastest of the others."""
        return self.best[1] / self.peer_rate if self.best and self.peer_rate else None

    @property
    def share_of_default(self) -> float | None:
        """The default of this library relative to the fastest of ours."""
        rate = self.ours.get("posh-default")
        return rate / self.best[1] if self.best and rate else None


@dataclass(frozen=True)
class CaseRecords:
    """The records of one case: a data set, a number of vectors, a metric, and a kernel if it was limited."""

    name: str
    metric: str
    n_base: int
    kernel: str | None
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

    def index_for(self, contender: str, setting: Setting, recall: float) -> Record | None:
        """The build of the index that is fastest at a recall, or that finds most if none reaches it."""
        curve = self.curve(contender, setting)
        if not curve:
            return None
        able = [point for point in curve if point.recall >= recall]
        point = max(able, key=lambda point: point.rate) if able else max(curve, key=lambda p: p.recall)
        build = json.loads(point.key)["build"]
        own = [r for r in self.builds if r["unit"]["contender"] == contender and r["unit"]["build"] == build]
        return own[-1] if own else None

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
                builds=builds.get((*case[:3], None), []),
                choosing=[r for r in own if r["unit"]["half"] == "choose"],
                reporting=[r for r in reporting if r["identity"] == latest],
            )
        )
    return found


def _by_case(records: Iterable[Record]) -> dict[tuple[str, str, int, str | None], list[Record]]:
    cases: dict[tuple[str, str, int, str | None], list[Record]] = defaultdict(list)
    for record in records:
        unit = record["unit"]
        cases[unit["case"], unit["metric"], unit["n_base"], unit.get("kernel")].append(record)
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
